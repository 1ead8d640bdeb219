//! A fleet of many clusters: start, memory and costs at rest. The clusters share a few API servers, so that they fit on
//! one machine. Sluice has a session of its own with each of them.

use crate::controller::ControllerProcess;
use crate::objects::{self, HELM, HELM_RELEASE, KUSTOMIZE, NAMESPACES, VERSION};
use crate::options::BenchOptions;
use crate::pages;
use crate::pipelines_fixture::{run_concurrently, set_healthy, write};
use crate::process_stats::{megabytes, peak_memory, processor_time, resident_memory};
use crate::table::{BudgetVerdict, ResultTable, percentile, progress, time, times};
use crate::viewers::{read, viewers};
use crate::writes::Writes;
use anyhow::{Context, Result, bail};
use axum::http::{Method, Request};
use kube::Client;
use serde_json::json;
use sluice_testkit::{Cluster, ControlPlane};
use std::time::{Duration, Instant};

/// The API servers of the clusters.
const SERVERS: usize = 2;
/// The number of HelmReleases, and of Kustomizations, of each cluster. There are two Deployments for each of them.
const APPLICATIONS: usize = 200;
/// The observed objects of each application: a namespace, a HelmRelease, a Kustomization and two Deployments.
const OBJECTS_OF_EACH: usize = 5;
/// The environment in the names of the objects.
const ENVIRONMENT: &str = "prod";
/// The number of concurrent writes while the objects are created.
const CONCURRENT: usize = 64;
/// The time limit of a start.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// How often each view is asked for.
const REQUESTS: usize = 500;
/// How many people ask.
const VIEWERS: usize = 3;
/// The namespace of the GitopsClusters.
pub const CLUSTERS_NAMESPACE: &str = "clusters";
/// The lists that a session reads: the API path, with the version that it finds.
const LISTS: [&str; 13] = [
    "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations",
    "/apis/helm.toolkit.fluxcd.io/v2/helmreleases",
    "/apis/source.toolkit.fluxcd.io/v1/gitrepositories",
    "/api/v1/namespaces",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/batch/v1/cronjobs",
    "/apis/source.toolkit.fluxcd.io/v1/ocirepositories",
    "/apis/source.toolkit.fluxcd.io/v1/helmrepositories",
    "/apis/source.toolkit.fluxcd.io/v1/helmcharts",
    "/apis/source.toolkit.fluxcd.io/v1/buckets",
    "/apis/source.toolkit.fluxcd.io/v1/externalartifacts",
];

