//! The views of the API at 100 requests a second, while workloads of the fleet change.

use crate::clusters_fixture::{APPLICATIONS, ENVIRONMENT};
use crate::pipelines_fixture::{PIPELINES_NAMESPACE, PipelinesOnOneCluster, set_healthy};
use crate::table::{BudgetVerdict, ResultTable, percentile, time};
use crate::viewers::read;
use anyhow::{Context, Result};
use kube::Client;
use serde_json::Value;
use sluice_testkit::Cluster;
use std::time::Duration;

/// How often each view is asked for.
const REQUESTS: usize = 500;
/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks each view of the API, and measures the time to the whole answer.
///
/// # Errors
/// An answer says that something is wrong.
pub async fn measure(
    fleet: &PipelinesOnOneCluster,
    servers: &[Cluster],
    base: &str,
    viewers: &[String],
    table: &mut ResultTable,
) -> Result<()> {
    let http = reqwest::Client::new();
    let viewer = viewers.first().context("nobody looks")?;
    let views = views(fleet, &http, base, viewer).await?;
    let clients = futures::future::try_join_all(servers.iter().map(Cluster::client)).await?;
    let changes = tokio::spawn(change_workloads(clients));
    for (name, path) in views {
        let url = format!("{base}/api/v1/{path}");
        let mut asked = Vec::new();
        let mut pace = tokio::time::interval(PAUSE);
        for token in viewers.iter().cycle().take(REQUESTS) {
            pace.tick().await;
            asked.push(tokio::spawn(read(http.get(&url).bearer_auth(token))));
        }
        let mut waits = Vec::new();
        for answer in asked {
            waits.push(answer.await?.with_context(|| path.clone())?.took);
        }
        let at = |percent| time(percentile(&waits, percent));
        let what = format!("  API, 100 requests a second: {name}");
        table.add(&what, "", format!("p50 {}, p99 {}", at(50), at(99)), BudgetVerdict::None);
    }
    if changes.is_finished() {
        return changes.await?.context("the fleet has stopped changing");
    }
    changes.abort();
    Ok(())
}

/// Returns the views, each with its path.
async fn views(
    fleet: &PipelinesOnOneCluster,
    http: &reqwest::Client,
    base: &str,
    viewer: &str,
) -> Result<Vec<(&'static str, String)>> {
    let pipeline = fleet.applications().next().context("there are no pipelines")?;
    let pipeline = format!("pipelines/{PIPELINES_NAMESPACE}/{pipeline}");
    let history = format!("{pipeline}/history");
    let answer = http.get(format!("{base}/api/v1/{history}")).bearer_auth(viewer).send().await?;
    let answer: Value = answer.error_for_status()?.json().await?;
    let promotion = answer["items"][0]["name"].as_str().context("the history is empty")?;
    Ok(vec![
        ("pipelines", "pipelines?limit=100".into()),
        ("pipeline", pipeline.clone()),
        ("explain", format!("{pipeline}/explain")),
        ("promotion", format!("promotions/{PIPELINES_NAMESPACE}/{promotion}")),
        ("history", history),
        ("tree", format!("{pipeline}/tree")),
        ("triggers", format!("{pipeline}/triggers")),
        ("events", format!("{pipeline}/events")),
        ("check", "check".into()),
        ("clusters", "clusters".into()),
        ("charts", "charts?limit=500".into()),
        ("images", "images?limit=500".into()),
        ("images of a name", "images?name=app-001".into()),
        (
            "trace",
            "trace?cluster=clusters/cluster-007&kind=Deployment&namespace=app-001-prod&name=app-001".into(),
        ),
    ])
}

/// Changes a workload of each server ten times a second, and ends only with an error.
async fn change_workloads(clients: Vec<Client>) -> Result<()> {
    for n in 0.. {
        let application = format!("app-{:03}", n % APPLICATIONS);
        for client in &clients {
            set_healthy(client, &application, ENVIRONMENT, &format!("6.2.{n}")).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
