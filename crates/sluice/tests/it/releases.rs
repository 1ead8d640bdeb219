//! HelmReleases whose status the test writes itself, in the form of Flux, without a stand-in for Flux.

use anyhow::Result;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::json;
use sluice_testkit::Cluster;

fn resource() -> ApiResource {
    ApiResource {
        group: "helm.toolkit.fluxcd.io".into(),
        version: "v2".into(),
        api_version: "helm.toolkit.fluxcd.io/v2".into(),
        kind: "HelmRelease".into(),
        plural: "helmreleases".into(),
    }
}

/// Creates a HelmRelease in a namespace of a cluster.
pub async fn create(cluster: &Cluster, namespace: &str, name: &str, labels: serde_json::Value) -> Result<()> {
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client().await?, namespace, &resource());
    let object = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": {
            "interval": "10m",
            "chart": { "spec": { "chart": "podinfo", "sourceRef": { "kind": "HelmRepository", "name": "podinfo" } } }
        }
    });
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await?;
    Ok(())
}

/// Creates a HelmRelease that runs a version and is healthy.
pub async fn create_running(cluster: &Cluster, namespace: &str, name: &str, version: &str) -> Result<()> {
    create(cluster, namespace, name, json!({})).await?;
    runs(cluster, namespace, name, version, true).await
}

/// Reads a HelmRelease.
pub async fn get(cluster: &Cluster, namespace: &str, name: &str) -> Result<DynamicObject> {
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client().await?, namespace, &resource());
    Ok(api.get(name).await?)
}

/// Changes fields of the spec of a HelmRelease.
pub async fn change(cluster: &Cluster, namespace: &str, name: &str, spec: serde_json::Value) -> Result<()> {
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client().await?, namespace, &resource());
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
    Ok(())
}

/// Writes the status of a HelmRelease that runs a version, or has failed to upgrade to it.
pub async fn runs(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    version: &str,
    healthy: bool,
) -> Result<()> {
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client().await?, namespace, &resource());
    let generation = api.get(name).await?.metadata.generation;
    let (status, reason) = if healthy { ("True", "UpgradeSucceeded") } else { ("False", "UpgradeFailed") };
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "observedGeneration": generation,
            "message": format!("Helm upgrade of podinfo@{version}: {reason}"),
            "lastTransitionTime": "2026-11-21T10:00:00Z"
        })
    };
    let patch = json!({ "status": {
        "observedGeneration": generation,
        "lastAttemptedRevision": version,
        "conditions": [condition("Ready"), condition("Released")],
        "history": [{
            "name": name, "namespace": namespace, "version": 1, "status": if healthy { "deployed" } else { "failed" },
            "chartName": "podinfo", "chartVersion": version, "appVersion": version, "configDigest": "sha256:x",
            "digest": "sha256:x", "firstDeployed": "2026-11-21T10:00:00Z", "lastDeployed": "2026-11-21T10:00:00Z"
        }]
    }});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

/// Writes the status of a HelmRelease that Flux has given up on, with the conditions of
/// helm-controller: the cause is the message of `Ready`, and not of `Stalled`.
pub async fn gave_up_on(cluster: &Cluster, namespace: &str, name: &str, version: &str) -> Result<()> {
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client().await?, namespace, &resource());
    let generation = api.get(name).await?.metadata.generation;
    let cause = format!("Helm upgrade failed for release podinfo with chart podinfo@{version}: timed out");
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "observedGeneration": generation, "lastTransitionTime": "2026-11-21T10:00:00Z"
        })
    };
    let patch = json!({ "status": {
        "observedGeneration": generation,
        "lastAttemptedRevision": version,
        "conditions": [
            condition("Ready", "False", "UpgradeFailed", &cause),
            condition("Stalled", "True", "RetriesExceeded", "Failed to upgrade after 2 attempt(s)"),
            condition("Released", "False", "UpgradeFailed", &cause),
        ],
    }});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}
