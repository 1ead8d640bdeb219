//! `sluice triggers`, with the definitions of Flux on a real API server.

use anyhow::Result;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use sluice_cli::Exit;

use crate::hub::{place, running, servers};

#[tokio::test]
async fn the_triggers_of_a_pipeline_are_read_from_flux() -> Result<()> {
    let place = place("triggers").await?;
    let hub = &servers().await?.hub;
    hub.install_flux_crds().await?;
    let metadata = |name: &str| json!({"name": name, "namespace": place.namespace});
    let git = json!({"kind": "GitRepository", "name": "fleet"});
    for object in [
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": metadata("fleet"),
            "spec": {"url": "https://git.example.com/fleet", "interval": "1h", "ref": {"branch": "main"}}}),
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": metadata("podinfo"),
            "spec": {"interval": "1h", "path": "./dev", "prune": true, "sourceRef": git}}),
        json!({"apiVersion": "image.toolkit.fluxcd.io/v1", "kind": "ImageUpdateAutomation", "metadata": metadata("images"),
            "spec": {"interval": "1h", "sourceRef": git, "git": {"commit": {"author": {"email": "flux@example.com"}}},
                "update": {"path": "./dev"}}}),
        json!({"apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver", "metadata": metadata("github"),
            "spec": {"type": "github", "secretRef": {"name": "token"}, "resources": [git]}}),
        json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": metadata("podinfo"),
            "spec": {"appRef": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "podinfo"},
                "environments": [{"name": "dev", "targets": [{"namespace": place.namespace}]}]}}),
    ] {
        hub.apply_yaml(&object.to_string()).await?;
    }
    let ran = place.sluice(&["triggers", "podinfo"]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, ""), "{ran:?}");
    insta::assert_snapshot!(ran.out, @"
    dev
      Kustomization triggers/podinfo
        applies what GitRepository triggers/fleet (branch main of https://git.example.com/fleet) has in dev
      ImageUpdateAutomation triggers/images
        writes new images into the files of GitRepository triggers/fleet in dev
      Receiver triggers/github
        a webhook of github makes Flux look at GitRepository triggers/fleet immediately (kubectl get receiver github -n triggers shows its path)
    ");
    let data = place.sluice(&["triggers", "podinfo", "-o", "json"]).await;
    let data: serde_json::Value = serde_json::from_str(&data.out)?;
    assert_eq!(
        (&data["kind"], &data["view"][0]["environment"]),
        (&json!("Triggers"), &json!("dev")),
        "{data}"
    );
    Ok(())
}

/// The objects of other clusters are known to the controller only.
#[tokio::test]
async fn the_controller_is_asked_about_targets_on_other_clusters() -> Result<()> {
    let place = place("triggers-asked").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.8")).await?;
    let item = json!({"environment": "dev", "cluster": "triggers-asked/dev", "what": "HelmRelease podinfo/podinfo",
        "how": "takes the newest chart podinfo in 6.x of HelmRepository podinfo/podinfo"});
    let answer = json!({"items": [item], "unread": ["of the objects on the hub, only those that you may get are shown"]});
    let route = "/api/v1/pipelines/triggers-asked/podinfo/triggers";
    let router = Router::new().route(route, get(async || Json(answer)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}", listener.local_addr()?);
    let _serving = tokio::spawn(async { axum::serve(listener, router).await });
    let ran = place.sluice(&["triggers", "podinfo", "--server", &server]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    insta::assert_snapshot!(ran.out, @"
    dev
      HelmRelease podinfo/podinfo on triggers-asked/dev
        takes the newest chart podinfo in 6.x of HelmRepository podinfo/podinfo
    ");
    assert_eq!(ran.err, "of the objects on the hub, only those that you may get are shown\n");

    let ran = place.sluice(&["triggers", "podinfo", "--server", "http://127.0.0.1:1"]).await;
    assert!(ran.exit == Exit::Ok && ran.out.contains("cluster triggers-asked/dev"), "{ran:?}");
    let note = "what starts it on other clusters is not shown: the controller's API at http://127.0.0.1:1/: cannot be reached\n  check";
    assert!(ran.err.starts_with(note), "{}", ran.err);
    Ok(())
}
