//! The commands of the pages that change something or print objects to commit: each runs on objects that it is meant for,
//! ends well, and has its effect. The commands that only read run in the tests of the controller.

#[path = "../../../sluice/tests/support/docs.rs"]
mod docs;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::gitops_cluster::gitops_cluster_resource;
use sluice_api::{GitopsCluster, Pipeline};
use sluice_cli::Exit;
use sluice_testkit::parse_yaml;

use self::docs::{commands, pages};
use crate::add::fill_token;
use crate::hub::{TestNamespace, place, servers, sluice_as};
use crate::reconcile::{RELEASE, requested};

/// The subcommands that change something, or print objects to commit.
const ACTING: [&str; 8] = ["approve", "reject", "retry", "suspend", "resume", "reconcile", "add", "export"];
/// The promotion of the pages.
const PROMOTION: &str = "podinfo-prod-5f1c9a";

/// Returns the commands of all pages that act, with the page, each once.
fn acting() -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for path in pages()? {
        let page = std::fs::read_to_string(&path)?;
        for command in commands(&page).into_iter().filter(|command| command.is_whole_line) {
            let subcommand = command.text.split_whitespace().nth(1).unwrap_or_default();
            if ACTING.contains(&subcommand) {
                found.entry(command.text).or_insert_with(|| path.display().to_string());
            }
        }
    }
    Ok(found)
}

/// Creates what the commands of the pages are about.
async fn objects(name: &str, subcommand: &str) -> Result<TestNamespace> {
    let (place, hub) = (place(name).await?, &servers().await?.hub);
    let n = &place.namespace;
    let metadata = |name: &str| json!({"name": name, "namespace": n, "labels": {"team": "web"}});
    let commit = json!({"url": "https://git.example.com/team/fleet.git", "branch": "main"});
    let strategy = json!({"commit": commit, "secretRef": {"name": "hook"}});
    let hook = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("hook"), "stringData": {"hmac-key": "k"}});
    let cluster = json!({"kind": "GitopsCluster", "name": "eu"});
    let pipeline = |name: &str| {
        json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": metadata(name),
            "spec": {"suspend": subcommand == "resume", "promotion": {"manual": true, "strategy": strategy},
                "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": name},
                "environments": [{"name": "dev", "targets": [{"namespace": n}]},
                    {"name": "prod", "targets": [{"namespace": n, "clusterRef": cluster}]}]}})
    };
    let flux = [
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository", "metadata": metadata("charts"),
            "spec": {"url": "https://charts.example.com", "interval": "1h"}}),
        json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": metadata("podinfo"),
            "spec": {"interval": "1h", "chart": {"spec": {"chart": "podinfo", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}}}),
    ];
    hub.install_flux_crds().await?;
    for object in flux.into_iter().chain([hook, pipeline("podinfo"), pipeline("search")]) {
        hub.apply_yaml(&object.to_string()).await?;
    }
    let labels =
        json!({"pipelines.weave.works/pipeline": "podinfo", "pipelines.weave.works/environment": "prod"});
    let promotion = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
        "metadata": {"name": PROMOTION, "labels": labels},
        "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "facets": {}}});
    place.promotions().create(&PostParams::default(), &serde_json::from_value(promotion)?).await?;
    let gate = json!({"name": "Approval", "open": false, "message": "waits for approval"});
    let status = match subcommand {
        "retry" => json!({"phase": "Failed", "reason": "Timeout", "message": "it did not run in time"}),
        _ => json!({"phase": "Pending", "gates": [gate]}),
    };
    let patch = Patch::Merge(json!({"status": status}));
    place.promotions().patch_status(PROMOTION, &PatchParams::default(), &patch).await?;
    Ok(place)
}

/// Writes a kubeconfig whose current context is the hub and the namespace, and which has the context `eu`.
async fn kubeconfig(place: &TestNamespace) -> Result<tempfile::TempDir> {
    let read = |text: String| parse_yaml(&text)?.pop().context("no kubeconfig");
    let mut hub: Value = read(servers().await?.hub.kubeconfig())?;
    let mut eu: Value = read(servers().await?.bare.kubeconfig())?;
    hub["contexts"][0]["context"]["namespace"] = json!(place.namespace);
    eu["contexts"][0]["name"] = json!("eu");
    for list in ["clusters", "users", "contexts"] {
        let more = eu[list].as_array().cloned().unwrap_or_default();
        hub[list].as_array_mut().context("a list")?.extend(more);
    }
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("config"), hub.to_string())?;
    Ok(folder)
}

