//! A pipeline over three leaf clusters, one frozen (it accepts connections and never answers), one
//! that refuses them, one that works: how long a change on the last takes to show in status.

use crate::controller::Controller;
use crate::fleet::{set_healthy, write};
use crate::objects::{self, HELM, NAMESPACES, SLUICE, VERSION};
use crate::options::Options;
use crate::table::{Table, Verdict, percentile, time};
use crate::watch::Watch;
use anyhow::{Context, Result, bail};
use axum::http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use sluice_testkit::{Cluster, ControlPlane};
use std::time::{Duration, Instant};

/// The application; its pipeline has its name, and is in a namespace of its name.
const APPLICATION: &str = "shop";
/// Its one environment.
const ENVIRONMENT: &str = "dev";
/// The leaf clusters; the last one goes on working.
const LEAVES: [&str; 3] = ["frozen", "refused", "sound"];
/// The pause between two changes: enough of them fall before, while and after the troubles are seen.
const PAUSE: Duration = Duration::from_millis(800);
/// How long a change may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// Changes the cluster that works, and times its status.
pub async fn measure(options: &Options, plane: &ControlPlane, table: &mut Table) -> Result<()> {
    let hub = plane.cluster("isolation-hub").await?;
    let (frozen, refused, sound) =
        tokio::try_join!(leaf(plane, LEAVES[0]), leaf(plane, LEAVES[1]), leaf(plane, LEAVES[2]))?;
    let client = prepare(&hub, &[&frozen, &refused, &sound]).await?;
    let leaf = sound.client().await?;
    let controller = Controller::start(options, &hub)?;
    all_seen(&client, &controller).await?;
    frozen.freeze()?;
    refused.stop();
    let mut watch = Watch::begin(&client, &pipelines()).await?;
    let mut waits = Vec::new();
    for n in 1..=options.changes {
        let version = format!("6.2.{n}");
        set_healthy(&leaf, APPLICATION, ENVIRONMENT, &version).await?;
        let changed = Instant::now();
        let shown = shows(&mut watch, &version);
        let Ok(shown) = tokio::time::timeout(PATIENCE, shown).await else {
            bail!("{version} does not show:\n{}", controller.log());
        };
        shown?;
        waits.push(changed.elapsed());
        tokio::time::sleep_until((changed + PAUSE).into()).await;
    }
    let at = |percent| time(percentile(&waits, percent));
    let text = format!("p50 {}, p99 {} (most {})", at(50), at(99), at(100));
    let what = "one cluster frozen, one refused: change on the third → in status";
    table.add(what, "≤ 1 s", text, Verdict::of(percentile(&waits, 100) <= Duration::from_secs(1)));
    // What is frozen cannot end by itself.
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

/// Makes the leaves and the pipeline known to the hub.
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

/// Waits until all targets agree on what they run.
async fn all_seen(client: &Client, controller: &Controller) -> Result<()> {
    let begun = Instant::now();
    let url = format!("{}/{APPLICATION}", pipelines());
    while begun.elapsed() < PATIENCE {
        let pipeline: Value = client.request(Request::get(&url).body(Vec::new())?).await?;
        if pipeline["status"]["environments"][ENVIRONMENT]["revision"] == VERSION {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("not every cluster was read:\n{}", controller.log())
}

/// Waits until a status tells of a revision.
async fn shows(watch: &mut Watch, version: &str) -> Result<()> {
    let wanted = format!("\"revision\":\"{version}\"");
    while !watch.next().await.context("the hub's watch ended")?.contains(&wanted) {}
    Ok(())
}
