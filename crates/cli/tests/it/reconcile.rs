//! `sluice reconcile`, with the definitions of Flux on a real API server.

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;
use sluice_cli::Exit;
use sluice_testkit::{WAIT_TIMEOUT, eventually};

use crate::hub::{TestNamespace, place, servers};

const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// The kinds of these tests, with their API versions.
const SOURCE: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "HelmRepository");
pub const RELEASE: (&str, &str) = ("helm.toolkit.fluxcd.io/v2", "HelmRelease");

fn api(place: &TestNamespace, (version, kind): (&str, &str)) -> Result<Api<DynamicObject>> {
    let (group, version) = version.split_once('/').context("a version")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let resource = ApiResource { plural: resource.plural.replace("repositorys", "repositories"), ..resource };
    Ok(Api::namespaced_with(place.client.clone(), &place.namespace, &resource))
}

/// Returns the value of the annotation.
pub async fn requested(place: &TestNamespace, kind: (&str, &str), name: &str) -> Result<Option<String>> {
    let object = api(place, kind)?.get(name).await?;
    Ok(object.metadata.annotations.and_then(|all| all.get(REQUESTED_AT).cloned()))
}

/// Waits until an object is requested, and writes the status that Flux writes at the end of a reconciliation. Returns the
/// token of the request.
async fn reconcile(
    place: &TestNamespace,
    kind: (&str, &str),
    name: &str,
    ready: (&str, &str),
) -> Result<String> {
    let token =
        eventually(WAIT_TIMEOUT, || async { requested(place, kind, name).await?.context("no request") })
            .await?;
    let condition = json!({"type": "Ready", "status": ready.0, "reason": "Reconciled", "message": ready.1,
        "lastTransitionTime": "2026-11-21T10:00:00Z"});
    let status = json!({"status": {"conditions": [condition], "lastHandledReconcileAt": token}});
    api(place, kind)?.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(token)
}

/// Creates a pipeline with a target on the hub and one elsewhere, and Flux's objects of the first.
pub async fn objects(name: &str) -> Result<TestNamespace> {
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
    let release = requested(&place, RELEASE, "podinfo").await?;
    let source = requested(&place, SOURCE, "charts").await?;
    assert!(release.is_some() && release == source, "{release:?} {source:?}");

    let target = place.sluice(&["get", "targets", "podinfo", "-o", "name"]).await.out;
    let target = target.lines().next().unwrap_or_default();
    let again = place.sluice(&["reconcile", "podinfo", "-e", target]).await;
    assert_eq!(again.exit, Exit::Ok, "{again:?}");
    assert_ne!(requested(&place, RELEASE, "podinfo").await?, release);
    Ok(())
}

