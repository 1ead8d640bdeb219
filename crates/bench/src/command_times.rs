//! The size of the binary, and the duration of commands.

use crate::controller::run;
use crate::measurement::Measurement;
use crate::options::BenchOptions;
use crate::pipelines_fixture::PipelinesOnOneCluster;
use crate::process_stats::megabytes;
use crate::table::{BudgetVerdict, ResultTable, percentile, time};
use anyhow::{Context, Result};
use std::time::Duration;

/// Measures the size of the release binary.
pub fn size(options: &BenchOptions, table: &mut ResultTable) -> Result<()> {
    if options.wants(Measurement::Size) {
        let bytes = std::fs::metadata(&options.sluice)?.len();
        table.add("stripped binary", "≤ 30 MB", megabytes(bytes), BudgetVerdict::of(bytes <= 30_000_000));
    }
    Ok(())
}

/// Measures `sluice --help`.
pub fn help(options: &BenchOptions, table: &mut ResultTable) -> Result<()> {
    if !options.wants(Measurement::Help) {
        return Ok(());
    }
    let (median, text) = median_of(50, || run(&options.sluice, &["--help"]))?;
    table.add("sluice --help", "≤ 5 ms", text, BudgetVerdict::of(median <= Duration::from_millis(5)));
    Ok(())
}

/// Measures `sluice get` on the whole fleet, with a promotion of each pipeline.
pub fn list(options: &BenchOptions, fleet: &PipelinesOnOneCluster, table: &mut ResultTable) -> Result<()> {
    let kubeconfig = fleet.cluster.kubeconfig_path();
    let kubeconfig = kubeconfig.to_str().context("the path is not text")?;
    for what in ["pipelines", "promotions", "targets"] {
        for form in ["table", "wide", "json", "yaml"] {
            let arguments = ["get", what, "-A", "-o", form, "--kubeconfig", kubeconfig];
            let (median, text) = median_of(10, || run(&options.sluice, &arguments))?;
            let row = format!("sluice get {what} -o {form} on {}", fleet.size);
            // The budget is for the tables; the rest is for comparison.
            let (budget, verdict) = match (what, form) {
                ("pipelines", "table" | "wide") => {
                    ("≤ 0.2 s", BudgetVerdict::of(median <= Duration::from_millis(200)))
                }
                _ => ("", BudgetVerdict::None),
            };
            table.add(&row, budget, text, verdict);
        }
    }
    Ok(())
}

/// Returns the median of several runs, and a text with the median, the minimum and the maximum.
fn median_of(n: usize, mut run_once: impl FnMut() -> Result<Duration>) -> Result<(Duration, String)> {
    let runs = (0..n).map(|_| run_once()).collect::<Result<Vec<_>>>()?;
    let at = |percent| percentile(&runs, percent);
    let text = format!("{} (of {n}: {} to {})", time(at(50)), time(at(0)), time(at(100)));
    Ok((at(50), text))
}
