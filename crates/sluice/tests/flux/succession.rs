//! One revision, and then three more in quick succession, by pull requests: all targets reach the
//! last, each promotion has its record, and every commit changes only the value's bytes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use sluice_api::promotion::Phase;
use sluice_testkit::eventually;

use crate::fleet::{Fleet, Shape};
use crate::place::{SOON, revision};
use crate::process::Controller;
use crate::run;

#[test]
fn helm_releases_of_one_branch() -> Result<()> {
    run(succession(Shape::Helm, "fleet"))
}

#[test]
fn kustomizations_of_one_branch() -> Result<()> {
    run(succession(Shape::Kustomize, "app"))
}

async fn succession(shape: Shape, kustomization: &str) -> Result<()> {
    let fleet = Fleet::new("succession", shape, &["app"], "6.1.5").await?;
    fleet.pipeline("app", &fleet.pull_requests()).await?;
    let controller = Controller::start(&fleet.place.shared.hub, &fleet.place.namespace, &[])?;
    let all_run = |version: &'static str| {
        move |p: &sluice_api::Pipeline| ["dev", "staging", "prod"].iter().all(|e| revision(p, e) == version)
    };
    fleet.place.until("app", "all run 6.1.5", all_run("6.1.5")).await.with_context(|| controller.tail())?;

    fleet.release("app", "6.1.6")?;
    arrive(&fleet, "6.1.6").await.with_context(|| controller.tail())?;
    for environment in ["staging", "prod"] {
        fleet.place.until_story("app", environment, &["6.1.6 Succeeded"]).await?;
    }
    at_rest(&fleet, kustomization).await.with_context(|| controller.tail())?;

    for version in ["6.1.7", "6.1.8", "6.1.9"] {
        fleet.release("app", version)?;
        let in_dev = |p: &sluice_api::Pipeline| revision(p, "dev") == version;
        fleet.place.until("app", &format!("dev runs {version}"), in_dev).await?;
    }
    arrive(&fleet, "6.1.9").await.with_context(|| controller.tail())?;
    at_rest(&fleet, kustomization).await.with_context(|| controller.tail())?;
    records(&fleet).await?;
    commits(&fleet)
}

/// Merges whatever is proposed until prod runs the version.
async fn arrive(fleet: &Fleet, version: &str) -> Result<()> {
    eventually(SOON * 2, || async {
        fleet.merge_all().await?;
        let pipeline = fleet.place.pipelines().get("app").await?;
        let status = pipeline.status.clone().unwrap_or_default();
        ensure!(revision(&pipeline, "prod") == version, "prod does not run {version}: {:?}", status.summary);
        Ok(())
    })
    .await
}

/// Nothing is proposed, committed or started any more although Flux has brought the newest commit
/// to every environment: the pipeline does not promote its own commits.
async fn at_rest(fleet: &Fleet, kustomization: &str) -> Result<()> {
    fleet.until_reconciled(kustomization).await?;
    let no_more = || async {
        let all = fleet.place.promotions().list(&ListParams::default()).await?;
        let going = all.iter().filter(|p| {
            let phase = p.status.clone().unwrap_or_default().phase;
            matches!(phase, Phase::Pending | Phase::Promoting | Phase::Proposed | Phase::Delivered)
        });
        ensure!(going.count() == 0, "something is still on its way");
        ensure!(fleet.repo.pulls("open").await?.is_empty(), "a pull request is open");
        Ok((all.items.len(), fleet.repo.head("main")?))
    };
    let then = eventually(SOON, no_more).await?;
    // Longer than the stand-in takes for a round of every kind of object it has.
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(no_more().await? == then, "it does not come to rest");
    Ok(())
}

/// Every promotion has its record, which tells where it ended and what it rested on.
async fn records(fleet: &Fleet) -> Result<()> {
    let all = fleet.place.promotions().list(&ListParams::default()).await?;
    for promotion in &all {
        let status = promotion.status.clone().unwrap_or_default();
        ensure!(matches!(status.phase, Phase::Succeeded | Phase::Superseded), "{promotion:?}");
        ensure!(!promotion.spec.evidence.is_empty() && !status.message.is_empty(), "{promotion:?}");
        // One that came with an earlier change request's merge had its own closed as needless.
        let Some(request) = status.change_request.filter(|r| r.state == "merged") else { continue };
        // What was superseded may have shared its change request with what was merged.
        let brought = all.iter().any(|p| {
            let status = p.status.clone().unwrap_or_default();
            let same = status.change_request.is_some_and(|r| r.number == request.number);
            same && status.times.contains_key("Delivered")
        });
        let itself = status.times.contains_key("Delivered");
        ensure!(itself || status.phase == Phase::Superseded && brought, "{promotion:?}");
    }
    for environment in ["staging", "prod"] {
        let story = fleet.place.story("app", environment).await?;
        ensure!(story.last().is_some_and(|s| s == "6.1.9 Succeeded"), "{story:?}");
        let different: BTreeSet<&String> = story.iter().collect();
        ensure!(different.len() == story.len(), "something was promoted twice: {story:?}");
    }
    Ok(())
}

/// The commits that Sluice made change one line each, and in it the version only.
fn commits(fleet: &Fleet) -> Result<()> {
    let mut ours = 0;
    for commit in fleet.repo.log("main")?.iter().filter(|c| c.body.contains("Sluice-Promotion: ")) {
        ours += 1;
        let diff = fleet.repo.diff(&commit.sha)?;
        let of = |sign: char| {
            let twice = format!("{sign}{sign}{sign}");
            let lines = diff.lines().filter(|l| l.starts_with(sign) && !l.starts_with(&twice));
            lines.map(|l| l[1..].to_string()).collect::<Vec<_>>()
        };
        let (before, after) = (of('-'), of('+'));
        ensure!(before.len() == 1 && after.len() == 1, "{diff}");
        let version = |line: &str| line.split("6.1.").nth(1).map(|rest| format!("6.1.{}", &rest[..1]));
        let (old, new) =
            (version(&before[0]).context("no version")?, version(&after[0]).context("no version")?);
        ensure!(before[0].replace(&old, &new) == after[0] && old != new, "{diff}");
    }
    ensure!(ours >= 4, "only {ours} commits are Sluice's");
    Ok(())
}