/// Returns the arguments of a command of a page, for a namespace. Nothing acts here, so nothing is waited for.
fn arguments(command: &str, namespace: &str, eu: &str) -> Vec<String> {
    let command =
        command.replace(" -n apps", "").replace(" -A", "").replace("https://eu.example.com:6443", eu);
    let mut words = Vec::new();
    // Texts in quotes are one word, as in a shell.
    for (n, part) in command.split('\'').enumerate() {
        match n % 2 {
            0 => words.extend(part.split_whitespace().map(String::from)),
            _ => words.push(part.to_string()),
        }
    }
    words.remove(0);
    if let Some(at) = words.iter().position(|word| word == "--wait") {
        words.remove(at);
    }
    if let Some(at) = words.iter().position(|word| word == "--timeout") {
        words.drain(at..at + 2);
    }
    words.extend(["-n".to_string(), namespace.to_string()]);
    words
}

/// Whether the command had its effect.
async fn has_acted(place: &TestNamespace, command: &str, printed: &str) -> Result<bool> {
    let subcommand = command.split_whitespace().nth(1).unwrap_or_default();
    let promotion = place.promotions().get(PROMOTION).await?;
    let pipelines: Api<Pipeline> = Api::namespaced(place.client.clone(), &place.namespace);
    let pipelines = pipelines.list(&Default::default()).await?.items;
    let clusters: Api<GitopsCluster> =
        Api::namespaced_with(place.client.clone(), &place.namespace, &gitops_cluster_resource());
    Ok(match subcommand {
        "approve" => promotion.spec.approval.is_some(),
        "reject" => promotion.spec.rejection.is_some(),
        "retry" => promotion.spec.retry.is_some(),
        "suspend" => pipelines.iter().any(|pipeline| pipeline.spec.suspend),
        "resume" => pipelines.iter().any(|pipeline| !pipeline.spec.suspend),
        "reconcile" => requested(place, RELEASE, "podinfo").await?.is_some(),
        "add" => clusters.get_opt("prod-eu").await?.is_some() == command.contains("--apply"),
        "export" => {
            let kind = if command.contains(" alert ") { "Alert" } else { "Receiver" };
            parse_yaml(printed)?.iter().any(|object| object["kind"] == kind)
        }
        other => anyhow::bail!("nothing is known of {other}"),
    })
}

#[tokio::test]
async fn the_commands_of_the_pages_that_act_have_their_effect() -> Result<()> {
    let acting = acting()?;
    ensure!(acting.len() > 20, "only {} commands were found: {acting:?}", acting.len());
    for subcommand in ACTING {
        let is_there = acting.keys().any(|command| command.starts_with(&format!("sluice {subcommand} ")));
        ensure!(is_there, "no page has a command {subcommand}");
    }
    let eu = servers().await?.bare.url();
    // The account that --export prints is made by --apply.
    let mut acting: Vec<(&String, &String)> = acting.iter().collect();
    acting.sort_by_key(|(command, _)| !command.contains("--apply"));
    for (n, (command, page)) in acting.into_iter().enumerate() {
        let subcommand = command.split_whitespace().nth(1).unwrap_or_default();
        let place = objects(&format!("acting-{n}"), subcommand).await?;
        let folder = kubeconfig(&place).await?;
        let arguments = arguments(command, &place.namespace, &eu);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let config = folder.path().join("config");
        let ran = match subcommand == "add" && command.contains("--apply") {
            // There is no controller-manager that writes the token of the account.
            true => {
                let (ran, filled) = tokio::join!(sluice_as(&config, &arguments), fill_token());
                filled?;
                ran
            }
            false => sluice_as(&config, &arguments).await,
        };
        ensure!(ran.exit == Exit::Ok, "{page}: {command}: {ran:?}");
        ensure!(has_acted(&place, command, &ran.out).await?, "{page}: {command} had no effect: {ran:?}");
    }
    Ok(())
}
