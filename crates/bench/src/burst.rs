//! Many revisions at the same time, each with its own change request: the time until each is proposed, and the calls of
//! the forge and git. The forge is in memory over real git, on the same processors. A real one would take longer for each
//! call, and leave more processor time to Sluice.

use crate::controller::ControllerProcess;
use crate::objects::{NAMESPACES, SLUICE, VERSION};
use crate::options::BenchOptions;
use crate::pipelines_fixture::{
    PIPELINES_NAMESPACE, PipelinesOnOneCluster, PipelinesSize, run_concurrently, set_healthy, write,
};
use crate::process_stats::processor_time;
use crate::table::{BudgetVerdict, ResultTable, percentile, progress, time};
use crate::watch::{Watch, field};
use crate::writes::Writes;
use anyhow::{Context, Result, bail};
use axum::http::Method;
use serde_json::json;
use sluice_testkit::fault_injection::{ChaosForge, HostedRepo};
use sluice_testkit::{ControlPlane, GitServer};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The number of repositories of all pipelines.
const REPOSITORIES: usize = 10;
/// The number of concurrent status writes.
const CONCURRENT: usize = 32;
/// The time limit for all change requests.
const TIMEOUT: Duration = Duration::from_secs(900);
/// The new version of all workloads.
const NEXT: &str = "6.2.0";

/// Makes every application healthy at the same time, and measures the time until each change request.
pub async fn measure(options: &BenchOptions, plane: &ControlPlane, table: &mut ResultTable) -> Result<()> {
    let revisions = options.burst;
    let forge = ChaosForge::start()?;
    let hosted: Vec<HostedRepo> =
        (0..REPOSITORIES).map(|n| create_repo(&forge, n, revisions)).collect::<Result<_>>()?;
    let promotion = |n: usize| {
        json!({"strategy": {"pull-request": {"type": "github", "url": hosted[n % REPOSITORIES].url,
            "baseBranch": "main", "secretRef": {"name": "git"}}}})
    };
    let size = PipelinesSize { pipelines: revisions, deployments: false, promotion: &promotion };
    let fleet = PipelinesOnOneCluster::build(plane, size).await?;
    let secret = json!({"metadata": {"name": "git"}, "stringData":
        {"username": GitServer::USER, "password": GitServer::PASSWORD, "token": ChaosForge::TOKEN}});
    write(&fleet.client, Method::POST, &format!("{NAMESPACES}/{PIPELINES_NAMESPACE}/secrets"), &secret)
        .await?;
    // A long poll interval, because nothing is merged here.
    let mut controller =
        ControllerProcess::start_with(options, &fleet.cluster, &["--hook-addr=0", "--poll-interval=10m"])?;
    controller.settled(revisions).await?;
    let before = (Writes::total(&fleet.client).await?, processor_time(controller.pid())?);
    progress(&format!("{revisions} workloads become healthy at the same time"));
    let started = Instant::now();
    let waits = proposal_times(&fleet, &controller).await?;
    let took = started.elapsed();
    let writes = Writes::total(&fleet.client).await?.since(&before.0, &["helmreleases/status"]);
    let used = processor_time(controller.pid())? - before.1;
    let (one, at) = (revisions as f64, |percent| time(percentile(&waits, percent)));
    let text = format!("p50 {}, p95 {}, all after {}", at(50), at(95), time(took));
    let what = format!("{revisions} revisions at the same time, into {REPOSITORIES} repositories → proposed");
    table.add(&what, "", text, BudgetVerdict::None);
    let proxy = forge.fault_proxy();
    let (git, calls): (Vec<_>, Vec<_>) =
        proxy.counts().into_iter().partition(|(operation, _)| operation.starts_with("git "));
    let sum = |counts: &[(String, usize)]| counts.iter().map(|(_, n)| n).sum::<usize>() as f64 / one;
    let per_revision = |name: &str| {
        let count = git.iter().find(|(operation, _)| operation == name);
        count.map_or(0, |(_, n)| *n) as f64 / one
    };
    // A fetch is two requests: one for the references, one for the objects.
    let text = format!(
        "{:.2} calls of the API; {:.2} git calls ({:.2} fetch, {:.2} push), {:.1} kB",
        sum(&calls),
        sum(&git),
        per_revision("git refs to fetch"),
        per_revision("git push"),
        proxy.git_bytes() as f64 / one / 1000.0
    );
    let is_within_budget = per_revision("git refs to fetch") <= 1.0 && per_revision("git push") <= 1.0;
    table.add("  each: forge and git", "≤ 1 fetch, 1 push", text, BudgetVerdict::of(is_within_budget));
    let text =
        format!("{:.2} ({writes}), {}", writes.count() as f64 / one, time(used / u32::try_from(revisions)?));
    table.add("  each: API writes, processor", "", text, BudgetVerdict::None);
    let failures = controller.metric("sluice_promotion_failures_total").await?;
    table.add("  failed tries", "0", (failures as u64).to_string(), BudgetVerdict::of(failures == 0.0));
    forge.check_invariants()
}

/// Creates a repository with a marked file for each of its applications.
fn create_repo(forge: &ChaosForge, number: usize, applications: usize) -> Result<HostedRepo> {
    let file = |n: usize| {
        let marker = format!("{{\"$promotion\": \"{PIPELINES_NAMESPACE}:app-{n:05}:staging\"}}");
        let text = format!("spec:\n  chart:\n    spec:\n      version: {VERSION} # {marker}\n");
        (format!("apps/app-{n:05}/staging.yaml"), text)
    };
    let files: Vec<_> = (number..applications).step_by(REPOSITORIES).map(file).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    forge.create_repo(&format!("fleet-{number}"), &files)
}

/// Returns the times from each healthy workload to its change request, by the status of the Promotions.
async fn proposal_times(
    fleet: &PipelinesOnOneCluster,
    controller: &ControllerProcess,
) -> Result<Vec<Duration>> {
    let size = fleet.size;
    let mut watch =
        Watch::begin(&fleet.client, &format!("{SLUICE}/namespaces/{PIPELINES_NAMESPACE}/promotions")).await?;
    let proposals = tokio::spawn(async move {
        let mut proposed: HashMap<String, Instant> = HashMap::new();
        while proposed.len() < size {
            let line = watch.next().await?;
            let phase = field(&line, "\"phase\":\"").unwrap_or_default();
            if phase == "Proposed" {
                let pipeline = field(&line, "\"pipelines.weave.works/pipeline\":\"");
                proposed
                    .entry(pipeline.context("the promotion has no pipeline")?.to_owned())
                    .or_insert_with(Instant::now);
            }
        }
        anyhow::Ok(proposed)
    });
    let healthy_since = Mutex::new(HashMap::new());
    let all = fleet.applications().map(async |application| {
        set_healthy(&fleet.client, &application, "dev", NEXT).await?;
        if let Ok(mut times) = healthy_since.lock() {
            times.insert(application, Instant::now());
        }
        Ok(())
    });
    run_concurrently(CONCURRENT, all).await?;
    let Ok(proposed) = tokio::time::timeout(TIMEOUT, proposals).await else {
        bail!("not every revision was proposed:\n{}", controller.log());
    };
    let proposed = proposed??;
    let healthy_since = healthy_since.into_inner().unwrap_or_default();
    let wait = |(name, at): (&String, &Instant)| Some(proposed.get(name)?.saturating_duration_since(*at));
    Ok(healthy_since.iter().filter_map(wait).collect())
}