/// Measures the observation of a fleet.
pub async fn measure(options: &BenchOptions, plane: &ControlPlane, table: &mut ResultTable) -> Result<()> {
    let hub = plane.cluster("fleet-hub").await?;
    hub.install_flux_crds().await?;
    hub.install_sluice_crds().await?;
    let mut servers = Vec::new();
    for n in 0..SERVERS {
        servers.push(leaf(plane, &format!("fleet-{n}"), APPLICATIONS).await?);
    }
    register(&hub, &servers, options.clusters).await?;
    let wanted = options.clusters * APPLICATIONS * OBJECTS_OF_EACH;
    let address = ControllerProcess::free_address()?;
    let (mut took, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = None;
    for _ in 0..options.repeat {
        drop(last.take());
        let plain = list_bare(&servers, options.clusters).await?;
        let api = format!("--api-addr={address}");
        let controller =
            ControllerProcess::start_with(options, &hub, &["--hook-addr=0", "--trust-proxy-token", &api])?;
        until_observed(&controller, wanted).await?;
        let started = controller.started.elapsed();
        progress(&format!(
            "{} clusters observed in {}, listed bare in {}",
            options.clusters,
            time(started),
            time(plain)
        ));
        ratios.push(started.as_secs_f64() / plain.as_secs_f64());
        (took, bare) = ([took, vec![started]].concat(), [bare, vec![plain]].concat());
        last = Some(controller);
    }
    let controller = last.context("no start was measured")?;
    let what = format!("{} clusters with {wanted} objects, start to all observed", options.clusters);
    table.add(&what, "", times(&took), BudgetVerdict::None);
    table.add("  bare lists of the same objects", "", times(&bare), BudgetVerdict::None);
    let text = ratios.iter().map(|r| format!("{r:.2}")).collect::<Vec<_>>().join(", ");
    let held = ratios.iter().all(|ratio| *ratio <= 1.5);
    table.add("  as a multiple of bare lists", "≤ 1.5", text, BudgetVerdict::of(held));
    rest(options, &hub, &controller, table).await?;
    let (base, viewers) = (format!("http://{address}"), viewers(&hub, VIEWERS).await?);
    api(&servers, &base, &viewers, table).await?;
    let viewer = viewers.first().context("nobody looks")?;
    for path in ["/clusters", "/charts", "/images"] {
        pages::of_clusters(&base, viewer, path, table).await?;
    }
    Ok(())
}

/// Asks each view of the API 100 times a second while workloads change, and measures the time to the whole answer.
async fn api(servers: &[Cluster], base: &str, viewers: &[String], table: &mut ResultTable) -> Result<()> {
    let clients = futures::future::try_join_all(servers.iter().map(Cluster::client)).await?;
    let changes = tokio::spawn(change_workloads(clients));
    let http = reqwest::Client::new();
    for path in [
        "clusters",
        "charts?limit=500",
        "images?name=app-001",
        "trace?cluster=clusters/cluster-007&kind=Deployment&namespace=app-001-prod&name=app-001",
    ] {
        let url = format!("{base}/api/v1/{path}");
        let mut asked = Vec::new();
        let mut pace = tokio::time::interval(Duration::from_millis(10));
        for token in viewers.iter().cycle().take(REQUESTS) {
            pace.tick().await;
            asked.push(tokio::spawn(read(http.get(&url).bearer_auth(token))));
        }
        let mut waits = Vec::new();
        for answer in asked {
            waits.push(answer.await?.with_context(|| path.to_string())?.took);
        }
        let at = |percent| time(percentile(&waits, percent));
        let what = format!("  API, 100 requests a second: {}", path.split('?').next().unwrap_or(path));
        table.add(&what, "", format!("p50 {}, p99 {}", at(50), at(99)), BudgetVerdict::None);
    }
    changes.abort();
    Ok(())
}

/// Changes a workload of each server ten times a second, and never ends.
async fn change_workloads(clients: Vec<Client>) {
    for n in 0.. {
        let application = format!("app-{:03}", n % APPLICATIONS);
        for client in &clients {
            let _ = set_healthy(client, &application, ENVIRONMENT, &format!("6.2.{n}")).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn rest(
    options: &BenchOptions,
    hub: &Cluster,
    controller: &ControllerProcess,
    table: &mut ResultTable,
) -> Result<()> {
    let client = hub.client().await?;
    // What follows from the start has ended after this time.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, used) = (Writes::total(&client).await?, processor_time(controller.pid())?);
    tokio::time::sleep(options.rest).await;
    let used = processor_time(controller.pid())? - used;
    let writes = Writes::total(&client).await?.since(&before, &[]);
    let share = 100.0 * used.as_secs_f64() / options.rest.as_secs_f64();
    let peak = peak_memory(controller.pid())?;
    table.add("  most memory", "≤ 250 MB", megabytes(peak), BudgetVerdict::of(peak <= 250_000_000));
    let memory = megabytes(resident_memory(controller.pid())?);
    table.add("  memory at rest", "", memory, BudgetVerdict::None);
    table.add(
        "  processor at rest",
        "< 2 % of a core",
        format!("{share:.2} %"),
        BudgetVerdict::of(share < 2.0),
    );
    table.add("  API writes at rest", "0", writes.to_string(), BudgetVerdict::of(writes.count() == 0));
    Ok(())
}

/// Starts an API server with the objects of one cluster: those of as many applications, in a namespace each.
///
/// # Errors
/// It does not start, or rejects an object.
pub async fn leaf(plane: &ControlPlane, name: &str, applications: usize) -> Result<Cluster> {
    let cluster = plane.cluster(name).await?;
    cluster.install_flux_crds().await?;
    let client = cluster.client().await?;
    let all = (0..applications).map(|n| create(&client, format!("app-{n:03}")));
    run_concurrently(CONCURRENT, all).await.context("cannot create the objects of a cluster")?;
    Ok(cluster)
}

async fn create(client: &Client, application: String) -> Result<()> {
    let namespace = objects::namespace(&application, ENVIRONMENT);
    let make = async |url: String, object| write(client, Method::POST, &url, &object).await;
    make(NAMESPACES.into(), json!({"metadata": {"name": namespace}})).await?;
    let release = objects::helm_release(&application, ENVIRONMENT);
    make(format!("{HELM}/namespaces/{namespace}/helmreleases"), release).await?;
    set_healthy(client, &application, ENVIRONMENT, VERSION).await?;
    let kustomizations = format!("{KUSTOMIZE}/namespaces/{namespace}/kustomizations");
    make(kustomizations.clone(), objects::kustomization(&application, ENVIRONMENT)).await?;
    let status = objects::applied(&application, ENVIRONMENT);
    write(client, Method::PATCH, &format!("{kustomizations}/{application}/status"), &status).await?;
    for (name, is_flux) in [(application.clone(), true), (format!("{application}-extra"), false)] {
        let mut deployment = objects::deployment(&application, ENVIRONMENT);
        deployment["metadata"]["name"] = name.clone().into();
        if !is_flux {
            deployment["metadata"]["labels"] = json!({"app.kubernetes.io/name": application});
        }
        let url = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        make(url.clone(), deployment).await?;
        write(client, Method::PATCH, &format!("{url}/{name}/status"), &objects::rolled_out()).await?;
    }
    Ok(())
}

/// Creates the GitopsClusters on the hub, in turn on each of the servers.
///
/// # Errors
/// The hub rejects an object.
pub async fn register(hub: &Cluster, servers: &[Cluster], count: usize) -> Result<()> {
    let client = hub.client().await?;
    let make = async |url: String, object| write(&client, Method::POST, &url, &object).await;
    make(NAMESPACES.into(), json!({"metadata": {"name": CLUSTERS_NAMESPACE}})).await?;
    for server in servers {
        let name = server.name();
        let secret = json!({"metadata": {"name": name}, "stringData": {"value": server.kubeconfig()}});
        make(format!("{NAMESPACES}/{CLUSTERS_NAMESPACE}/secrets"), secret).await?;
    }
    for (n, server) in (0..count).zip(servers.iter().cycle()) {
        let cluster = json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
            "metadata": {"name": format!("cluster-{n:03}")}, "spec": {"secretRef": {"name": server.name()}}});
        let url = format!("/apis/gitops.weave.works/v1alpha1/namespaces/{CLUSTERS_NAMESPACE}/gitopsclusters");
        make(url, cluster).await?;
    }
    Ok(())
}

/// Reads the same lists as Sluice, all at once and each cluster by a client of its own, and keeps nothing of them.
async fn list_bare(servers: &[Cluster], count: usize) -> Result<Duration> {
    let started = Instant::now();
    let mut clients = Vec::new();
    for (_, server) in (0..count).zip(servers.iter().cycle()) {
        clients.push(server.client().await?);
    }
    let lists = clients.iter().flat_map(|client| LISTS.map(|path| (client, path)));
    let all = lists.map(async |(client, path)| {
        client.request_text(Request::get(path).body(Vec::new())?).await.with_context(|| path)?;
        Ok(())
    });
    run_concurrently(count * LISTS.len(), all).await?;
    Ok(started.elapsed())
}

/// Waits until the controller observes as many objects.
async fn until_observed(controller: &ControllerProcess, objects: usize) -> Result<()> {
    while controller.started.elapsed() < START_TIMEOUT {
        if controller.metric("sluice_observed_objects").await.unwrap_or_default() >= objects as f64 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("not every object of {HELM_RELEASE} and its neighbours was observed:\n{}", controller.log())
}
