//! The time from the start of the controller until every pipeline has its status, compared with the time that a plain
//! client needs to write the same statuses; and the time of a start with nothing to write.

use crate::controller::ControllerProcess;
use crate::measurement::Measurement;
use crate::objects::SLUICE;
use crate::options::BenchOptions;
use crate::pipelines_fixture::{PIPELINES_NAMESPACE, PipelinesOnOneCluster, apply, run_concurrently};
use crate::process_stats::{megabytes, peak_memory, processor_time};
use crate::table::{BudgetVerdict, ResultTable, percentile, progress, time, times};
use crate::watch::{Watch, field};
use crate::writes::Writes;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// The number of concurrent status writes of the controller.
const CONCURRENT: usize = 32;
/// The time limit of a start.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// The time after a start before its memory is read and its writes are counted.
const SETTLING_TIME: Duration = Duration::from_secs(3);

/// Measures starts on pipelines without a status, alternating with bare status writes.
pub async fn measure(
    options: &BenchOptions,
    fleet: &PipelinesOnOneCluster,
    table: &mut ResultTable,
) -> Result<()> {
    if !options.wants(Measurement::Start) {
        return settle_once(options, fleet).await;
    }
    let (mut took, mut memory, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    let mut written = Vec::new();
    for round in 0..options.repeat {
        fleet.clear_statuses().await?;
        let cold = start(options, fleet).await?;
        let statuses = fleet.pipelines().await?;
        fleet.clear_statuses().await?;
        let plain = write_bare(fleet, &statuses).await?;
        progress(&format!(
            "start {round}: {} ({} of processor), {}; written: {}; bare writes {}",
            time(cold.took),
            time(cold.processor),
            megabytes(cold.memory),
            cold.writes,
            time(plain)
        ));
        took.push(cold.took);
        memory.push(cold.memory);
        written.push(cold.writes.count());
        bare.push(plain);
    }
    let n = fleet.size;
    let what = format!("{n} pipelines × 3 targets, start to every status written");
    table.add(&what, "", times(&took), BudgetVerdict::None);
    table.add(&format!("  bare writes of the same {n} statuses"), "", times(&bare), BudgetVerdict::None);
    // The budget is a ratio, because the time depends on the machine.
    let ratios = took.iter().zip(&bare).map(|(start, bare)| start.as_secs_f64() / bare.as_secs_f64());
    let ratios: Vec<f64> = ratios.collect();
    let text = ratios.iter().map(|r| format!("{r:.2}")).collect::<Vec<_>>().join(", ");
    let good = ratios.iter().all(|r| *r <= 1.3);
    table.add("  as a multiple of bare writes", "≤ 1.3", text, BudgetVerdict::of(good));
    let most = memory.iter().max().copied().unwrap_or_default();
    let all = memory.iter().map(|m| megabytes(*m)).collect::<Vec<_>>().join(", ");
    table.add("  peak memory", "≤ 80 MB", all, BudgetVerdict::of(most <= 80_000_000));
    let all = written.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    table.add(
        "  API writes",
        &format!("{n}"),
        all,
        BudgetVerdict::of(written.iter().all(|w| *w == n as u64)),
    );
    settle_once(options, fleet).await
}

/// The costs of one start.
struct StartCosts {
    took: Duration,
    processor: Duration,
    memory: u64,
    writes: Writes,
}

async fn start(options: &BenchOptions, fleet: &PipelinesOnOneCluster) -> Result<StartCosts> {
    let before = Writes::total(&fleet.client).await?;
    let mut watch =
        Watch::begin(&fleet.client, &format!("{SLUICE}/namespaces/{PIPELINES_NAMESPACE}/pipelines")).await?;
    let size = fleet.size;
    let statuses = tokio::spawn(async move {
        let mut done = HashSet::new();
        while done.len() < size {
            let line = watch.next().await?;
            if line.contains("\"status\":{") && line.contains("\"observedGeneration\":") {
                let name = field(&line, "\"name\":\"app-").context("the object has no name")?;
                done.insert(name.to_owned());
            }
        }
        anyhow::Ok(Instant::now())
    });
    let controller = ControllerProcess::start(options, &fleet.cluster)?;
    let ended = tokio::time::timeout(START_TIMEOUT, statuses).await;
    let ended = ended.with_context(|| format!("statuses are missing:\n{}", controller.log()))???;
    let processor = processor_time(controller.pid())?;
    tokio::time::sleep(SETTLING_TIME).await;
    Ok(StartCosts {
        took: ended - controller.started,
        processor,
        memory: peak_memory(controller.pid())?,
        writes: Writes::total(&fleet.client).await?.since(&before, &[]),
    })
}

/// Writes the same statuses with the same kind of request.
async fn write_bare(fleet: &PipelinesOnOneCluster, pipelines: &[Value]) -> Result<Duration> {
    let client = fleet.cluster.client().await?;
    let objects: Vec<(String, Value)> = pipelines
        .iter()
        .map(|p| {
            let name = p["metadata"]["name"].as_str().unwrap_or_default();
            let url =
                format!("{SLUICE}/namespaces/{PIPELINES_NAMESPACE}/pipelines/{name}/status?fieldManager=sluice&force=true");
            let object = json!({"apiVersion": p["apiVersion"], "kind": p["kind"],
                "metadata": {"name": name, "namespace": PIPELINES_NAMESPACE}, "status": p["status"]});
            (url, object)
        })
        .collect();
    let started = Instant::now();
    run_concurrently(CONCURRENT, objects.iter().map(|(url, object)| apply(&client, url, object))).await?;
    Ok(started.elapsed())
}

/// Lets the controller write every status, without measuring it.
async fn settle_once(options: &BenchOptions, fleet: &PipelinesOnOneCluster) -> Result<()> {
    fleet.clear_statuses().await?;
    start(options, fleet).await.map(drop)
}

/// Measures starts with nothing changed, and leaves the last one running.
pub async fn restart(
    options: &BenchOptions,
    fleet: &PipelinesOnOneCluster,
    table: &mut ResultTable,
) -> Result<ControllerProcess> {
    let mut took = Vec::new();
    let mut written = Writes::default();
    loop {
        let before = Writes::total(&fleet.client).await?;
        let mut controller = ControllerProcess::start(options, &fleet.cluster)?;
        took.push(controller.settled(fleet.size).await?);
        let processor = processor_time(controller.pid())?;
        tokio::time::sleep(SETTLING_TIME).await;
        let memory = peak_memory(controller.pid())?;
        let writes = Writes::total(&fleet.client).await?.since(&before, &[]);
        let last = took.last().copied().unwrap_or_default();
        progress(&format!(
            "restart: {} ({} of processor), {}",
            time(last),
            time(processor),
            megabytes(memory)
        ));
        if writes.count() >= written.count() {
            written = writes;
        }
        if took.len() >= options.repeat || !options.wants(Measurement::Restart) {
            if options.wants(Measurement::Restart) {
                let good = percentile(&took, 100) <= Duration::from_secs(2);
                table.add(
                    "the same, restarted with nothing changed",
                    "≤ 2 s",
                    times(&took),
                    BudgetVerdict::of(good),
                );
                table.add("  API writes", "0", written.to_string(), BudgetVerdict::of(written.count() == 0));
            }
            // What is measured next should not wait for what the API server still does about this start.
            controller.at_rest().await?;
            return Ok(controller);
        }
    }
}
