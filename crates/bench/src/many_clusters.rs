//! A fleet of many clusters: start, memory and costs at rest. The clusters share a few API servers, so that they fit on
//! one machine. Sluice has a session of its own with each of them.

use crate::clusters_fixture::{APPLICATIONS, leaf, register};
use crate::controller::ControllerProcess;
use crate::objects::HELM_RELEASE;
use crate::options::BenchOptions;
use crate::pipelines_fixture::run_concurrently;
use crate::process_stats::{megabytes, peak_memory, processor_time, resident_memory};
use crate::table::{BudgetVerdict, ResultTable, progress, time, times};
use crate::viewers::viewers;
use crate::writes::Writes;
use crate::{api_views, pages, pipelines_on_clusters};
use anyhow::{Context, Result, bail};
use axum::http::Request;
use sluice_testkit::{Cluster, ControlPlane};
use std::time::{Duration, Instant};

/// The API servers of the clusters.
const SERVERS: usize = 2;
/// The observed objects of each application: a namespace, a HelmRelease, a Kustomization and two Deployments.
const OBJECTS_OF_EACH: usize = 5;
/// The time limit of a start.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// How many pipelines the views of the API are asked about.
const PIPELINES: usize = 120;
/// How many people ask. Each may make 50 requests a second, and a check counts as eleven.
const VIEWERS: usize = 24;
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
    let fleet = pipelines_on_clusters::create(hub, PIPELINES, options.clusters).await?;
    pipelines_on_clusters::until_all_statuses(&fleet, &controller).await?;
    fleet.create_promotions().await?;
    api_views::measure(&fleet, &servers, &base, &viewers, table).await?;
    let viewer = viewers.first().context("nobody looks")?;
    for path in ["/clusters", "/charts", "/images"] {
        pages::of_clusters(&base, viewer, path, table).await?;
    }
    Ok(())
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
