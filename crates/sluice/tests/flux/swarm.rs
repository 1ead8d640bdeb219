//! Many promotions of many pipelines in one repository while the controller is killed every few
//! seconds, ten times, with its temporary files kept and with them wiped: none is lost, none is made
//! twice. SLUICE_SWARM=50 makes it a long one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use sluice_api::Promotion;
use sluice_api::promotion::Phase;
use sluice_testkit::eventually;

use crate::fleet::{Fleet, Shape};
use crate::place::revision;
use crate::process::Controller;
use crate::run;

const KILLS: usize = 10;

/// How many pipelines: twelve keep a small machine busy for two minutes.
fn pipelines() -> usize {
    std::env::var("SLUICE_SWARM").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
}

#[test]
fn killed_ten_times_and_nothing_is_lost_or_made_twice() -> Result<()> {
    run(async {
        let names: Vec<String> = (0..pipelines()).map(|i| format!("app-{i}")).collect();
        let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
        let fleet = Fleet::new("swarm", Shape::Helm, &borrowed, "1.0.0").await?;
        for (i, name) in names.iter().enumerate() {
            // A few by pull request: each merge has Gitea look at every open one again, for seconds.
            let strategy = if i % 6 == 0 { fleet.pull_requests() } else { fleet.commits() };
            fleet.pipeline(name, &strategy).await?;
        }
        let mut controller = Controller::start(&fleet.place.shared.hub, &fleet.place.namespace, &[])?;
        all_run(&fleet, "1.0.0").await.with_context(|| controller.tail())?;

        // Three promotions for each pipeline: 1.1.0 into staging and prod, then 1.2.0 into staging
        // while the first ones are still in flight; and 1.2.0 goes on to prod as well.
        release(&fleet, &names, "1.1.0")?;
        let started = Instant::now();
        for kill in 0..KILLS {
            let until = Instant::now() + Duration::from_secs(5);
            while Instant::now() < until {
                fleet.merge_all().await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            controller.restart(kill % 2 == 0)?;
            if kill == KILLS / 2 {
                release(&fleet, &names, "1.2.0")?;
            }
        }
        eventually(Duration::from_secs(600), || async {
            fleet.merge_all().await?;
            check_all_run(&fleet, "1.2.0").await
        })
        .await
        .with_context(|| controller.tail())?;
        println!("{} pipelines, {KILLS} kills: all at 1.2.0 after {:?}", pipelines(), started.elapsed());
        verify(&fleet).await
    })
}

fn release(fleet: &Fleet, names: &[String], version: &str) -> Result<()> {
    let files: Vec<(String, String)> =
        names.iter().map(|n| (fleet.path("dev", n), fleet.text("dev", n, version))).collect();
    let borrowed: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    fleet.repo.commit("main", &format!("dev: {version}"), &borrowed)?;
    Ok(())
}

async fn all_run(fleet: &Fleet, version: &str) -> Result<()> {
    eventually(Duration::from_secs(120), || check_all_run(fleet, version)).await
}

async fn check_all_run(fleet: &Fleet, version: &str) -> Result<()> {
    let all = fleet.place.pipelines().list(&ListParams::default()).await?;
    let runs =
        |p: &&sluice_api::Pipeline| ["dev", "staging", "prod"].iter().all(|e| revision(p, e) == version);
    let behind: Vec<String> = all
        .iter()
        .filter(|p| !runs(p))
        .map(|p| p.status.clone().unwrap_or_default().summary.unwrap_or_default())
        .map(|s| format!("{} | {}", s.environments, s.promoting))
        .collect();
    ensure!(
        behind.is_empty(),
        "{} pipelines are behind: {:#?}",
        behind.len(),
        &behind[..behind.len().min(5)]
    );
    Ok(())
}

/// Each revision went into each environment once: one record, and one merge or commit at most.
async fn verify(fleet: &Fleet) -> Result<()> {
    let settled = || async {
        let all = fleet.place.promotions().list(&ListParams::default()).await?.items;
        let phase = |p: &Promotion| p.status.clone().unwrap_or_default().phase;
        let unsettled = all.iter().filter(|p| !matches!(phase(p), Phase::Succeeded | Phase::Superseded));
        ensure!(unsettled.count() == 0, "not all promotions have ended");
        Ok(all)
    };
    let all = eventually(Duration::from_secs(60), settled).await?;
    let mut records: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for p in &all {
        *records
            .entry((p.spec.pipeline.clone(), p.spec.environment.clone(), p.spec.revision.clone()))
            .or_default() += 1;
    }
    let twice: Vec<_> = records.iter().filter(|(_, n)| **n > 1).collect();
    ensure!(twice.is_empty(), "recorded twice: {twice:?}");
    for i in 0..pipelines() {
        for environment in ["staging", "prod"] {
            let last = (format!("app-{i}"), environment.to_string(), "1.2.0".to_string());
            ensure!(records.contains_key(&last), "lost: {last:?}");
        }
    }
    let mut delivered: BTreeMap<String, usize> = BTreeMap::new();
    for commit in fleet.repo.log("main")? {
        for line in commit.body.lines().filter_map(|l| l.strip_prefix("Sluice-Promotion: ")) {
            *delivered.entry(line.to_string()).or_default() += 1;
        }
    }
    let twice: Vec<_> = delivered.iter().filter(|(_, n)| **n > 1).collect();
    ensure!(twice.is_empty(), "delivered twice: {twice:?}");
    println!("{} promotions recorded, {} delivered, each once", all.len(), delivered.len());
    ensure!(delivered.len() >= 2 * pipelines(), "only {} promotions were delivered", delivered.len());
    Ok(())
}
