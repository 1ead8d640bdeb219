//! Forged Promotions, on an API server without the rules and the policy that would reject them: no unverified
//! revision is delivered, and the status names the problem.

use std::net::TcpListener;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use sha2::{Digest, Sha256};
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion};
use sluice_testkit::{Cluster, ControlPlane, WAIT_TIMEOUT, eventually, install_crds};

use crate::process::Controller;
use crate::{releases, run};

const PIPELINE: &str = "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: app, namespace: apps}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: app}
  environments:
  - {name: dev, targets: [{namespace: dev}]}
  - {name: prod, targets: [{namespace: prod}]}
  promotion: {manual: true, strategy: {notification: {}}}
";

/// Starts a hub whose API server accepts every change of a Promotion. dev and prod run 1.0.0.
async fn hub(plane: &ControlPlane) -> Result<(Cluster, Client)> {
    let hub = plane.cluster("unguarded").await?;
    hub.install_flux_crds().await?;
    let mut crds = sluice_api::all_crds();
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) else {
            continue;
        };
        schema.x_kubernetes_validations = None;
        let spec = schema.properties.as_mut().and_then(|p| p.get_mut("spec")).context("a spec")?;
        spec.x_kubernetes_validations = None;
    }
    let client = hub.client().await?;
    install_crds(&client, crds).await?;
    for namespace in ["apps", "dev", "prod"] {
        hub.namespace(namespace).await?;
    }
    for namespace in ["dev", "prod"] {
        releases::create_running(&hub, namespace, "app", "1.0.0").await?;
    }
    hub.apply_yaml(PIPELINE).await?;
    Ok((hub, client))
}

/// Waits until a promotion of a revision fulfils a condition, and returns it.
async fn until(
    api: &Api<Promotion>,
    revision: &str,
    condition: impl Fn(&Promotion) -> bool,
) -> Result<Promotion> {
    eventually(WAIT_TIMEOUT, || async {
        let all = api.list(&Default::default()).await?.items;
        let found = all.iter().find(|p| p.spec.revision == revision && condition(p)).cloned();
        found.with_context(|| format!("{all:#?}"))
    })
    .await
}

/// Returns the name of the promotion of a revision into prod. An attacker can compute it, too.
fn name_of(pipeline_uid: &str, revision: &str) -> String {
    let purpose = format!("{pipeline_uid}\0prod\x000\0HelmRelease/app:chart\0{revision}\0");
    let digest = Sha256::digest(purpose.as_bytes());
    let short: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    format!("app-prod-{short}")
}

fn message(promotion: &Promotion) -> &str {
    promotion.status.as_ref().map(|s| s.message.as_str()).unwrap_or_default()
}