#[tokio::test]
async fn the_source_that_sluice_commits_to_is_fetched_also_for_targets_elsewhere() -> Result<()> {
    let place = place("reconcile-git").await?;
    let hub = &servers().await?.hub;
    hub.install_flux_crds().await?;
    let metadata = |name: &str| json!({"name": name, "namespace": place.namespace});
    let repository = |name: &str, url: &str, branch: &str, suspend: bool| {
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": metadata(name),
            "spec": {"url": url, "interval": "1h", "suspend": suspend, "ref": {"branch": branch}}})
    };
    let commit =
        json!({"commit": {"url": "https://git.example.com/team/reconcile-git.git", "branch": "main"}});
    let target = json!({"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": "eu"}});
    for object in [
        // The same repository over SSH.
        repository("fleet", "ssh://git@git.example.com/team/reconcile-git", "main", false),
        repository("other-branch", "https://git.example.com/team/reconcile-git", "next", false),
        repository("other", "https://git.example.com/team/other", "main", false),
        repository("suspended", "https://git.example.com/team/reconcile-git", "main", true),
        json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": metadata("podinfo"),
            "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
                "environments": [{"name": "dev", "targets": [target]},
                    {"name": "prod", "targets": [target], "promotion": {"strategy": commit}}]}}),
    ] {
        hub.apply_yaml(&object.to_string()).await?;
    }
    let ran = place.sluice(&["reconcile", "podinfo", "-e", "prod"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    insta::assert_snapshot!(ran.err, @"
    ◎ prod is on cluster eu; run there: flux reconcile helmrelease podinfo -n podinfo --with-source
    ✔ requested: GitRepository reconcile-git/fleet
    ");
    let source = ("source.toolkit.fluxcd.io/v1", "GitRepository");
    assert!(requested(&place, source, "fleet").await?.is_some());
    for other in ["other-branch", "other", "suspended"] {
        assert_eq!(requested(&place, source, other).await?, None, "{other}");
    }
    // Sluice commits nothing for dev.
    let ran = place.sluice(&["reconcile", "podinfo", "-e", "dev"]).await;
    assert_eq!(ran.exit, Exit::Refused, "{ran:?}");
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

#[tokio::test]
async fn with_wait_an_object_is_requested_after_its_source_was_reconciled() -> Result<()> {
    let place = objects("reconcile-wait").await?;
    let command = ["reconcile", "podinfo", "-e", "dev", "--wait"];
    let flux = async {
        eventually(WAIT_TIMEOUT, || async {
            requested(&place, SOURCE, "charts").await?.context("no request")
        })
        .await?;
        ensure!(requested(&place, RELEASE, "podinfo").await?.is_none(), "it does not wait for the source");
        let token = reconcile(&place, SOURCE, "charts", ("True", "stored artifact")).await?;
        let same = reconcile(&place, RELEASE, "podinfo", ("True", "Helm upgrade succeeded")).await?;
        ensure!(token == same, "{token} {same}");
        Ok(())
    };
    let (ran, reconciled) = tokio::join!(place.sluice(&command), flux);
    reconciled?;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    insta::assert_snapshot!(ran.err, @"
    ✔ requested: HelmRepository reconcile-wait/charts
    ✔ reconciled: HelmRepository reconcile-wait/charts
    ✔ requested: HelmRelease reconcile-wait/podinfo
    ✔ reconciled: HelmRelease reconcile-wait/podinfo
    ");
    Ok(())
}

#[tokio::test]
async fn a_failed_reconciliation_and_the_end_of_the_time_have_their_exit_codes() -> Result<()> {
    let place = objects("reconcile-fail").await?;
    let command = ["reconcile", "podinfo", "-e", "dev", "--wait"];
    let flux = async {
        reconcile(&place, SOURCE, "charts", ("True", "stored artifact")).await?;
        reconcile(&place, RELEASE, "podinfo", ("False", "Helm upgrade failed: timed out")).await
    };
    let (ran, reconciled) = tokio::join!(place.sluice(&command), flux);
    reconciled?;
    assert_eq!(ran.exit, Exit::Ended, "{ran:?}");
    let failed =
        "✗ HelmRelease reconcile-fail/podinfo: Flux could not reconcile it: Helm upgrade failed: timed out\n";
    assert!(ran.err.ends_with(failed), "{ran:?}");

    // The status is about the request before.
    let ran = place.sluice(&[&command[..], &["--timeout", "1s"]].concat()).await;
    assert_eq!(ran.exit, Exit::TimedOut, "{ran:?}");
    insta::assert_snapshot!(ran.err, @"
    ✔ requested: HelmRepository reconcile-fail/charts
    ✗ HelmRepository reconcile-fail/charts: the time is up after 1s: Flux has not reconciled it yet
      Flux continues; see how far it is: kubectl get helmrepository charts -n reconcile-fail
    ✔ requested: HelmRelease reconcile-fail/podinfo
    ✗ HelmRelease reconcile-fail/podinfo: the time is up after 1s: Flux has not reconciled it yet
      Flux continues; see how far it is: kubectl get helmrelease podinfo -n reconcile-fail
    ");
    Ok(())
}
