//! The time from a change of a workload's status to the pixels of the page that shows it, in a real Chromium.

use crate::page_server::{LIST, PageServer, listed};
use crate::pipelines_fixture::{PipelinesOnOneCluster, set_healthy};
use crate::table::{BudgetVerdict, ResultTable, percentile, progress, time};
use anyhow::{Context, Result, ensure};
use sluice_testkit::{Browser, eventually};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// The number of changes.
const CHANGES: usize = 100;
/// The time between two changes.
const PAUSE: Duration = Duration::from_millis(200);
/// The time limit for the page after the last change.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What the chart versions of the changes begin with. Nothing follows prod, so a change there promotes nothing.
const VERSIONS: &str = "7.0.";
/// Notes when the browser has painted each version. A change in the page is painted between the first and the second
/// animation frame after it.
const OBSERVE: &str = r#"
    window.painted = {};
    new MutationObserver((changes) => {
      const element = (node) => node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement;
      for (const row of new Set(changes.map((change) => element(change.target)?.closest(".row")))) {
        const version = row?.textContent.match(/7\.0\.\d+/)?.[0];
        if (!version || version in window.painted) continue;
        window.painted[version] = null;
        requestAnimationFrame(() => requestAnimationFrame(() => {
          window.painted[version] = performance.timeOrigin + performance.now();
        }));
      }
    }).observe(document.getElementById("main"),
      { subtree: true, childList: true, characterData: true, attributes: true });
"#;

/// Changes the status of a workload of different pipelines, and measures the time until the list of pipelines shows it.
pub async fn measure(
    fleet: &PipelinesOnOneCluster,
    server: &PageServer,
    table: &mut ResultTable,
) -> Result<()> {
    let changes = CHANGES.min(listed(fleet));
    let browser = opened(server).await?;
    browser.until_text(&format!("{} of {} pipelines", listed(fleet), fleet.size)).await?;
    browser.run(OBSERVE).await?;
    progress(&format!("{changes} workloads change while a browser shows the list"));
    let mut changed = HashMap::new();
    let mut clock = tokio::time::interval(PAUSE);
    for (n, application) in fleet.applications().take(changes).enumerate() {
        clock.tick().await;
        let version = format!("{VERSIONS}{n}");
        let before = milliseconds()?;
        set_healthy(&fleet.client, &application, "prod", &version).await?;
        changed.insert(version, before);
    }
    let painted = eventually(TIMEOUT, || async {
        let painted: HashMap<String, Option<f64>> =
            serde_json::from_value(browser.run("return window.painted").await?)?;
        let painted: HashMap<String, f64> =
            painted.into_iter().filter_map(|(v, at)| Some((v, at?))).collect();
        ensure!(painted.len() >= changes, "the page shows {} of {changes} changes", painted.len());
        Ok(painted)
    })
    .await?;
    let mut waits = Vec::new();
    for (version, before) in &changed {
        let at = painted.get(version).with_context(|| format!("{version} is not shown"))?;
        waits.push(Duration::from_secs_f64((at - before).max(0.0) / 1e3));
    }
    let at = |percent| percentile(&waits, percent);
    let text = format!("p50 {}, p99 {} (most {})", time(at(50)), time(at(99)), time(at(100)));
    let good = at(99) <= Duration::from_millis(300);
    table.add("workload changes → pixels of that page", "p99 ≤ 300 ms", text, BudgetVerdict::of(good));
    Ok(())
}

/// Opens the list as somebody who signs in.
async fn opened(server: &PageServer) -> Result<Browser> {
    let browser = Browser::start().await?;
    browser.open(&format!("{}{LIST}", server.base)).await?;
    browser.until_address("/sign-in?to=").await?;
    browser.write("#token", server.viewers.first().context("nobody looks")?).await?;
    browser.click("button.main").await?;
    browser.until_address(LIST).await?;
    Ok(browser)
}

/// Returns the time of this machine as the browser counts it, in milliseconds.
fn milliseconds() -> Result<f64> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64() * 1e3)
}
