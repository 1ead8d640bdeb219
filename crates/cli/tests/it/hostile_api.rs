//! Text in an answer of the controller's API cannot control the terminal, whichever command prints it.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use axum::http::StatusCode;
use axum::{Json, Router};
use clap::CommandFactory;
use serde_json::{Value, json};
use sluice_testkit::{WAIT_TIMEOUT, eventually};

use crate::hostile::{HOSTILE, check};
use crate::hub::{Cli, TestNamespace, place, running, servers};

/// The commands that ask the API.
const COMMANDS: [&[&str]; 6] = [
    &["trace", "deployment/podinfo"],
    &["charts", "--fleet"],
    &["images", "--fleet"],
    &["clusters", "--fleet"],
    &["triggers", "podinfo"],
    &["check"],
];

/// Serves the same answer to each request. Returns the address.
async fn serve(router: Router) -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async { axum::serve(listener, router).await });
    Ok(server)
}

/// Returns a page with the text wherever the API has free text. It is an answer to each question: the fields of other
/// answers are ignored.
fn page(namespace: &str) -> Value {
    let link = json!({"object": HOSTILE, "namespace": HOSTILE, "of": HOSTILE, "health": "Failed", "message": HOSTILE,
        "revision": HOSTILE, "desired": HOSTILE, "differs": true, "wanted": format!("{HOSTILE}2"), "images": [HOSTILE],
        "content": HOSTILE, "address": HOSTILE, "follows": HOSTILE, "origin": HOSTILE, "originRevision": HOSTILE,
        "missing": HOSTILE});
    let dev = format!("{namespace}/dev");
    let row = |name: &str, cluster: &str, state: &str| {
        json!({"name": name, "version": HOSTILE, "cluster": cluster, "namespace": HOSTILE, "object": HOSTILE,
            "madeBy": HOSTILE, "health": "Failed", "outlier": true, "state": state, "message": HOSTILE, "objects": 1,
            "environment": "dev", "what": HOSTILE, "how": HOSTILE, "problem": HOSTILE})
    };
    let items = [
        row(HOSTILE, HOSTILE, "Lost"),
        row(&dev, &dev, "Partial"),
        row("ghcr.io/fluxcd/helm-controller", &dev, "Up"),
    ];
    // One command takes a sentence, the others a cluster.
    json!({"links": [link.clone(), link], "items": items, "unread": [{"cluster": HOSTILE, "why": HOSTILE}]})
}

/// Returns a namespace with a pipeline, a GitopsCluster and a user with a token, without which the API is not asked.
async fn asking(name: &str) -> Result<(TestNamespace, tempfile::TempDir)> {
    let (mut place, folder) = (place(name).await?, tempfile::tempdir()?);
    let hub = &servers().await?.hub;
    hub.install_flux_crds().await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.8")).await?;
    place.kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&place.kubeconfig, hub.service_account(name, "admin").await?)?;
    let api_group = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": format!("{api_group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": name}]}),
        json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
            "metadata": {"name": "dev", "namespace": name}, "spec": {"secretRef": {"name": "dev"}}}),
    ] {
        hub.apply_yaml(&object.to_string()).await?;
    }
    // The API server reads new permissions by a watch, a moment later.
    eventually(WAIT_TIMEOUT, || async {
        let ran = place.sluice(&["get", "pipelines"]).await;
        ensure!(ran.out.contains("podinfo"), "{ran:?}");
        Ok(())
    })
    .await?;
    Ok((place, folder))
}

#[tokio::test]
async fn no_command_lets_an_answer_of_the_api_control_the_terminal() -> Result<()> {
    let (place, _folder) = asking("hostile-api").await?;
    let mut of_triggers = page("hostile-api");
    of_triggers["unread"] = json!([HOSTILE]);
    let of_others = page("hostile-api");
    let answers = Router::new().fallback(async move |uri: axum::http::Uri| {
        Json(if uri.path().ends_with("/triggers") { of_triggers } else { of_others })
    });
    let problem = |status: StatusCode| {
        let body = json!({"status": status.as_u16(), "title": HOSTILE, "detail": HOSTILE});
        Router::new().fallback(async move || (status, Json(body)))
    };
    // The error about such an answer quotes the text that is no list.
    let unreadable = json!({"items": HOSTILE, "links": HOSTILE});
    let unreadable = Router::new().fallback(async move || Json(unreadable));
    for (answer, router) in [
        ("an answer", answers),
        ("no right", problem(StatusCode::FORBIDDEN)),
        ("not found", problem(StatusCode::NOT_FOUND)),
        ("an error", problem(StatusCode::SERVICE_UNAVAILABLE)),
        ("unreadable", unreadable),
    ] {
        let server = serve(router).await?;
        for command in COMMANDS {
            let ran = place.sluice(&[command, &["--server", &server]].concat()).await;
            let context = format!("{answer}: {command:?}: {ran:?}");
            check(&ran, 0).map_err(|e| e.context(context.clone()))?;
            // The command shows the text, without its control characters.
            ensure!(format!("{}{}", ran.out, ran.err).contains(".exe"), "{context}");
        }
    }
    Ok(())
}

/// The table above has each command with the flag `--server` that names the API.
#[test]
fn the_commands_that_ask_the_api_are_known() {
    let cli = Cli::command();
    let asks = |command: &&clap::Command| command.get_arguments().any(|one| one.get_id() == "server");
    let asking: BTreeSet<&str> = cli.get_subcommands().filter(asks).map(clap::Command::get_name).collect();
    let known: BTreeSet<&str> = COMMANDS.iter().map(|command| command[0]).collect();
    assert_eq!(asking, known);
}
