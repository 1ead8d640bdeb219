//! Errors of the connection to a cluster have a plain message with what to do.

use std::time::Duration;

use anyhow::{Context, Result};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use sluice_cli::Exit;
use sluice_testkit::FakeCluster;

use crate::hub::{Ran, servers, sluice_as};

async fn with(kubeconfig: &str, arguments: &[&str]) -> Result<Ran> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig)?;
    Ok(sluice_as(&path, arguments).await)
}

#[tokio::test]
async fn without_the_crds_the_error_names_the_command_that_installs_them() -> Result<()> {
    let bare = servers().await?.bare.kubeconfig();
    for arguments in [
        &["get", "pipelines"][..],
        &["get", "pipeline", "podinfo"],
        &["get", "promotions", "-A"],
        &["get", "pipelines", "-w"],
        &["approve", "podinfo"],
        &["events"],
    ] {
        let ran = with(&bare, arguments).await?;
        assert_eq!(ran.exit, Exit::Cluster, "{arguments:?} {ran:?}");
        assert!(ran.err.contains("sluice crds | kubectl apply"), "{arguments:?} {ran:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_permission_is_reported() -> Result<()> {
    let bob = servers().await?.hub.user("bob", None)?;
    let ran = with(&bob, &["get", "pipelines", "-n", "apps"]).await?;
    assert_eq!(ran.exit, Exit::Cluster);
    insta::assert_snapshot!(ran.err, @r#"
    ✗ not allowed: pipelines.pipelines.weave.works is forbidden: User "bob" cannot list resource "pipelines" in API group "pipelines.weave.works" in the namespace "apps"
      ask the cluster's administrator to allow it; kubectl auth can-i --list shows what you may do
    "#);
    Ok(())
}

#[tokio::test]
async fn a_failed_login_is_reported() -> Result<()> {
    let expired = servers().await?.hub.expired_kubeconfig()?;
    let ran = with(&expired, &["get", "pipelines"]).await?;
    assert_eq!(ran.exit, Exit::Cluster);
    insta::assert_snapshot!(ran.err, @"
    ✗ the cluster does not accept your credentials
      check the user of this context in your kubeconfig, or log in again
    ");
    let ran = with(&expired, &["approve", "podinfo"]).await?;
    assert_eq!(ran.exit, Exit::Cluster);
    Ok(())
}

#[tokio::test]
async fn an_unreachable_cluster_is_reported() -> Result<()> {
    let hub = &servers().await?.hub;
    let away = hub.kubeconfig().replace(&hub.url(), "https://127.0.0.1:1");
    for arguments in [&["get", "pipelines"][..], &["get", "targets", "-A", "-w"], &["retry", "podinfo"]] {
        let ran = with(&away, arguments).await?;
        assert_eq!(ran.exit, Exit::Cluster);
        assert!(ran.err.contains("cannot reach https://127.0.0.1:1/: Connection refused"), "{ran:?}");
    }
    Ok(())
}

#[tokio::test]
async fn invalid_names_are_not_sent_to_the_cluster() -> Result<()> {
    let hub = servers().await?.hub.kubeconfig_path();
    for (arguments, says) in [
        (&["get", "pipelines", "-n", "a/b"][..], "lower-case letters, digits and '-'"),
        (&["get", "pipelines", "-n", ""], "lower-case letters, digits and '-'"),
        (&["get", "pipelines", ""], "write the name of a pipeline"),
        (&["approve", ""], "write the name of a "),
        (&["get", "pods"], "<pipelines|promotions|targets>"),
    ] {
        let ran = sluice_as(&hub, arguments).await;
        assert_eq!(ran.exit, Exit::Usage, "{arguments:?} {ran:?}");
        assert!(ran.err.contains(says), "{arguments:?} {ran:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_wrong_command_line_is_answered_with_a_tip() -> Result<()> {
    let hub = servers().await?.hub.kubeconfig_path();
    for (arguments, tip) in [
        (&["explain", "podinfo", "prod"][..], "tip: name an environment with -e: -e prod"),
        (&["history", "podinfo", "prod"], "tip: name an environment with -e: -e prod"),
        (&["history"], "tip: sluice get pipelines lists their names"),
        (&["explain"], "tip: sluice get pipelines and sluice get promotions list their names"),
        (&["trace", "podinfo"], "sluice tree NAME shows the objects of a pipeline"),
    ] {
        let ran = sluice_as(&hub, arguments).await;
        assert_eq!(ran.exit, Exit::Usage, "{arguments:?} {ran:?}");
        assert!(ran.err.contains(tip), "{arguments:?} {ran:?}");
    }
    Ok(())
}

/// The API answers for clients that send headers; the command must say what a person does.
#[tokio::test]
async fn a_user_without_a_token_reads_what_to_do_on_the_command_line() -> Result<()> {
    let said =
        "the request has no token: send a token of the hub in the header Authorization, as Bearer <token>";
    let answer = (StatusCode::UNAUTHORIZED, Json(json!({"status": 401, "detail": said})));
    let router = Router::new().route("/api/v1/trace", get(async || answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}", listener.local_addr()?);
    let _serving = tokio::spawn(async { axum::serve(listener, router).await });
    let hub = servers().await?.hub.kubeconfig_path();
    let ran = sluice_as(&hub, &["trace", "deployment/podinfo", "--server", &server]).await;
    assert_eq!(ran.exit, Exit::Cluster, "{ran:?}");
    insta::assert_snapshot!(ran.err, @"
    ✗ your user of the kubeconfig has no token, which the controller's API needs: a client certificate signs in at the hub only
      use a context of the kubeconfig with a token, such as one of kubectl create token
    ");
    Ok(())
}

#[tokio::test]
async fn without_permission_for_all_namespaces_the_error_suggests_one() -> Result<()> {
    let eve = servers().await?.hub.user("eve", None)?;
    let ran = with(&eve, &["get", "pipelines", "-A"]).await?;
    assert_eq!(ran.exit, Exit::Cluster);
    assert!(ran.err.contains("name a namespace with -n in place of -A"), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn an_invalid_kubeconfig_is_reported_in_one_line() -> Result<()> {
    let ran = with("not: [yaml", &["get", "pipelines"]).await?;
    assert_eq!(ran.exit, Exit::Cluster);
    assert!(ran.err.starts_with("✗ the kubeconfig is not YAML: ") && ran.err.lines().count() == 2, "{ran:?}");
    Ok(())
}

/// The client of kube repeats a request after 429, 503 and 504 for minutes by default.
#[tokio::test]
async fn the_first_answer_of_the_controllers_api_is_reported() -> Result<()> {
    let why = "cluster apps/live cannot be read: connection refused";
    let answer = (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": 503, "detail": why})));
    let router = Router::new().route("/api/v1/trace", get(async || answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}", listener.local_addr()?);
    let _serving = tokio::spawn(async { axum::serve(listener, router).await });
    let hub = FakeCluster::start("asked", Router::new())?;
    let question = ["trace", "deployment/podinfo", "--on", "apps/live", "--server", &server];
    let asked = tokio::time::timeout(Duration::from_secs(10), with(hub.kubeconfig(), &question));
    let ran = asked.await.context("there is no answer within 10 seconds")??;
    assert_eq!(ran.exit, Exit::Cluster, "{ran:?}");
    assert_eq!(ran.err, format!("✗ the controller's API at {server}/: {why}\n"));
    Ok(())
}

/// A proxy in front of the API server may drop the headers of a WebSocket. The API server then answers as in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go>.
#[tokio::test]
async fn a_hub_without_websockets_is_reported_with_another_way() -> Result<()> {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let pod = json!({"metadata": {"name": "sluice-0"}, "status": {"conditions": ready}});
    let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod]});
    let refusal = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 400,
        "message": "Upgrade request required", "reason": "BadRequest"});
    let folder = "/api/v1/namespaces/sluice-system/pods";
    let forward = format!("{folder}/sluice-0/portforward");
    for (answer, says) in [
        ((StatusCode::BAD_REQUEST, Json(refusal)), "Upgrade request required"),
        ((StatusCode::OK, Json(json!("hello"))), "failed to switch protocol: 200 OK"),
    ] {
        let pods = pods.clone();
        let router =
            Router::new().route(folder, get(async || Json(pods))).route(&forward, get(async || answer));
        let hub = FakeCluster::start("proxied", router)?;
        let ran = with(hub.kubeconfig(), &["trace", "deployment/podinfo"]).await?;
        assert_eq!(ran.exit, Exit::Cluster, "{ran:?}");
        let first = "✗ cannot forward a port to pod sluice-system/sluice-0 of the controller: ";
        assert!(ran.err.starts_with(first) && ran.err.contains(says), "{ran:?}");
        let hint =
            "if kubectl port-forward -n sluice-system sluice-0 8083 works in another terminal, add --server";
        assert!(ran.err.contains(hint), "{ran:?}");
    }
    Ok(())
}
