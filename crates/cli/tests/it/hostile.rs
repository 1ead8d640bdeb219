//! Text from a hostile cluster cannot control the terminal, whichever command prints it.

use anyhow::{Context, Result, ensure};
use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};
use sluice_cli::Exit;
use sluice_cli::safe_text::is_unsafe;

use crate::hub::{Ran, TestNamespace, place, servers};

/// Clears the screen, moves up a line, sets the title, reverses the text, hides a letter, and forges a line.
pub const HOSTILE: &str =
    "failed\n\u{2714} approved\r\u{1b}[2J\u{9b}1A\u{1b}]0;x\u{7}\u{202e}gnp\u{200b}.exe\u{2028}x\u{7f}";

/// Checks that a command has printed no character that controls a terminal, and no forged line; and how many lines it has
/// printed, unless `lines` is 0.
pub fn check(ran: &Ran, lines: usize) -> Result<()> {
    for text in [&ran.out, &ran.err] {
        let found = text.chars().find(|c| *c != '\n' && is_unsafe(*c));
        ensure!(found.is_none(), "{found:?} in {text:?}");
        let forged = text.lines().any(|line| line.trim_start().starts_with("✔ approved"));
        ensure!(!forged, "{text}");
    }
    let found = ran.out.lines().count() + ran.err.lines().count();
    ensure!(lines == 0 || found == lines, "{found} lines, not {lines}: {ran:?}");
    Ok(())
}

/// Creates a pipeline and a promotion with the text wherever they have free text.
async fn hostile_records(place: &TestNamespace) -> Result<()> {
    let workload = json!({"kind": "HelmRelease", "name": HOSTILE, "version": HOSTILE, "health": "Failed",
        "message": HOSTILE, "images": [HOSTILE]});
    let target = json!({"name": "dev-podinfo", "namespace": "podinfo", "health": "Failed", "error": HOSTILE,
        "revision": HOSTILE, "workloads": [workload]});
    let status = json!({
        "conditions": [{"type": "Ready", "status": "False", "reason": "X", "message": HOSTILE,
            "lastTransitionTime": "2026-11-21T10:00:00Z"}],
        "summary": {"environments": HOSTILE, "promoting": HOSTILE},
        "environments": {"dev": {"revision": HOSTILE, "message": HOSTILE, "targets": [target]}},
    });
    place.pipeline("podinfo", status).await?;
    let status = json!({"phase": "Failed", "message": HOSTILE, "times": {"Failed": "2026-11-21T10:00:00Z"}, "changeRequest": {"number": 7, "url": HOSTILE,
        "state": "open", "branch": "b", "headCommit": "c"}});
    place.promotion("podinfo-prod-1", "prod", status).await
}

/// Creates objects of Flux, a GitopsCluster and an event with the text wherever they have free text.
async fn hostile_objects(place: &TestNamespace) -> Result<()> {
    servers().await?.hub.install_flux_crds().await?;
    let git = json!({"kind": "GitRepository", "name": "fleet"});
    for (api, kind, plural, name, fields) in [
        (
            "apis/source.toolkit.fluxcd.io/v1",
            "GitRepository",
            "gitrepositories",
            "fleet",
            json!({"spec": {"url": "https://git.example.com/fleet", "interval": "1h", "ref": {"branch": HOSTILE}}}),
        ),
        (
            "apis/kustomize.toolkit.fluxcd.io/v1",
            "Kustomization",
            "kustomizations",
            "podinfo",
            json!({"spec": {"interval": "1h", "path": HOSTILE, "prune": true, "sourceRef": git}}),
        ),
        (
            "apis/pipelines.weave.works/v1alpha1",
            "Pipeline",
            "pipelines",
            "applied",
            json!({"spec": {"appRef": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "name": "podinfo"}, "environments": [{"name": "dev", "targets": [{"namespace": place.namespace}]}]}}),
        ),
        (
            "apis/gitops.weave.works/v1alpha1",
            "GitopsCluster",
            "gitopsclusters",
            "dev",
            json!({"spec": {"secretRef": {"name": HOSTILE}}}),
        ),
        (
            "api/v1",
            "Event",
            "events",
            "podinfo.1",
            json!({"type": "Warning", "reason": HOSTILE, "message": HOSTILE, "lastTimestamp": "2026-11-21T12:00:00Z",
                "involvedObject": {"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
                    "name": "podinfo", "namespace": place.namespace}}),
        ),
    ] {
        let version = api.split_once('/').map(|(_, version)| version);
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        object.as_object_mut().context("an object")?.extend(fields.as_object().context("fields")?.clone());
        let all = Request::new(format!("/{api}/namespaces/{}/{plural}", place.namespace));
        let create = all.create(&PostParams::default(), serde_json::to_vec(&object)?)?;
        place.client.request::<Value>(create).await.context(kind)?;
    }
    Ok(())
}

#[tokio::test]
async fn no_command_lets_cluster_text_control_the_terminal() -> Result<()> {
    let place = place("hostile").await?;
    hostile_records(&place).await?;
    hostile_objects(&place).await?;
    for (arguments, lines) in [
        (&["get", "pipelines", "-o", "wide"][..], 3),
        (&["get", "pipeline", "podinfo", "-o", "wide"], 2),
        // A line for each workload, one for the environment without any, the header, and the warning.
        (&["get", "targets", "podinfo", "-o", "wide"], 4),
        (&["get", "promotions", "-o", "wide"], 2),
        (&["get", "pipelines", "-o", "name"], 2),
        (&["get", "targets", "podinfo", "-o", "name"], 2),
        (&["get", "pipelines", "-o", "json"], 0),
        (&["get", "pipelines", "-o", "yaml"], 0),
        (&["get", "targets", "-o", "json"], 0),
        (&["get", "promotions", "-o", "yaml"], 0),
        // The message of the promotion, and the hint.
        (&["approve", "podinfo-prod-1"], 2),
        (&["approve", "podinfo", "-e", "prod"], 2),
    ] {
        let ran = place.sluice(arguments).await;
        check(&ran, lines).map_err(|e| e.context(format!("{arguments:?}")))?;
    }
    for arguments in [
        &["status", "podinfo"][..],
        &["explain", "podinfo"],
        &["explain", "podinfo-prod-1"],
        &["history", "podinfo"],
        &["events", "podinfo"],
        &["tree", "podinfo"],
        &["charts"],
        &["images"],
        &["triggers", "applied"],
        &["clusters"],
    ] {
        let ran = place.sluice(arguments).await;
        check(&ran, 0).map_err(|e| e.context(format!("{arguments:?}")))?;
        // The command shows the text, without its control characters.
        ensure!(ran.exit == Exit::Ok && ran.out.contains(".exe"), "{arguments:?}: {ran:?}");
    }
    let ran = place.sluice(&["get", "promotions", "-o", "json"]).await;
    let data: Value = serde_json::from_str(&ran.out)?;
    assert_eq!(data["items"][0]["status"]["message"], HOSTILE, "data stays data");
    Ok(())
}
