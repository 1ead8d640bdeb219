//! `sluice retry`.

use anyhow::Result;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::Pipeline;
use sluice_cli::Exit;

use crate::hub::{TestNamespace, managers, place, running};

#[tokio::test]
async fn a_failed_promotion_is_retried() -> Result<()> {
    let place = place("retry").await?;
    place
        .promotion("podinfo-prod-1", "prod", json!({"phase": "Failed", "message": "no route to git"}))
        .await?;
    let ran = place.sluice(&["retry", "podinfo", "-e", "prod"]).await;
    assert_eq!(ran.exit, Exit::Ok);
    insta::assert_snapshot!(ran.err, @"✔ requested another try of podinfo 6.1.8 into prod");
    let promotion = place.promotions().get("podinfo-prod-1").await?;
    assert!(
        promotion.spec.retry.as_ref().is_some_and(|t| t.parse::<jiff::Timestamp>().is_ok()),
        "{promotion:?}"
    );
    assert!(managers(&promotion).contains(&"sluice-cli".to_owned()));
    Ok(())
}

#[tokio::test]
async fn a_promotion_in_progress_is_not_retried() -> Result<()> {
    let place = place("retry-not").await?;
    place.promotion("p", "prod", json!({"phase": "Proposed"})).await?;
    let ran = place.sluice(&["retry", "p"]).await;
    assert_eq!(ran.exit, Exit::Refused);
    insta::assert_snapshot!(ran.err, @"✗ podinfo 6.1.8 into prod is proposed: nothing has failed");
    assert_eq!(place.promotions().get("p").await?.spec.retry, None);
    Ok(())
}

