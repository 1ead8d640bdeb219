//! One revision, and then three more in quick succession, by pull requests: all targets reach the last one, each
//! promotion has its record, and every commit changes only the bytes of the value.

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
fn helm_releases_in_one_branch_reach_the_last_revision() -> Result<()> {
    run(succession(Shape::Helm, "team"))
}

#[test]
fn kustomizations_in_one_branch_reach_the_last_revision() -> Result<()> {
    run(succession(Shape::Kustomize, "app"))
}

async fn succession(shape: Shape, kustomization: &str) -> Result<()> {
    let mut fleet = Fleet::new("succession", shape, Duration::from_millis(200)).await?;
    fleet.team("team", By::PullRequest, &["app".into()], "6.1.5").await?;
    let controller = Controller::start(&fleet.place.shared.hub, &fleet.place.namespace, &[])?;
    release_in_succession(&fleet, kustomization).await.with_context(|| controller.tail())
}

async fn release_in_succession(fleet: &Fleet, kustomization: &str) -> Result<()> {
    let all_run = |p: &sluice_api::Pipeline| ENVIRONMENTS.iter().all(|e| revision(p, e) == "6.1.5");
    fleet.place.until("app", "all run 6.1.5", all_run).await?;

    fleet.release("6.1.6").await?;
    merge_until_prod_runs(fleet, "6.1.6").await?;
    for environment in ["staging", "prod"] {
        fleet.place.until_promotions("app", environment, &["6.1.6 Succeeded"]).await?;
    }
    check_at_rest(fleet, kustomization).await?;

    for version in ["6.1.7", "6.1.8", "6.1.9"] {
        fleet.release(version).await?;
        let in_dev = |p: &sluice_api::Pipeline| revision(p, "dev") == version;
        fleet.place.until("app", &format!("dev runs {version}"), in_dev).await?;
    }
    merge_until_prod_runs(fleet, "6.1.9").await?;
    check_at_rest(fleet, kustomization).await?;
    check_records(fleet).await?;
    let delivered = fleet.deliveries("6.1.9")?.0;
    ensure!(delivered.len() >= 4, "only {delivered:?} were delivered");
    Ok(())
}

/// Merges all open pull requests until prod runs a version.
async fn merge_until_prod_runs(fleet: &Fleet, version: &str) -> Result<()> {
    eventually(SOON * 2, || async {
        fleet.merge_all().await?;
        let pipeline = fleet.place.pipelines().get("app").await?;
        let status = pipeline.status.clone().unwrap_or_default();
        ensure!(revision(&pipeline, "prod") == version, "prod does not run {version}: {:?}", status.summary);
        Ok(())
    })
    .await
}

/// Checks that nothing is proposed, committed or started any more after Flux has applied the newest commit in
/// every environment: the pipeline does not promote its own commits.
async fn check_at_rest(fleet: &Fleet, kustomization: &str) -> Result<()> {
    let team = &fleet.teams[0];
    fleet.until_reconciled(team, kustomization).await?;
    let no_more = || async {
        let all = fleet.place.promotions().list(&ListParams::default()).await?;
        let in_flight = all.iter().filter(|p| {
            let phase = p.phase();
            matches!(phase, Phase::Pending | Phase::Promoting | Phase::Proposed | Phase::Delivered)
        });
        ensure!(in_flight.count() == 0, "a promotion has not ended");
        ensure!(fleet.open_pulls().await? == 0, "a pull request is open");
        Ok((all.items.len(), team.repo.head("main")?))
    };
    let then = eventually(SOON, no_more).await?;
    // Longer than the stand-in needs for one round over all kinds of objects.
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(no_more().await? == then, "something has changed without a new revision");
    Ok(())
}

/// Checks the record of every promotion: its final phase and its evidence.
async fn check_records(fleet: &Fleet) -> Result<()> {
    let all = fleet.place.promotions().list(&ListParams::default()).await?;
    for promotion in &all {
        let status = promotion.status.clone().unwrap_or_default();
        ensure!(matches!(status.phase, Phase::Succeeded | Phase::Superseded), "{promotion:?}");
        ensure!(!promotion.spec.evidence.is_empty() && !status.message.is_empty(), "{promotion:?}");
        // A promotion that was delivered by the merge of an earlier change request has a closed one.
        let Some(request) = status.change_request.filter(|r| r.state == RecordedRequestState::Merged) else {
            continue;
        };
        // A superseded promotion may have shared its change request with a merged one, or was in flight
        // when a person merged an earlier state of it.
        let was_delivered = status.times.contains_key("Delivered");
        ensure!(was_delivered || status.phase == Phase::Superseded, "#{} of {promotion:?}", request.number);
    }
    for environment in ["staging", "prod"] {
        let promotions = fleet.place.promotions_into("app", environment).await?;
        ensure!(promotions.last().is_some_and(|last| last == "6.1.9 Succeeded"), "{promotions:?}");
        let different: BTreeSet<&String> = promotions.iter().collect();
        ensure!(different.len() == promotions.len(), "a revision was promoted twice: {promotions:?}");
    }
    Ok(())
}
