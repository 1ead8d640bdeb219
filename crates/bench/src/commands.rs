//! The binary itself, and what a person waits for at the command line.

use crate::controller::run;
use crate::fleet::Fleet;
use crate::options::{Options, Row};
use crate::outside::megabytes;
use crate::table::{Table, Verdict, percentile, time};
use anyhow::{Context, Result};
use std::time::Duration;

/// The size of the release binary.
pub fn size(options: &Options, table: &mut Table) -> Result<()> {
    if options.wants(Row::Size) {
        let bytes = std::fs::metadata(&options.sluice)?.len();
        table.add("stripped binary", "≤ 30 MB", megabytes(bytes), Verdict::of(bytes <= 30_000_000));
    }
    Ok(())
}

/// `sluice --help`.
pub fn help(options: &Options, table: &mut Table) -> Result<()> {
    if !options.wants(Row::Help) {
        return Ok(());
    }
    let (middle, text) = several(50, || run(&options.sluice, &["--help"]))?;
    table.add("sluice --help", "≤ 10 ms", text, Verdict::of(middle <= Duration::from_millis(10)));
    Ok(())
}

/// `sluice get` on the whole fleet, which has a promotion for each pipeline by then.
pub async fn list(options: &Options, fleet: &Fleet, table: &mut Table) -> Result<()> {
    fleet.make_promotions().await?;
    let kubeconfig = fleet.cluster.kubeconfig_path();
    let kubeconfig = kubeconfig.to_str().context("a path that is not text")?;
    for what in ["pipelines", "promotions", "targets"] {
        for form in ["table", "wide", "json", "yaml"] {
            let arguments = ["get", what, "-A", "-o", form, "--kubeconfig", kubeconfig];
            let (middle, text) = several(10, || run(&options.sluice, &arguments))?;
            let row = format!("sluice get {what} -o {form} on {}", fleet.size);
            // The budget is for what people look at; the rest is for comparison.
            let (budget, verdict) = match (what, form) {
                ("pipelines", "table" | "wide") => {
                    ("≤ 0.5 s", Verdict::of(middle <= Duration::from_millis(500)))
                }
                _ => ("", Verdict::None),
            };
            table.add(&row, budget, text, verdict);
        }
    }
    Ok(())
}

/// The middle of several runs, and a text with the best and the worst of them too.
fn several(n: usize, mut once: impl FnMut() -> Result<Duration>) -> Result<(Duration, String)> {
    let runs = (0..n).map(|_| once()).collect::<Result<Vec<_>>>()?;
    let at = |percent| percentile(&runs, percent);
    let text = format!("{} (of {n}: {} to {})", time(at(50)), time(at(0)), time(at(100)));
    Ok((at(50), text))
}
