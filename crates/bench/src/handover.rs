//! Three replicas share the pipelines. One is killed, then one is terminated: the time until other replicas hold its
//! shards, and until a simultaneous change of every pipeline's workload is in the statuses.

use crate::controller::ControllerProcess;
use crate::objects::{self, HELM, NAMESPACES, SLUICE};
use crate::options::BenchOptions;
use crate::pipelines_fixture::{set_healthy, write};
use crate::table::{BudgetVerdict, ResultTable, time, times};
use anyhow::{Result, ensure};
use axum::http::{Method, Request};
use futures::future::try_join_all;
use kube::Client;
use serde_json::{Value, json};
use sluice_testkit::{Cluster, ControlPlane, eventually};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The namespace of the pipelines and the Leases.
const NAMESPACE: &str = "handover";
/// The only environment.
const ENVIRONMENT: &str = "dev";
/// The number of replicas, and of shards.
const REPLICAS: usize = 3;
/// The number of pipelines: enough that every shard has some.
const APPLICATIONS: usize = 24;
/// The time limit of each wait.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// How a replica ends.
#[derive(Clone, Copy)]
enum ReplicaEnd {
    Killed,
    Terminated,
}

/// Ends replicas, and measures the takeover by the others.
pub async fn measure(options: &BenchOptions, plane: &ControlPlane, table: &mut ResultTable) -> Result<()> {
    let hub = plane.cluster("handover").await?;
    let client = prepare(&hub).await?;
    let start = || {
        let shards = format!("--shards={REPLICAS}");
        let leases = format!("--leader-election-namespace={NAMESPACE}");
        ControllerProcess::start_with(options, &hub, &["--hook-addr=0", "--leader-elect", &leases, &shards])
    };
    let mut replicas = (0..REPLICAS).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let mut version = 0;
    for (end, description, budget) in
        [(ReplicaEnd::Killed, "is killed", 15), (ReplicaEnd::Terminated, "is terminated (SIGTERM)", 1)]
    {
        let (mut held_after, mut observed_after) = (Vec::new(), Vec::new());
        for _ in 0..options.repeat {
            until(&client, revisions, |all| all.iter().all(|revision| !revision.is_empty())).await?;
            let before = until(&client, holders, |all| all.len() == REPLICAS).await?;
            let victim = replicas.remove(0);
            version += 1;
            let version = format!("7.0.{version}");
            let started = Instant::now();
            let ending = match end {
                ReplicaEnd::Killed => {
                    drop(victim);
                    None
                }
                ReplicaEnd::Terminated => {
                    victim.terminate()?;
                    Some(victim)
                }
            };
            let changes = (0..APPLICATIONS).map(|i| set(&client, i, &version));
            let takeover = async {
                let are_others =
                    |all: &BTreeSet<String>| !all.is_empty() && all.is_subset(&before) && *all != before;
                until(&client, holders, are_others).await?;
                anyhow::Ok(started.elapsed())
            };
            let (_, taken_over) = tokio::try_join!(try_join_all(changes), takeover)?;
            held_after.push(taken_over);
            until(&client, revisions, |all| all.iter().all(|revision| *revision == version)).await?;
            observed_after.push(started.elapsed());
            drop(ending);
            replicas.push(start()?);
        }
        let most = held_after.iter().max().copied().unwrap_or_default();
        let what = format!("one replica of {REPLICAS} {description}: others hold its shards after");
        let text = format!("{} (statuses by them: {})", times(&held_after), times(&observed_after));
        let allowed = Duration::from_secs(budget);
        table.add(&what, &format!("≤ {}", time(allowed)), text, BudgetVerdict::of(most <= allowed));
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("shop-{number}")
}

async fn set(client: &Client, number: usize, version: &str) -> Result<()> {
    set_healthy(client, &name(number), ENVIRONMENT, version).await
}

/// Creates the applications and their pipelines.
async fn prepare(hub: &Cluster) -> Result<Client> {
    hub.install_flux_crds().await?;
    hub.install_sluice_crds().await?;
    let client = hub.client().await?;
    let make = async |url: String, object: Value| write(&client, Method::POST, &url, &object).await;
    make(NAMESPACES.into(), json!({"metadata": {"name": NAMESPACE}})).await?;
    let strategy = json!({"commit": {"url": "https://git.invalid/acme/fleet.git", "branch": "main"}});
    let promotion = json!({"manual": true, "strategy": strategy});
    for number in 0..APPLICATIONS {
        let application = name(number);
        let namespace = objects::namespace(&application, ENVIRONMENT);
        make(NAMESPACES.into(), json!({"metadata": {"name": namespace}})).await?;
        let release = objects::helm_release(&application, ENVIRONMENT);
        make(format!("{HELM}/namespaces/{namespace}/helmreleases"), release).await?;
        set(&client, number, objects::VERSION).await?;
        let pipeline = objects::pipeline(&application, NAMESPACE, &[ENVIRONMENT], &promotion);
        make(format!("{SLUICE}/namespaces/{NAMESPACE}/pipelines"), pipeline).await?;
    }
    Ok(client)
}

/// Repeats a query until its result passes `check`.
async fn until<T: std::fmt::Debug>(
    client: &Client,
    query: impl AsyncFn(&Client) -> Result<T>,
    check: impl Fn(&T) -> bool,
) -> Result<T> {
    eventually(WAIT_TIMEOUT, || async {
        let result = query(client).await?;
        ensure!(check(&result), "{result:?}");
        Ok(result)
    })
    .await
}

/// Returns the holders of the shards; none while a shard has no holder.
async fn holders(client: &Client) -> Result<BTreeSet<String>> {
    let url = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let all: Value = client.request(Request::get(url).body(Vec::new())?).await?;
    let leases = all["items"].as_array().into_iter().flatten();
    let shards =
        leases.filter(|lease| lease["metadata"]["name"].as_str().is_some_and(|n| n.contains(".shard-")));
    let holders: Option<Vec<String>> = shards
        .map(|lease| Some(lease["spec"]["holderIdentity"].as_str().filter(|h| !h.is_empty())?.into()))
        .collect();
    Ok(holders.filter(|all| all.len() == REPLICAS).unwrap_or_default().into_iter().collect())
}

/// Returns the revision of the environment in each pipeline's status.
async fn revisions(client: &Client) -> Result<Vec<String>> {
    let url = format!("{SLUICE}/namespaces/{NAMESPACE}/pipelines");
    let all: Value = client.request(Request::get(url).body(Vec::new())?).await?;
    let pipelines = all["items"].as_array().into_iter().flatten();
    let revision =
        |p: &Value| p["status"]["environments"][ENVIRONMENT]["revision"].as_str().map(String::from);
    Ok(pipelines.map(|p| revision(p).unwrap_or_default()).collect())
}
