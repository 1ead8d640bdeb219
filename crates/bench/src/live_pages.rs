//! Many people who leave the list of pipelines open: the memory and the processor time of the process that serves them, and
//! the time until all of them have a change.

use crate::options::BenchOptions;
use crate::page_server::{LIST, LIVE_PAGES_OF_ONE, PageServer, listed};
use crate::pipelines_fixture::{PipelinesOnOneCluster, set_healthy};
use crate::process_stats::{megabytes, processor_time, resident_memory};
use crate::table::{BudgetVerdict, ResultTable, percentile, progress, time};
use anyhow::{Context, Result, bail};
use reqwest::{Client, Response};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The number of changes.
const CHANGES: usize = 20;
/// The time between two changes.
const PAUSE: Duration = Duration::from_secs(1);
/// The time limit for the pages after the last change.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What the chart versions of the changes begin with. Nothing follows prod, so a change there promotes nothing.
const VERSIONS: &str = "8.0.";

/// A change that a page has received: its number, and when.
type Received = (usize, Instant);

/// Opens the pages, and measures the process at rest and while workloads change.
pub async fn measure(
    options: &BenchOptions,
    fleet: &PipelinesOnOneCluster,
    server: &PageServer,
    table: &mut ResultTable,
) -> Result<()> {
    let pid = server.controller.pid();
    let count = options.live_pages;
    let (before, used) = (resident_memory(pid)?, processor_time(pid)?);
    let (sender, received) = mpsc::unbounded_channel();
    let pages = open(server, count, &sender).await?;
    drop(sender);
    let opening = processor_time(pid)? - used;
    progress(&format!("{count} live pages are open, after {} of processor; now at rest", time(opening)));
    let used = processor_time(pid)?;
    tokio::time::sleep(options.rest).await;
    let share = share(processor_time(pid)? - used, options.rest);
    let memory = resident_memory(pid)?;
    let text = format!("{} (without: {})", megabytes(memory), megabytes(before));
    table.add(&format!("{count} live pages of that list: memory"), "", text, BudgetVerdict::None);
    table.add("  processor at rest", "", format!("{share:.2} % of a core"), BudgetVerdict::None);
    change(fleet, server, (count, received), table).await?;
    pages.into_iter().for_each(|page| page.abort());
    Ok(())
}

/// Changes one workload after the other, and measures the time until each page has the change.
async fn change(
    fleet: &PipelinesOnOneCluster,
    server: &PageServer,
    (count, mut received): (usize, mpsc::UnboundedReceiver<Received>),
    table: &mut ResultTable,
) -> Result<()> {
    let pid = server.controller.pid();
    let changes = CHANGES.min(listed(fleet));
    let (started, used) = (Instant::now(), processor_time(pid)?);
    let mut changed = Vec::new();
    let mut clock = tokio::time::interval(PAUSE);
    for (n, application) in fleet.applications().take(changes).enumerate() {
        clock.tick().await;
        changed.push(Instant::now());
        set_healthy(&fleet.client, &application, "prod", &format!("{VERSIONS}{n}")).await?;
    }
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    let mut waits = Vec::new();
    while waits.len() < count * changes {
        match tokio::time::timeout_at(deadline, received.recv()).await {
            Ok(Some((n, at))) => waits.extend(changed.get(n).map(|before| at.duration_since(*before))),
            Ok(None) => bail!("the server has closed every page"),
            Err(_) => bail!("{} of {} changes arrived", waits.len(), count * changes),
        }
    }
    let took = started.elapsed();
    let share = share(processor_time(pid)? - used, took);
    let at = |percent| time(percentile(&waits, percent));
    let text = format!("p50 {}, p99 {} (most {})", at(50), at(99), at(100));
    table.add("  workload changes → event at each, one a second", "", text, BudgetVerdict::None);
    table.add("  processor meanwhile", "", format!("{share:.0} % of a core"), BudgetVerdict::None);
    table.add("  memory then", "", megabytes(resident_memory(pid)?), BudgetVerdict::None);
    Ok(())
}

/// Returns how much of a core was used, in percent.
fn share(used: Duration, of: Duration) -> f64 {
    100.0 * used.as_secs_f64() / of.as_secs_f64()
}

/// Opens live pages as browsers do: each has the list already.
async fn open(
    server: &PageServer,
    count: usize,
    received: &mpsc::UnboundedSender<Received>,
) -> Result<Vec<tokio::task::JoinHandle<()>>> {
    let http = Client::new();
    let mut pages = Vec::new();
    for (at, viewer) in
        server.viewers.iter().flat_map(|viewer| [viewer; LIVE_PAGES_OF_ONE]).take(count).enumerate()
    {
        let page = http.get(format!("{}{LIST}", server.base)).bearer_auth(viewer).send().await?;
        let page = page.error_for_status()?.text().await?;
        let have = page.split("data-have=\"").nth(1).and_then(|rest| rest.split('"').next());
        let have = have.context("the page is not live")?;
        let live =
            format!("{}/live?of={}&have={have}", server.base, LIST.replace('?', "%3F").replace('=', "%3D"));
        let live = http.get(live).bearer_auth(viewer).send().await?.error_for_status();
        let live = live.with_context(|| format!("live page {at} of {count}"))?;
        pages.push(tokio::spawn(follow(live, received.clone())));
    }
    Ok(pages)
}

/// Reads the events of a page until the server closes it.
async fn follow(mut page: Response, received: mpsc::UnboundedSender<Received>) {
    // The start of an event may be in one piece, and its end in the next.
    let mut text = String::new();
    let mut known = HashSet::new();
    while let Ok(Some(piece)) = page.chunk().await {
        let now = Instant::now();
        text.push_str(&String::from_utf8_lossy(&piece));
        while let Some((event, rest)) = text.split_once("\n\n") {
            // A pipeline may change again.
            if let Some(n) = number(event).filter(|n| known.insert(*n)) {
                let _ = received.send((n, now));
            }
            text = rest.to_owned();
        }
    }
}

/// Returns the number of the change that an event is about.
fn number(event: &str) -> Option<usize> {
    let rest = event.split_once(VERSIONS)?.1;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
