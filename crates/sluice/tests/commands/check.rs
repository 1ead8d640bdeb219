//! `sluice check` and the check of the API find the same about the installation, each with the rights of its caller.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cases::CASES;
use crate::fixture::{ADMIN, NOBODY, Place};
use crate::run;

/// The topics that both look at in full.
const TOPICS: [&str; 4] = ["definitions", "hooks", "rights", "pipelines"];

/// Returns the findings about these topics.
fn findings(report: &Value) -> Result<BTreeSet<String>> {
    let all = report["findings"].as_array().with_context(|| report.to_string())?;
    let of_topic = all.iter().filter(|finding| TOPICS.iter().any(|topic| finding["topic"] == *topic));
    Ok(of_topic.map(Value::to_string).collect())
}

#[test]
fn the_api_finds_what_the_command_finds() -> Result<()> {
    run(async {
        let place = Place::new("check-both").await?;
        let case = CASES.iter().find(|case| case.command == "check").context("no row")?;
        let by_command: Value = serde_json::from_str(&place.call(case, "-o json").run()?.out)?;
        let by_api = place.servers.ask("/check?installation=true&namespace=check-both", ADMIN).await?;
        let (mut by_command, by_api) = (findings(&by_command["view"])?, findings(&by_api)?);
        // With a namespace, the API does not look into the namespaces of targets.
        by_command.retain(|finding| !finding.contains("Provider check-both-"));
        ensure!(by_command.iter().any(|finding| finding.contains("which is no hook")), "{by_command:#?}");
        let differences: Vec<_> = by_command.symmetric_difference(&by_api).collect();
        ensure!(differences.is_empty(), "{differences:#?}");
        Ok(())
    })
}

#[test]
fn the_api_does_not_show_what_the_caller_may_not_read() -> Result<()> {
    run(async {
        let place = Place::new("check-nobody").await?;
        for path in ["/check?installation=true", "/check?installation=true&namespace=check-nobody"] {
            let answer = place.servers.ask(path, NOBODY).await?;
            let findings = answer["findings"].as_array().context("no findings")?;
            let text = answer.to_string();
            for name in
                ["podinfo", "europe-west-1", "asia-south-1", "hooks.example.com", "is that of this version"]
            {
                ensure!(!text.contains(name), "{path} shows {name}: {answer:#}");
            }
            for (topic, lack) in [
                ("definitions", "you lack get on customresourcedefinitions.apiextensions.k8s.io"),
                ("controller", "you lack list on leases.coordination.k8s.io in namespace default"),
                ("hooks", "you lack list on providers.notification.toolkit.fluxcd.io in "),
                ("flux", "you lack list on deployments.apps in all namespaces"),
                ("rights", "system:serviceaccount:people:nobody may not use get, status, explain, history"),
            ] {
                let is_said = findings.iter().any(|finding| {
                    finding["topic"] == topic
                        && finding["message"].as_str().is_some_and(|said| said.contains(lack))
                });
                ensure!(is_said, "{path}: {lack}: {answer:#}");
            }
        }
        Ok(())
    })
}
