//! Three replicas share the pipelines; one is killed, then one is told to end. How long until others hold
//! its shards, and until a change of every pipeline's workload, made in that moment, is in its status.

use crate::controller::Controller;
use crate::fleet::{set_healthy, write};
use crate::objects::{self, HELM, NAMESPACES, SLUICE};
use crate::options::Options;
use crate::table::{Table, Verdict, time, times};
use anyhow::{Result, ensure};
use axum::http::{Method, Request};
use futures::future::try_join_all;
use kube::Client;
use serde_json::{Value, json};
use sluice_testkit::{Cluster, ControlPlane, eventually};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Where the pipelines are, and the Leases.
const NAMESPACE: &str = "handover";
/// The one environment.
const ENVIRONMENT: &str = "dev";
/// How many replicas, and as many shards.
const REPLICAS: usize = 3;
/// How many pipelines: every shard has some.
const APPLICATIONS: usize = 24;
/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(90);

/// How a replica ends.
#[derive(Clone, Copy)]
enum End {
    Killed,
    ToldTo,
}

/// Ends replicas, and times the others.
pub async fn measure(options: &Options, plane: &ControlPlane, table: &mut Table) -> Result<()> {
    let hub = plane.cluster("handover").await?;
    let client = prepare(&hub).await?;
    let start = || {
        let shards = format!("--shards={REPLICAS}");
        let leases = format!("--leader-election-namespace={NAMESPACE}");
        Controller::start_with(options, &hub, &["--hook-addr=0", "--leader-elect", &leases, &shards])
    };
    let mut replicas = (0..REPLICAS).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let mut version = 0;
    for (end, said, budget) in [(End::Killed, "is killed", 15), (End::ToldTo, "is told to end (SIGTERM)", 1)]
    {
        let (mut held, mut shown) = (Vec::new(), Vec::new());
        for _ in 0..options.repeat {
            until(&client, revisions, |all| all.iter().all(|revision| !revision.is_empty())).await?;
            let before = until(&client, holders, |all| all.len() == REPLICAS).await?;
            let victim = replicas.remove(0);
            version += 1;
            let version = format!("7.0.{version}");
            let begun = Instant::now();
            let ending = match end {
                End::Killed => {
                    drop(victim);
                    None
                }
                End::ToldTo => {
                    victim.terminate()?;
                    Some(victim)
                }
            };
            let changes = (0..APPLICATIONS).map(|i| set(&client, i, &version));
            let taken = async {
                let others =
                    |all: &BTreeSet<String>| !all.is_empty() && all.is_subset(&before) && *all != before;
                until(&client, holders, others).await?;
                anyhow::Ok(begun.elapsed())
            };
            let (_, taken) = tokio::try_join!(try_join_all(changes), taken)?;
            held.push(taken);
            until(&client, revisions, |all| all.iter().all(|revision| *revision == version)).await?;
            shown.push(begun.elapsed());
            drop(ending);
            replicas.push(start()?);
        }
        let most = held.iter().max().copied().unwrap_or_default();
        let what = format!("one replica of {REPLICAS} {said}: others hold its shards after");
        let text = format!("{} (statuses by them: {})", times(&held), times(&shown));
        let allowed = Duration::from_secs(budget);
        table.add(&what, &format!("≤ {}", time(allowed)), text, Verdict::of(most <= allowed));
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("shop-{number}")
}

async fn set(client: &Client, number: usize, version: &str) -> Result<()> {
    set_healthy(client, &name(number), ENVIRONMENT, version).await
}

/// A cluster with applications and their pipelines.
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

/// Asks until what is found is as wanted.
async fn until<T: std::fmt::Debug>(
    client: &Client,
    find: impl AsyncFn(&Client) -> Result<T>,
    wanted: impl Fn(&T) -> bool,
) -> Result<T> {
    eventually(PATIENCE, || async {
        let found = find(client).await?;
        ensure!(wanted(&found), "{found:?}");
        Ok(found)
    })
    .await
}

/// Who holds shards; nobody while a shard has no holder.
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

/// What each pipeline's status says that its environment runs.
async fn revisions(client: &Client) -> Result<Vec<String>> {
    let url = format!("{SLUICE}/namespaces/{NAMESPACE}/pipelines");
    let all: Value = client.request(Request::get(url).body(Vec::new())?).await?;
    let pipelines = all["items"].as_array().into_iter().flatten();
    let revision =
        |p: &Value| p["status"]["environments"][ENVIRONMENT]["revision"].as_str().map(String::from);
    Ok(pipelines.map(|p| revision(p).unwrap_or_default()).collect())
}
