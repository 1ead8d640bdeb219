//! One revision, and then three more in quick succession, by pull requests: all targets reach the
//! last, each promotion has its record, and every commit changes only the value's bytes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use sluice_api::promotion::{Phase, RecordedRequestState};
use sluice_testkit::eventually;

use crate::fleet::{By, ENVIRONMENTS, Fleet, Shape};
use crate::place::{SOON, revision};
use crate::process::Controller;
use crate::run;

#[test]
fn helm_releases_of_one_branch() -> Result<()> {
    run(succession(Shape::Helm, "team"))
}

#[test]
fn kustomizations_of_one_branch() -> Result<()> {
    run(succession(Shape::Kustomize, "app"))
}

async fn succession(shape: Shape, kustomization: &str) -> Result<()> {
    let mut fleet = Fleet::new("succession", shape, Duration::from_millis(200)).await?;
    fleet.team("team", By::PullRequest, &["app".into()], "6.1.5").await?;
    let controller = Controller::start(&fleet.place.shared.hub, &fleet.place.namespace, &[])?;
    succeed(&fleet, kustomization).await.with_context(|| controller.tail())
}

async fn succeed(fleet: &Fleet, kustomization: &str) -> Result<()> {
    let all_run = |p: &sluice_api::Pipeline| ENVIRONMENTS.iter().all(|e| revision(p, e) == "6.1.5");
    fleet.place.until("app", "all run 6.1.5", all_run).await?;

    fleet.release("6.1.6").await?;
    arrive(fleet, "6.1.6").await?;
    for environment in ["staging", "prod"] {
        fleet.place.until_promotions("app", environment, &["6.1.6 Succeeded"]).await?;
    }
    at_rest(fleet, kustomization).await?;

    for version in ["6.1.7", "6.1.8", "6.1.9"] {
        fleet.release(version).await?;
        let in_dev = |p: &sluice_api::Pipeline| revision(p, "dev") == version;
        fleet.place.until("app", &format!("dev runs {version}"), in_dev).await?;
    }
    arrive(fleet, "6.1.9").await?;
    at_rest(fleet, kustomization).await?;
    records(fleet).await?;
    let delivered = fleet.deliveries("6.1.9")?.0;
    ensure!(delivered.len() >= 4, "only {delivered:?} were delivered");
    Ok(())
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
    let team = &fleet.teams[0];
    fleet.until_reconciled(team, kustomization).await?;
    let no_more = || async {
        let all = fleet.place.promotions().list(&ListParams::default()).await?;
        let going = all.iter().filter(|p| {
            let phase = p.status.clone().unwrap_or_default().phase;
            matches!(phase, Phase::Pending | Phase::Promoting | Phase::Proposed | Phase::Delivered)
        });
        ensure!(going.count() == 0, "something is still on its way");
        ensure!(fleet.open_pulls().await? == 0, "a pull request is open");
        Ok((all.items.len(), team.repo.head("main")?))
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
        let Some(request) = status.change_request.filter(|r| r.state == RecordedRequestState::Merged) else {
            continue;
        };
        // What was superseded may have shared its change request with what was merged, or was on its way
        // when a person merged what there was.
        let itself = status.times.contains_key("Delivered");
        ensure!(itself || status.phase == Phase::Superseded, "#{} of {promotion:?}", request.number);
    }
    for environment in ["staging", "prod"] {
        let story = fleet.place.promotions_into("app", environment).await?;
        ensure!(story.last().is_some_and(|s| s == "6.1.9 Succeeded"), "{story:?}");
        let different: BTreeSet<&String> = story.iter().collect();
        ensure!(different.len() == story.len(), "something was promoted twice: {story:?}");
    }
    Ok(())
}
