//! Checks of the final state: every revision has arrived, and was promoted once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::ListParams;
use sluice_api::Promotion;
use sluice_api::promotion::Phase;
use sluice_testkit::eventually;

use crate::fleet::{ENVIRONMENTS, Fleet};
use crate::place::revision;

/// Waits until a version runs in all environments, for each pipeline at most as long as `timeout` returns. Reads
/// the pipelines one after the other, since listing all of them ten times a second would slow down the controller.
pub async fn until_all_run(fleet: &Fleet, version: &str, timeout: impl Fn() -> Duration) -> Result<()> {
    for name in fleet.teams.iter().flat_map(|team| &team.applications) {
        eventually(timeout(), || async {
            let pipeline = fleet.place.pipelines().get(name).await?;
            let runs = ENVIRONMENTS.map(|e| revision(&pipeline, e));
            let summary = pipeline.status.unwrap_or_default().summary;
            ensure!(runs.iter().all(|r| r == version), "{name} is not at {version}: {runs:?} {summary:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Returns true if a promotion has reached a phase that does not change on its own.
pub fn has_ended(promotion: &Promotion) -> bool {
    match promotion.phase() {
        Phase::Pending | Phase::Promoting | Phase::Proposed | Phase::Delivered => false,
        Phase::Succeeded | Phase::Failed | Phase::Rejected | Phase::Superseded | Phase::Cancelled => true,
    }
}

/// Checks that each revision was promoted into each environment at most once, that the last one was promoted into
/// all, and that each promotion ended in one of these phases. Returns all promotions.
pub async fn each_once(
    fleet: &Fleet,
    last: &str,
    within: Duration,
    ends: &[Phase],
) -> Result<Vec<Promotion>> {
    let all = eventually(within, || async {
        let all = fleet.place.promotions().list(&ListParams::default()).await?.items;
        let in_flight = all.iter().find(|p| !has_ended(p));
        ensure!(in_flight.is_none(), "a promotion has not ended: {in_flight:#?}");
        ensure!(fleet.open_pulls().await? == 0, "a change request is open");
        Ok(all)
    })
    .await?;
    let mut records: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for p in &all {
        ensure!(ends.contains(&p.phase()), "{p:#?}");
        *records.entry((&p.spec.pipeline, &p.spec.environment, &p.spec.revision)).or_default() += 1;
    }
    let twice: Vec<_> = records.iter().filter(|(_, n)| **n > 1).collect();
    ensure!(twice.is_empty(), "recorded twice: {twice:?}");
    for name in fleet.teams.iter().flat_map(|team| &team.applications) {
        for environment in ["staging", "prod"] {
            let recorded = records.contains_key(&(name, environment, last));
            ensure!(recorded, "lost: {last} of {name} into {environment}");
        }
    }
    Ok(all)
}
