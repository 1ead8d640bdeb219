//! A watch of Deployments that lags behind: a new revision is promoted when its Deployment is healthy, not when only its
//! HelmRelease is.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_testkit::fault_injection::ApiServerProxy;

use crate::place::{TestNamespace, revision};
use crate::process::Controller;
use crate::{releases, run};

/// Creates or changes the Deployment of the HelmRelease.
async fn deploy(api: &Api<Deployment>, namespace: &str, image: &str) -> Result<()> {
    let labels =
        json!({"helm.toolkit.fluxcd.io/name": "podinfo", "helm.toolkit.fluxcd.io/namespace": namespace});
    let release =
        json!({"meta.helm.sh/release-name": "podinfo", "meta.helm.sh/release-namespace": namespace});
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": labels, "annotations": release},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pod}});
    api.patch("web", &PatchParams::apply("helm-controller").force(), &Patch::Apply(object)).await?;
    Ok(())
}

/// Writes the status of a Deployment whose pods are all available.
async fn roll_out(api: &Api<Deployment>) -> Result<()> {
    let generation = api.get("web").await?.metadata.generation;
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason});
    let status: Value = json!({"observedGeneration": generation, "replicas": 1, "updatedReplicas": 1,
    "readyReplicas": 1, "availableReplicas": 1, "conditions": [
        condition("Available", "MinimumReplicasAvailable"),
        condition("Progressing", "NewReplicaSetAvailable"),
    ]});
    api.patch_status("web", &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    Ok(())
}

/// Returns the message of the HelmRelease of dev; empty if it is Ready, or unknown.
fn message(pipeline: &Pipeline) -> String {
    let status = pipeline.status.clone().unwrap_or_default();
    let dev = status.environments.get("dev").and_then(|dev| dev.targets.first().cloned()).unwrap_or_default();
    dev.workloads.first().map(|release| release.message.clone()).unwrap_or_default()
}

#[test]
fn a_revision_is_promoted_when_its_deployment_is_healthy_although_the_watch_lags() -> Result<()> {
    run(async {
        let place = TestNamespace::new("lagging").await?;
        let (n, hub, prod) = (place.namespace.as_str(), &place.shared.hub, place.leaf("prod"));
        let deployments: Api<Deployment> = Api::namespaced(hub.client().await?, n);
        releases::create(hub, n, "podinfo", json!({})).await?;
        // Helm does not wait for the Deployment itself.
        releases::change(hub, n, "podinfo", json!({"upgrade": {"disableWait": true}})).await?;
        deploy(&deployments, n, "web:1").await?;
        roll_out(&deployments).await?;
        releases::runs(hub, n, "podinfo", "6.1.5", true).await?;
        releases::create_running(prod, n, "podinfo", "6.1.5").await?;
        place.gitops_cluster("prod", &prod.kubeconfig()).await?;
        place
            .apply(&format!(
                "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: podinfo, namespace: {n}}}\nspec:\n  \
                 appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}}\n  environments:\n  \
                 - name: dev\n    targets: [{{namespace: {n}}}]\n  \
                 - name: prod\n    targets: [{{namespace: {n}, clusterRef: {{kind: GitopsCluster, name: prod}}}}]\n  \
                 promotion: {{strategy: {{notification: {{}}}}}}\n"
            ))
            .await?;
        let proxy = ApiServerProxy::in_front_of(hub, &[])?;
        let controller = Controller::start_at(proxy.kubeconfig_path(), n, &[], &[])?;
        let ready = |p: &Pipeline| revision(p, "dev") == "6.1.5" && message(p).is_empty();
        place.until("podinfo", "dev runs 6.1.5", ready).await.with_context(|| controller.tail())?;

        proxy.hold_watches(Some("deployments"));
        deploy(&deployments, n, "web:2").await?;
        releases::runs(hub, n, "podinfo", "6.1.6", true).await?;
        let lags = |p: &Pipeline| {
            let message = message(p);
            message.contains("does not count yet") && message.contains(&format!("Deployment {n}/web"))
        };
        let what = "the status names the Deployment whose change no watch has reported";
        place.until("podinfo", what, lags).await.with_context(|| controller.tail())?;

        proxy.hold_watches(None);
        let rolls_out = |p: &Pipeline| message(p).contains("Deployment web:");
        place
            .until("podinfo", "its Deployment rolls out", rolls_out)
            .await
            .with_context(|| controller.tail())?;
        let promoted = place.promotions_into("podinfo", "prod").await?;
        ensure!(promoted.is_empty(), "nothing has proved 6.1.6 yet: {promoted:?}");
        roll_out(&deployments).await?;
        let promoted = |p: &Pipeline| revision(p, "dev") == "6.1.6" && message(p).is_empty();
        place.until("podinfo", "dev runs 6.1.6", promoted).await.with_context(|| controller.tail())?;
        sluice_testkit::eventually(crate::place::SOON, || async {
            let promoted = place.promotions_into("podinfo", "prod").await?;
            ensure!(promoted.iter().any(|p| p.starts_with("6.1.6")), "{promoted:?}");
            Ok(())
        })
        .await
    })
}
