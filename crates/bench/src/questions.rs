//! Commands that answer questions about many pipelines on 20 clusters, against the requests of `kubectl get pipelines`. There
//! is no kubectl in the measurement: a bare client makes its requests and reads the answers, and prints nothing. So the
//! figures for kubectl lack the start of a process, the discovery of kinds, and the printing of the table.

use crate::clusters_fixture::{leaf, register};
use crate::controller::{ControllerProcess, run};
use crate::objects::SLUICE;
use crate::options::BenchOptions;
use crate::pipelines_fixture::{PIPELINES_NAMESPACE, PipelinesOnOneCluster};
use crate::pipelines_on_clusters;
use crate::table::{BudgetVerdict, ResultTable, percentile, time};
use anyhow::{Context, Result, ensure};
use axum::http::Request;
use serde_json::Value;
use sluice_testkit::{Cluster, ControlPlane};
use std::time::{Duration, Instant};

/// The number of clusters. They share one API server, with a session of Sluice's for each.
const CLUSTERS: usize = 20;
/// How often each command runs, in turn with the requests of kubectl.
const ROUNDS: usize = 10;
/// The `Accept` of `kubectl get`
/// ([get.go](https://github.com/kubernetes/kubectl/blob/5be1f71cd159/pkg/cmd/get/get.go), `transformRequests`).
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
                     application/json";
/// The rows of one answer: `--chunk-size` of `kubectl get`.
const CHUNK: usize = 500;

/// A command, and the most time that it may take, as a multiple of the requests of kubectl.
const COMMANDS: [(&[&str], f64); 5] = [
    (&["get", "pipelines", "-A"], 1.0),
    (&["charts", "-A"], 3.0),
    (&["images", "-A"], 3.0),
    (&["tree", "app-00000", "-n", PIPELINES_NAMESPACE], 0.5),
    (&["status", "app-00000", "-n", PIPELINES_NAMESPACE], 1.5),
];

/// Measures the commands.
pub async fn measure(options: &BenchOptions, plane: &ControlPlane, table: &mut ResultTable) -> Result<()> {
    let fleet = build(options, plane).await?;
    let kubeconfig = fleet.cluster.kubeconfig_path();
    let kubeconfig = kubeconfig.to_str().context("the path is not text")?;
    let (mut requests, mut commands) = (Vec::new(), COMMANDS.map(|_| Vec::new()));
    for _ in 0..ROUNDS {
        requests.push(requests_of_kubectl(&fleet.cluster, fleet.size).await?);
        for ((arguments, _), took) in COMMANDS.iter().zip(&mut commands) {
            took.push(run(&options.sluice, &[*arguments, &["--kubeconfig", kubeconfig]].concat())?);
        }
    }
    let of_kubectl = percentile(&requests, 50);
    let what = format!(
        "requests of kubectl get pipelines -A by a bare client, {} on {CLUSTERS} clusters",
        fleet.size
    );
    table.add(&what, "", times(&requests), BudgetVerdict::None);
    for ((arguments, most), took) in COMMANDS.iter().zip(&commands) {
        let ratio = percentile(took, 50).as_secs_f64() / of_kubectl.as_secs_f64();
        let what = format!("  sluice {}, as a multiple of them", arguments.join(" "));
        let verdict = BudgetVerdict::of(ratio <= *most);
        table.add(&what, &format!("≤ {most}"), format!("{ratio:.2}: {}", times(took)), verdict);
    }
    Ok(())
}

/// Returns the median, the minimum and the maximum as a text.
fn times(all: &[Duration]) -> String {
    let at = |percent| time(percentile(all, percent));
    format!("{} (of {}: {} to {})", at(50), all.len(), at(0), at(100))
}

/// Lists the pipelines of all namespaces as kubectl does, with a connection of its own.
async fn requests_of_kubectl(hub: &Cluster, expected: usize) -> Result<Duration> {
    let started = Instant::now();
    let client = hub.client().await?;
    let (mut rows, mut next) = (0, String::new());
    loop {
        let url = format!("{SLUICE}/pipelines?limit={CHUNK}&continue={next}");
        let request = Request::get(url).header("accept", TABLE).body(Vec::new())?;
        let answer: Value = client.request(request).await.context("cannot list the pipelines")?;
        rows += answer["rows"].as_array().context("the answer is no table")?.len();
        match answer["metadata"]["continue"].as_str() {
            None | Some("") => break,
            Some(more) => next = more.to_owned(),
        }
    }
    let took = started.elapsed();
    ensure!(rows == expected, "{rows} pipelines were listed, not {expected}");
    Ok(took)
}

/// Creates the clusters and the pipelines, lets a controller write the statuses, and adds a promotion of each pipeline.
async fn build(options: &BenchOptions, plane: &ControlPlane) -> Result<PipelinesOnOneCluster> {
    let hub = plane.cluster("questions-hub").await?;
    hub.install_flux_crds().await?;
    hub.install_sluice_crds().await?;
    let applications = pipelines_on_clusters::applications(options.pipelines);
    let servers = [leaf(plane, "questions-leaf", applications).await?];
    register(&hub, &servers, CLUSTERS).await?;
    let fleet = pipelines_on_clusters::create(hub, options.pipelines, CLUSTERS).await?;
    let flags = ["--hook-addr=0", "--observe=targets"];
    let controller = ControllerProcess::start_with(options, &fleet.cluster, &flags)?;
    pipelines_on_clusters::until_all_statuses(&fleet, &controller).await?;
    drop((controller, servers));
    fleet.create_promotions().await?;
    Ok(fleet)
}
