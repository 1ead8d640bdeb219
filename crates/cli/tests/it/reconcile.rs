//! `sluice reconcile`, with the definitions of Flux on a real API server.

use anyhow::{Context, Result};
use kube::Api;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;
use sluice_cli::Exit;

use crate::hub::{TestNamespace, place, servers};

const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Returns the value of the annotation.
async fn requested(place: &TestNamespace, version: &str, kind: &str, name: &str) -> Result<Option<String>> {
    let (group, version) = version.split_once('/').context("a version")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let resource = ApiResource { plural: resource.plural.replace("repositorys", "repositories"), ..resource };
    let api: Api<DynamicObject> = Api::namespaced_with(place.client.clone(), &place.namespace, &resource);
    Ok(api.get(name).await?.metadata.annotations.and_then(|all| all.get(REQUESTED_AT).cloned()))
}

/// Creates a pipeline with a target on the hub and one elsewhere, and Flux's objects of the first.
async fn objects(name: &str) -> Result<TestNamespace> {
    let place = place(name).await?;
    let hub = &servers().await?.hub;
    hub.install_flux_crds().await?;
    let metadata = |name: &str| json!({"name": name, "namespace": place.namespace});
    let target = |cluster: Option<&str>| {
        let cluster = cluster.map(|name| json!({"kind": "GitopsCluster", "name": name}));
        json!([{"namespace": place.namespace, "clusterRef": cluster}])
    };
    for object in [
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository", "metadata": metadata("charts"),
            "spec": {"url": "https://charts.example.com", "interval": "1h"}}),
        json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": metadata("podinfo"),
            "spec": {"interval": "1h", "chart": {"spec": {"chart": "podinfo", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}}}),
        json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": metadata("podinfo"),
            "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
                "environments": [{"name": "dev", "targets": target(None)}, {"name": "prod", "targets": target(Some("eu"))}]}}),
    ] {
        hub.apply_yaml(&object.to_string()).await?;
    }
    Ok(place)
}

#[tokio::test]
async fn sources_and_objects_on_the_hub_are_requested() -> Result<()> {
    let place = objects("reconcile").await?;
    let ran = place.sluice(&["reconcile", "podinfo"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Ok, ""), "{ran:?}");
    insta::assert_snapshot!(ran.err, @"
    ◎ prod is on cluster eu; run there: flux reconcile helmrelease podinfo -n reconcile --with-source
    ✔ requested: HelmRepository reconcile/charts
    ✔ requested: HelmRelease reconcile/podinfo
    ");
    let release = requested(&place, "helm.toolkit.fluxcd.io/v2", "HelmRelease", "podinfo").await?;
    let source = requested(&place, "source.toolkit.fluxcd.io/v1", "HelmRepository", "charts").await?;
    assert!(release.is_some() && release == source, "{release:?} {source:?}");

    let target = place.sluice(&["get", "targets", "podinfo", "-o", "name"]).await.out;
    let target = target.lines().next().unwrap_or_default();
    let again = place.sluice(&["reconcile", "podinfo", "-e", target]).await;
    assert_eq!(again.exit, Exit::Ok, "{again:?}");
    assert_ne!(requested(&place, "helm.toolkit.fluxcd.io/v2", "HelmRelease", "podinfo").await?, release);
    Ok(())
}

#[tokio::test]
async fn unknown_pipelines_environments_and_objects_are_reported() -> Result<()> {
    let place = objects("reconcile-not").await?;
    let ran = place.sluice(&["reconcile", "podinfo", "-e", "prod"]).await;
    assert_eq!(ran.exit, Exit::Refused, "{ran:?}");
    assert!(ran.err.contains("no object of pipeline podinfo on this cluster is known"), "{ran:?}");
    let ran = place.sluice(&["reconcile", "podinfo", "-e", "prd"]).await;
    assert!(ran.exit == Exit::NotFound && ran.err.contains("did you mean prod?"), "{ran:?}");
    let ran = place.sluice(&["reconcile", "podinf"]).await;
    assert!(ran.exit == Exit::NotFound && ran.err.contains("did you mean podinfo?"), "{ran:?}");

    let hub = &servers().await?.hub;
    let metadata = json!({"name": "podinfo", "namespace": place.namespace});
    let suspended = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": metadata,
        "spec": {"interval": "1h", "suspend": true,
            "chart": {"spec": {"chart": "podinfo", "sourceRef": {"kind": "HelmRepository", "name": "gone"}}}}});
    hub.apply_yaml(&suspended.to_string()).await?;
    let ran = place.sluice(&["reconcile", "podinfo", "-e", "dev"]).await;
    assert_eq!(ran.exit, Exit::NotFound, "{ran:?}");
    insta::assert_snapshot!(ran.err, @r#"
    ✗ HelmRepository reconcile-not/gone: it does not exist
    ✗ HelmRelease reconcile-not/podinfo: it is suspended
      kubectl patch helmrelease podinfo -n reconcile-not --type merge -p '{"spec": {"suspend": false}}'
    "#);
    Ok(())
}
