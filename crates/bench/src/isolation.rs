//! A pipeline on three leaf clusters: one is frozen (it accepts connections and does not answer), one refuses
//! connections, one works. The time until a change on the working cluster is in the pipeline's status.

use crate::controller::ControllerProcess;
use crate::objects::{self, HELM, NAMESPACES, SLUICE, VERSION};
use crate::options::BenchOptions;
use crate::pipelines_fixture::{set_healthy, write};
use crate::table::{BudgetVerdict, ResultTable, percentile, time};
use crate::watch::Watch;
use anyhow::{Context, Result, bail};
use axum::http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use sluice_testkit::{Cluster, ControlPlane};
use std::time::{Duration, Instant};

/// The application. Its pipeline and the namespace of that have the same name.
const APPLICATION: &str = "shop";
/// The only environment.
const ENVIRONMENT: &str = "dev";
/// The leaf clusters; the last one keeps working.
const LEAVES: [&str; 3] = ["frozen", "refused", "working"];
/// The pause between two changes, so that there are changes before, while and after Sluice notices the broken clusters.
const PAUSE: Duration = Duration::from_millis(800);
/// The time limit of a change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Changes the working cluster, and measures the time until the change is in the status.
pub async fn measure(options: &BenchOptions, plane: &ControlPlane, table: &mut ResultTable) -> Result<()> {
    let hub = plane.cluster("isolation-hub").await?;
    let (frozen, refused, working) =
        tokio::try_join!(leaf(plane, LEAVES[0]), leaf(plane, LEAVES[1]), leaf(plane, LEAVES[2]))?;
    let client = prepare(&hub, &[&frozen, &refused, &working]).await?;
    let leaf = working.client().await?;
    let controller = ControllerProcess::start(options, &hub)?;
    until_observed(&client, &controller).await?;
    frozen.freeze()?;
    refused.stop();
    let mut watch = Watch::begin(&client, &pipelines()).await?;
    let mut waits = Vec::new();
    for n in 1..=options.changes {
        let version = format!("6.2.{n}");
        set_healthy(&leaf, APPLICATION, ENVIRONMENT, &version).await?;
        let changed = Instant::now();
        let observed = until_in_status(&mut watch, &version);
        let Ok(observed) = tokio::time::timeout(CHANGE_TIMEOUT, observed).await else {
            bail!("{version} is not in the status:\n{}", controller.log());
        };
        observed?;
        waits.push(changed.elapsed());
        tokio::time::sleep_until((changed + PAUSE).into()).await;
    }
    let at = |percent| time(percentile(&waits, percent));
    let text = format!("p50 {}, p99 {} (most {})", at(50), at(99), at(100));
    let what = "one cluster frozen, one refused: change on the third → in status";
    table.add(what, "≤ 1 s", text, BudgetVerdict::of(percentile(&waits, 100) <= Duration::from_secs(1)));
    // A frozen server cannot end.
    frozen.thaw()
}

async fn leaf(plane: &ControlPlane, name: &str) -> Result<Cluster> {
    let cluster = plane.cluster(name).await?;
    cluster.install_flux_crds().await?;
    let client = cluster.client().await?;
    let namespace = objects::namespace(APPLICATION, ENVIRONMENT);
    write(&client, Method::POST, NAMESPACES, &json!({"metadata": {"name": namespace}})).await?;
    let url = format!("{HELM}/namespaces/{namespace}/helmreleases");
    write(&client, Method::POST, &url, &objects::helm_release(APPLICATION, ENVIRONMENT)).await?;
    set_healthy(&client, APPLICATION, ENVIRONMENT, VERSION).await?;
    Ok(cluster)
}

/// Creates the GitopsClusters and the pipeline on the hub.
async fn prepare(hub: &Cluster, leaves: &[&Cluster]) -> Result<Client> {
    hub.install_flux_crds().await?;
    hub.install_sluice_crds().await?;
    let client = hub.client().await?;
    let make = async |url: String, object: Value| write(&client, Method::POST, &url, &object).await;
    make(NAMESPACES.into(), json!({"metadata": {"name": APPLICATION}})).await?;
    for leaf in leaves {
        let name = leaf.name();
        let secret = json!({"metadata": {"name": name}, "stringData": {"value": leaf.kubeconfig()}});
        make(format!("{NAMESPACES}/{APPLICATION}/secrets"), secret).await?;
        let cluster = json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
            "metadata": {"name": name}, "spec": {"secretRef": {"name": name}}});
        let url = format!("/apis/gitops.weave.works/v1alpha1/namespaces/{APPLICATION}/gitopsclusters");
        make(url, cluster).await?;
    }
    let strategy = json!({"commit": {"url": "https://git.invalid/acme/fleet.git", "branch": "main"}});
    let promotion = json!({"manual": true, "strategy": strategy});
    let mut pipeline = objects::pipeline(APPLICATION, APPLICATION, &[ENVIRONMENT], &promotion);
    let targets = leaves.iter().map(|leaf| {
        json!({"namespace": objects::namespace(APPLICATION, ENVIRONMENT),
            "clusterRef": {"kind": "GitopsCluster", "name": leaf.name()}})
    });
    pipeline["spec"]["environments"][0]["targets"] = targets.collect();
    make(pipelines(), pipeline).await?;
    Ok(client)
}

fn pipelines() -> String {
    format!("{SLUICE}/namespaces/{APPLICATION}/pipelines")
}

/// Waits until all targets have the same revision in the status.
async fn until_observed(client: &Client, controller: &ControllerProcess) -> Result<()> {
    let started = Instant::now();
    let url = format!("{}/{APPLICATION}", pipelines());
    while started.elapsed() < CHANGE_TIMEOUT {
        let pipeline: Value = client.request(Request::get(&url).body(Vec::new())?).await?;
        if pipeline["status"]["environments"][ENVIRONMENT]["revision"] == VERSION {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("Sluice has not read every cluster:\n{}", controller.log())
}

/// Waits until a status has a revision.
async fn until_in_status(watch: &mut Watch, version: &str) -> Result<()> {
    let wanted = format!("\"revision\":\"{version}\"");
    while !watch.next().await.context("the hub's watch ended")?.contains(&wanted) {}
    Ok(())
}