#[test]
fn a_changed_or_forged_promotion_is_not_delivered() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let (hub, client) = hub(&plane).await?;
        let metrics = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let controller = Controller::start(&hub, "apps", &[&format!("--metrics-addr={metrics}")])?;
        let (promotions, pipelines): (Api<Promotion>, Api<Pipeline>) =
            (Api::namespaced(client.clone(), "apps"), Api::namespaced(client, "apps"));
        let params = PatchParams::default();
        eventually(WAIT_TIMEOUT, || async {
            let status = pipelines.get("app").await?.status.unwrap_or_default();
            let seen =
                status.environments.get("prod").is_some_and(|e| e.revision.as_deref() == Some("1.0.0"));
            ensure!(seen, "{}", controller.tail());
            Ok(())
        })
        .await?;
        releases::runs(&hub, "dev", "app", "1.1.0", true).await?;
        // The API server does not check who approves, and the message says so.
        let unguarded = |p: &Promotion| {
            message(p).contains("(the API server does not check who approves: the ValidatingAdmissionPolicy")
        };
        let waiting = until(&promotions, "1.1.0", unguarded).await.with_context(|| controller.tail())?;
        let log = std::fs::read_to_string(controller.log())?;
        ensure!(log.contains("the API server does not check who approves"), "{log}");
        let metrics = reqwest::get(format!("http://{metrics}/metrics")).await?.text().await?;
        ensure!(metrics.lines().any(|line| line == "sluice_approvals_checked 0"), "{metrics}");

        // The attack names another pipeline, which does not exist.
        let name = waiting.name_any();
        promotions.patch(&name, &params, &Patch::Merge(json!({"spec": {"pipeline": "other"}}))).await?;
        let ended = until(&promotions, "1.1.0", |p| p.phase() == Phase::Failed).await?;
        ensure!(message(&ended).contains("spec.pipeline names another pipeline"), "{ended:#?}");
        promotions.delete(&name, &DeleteParams::default()).await?;
        until(&promotions, "1.1.0", unguarded).await?;

        // The attack changes the recorded revision and approves it.
        let forged = json!({"spec": {"facets": {"HelmRelease/app:chart": "6.6.6"}, "revision": "6.6.6",
            "arrival": 999_999, "approval": {"by": "eve", "revision": "6.6.6"}}});
        promotions.patch(&name, &params, &Patch::Merge(forged)).await?;
        let ended = until(&promotions, "6.6.6", |p| p.phase() == Phase::Failed).await?;
        ensure!(ended.status.as_ref().is_some_and(|s| s.reason == "Tampered"), "{ended:#?}");
        ensure!(
            message(&ended).contains("is not the revision") || message(&ended).contains("its name"),
            "{ended:#?}"
        );
        let names_the_problem = |p: &Pipeline| {
            let status = p.status.clone().unwrap_or_default();
            status
                .environments
                .get("prod")
                .is_some_and(|e| e.message.contains("is not as Sluice recorded it"))
        };
        eventually(WAIT_TIMEOUT, || async {
            let pipeline = pipelines.get("app").await?;
            ensure!(names_the_problem(&pipeline), "{:?}", pipeline.status);
            Ok(())
        })
        .await?;
        // After the forged Promotion is deleted, the due one is recorded again, and waits for an approval again.
        promotions.delete(&name, &DeleteParams::default()).await?;
        let again = until(&promotions, "1.1.0", unguarded).await?;
        ensure!(again.name_any() == name && again.spec.approval.is_none());
        ensure!(name == name_of(&pipelines.get("app").await?.uid().context("a uid")?, "1.1.0"), "{name}");

        // A forged Promotion with the right name for a revision that no target has run, with an approval.
        let pipeline = pipelines.get("app").await?;
        let name = name_of(&pipeline.uid().context("a uid")?, "6.6.6");
        let made: Promotion = serde_json::from_value(json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": name},
            "spec": {"pipeline": "app", "environment": "prod", "revision": "6.6.6",
                "facets": {"HelmRelease/app:chart": "6.6.6"},
                "arrival": 999_999, "sequence": 999_999, "approval": {"by": "eve", "revision": "6.6.6"}},
        }))?;
        promotions.create(&PostParams::default(), &made).await?;
        eventually(WAIT_TIMEOUT, || async {
            let status = pipelines.get("app").await?.status.unwrap_or_default();
            let prod = status.environments.get("prod").context("prod")?;
            ensure!(prod.message.contains("6.6.6 waits: it is not proven in dev"), "{}", prod.message);
            Ok(())
        })
        .await?;
        // The next proven revision supersedes the forged Promotion, and is delivered after its approval.
        releases::runs(&hub, "dev", "app", "1.2.0", true).await?;
        let next = until(&promotions, "1.2.0", unguarded).await?;
        let approved = json!({"spec": {"approval": {"by": "jane", "revision": "1.2.0"}}});
        promotions.patch(&next.name_any(), &params, &Patch::Merge(approved)).await?;
        let delivered = until(&promotions, "1.2.0", |p| p.phase() == Phase::Delivered).await?;
        let status = delivered.status.clone().unwrap_or_default();
        ensure!(
            status.approval.as_ref().is_some_and(|a| a.by == "jane" && a.at != Default::default()),
            "{status:#?}"
        );
        ensure!(status.gates.iter().all(|gate| gate.open), "{status:#?}");
        let forged = until(&promotions, "6.6.6", |p| p.phase() == Phase::Superseded).await?;
        ensure!(!forged.status.clone().unwrap_or_default().times.contains_key("Delivered"), "{forged:#?}");
        Ok(())
    })
}
