//! The pages for people: how long the server takes, and how much it sends.

use crate::page_server::{LIST, PageServer, listed};
use crate::pipelines_fixture::{PIPELINES_NAMESPACE, PipelinesOnOneCluster};
use crate::table::{BudgetVerdict, ResultTable, percentile, time};
use crate::viewers::{ReadAnswer, read};
use anyhow::{Context, Result};
use std::time::Duration;

/// How often each page is asked for.
const REQUESTS: usize = 100;
/// The time between two requests, within what one person may ask for.
const PAUSE: Duration = Duration::from_millis(25);

/// Measures the pages of a fleet.
pub async fn measure(
    fleet: &PipelinesOnOneCluster,
    server: &PageServer,
    table: &mut ResultTable,
) -> Result<()> {
    let viewer = server.viewers.first().context("nobody looks")?;
    let what = format!("page of {} pipelines, of {}", listed(fleet), fleet.size);
    for (what, group) in [(what.as_str(), ""), ("  in groups by health", "&group=health")] {
        let answers = ask(&format!("{}{LIST}{group}", server.base), viewer).await?;
        add(table, what, &answers, Some(Budget { time: Duration::from_millis(50), size: 60_000 }));
    }
    let pipeline = format!("{}/pipelines/{PIPELINES_NAMESPACE}/app-00007", server.base);
    add(table, "page of one of them", &ask(&pipeline, viewer).await?, None);
    Ok(())
}

/// Measures a page of a fleet of clusters.
pub async fn of_clusters(base: &str, viewer: &str, path: &str, table: &mut ResultTable) -> Result<()> {
    let answers = ask(&format!("{base}{path}"), viewer).await?;
    add(table, &format!("  page {path}"), &answers, None);
    Ok(())
}

/// What a page may cost.
struct Budget {
    time: Duration,
    /// As it is sent, in bytes.
    size: usize,
}

/// Asks for a page, one request after the other.
async fn ask(url: &str, viewer: &str) -> Result<Vec<ReadAnswer>> {
    let http = reqwest::Client::new();
    let mut answers = Vec::new();
    let mut pace = tokio::time::interval(PAUSE);
    for _ in 0..REQUESTS {
        pace.tick().await;
        answers.push(read(http.get(url).bearer_auth(viewer)).await.with_context(|| url.to_owned())?);
    }
    Ok(answers)
}

fn add(table: &mut ResultTable, what: &str, answers: &[ReadAnswer], budget: Option<Budget>) {
    let waits: Vec<Duration> = answers.iter().map(|answer| answer.took).collect();
    let at = |percent| percentile(&waits, percent);
    let largest = answers.iter().map(|answer| answer.size).max().unwrap_or_default();
    let first = waits.first().copied().unwrap_or_default();
    let text = format!("p50 {}, p99 {}, the first {}", time(at(50)), time(at(99)), time(first));
    let size = format!("{:.1} kB", largest as f64 / 1e3);
    match budget {
        Some(budget) => {
            let times = format!("p99 ≤ {}", time(budget.time));
            table.add(what, &times, text, BudgetVerdict::of(at(99) <= budget.time));
            let sizes = format!("≤ {} kB", budget.size / 1000);
            table.add("  compressed", &sizes, size, BudgetVerdict::of(largest <= budget.size));
        }
        None => table.add(what, "", format!("{text}, compressed {size}"), BudgetVerdict::None),
    }
}
