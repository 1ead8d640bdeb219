//! Text from a hostile cluster cannot control the terminal, whichever command prints it.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_cli::safe_text::is_unsafe;

use crate::hub::{Ran, place};

/// Clears the screen, moves up a line, sets the title, reverses the text, hides a letter, and forges a line.
const HOSTILE: &str =
    "failed\n\u{2714} approved\r\u{1b}[2J\u{9b}1A\u{1b}]0;x\u{7}\u{202e}gnp\u{200b}.exe\u{2028}x\u{7f}";

fn check(ran: &Ran, lines: usize) -> Result<()> {
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

#[tokio::test]
async fn no_command_lets_cluster_text_control_the_terminal() -> Result<()> {
    let place = place("hostile").await?;
    let workload = json!({"kind": "HelmRelease", "name": HOSTILE, "version": HOSTILE, "health": "Failed",
        "message": HOSTILE, "images": [HOSTILE]});
    let target = json!({"name": "dev-podinfo", "namespace": "podinfo", "health": "Failed", "error": HOSTILE,
        "revision": HOSTILE, "workloads": [workload]});
    let status = json!({
        "conditions": [{"type": "Ready", "status": "False", "reason": "X", "message": HOSTILE,
            "lastTransitionTime": "2026-11-21T10:00:00Z"}],
        "summary": {"environments": HOSTILE, "promoting": HOSTILE},
        "environments": {"dev": {"targets": [target]}},
    });
    place.pipeline("podinfo", status).await?;
    let status = json!({"phase": "Failed", "message": HOSTILE, "changeRequest": {"number": 7, "url": HOSTILE,
        "state": "open", "branch": "b", "headCommit": "c"}});
    place.promotion("podinfo-prod-1", "prod", status).await?;
    for (arguments, lines) in [
        (&["get", "pipelines", "-o", "wide"][..], 2),
        (&["get", "pipeline", "podinfo", "-o", "wide"], 2),
        // A line for each workload, one for the environment without any, the header, and the warning.
        (&["get", "targets", "podinfo", "-o", "wide"], 4),
        (&["get", "promotions", "-o", "wide"], 2),
        (&["get", "pipelines", "-o", "name"], 1),
        (&["get", "targets", "-o", "name"], 2),
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
    let ran = place.sluice(&["get", "promotions", "-o", "json"]).await;
    let data: Value = serde_json::from_str(&ran.out)?;
    assert_eq!(data["items"][0]["status"]["message"], HOSTILE, "data stays data");
    Ok(())
}
