//! From a workload that turns healthy at a new version to the record of its promotion.

use crate::controller::Controller;
use crate::fleet::{Fleet, PLACE, set_healthy};
use crate::objects::SLUICE;
use crate::options::Options;
use crate::outside::processor_time;
use crate::table::{Table, Verdict, percentile, say, time};
use crate::watch::{Watch, field};
use crate::writes::Writes;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Changes a second.
const RATE: u32 = 10;
/// How long after the last change its promotion is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lets workloads turn healthy, each of another pipeline, and times the records.
pub async fn measure(
    options: &Options,
    fleet: &Fleet,
    controller: &Controller,
    table: &mut Table,
) -> Result<()> {
    let wanted = (options.reaction.as_secs() as usize * RATE as usize).min(fleet.size);
    say(&format!("{wanted} workloads turn healthy, {RATE} a second"));
    let mut watch = Watch::begin(&fleet.client, &format!("{SLUICE}/namespaces/{PLACE}/promotions")).await?;
    let recorded = tokio::spawn(async move {
        let mut seen = HashMap::new();
        while seen.len() < wanted {
            let line = watch.next().await?;
            let now = Instant::now();
            let name =
                field(&line, "\"pipelines.weave.works/pipeline\":\"").context("a promotion of nothing")?;
            seen.entry(name.to_owned()).or_insert(now);
        }
        anyhow::Ok(seen)
    });
    let before = (Writes::so_far(&fleet.client).await?, processor_time(controller.pid())?);
    let mut changed = HashMap::new();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / RATE);
    for application in fleet.applications().take(wanted) {
        clock.tick().await;
        set_healthy(&fleet.client, &application, "dev", "6.2.0").await?;
        changed.insert(application, Instant::now());
    }
    let Ok(recorded) = tokio::time::timeout(PATIENCE, recorded).await else {
        bail!("not every change was followed by a promotion:\n{}", controller.log());
    };
    let recorded = recorded??;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let writes = Writes::so_far(&fleet.client).await?.since(&before.0, &["helmreleases/status"]);
    let used = processor_time(controller.pid())? - before.1;
    let waits: Vec<Duration> = changed
        .iter()
        .filter_map(|(name, at)| Some(recorded.get(name)?.saturating_duration_since(*at)))
        .collect();
    let at = |percent| percentile(&waits, percent);
    let text = format!("p50 {}, p99 {} (most {})", time(at(50)), time(at(99)), time(at(100)));
    let good = waits.len() == wanted && at(99) <= Duration::from_millis(100);
    let what = format!("workload turns healthy → promotion recorded, {RATE} a second");
    table.add(&what, "p99 ≤ 100 ms", text, Verdict::of(good));
    let each = writes.count() as f64 / wanted as f64;
    let used = time(used / u32::try_from(wanted)?);
    table.add(
        "  for each: API writes, processor",
        "",
        format!("{each:.2} ({writes}), {used}"),
        Verdict::None,
    );
    Ok(())
}
