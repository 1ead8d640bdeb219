//! `sluice suspend` and `sluice resume`.

use anyhow::Result;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::Pipeline;
use sluice_cli::Exit;

use crate::hub::{place, running};

#[tokio::test]
async fn a_pipeline_is_suspended_and_resumed_once() -> Result<()> {
    let place = place("suspend").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.8")).await?;
    let pipelines: Api<Pipeline> = Api::namespaced(place.client.clone(), &place.namespace);
    for (command, expected, said, again) in [
        ("suspend", true, "✔ pipeline podinfo suspended\n", "✔ pipeline podinfo is suspended already\n"),
        ("resume", false, "✔ pipeline podinfo resumed\n", "✔ pipeline podinfo is not suspended already\n"),
    ] {
        let ran = place.sluice(&[command, "podinfo"]).await;
        assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, said));
        assert_eq!(pipelines.get("podinfo").await?.spec.suspend, expected);
        let ran = place.sluice(&[command, "podinfo"]).await;
        assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, again));
    }
    Ok(())
}

#[tokio::test]
async fn pipelines_are_chosen_by_name_by_label_or_all() -> Result<()> {
    let place = place("suspend-some").await?;
    for name in ["a", "b", "c"] {
        place.pipeline(name, running("6.1.8", "6.1.8")).await?;
    }
    place.label("c", "web").await?;
    let suspended = || async {
        let pipelines: Api<Pipeline> = Api::namespaced(place.client.clone(), &place.namespace);
        let all = pipelines.list(&Default::default()).await?.items;
        let names = all.into_iter().filter(|p| p.spec.suspend).filter_map(|p| p.metadata.name);
        anyhow::Ok(names.collect::<Vec<_>>())
    };
    place.sluice(&["suspend", "a", "b"]).await;
    assert_eq!(suspended().await?, ["a", "b"]);
    place.sluice(&["resume", "--all"]).await;
    assert!(suspended().await?.is_empty());
    place.sluice(&["suspend", "-l", "team=web"]).await;
    assert_eq!(suspended().await?, ["c"]);
    let ran = place.sluice(&["suspend", "-l", "team=nobody"]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::NotFound, "✗ no pipeline matches\n"));
    let ran = place.sluice(&["suspend"]).await;
    assert_eq!(ran.exit, Exit::Usage);
    Ok(())
}

#[tokio::test]
async fn a_field_that_flux_applies_from_git_is_named() -> Result<()> {
    let place = place("suspend-git").await?;
    let pipelines: Api<Pipeline> = Api::namespaced(place.client.clone(), &place.namespace);
    let mut params = PatchParams::apply("kustomize-controller");
    params.force = true;
    let applied = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
        "spec": {
            "suspend": false,
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}],
        },
    });
    pipelines.patch("podinfo", &params, &Patch::Apply(applied)).await?;
    let ran = place.sluice(&["suspend", "podinfo"]).await;
    assert_eq!(ran.exit, Exit::Ok);
    assert!(ran.err.contains("git sets spec.suspend of this Pipeline"), "{}", ran.err);
    Ok(())
}