#[tokio::test]
async fn a_running_revision_is_not_retried_and_a_suspended_pipeline_is_reported() -> Result<()> {
    let place = place("retry-runs").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.8")).await?;
    place.promotion("p", "prod", json!({"phase": "Succeeded"})).await?;
    let ran = place.sluice(&["retry", "p"]).await;
    assert_eq!(ran.exit, Exit::Refused);
    insta::assert_snapshot!(ran.err, @"✗ podinfo 6.1.8 into prod has succeeded, and prod runs it: there is nothing to retry");

    let pipelines: Api<Pipeline> = Api::namespaced(place.client.clone(), &place.namespace);
    let other = Patch::Merge(json!({"status": running("6.1.8", "6.1.6")}));
    pipelines.patch_status("podinfo", &PatchParams::default(), &other).await?;
    let suspended = Patch::Merge(json!({"spec": {"suspend": true}}));
    pipelines.patch("podinfo", &PatchParams::default(), &suspended).await?;
    let ran = place.sluice(&["retry", "p"]).await;
    assert_eq!(ran.exit, Exit::Ok);
    insta::assert_snapshot!(ran.err, @"
    ✔ requested another try of podinfo 6.1.8 into prod
    ◎ pipeline podinfo is suspended: nothing is done until it is resumed: sluice resume podinfo
    ");
    Ok(())
}

#[tokio::test]
async fn no_older_promotion_is_retried_in_place_of_one_that_succeeded() -> Result<()> {
    let place = place("retry-older").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.8")).await?;
    place.promotion("p-1", "prod", json!({"phase": "Failed"})).await?;
    place.promotion("p-2", "prod", json!({"phase": "Succeeded"})).await?;
    let ran = place.sluice(&["retry", "podinfo", "-e", "prod"]).await;
    assert_eq!(ran.exit, Exit::Refused);
    insta::assert_snapshot!(ran.err, @"✗ podinfo 6.1.8 into prod has succeeded, and prod runs it: there is nothing to retry");
    for name in ["p-1", "p-2"] {
        assert_eq!(place.promotions().get(name).await?.spec.retry, None, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn no_succeeded_promotion_is_retried_in_place_of_one_that_waits() -> Result<()> {
    let place = place("retry-waits").await?;
    place.promotion("p-1", "prod", json!({"phase": "Succeeded"})).await?;
    place.promotion("p-2", "prod", json!({"phase": "Pending"})).await?;
    let ran = place.sluice(&["retry", "podinfo", "-e", "prod"]).await;
    assert_eq!(ran.exit, Exit::Refused);
    insta::assert_snapshot!(ran.err, @"✗ podinfo 6.1.8 into prod was not tried yet: it is Pending");
    assert_eq!(place.promotions().get("p-1").await?.spec.retry, None);
    Ok(())
}

#[tokio::test]
async fn a_retried_manual_promotion_needs_a_new_approval() -> Result<()> {
    let place = place("retry-manual").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.6")).await?;
    let pipelines: Api<Pipeline> = Api::namespaced(place.client.clone(), &place.namespace);
    let manual = json!({"spec": {"promotion": {"manual": true, "strategy": {"notification": {}}}}});
    pipelines.patch("podinfo", &PatchParams::default(), &Patch::Merge(manual)).await?;
    place.promotion("p", "prod", json!({"phase": "Rejected"})).await?;
    let ran = place.sluice(&["retry", "p"]).await;
    insta::assert_snapshot!(ran.err, @"
    ✔ requested another try of podinfo 6.1.8 into prod
    ◎ it needs a new approval: sluice approve -n retry-manual p
    ");
    Ok(())
}

#[tokio::test]
async fn a_retry_request_has_a_later_time_than_the_last_one() -> Result<()> {
    let place = place("retry-ahead").await?;
    place.promotion("p", "prod", json!({"phase": "Failed", "retried": "2099-01-01T00:00:00Z"})).await?;
    let ahead = Patch::Merge(json!({"spec": {"retry": "2099-01-01T00:00:00Z"}}));
    place.promotions().patch("p", &PatchParams::default(), &ahead).await?;
    let ran = place.sluice(&["retry", "p"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    assert_eq!(place.promotions().get("p").await?.spec.retry.as_deref(), Some("2099-01-01T00:00:01Z"));
    Ok(())
}

#[tokio::test]
async fn failed_promotions_are_retried_by_pipeline_environment_and_label() -> Result<()> {
    let place = place("retry-failed").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.6")).await?;
    let waits = json!({"phase": "Promoting", "nextAttempt": "2026-11-21T10:00:00Z"});
    for (name, environment, status) in [
        ("failed", "prod", json!({"phase": "Failed"})),
        ("waits", "dev", waits),
        ("rejected", "qa", json!({"phase": "Rejected"})),
        ("runs", "staging", json!({"phase": "Succeeded"})),
    ] {
        place.promotion(name, environment, status).await?;
    }
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "web"}}}));
    place.promotions().patch("failed", &PatchParams::default(), &label).await?;
    // A later promotion without the label has replaced it.
    place.promotion("a-replaced", "late", json!({"phase": "Failed"})).await?;
    place.promotion("b-newer", "late", json!({"phase": "Succeeded"})).await?;
    place.promotions().patch("a-replaced", &PatchParams::default(), &label).await?;
    let none = "no promotion has failed or waits for its next attempt\n";
    for arguments in [&["retry", "--failed", "-e", "staging"][..], &["retry", "--failed", "-l", "team=db"]] {
        let ran = place.sluice(arguments).await;
        assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, none), "{arguments:?}");
    }
    let ran = place.sluice(&["retry", "--failed", "--pipeline", "elsewhere-absent"]).await;
    let error = "✗ there is no pipeline elsewhere-absent in namespace retry-failed; there are: podinfo\n";
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::NotFound, error));
    let ran = place.sluice(&["retry", "--failed", "-l", "team=web"]).await;
    assert_eq!((ran.exit, ran.err.lines().count()), (Exit::Ok, 1), "{ran:?}");
    let asked = async |name: &str| anyhow::Ok(place.promotions().get(name).await?.spec.retry.is_some());
    assert!(asked("failed").await? && !asked("waits").await?);
    let ran = place.sluice(&["retry", "--failed", "--pipeline", "podinfo"]).await;
    assert!(ran.exit == Exit::Ok && ran.err.contains("was requested already"), "{ran:?}");
    assert!(asked("waits").await? && !asked("rejected").await? && !asked("runs").await?);
    for arguments in [&["retry"][..], &["retry", "p", "--failed"], &["retry", "p", "-l", "a=b"]] {
        assert_eq!(place.sluice(arguments).await.exit, Exit::Usage, "{arguments:?}");
    }
    Ok(())
}

#[tokio::test]
async fn failed_promotions_of_all_namespaces_are_retried() -> Result<()> {
    let (here, there) = (place("retry-all").await?, place("retry-all-elsewhere").await?);
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "retried-everywhere"}}}));
    for place in [&here, &there] {
        place.promotion("labelled", "prod", json!({"phase": "Failed"})).await?;
        place.promotions().patch("labelled", &PatchParams::default(), &label).await?;
        place.promotion("other", "staging", json!({"phase": "Failed"})).await?;
    }
    let arguments = ["retry", "--failed", "-l", "team=retried-everywhere"];
    let asked = async |place: &TestNamespace, name: &str| {
        anyhow::Ok(place.promotions().get(name).await?.spec.retry.is_some())
    };
    let ran = here.sluice(&arguments).await;
    assert_eq!((ran.exit, ran.err.lines().count()), (Exit::Ok, 1), "{ran:?}");
    assert!(asked(&here, "labelled").await? && !asked(&there, "labelled").await?);
    let ran = here.sluice(&[&arguments[..], &["-A"]].concat()).await;
    assert_eq!((ran.exit, ran.err.lines().count()), (Exit::Ok, 2), "{ran:?}");
    assert!(asked(&there, "labelled").await?);
    assert!(!asked(&here, "other").await? && !asked(&there, "other").await?);
    Ok(())
}
