//! Pipelines of applications that run on many clusters.

use crate::clusters_fixture::CLUSTERS_NAMESPACE;
use crate::controller::ControllerProcess;
use crate::objects::{self, ENVIRONMENTS, NAMESPACES, SLUICE};
use crate::pipelines_fixture::{PIPELINES_NAMESPACE, PipelinesOnOneCluster, run_concurrently, write};
use crate::table::{progress, time};
use anyhow::{Context, Result, bail};
use axum::http::Method;
use serde_json::{Value, json};
use sluice_testkit::Cluster;
use std::time::{Duration, Instant};

/// How many pipelines promote one application, each on three of the clusters.
const PIPELINES_OF_ONE: usize = 6;
/// The time limit until all statuses are written.
const STATUS_TIMEOUT: Duration = Duration::from_secs(120);
/// The number of concurrent writes while the pipelines are created.
const CONCURRENT: usize = 64;

/// Returns the number of applications of so many pipelines.
pub fn applications(pipelines: usize) -> usize {
    pipelines.div_ceil(PIPELINES_OF_ONE)
}

/// Creates pipelines on a hub that has the clusters. They have no status.
///
/// # Errors
/// The hub rejects an object.
pub async fn create(hub: Cluster, pipelines: usize, clusters: usize) -> Result<PipelinesOnOneCluster> {
    let client = hub.client().await?;
    let fleet = PipelinesOnOneCluster { cluster: hub, client, size: pipelines };
    let namespace = json!({"metadata": {"name": PIPELINES_NAMESPACE}});
    write(&fleet.client, Method::POST, NAMESPACES, &namespace).await?;
    let url =
        format!("{SLUICE}/namespaces/{PIPELINES_NAMESPACE}/pipelines?fieldManager=kustomize-controller");
    let all = fleet
        .applications()
        .enumerate()
        .map(async |(n, name)| write(&fleet.client, Method::POST, &url, &pipeline(n, &name, clusters)).await);
    run_concurrently(CONCURRENT, all).await.context("cannot create the pipelines")?;
    Ok(fleet)
}

/// A pipeline of an application that runs in one namespace on three of the clusters.
fn pipeline(number: usize, name: &str, clusters: usize) -> Value {
    let application = number / PIPELINES_OF_ONE;
    let promotion = json!({"manual": true, "strategy": {"notification": {}}});
    let mut pipeline = objects::pipeline(name, PIPELINES_NAMESPACE, &ENVIRONMENTS, &promotion);
    pipeline["spec"]["appRef"]["name"] = format!("app-{application:03}").into();
    for e in 0..ENVIRONMENTS.len() {
        let cluster = (number * ENVIRONMENTS.len() + application + e) % clusters;
        pipeline["spec"]["environments"][e]["targets"] = json!([{
            "namespace": format!("app-{application:03}-prod"),
            "clusterRef": {"kind": "GitopsCluster", "name": format!("cluster-{cluster:03}"), "namespace": CLUSTERS_NAMESPACE},
        }]);
    }
    pipeline
}

/// Waits until the status of each pipeline shows a healthy workload in each environment.
///
/// # Errors
/// It takes too long, or a list cannot be read.
pub async fn until_all_statuses(fleet: &PipelinesOnOneCluster, controller: &ControllerProcess) -> Result<()> {
    let is_healthy = |pipeline: &Value| {
        ENVIRONMENTS.iter().all(|name| {
            let target = &pipeline["status"]["environments"][name]["targets"][0];
            target["health"] == "Ready" && target["workloads"].as_array().is_some_and(|all| all.len() > 1)
        })
    };
    let started = Instant::now();
    while started.elapsed() < STATUS_TIMEOUT {
        let all = fleet.pipelines().await?;
        if all.iter().all(is_healthy) {
            progress(&format!("{} statuses written in {}", all.len(), time(started.elapsed())));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    bail!("not every pipeline is healthy in each environment:\n{}", controller.log())
}
