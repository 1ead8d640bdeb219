//! Unreadable objects, as a later version of Sluice may store them: commands warn about them, and fail only if one of them
//! is, or may be, the requested object.

use anyhow::{Result, ensure};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_cli::Exit;
use sluice_testkit::{Cluster, ControlPlane, WAIT_TIMEOUT, eventually};

use crate::hub::{TestNamespace, place_on, running};

/// Writes a value into an object that this version cannot read.
async fn spoil<K: Resource<DynamicType = ()>>(place: &TestNamespace, name: &str, patch: Value) -> Result<()> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(place.client.clone(), &place.namespace, &ApiResource::erase::<K>(&()));
    let params = PatchParams::default();
    match patch.get("status") {
        Some(_) => api.patch_status(name, &params, &Patch::Merge(patch)).await?,
        None => api.patch(name, &params, &Patch::Merge(patch)).await?,
    };
    Ok(())
}

async fn unreadable(place: &TestNamespace, name: &str, environment: &str) -> Result<()> {
    place.promotion(name, environment, json!({"phase": "Failed"})).await?;
    spoil::<Promotion>(place, name, json!({"status": {"phase": "Splendid"}})).await
}

fn waits() -> Value {
    json!({"phase": "Pending", "gates": [{"name": "Approval", "open": false}]})
}

async fn is_approved(place: &TestNamespace, name: &str) -> Result<bool> {
    Ok(place.promotions().get(name).await?.spec.approval.is_some())
}

/// Waits until the next object has a later creation time, which is in seconds.
async fn next_second(place: &TestNamespace, name: &str) -> Result<()> {
    let made = place.promotions().get_metadata(name).await?.creation_timestamp();
    let made = made.map(|time| time.0.as_second()).unwrap_or_default();
    eventually(WAIT_TIMEOUT, || async {
        ensure!(Timestamp::now().as_second() > made);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn unreadable_objects_do_not_prevent_other_commands() -> Result<()> {
    let hub = ControlPlane::start().await?.cluster("later").await?;
    hub.install_later_sluice_crds().await?;
    elsewhere(&hub).await?;
    in_the_same_place(&hub).await?;
    all_that_failed(&hub).await?;
    pipelines(&hub).await
}

async fn elsewhere(hub: &Cluster) -> Result<()> {
    let place = place_on(hub, "elsewhere").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.6")).await?;
    unreadable(&place, "odd", "dev").await?;
    place.promotion("p", "prod", waits()).await?;
    let ran = place.sluice(&["approve", "podinfo", "-e", "prod"]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, "✔ approved podinfo 6.1.8 into prod (as admin)\n"));
    // Without the environment it may be the requested promotion, unless it has another revision.
    let ran = place.sluice(&["reject", "podinfo", "--revision", "6.1.8", "--reason", "no"]).await;
    assert!(
        ran.exit == Exit::Error && ran.err.contains("promotion elsewhere/odd cannot be read: "),
        "{ran:?}"
    );
    for arguments in [&["approve", "odd"][..], &["retry", "odd"], &["approve", "podinfo", "-e", "dev"]] {
        let ran = place.sluice(arguments).await;
        assert!(
            ran.exit == Exit::Error
                && ran
                    .err
                    .starts_with("✗ promotion elsewhere/odd cannot be read: unknown variant `Splendid`")
                && ran.err.contains("\n  another version of Sluice may have written it: compare"),
            "{arguments:?}: {ran:?}"
        );
    }
    Ok(())
}

async fn in_the_same_place(hub: &Cluster) -> Result<()> {
    let place = place_on(hub, "same-place").await?;
    unreadable(&place, "earlier", "prod").await?;
    next_second(&place, "earlier").await?;
    place.promotion("p", "prod", waits()).await?;
    let ran = place.sluice(&["approve", "podinfo", "-e", "prod"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    let lines: Vec<&str> = ran.err.lines().collect();
    assert!(lines[0].starts_with("✗ promotion same-place/earlier cannot be read: "), "{ran:?}");
    assert_eq!(lines[2], "✔ approved podinfo 6.1.8 into prod (as admin)", "{ran:?}");

    // A later promotion may have replaced the earlier one, so the earlier one must not be approved.
    place.promotion("q", "staging", waits()).await?;
    next_second(&place, "q").await?;
    unreadable(&place, "later", "staging").await?;
    let ran = place.sluice(&["approve", "podinfo", "-e", "staging"]).await;
    assert!(ran.exit == Exit::Error && ran.err.contains("same-place/later cannot be read"), "{ran:?}");
    assert!(ran.err.contains("to use q, write its name") && !is_approved(&place, "q").await?, "{ran:?}");
    let ran = place.sluice(&["approve", "q"]).await;
    assert!(ran.exit == Exit::Ok && is_approved(&place, "q").await?, "{ran:?}");
    Ok(())
}

async fn all_that_failed(hub: &Cluster) -> Result<()> {
    let place = place_on(hub, "failed").await?;
    for (name, environment) in [("a", "dev"), ("b", "prod")] {
        place.promotion(name, environment, json!({"phase": "Failed"})).await?;
    }
    unreadable(&place, "c", "dev").await?;
    let ran = place.sluice(&["retry", "--failed"]).await;
    assert_eq!(ran.exit, Exit::Refused, "{ran:?}");
    assert!(ran.err.contains("✗ promotion failed/c cannot be read: "), "{ran:?}");
    assert!(
        ran.err.contains("✗ podinfo 6.1.8 into dev: c may have replaced it, and cannot be read"),
        "{ran:?}"
    );
    let asked = async |name: &str| anyhow::Ok(place.promotions().get(name).await?.spec.retry.is_some());
    assert!(asked("b").await? && !asked("a").await?);
    let ran = place.sluice(&["retry", "--failed", "-l", "team=web"]).await;
    assert_eq!(
        (ran.exit, ran.err.as_str()),
        (Exit::Ok, "no promotion has failed or waits for its next attempt\n")
    );
    Ok(())
}

async fn pipelines(hub: &Cluster) -> Result<()> {
    let place = place_on(hub, "pipelines").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.8")).await?;
    place.promotion("p", "prod", json!({"phase": "Succeeded"})).await?;
    let odd = json!({"status": {"environments": {"dev": {"health": "Splendid"}}}});
    spoil::<Pipeline>(&place, "podinfo", odd).await?;
    let ran = place.sluice(&["retry", "p"]).await;
    assert!(
        ran.exit == Exit::Refused && ran.err.contains("prod runs it: there is nothing to retry"),
        "{ran:?}"
    );

    place.pipeline("odd", json!({})).await?;
    let targets = json!([{"namespace": "podinfo", "observe": "Pull"}]);
    let odd = json!({"spec": {"environments": [{"name": "dev", "targets": targets}]}});
    spoil::<Pipeline>(&place, "odd", odd).await?;
    for arguments in [
        &["export", "alert", "odd", "--address", "https://sluice.example.com"][..],
        &["get", "promotions", "--pipeline", "odd"],
    ] {
        let ran = place.sluice(arguments).await;
        assert!(
            ran.exit == Exit::Error && ran.err.starts_with("✗ pipeline pipelines/odd cannot be read: "),
            "{arguments:?}: {ran:?}"
        );
    }
    Ok(())
}
