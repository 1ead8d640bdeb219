//! The time from a workload that becomes healthy with a new version to the record of its promotion.

use crate::controller::ControllerProcess;
use crate::objects::SLUICE;
use crate::options::BenchOptions;
use crate::pipelines_fixture::{PIPELINES_NAMESPACE, PipelinesOnOneCluster, set_healthy};
use crate::process_stats::processor_time;
use crate::table::{BudgetVerdict, ResultTable, percentile, progress, time};
use crate::watch::{Watch, field};
use crate::writes::Writes;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The number of changes per second.
const RATE: u32 = 10;
/// The time limit for promotions after the last change.
const PROMOTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes workloads of different pipelines healthy, and measures the time until the records.
pub async fn measure(
    options: &BenchOptions,
    fleet: &PipelinesOnOneCluster,
    controller: &ControllerProcess,
    table: &mut ResultTable,
) -> Result<()> {
    let changes = (options.reaction.as_secs() as usize * RATE as usize).min(fleet.size);
    progress(&format!("{changes} workloads become healthy, {RATE} a second"));
    let mut watch =
        Watch::begin(&fleet.client, &format!("{SLUICE}/namespaces/{PIPELINES_NAMESPACE}/promotions")).await?;
    let recorded = tokio::spawn(async move {
        let mut times = HashMap::new();
        while times.len() < changes {
            let line = watch.next().await?;
            let now = Instant::now();
            let name = field(&line, "\"pipelines.weave.works/pipeline\":\"")
                .context("the promotion has no pipeline")?;
            times.entry(name.to_owned()).or_insert(now);
        }
        anyhow::Ok(times)
    });
    let before = (Writes::total(&fleet.client).await?, processor_time(controller.pid())?);
    let mut changed = HashMap::new();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / RATE);
    for application in fleet.applications().take(changes) {
        clock.tick().await;
        set_healthy(&fleet.client, &application, "dev", "6.2.0").await?;
        changed.insert(application, Instant::now());
    }
    let Ok(recorded) = tokio::time::timeout(PROMOTION_TIMEOUT, recorded).await else {
        bail!("some changes have no promotion:\n{}", controller.log());
    };
    let recorded = recorded??;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let writes = Writes::total(&fleet.client).await?.since(&before.0, &["helmreleases/status"]);
    let used = processor_time(controller.pid())? - before.1;
    let waits: Vec<Duration> = changed
        .iter()
        .filter_map(|(name, at)| Some(recorded.get(name)?.saturating_duration_since(*at)))
        .collect();
    let at = |percent| percentile(&waits, percent);
    let text = format!("p50 {}, p99 {} (most {})", time(at(50)), time(at(99)), time(at(100)));
    let good = waits.len() == changes && at(99) <= Duration::from_millis(20);
    let what = format!("workload becomes healthy → promotion recorded, {RATE} a second");
    table.add(&what, "p99 ≤ 20 ms", text, BudgetVerdict::of(good));
    let each = writes.count() as f64 / changes as f64;
    let used = time(used / u32::try_from(changes)?);
    table.add(
        "  for each: API writes, processor",
        "",
        format!("{each:.2} ({writes}), {used}"),
        BudgetVerdict::None,
    );
    Ok(())
}
