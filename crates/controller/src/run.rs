//! Starts everything: the hub's watches, the servers and the loop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use sluice_api::cluster::gitops_cluster_resource;
use sluice_api::{GitopsCluster, Pipeline, Promotion};
use sluice_delivery::{Delivery, DeliveryError};
use std::ops::ControlFlow;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::hook::{self, HookOptions, HookServer};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::runtime::{Runtime, admission_policy};
use crate::serve;
use crate::shard::{Keeper, Order};
use crate::state::Input;
use crate::watch::limit::WatchLimits;
use crate::watch::read_error::ReadError;
use crate::watch::stream::{ObjectEvent, ParsedObjectApi, follow};

/// Why the controller ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Delivery could not be set up.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// A server could not be started.
    #[error("cannot serve {what} on {address}: {source}; is the port taken?")]
    Serve {
        /// Which.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// How long handing back the shards may take at the end. What is not handed back runs out by itself.
const LEAVING: Duration = Duration::from_secs(3);

/// Runs the controller until it is told to stop or a server of its own fails.
///
/// # Errors
/// When it cannot start. What fails later is tried again.
pub async fn run(options: Options, hub: Client, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    let delivery = Delivery::new(sluice_delivery::DeliveryOptions {
        deadline: options.delivery_timeout,
        author: options.git_author.clone(),
        events_addr: options.events_addr.clone(),
        allowed_hosts: options.allowed_hosts.clone(),
        webhooks: options.webhooks,
        cache_bytes: options.cache_bytes,
        insecure_http: options.insecure_git_http,
        ..sluice_delivery::DeliveryOptions::new(options.cache_dir.clone())
    })?;
    let metrics = Arc::new(Metrics::new(delivery.clone()));
    let ports = (options.metrics_addr, options.health_addr);
    let namespace = options.watch_namespace.clone();
    let (hook, election) = (options.hook.clone(), options.election.clone());
    let (orders, inbox) = mpsc::unbounded_channel();
    let (runtime, tx) = Runtime::new(options, hub.clone(), delivery, metrics.clone(), orders.clone());
    let hook = hook.map(|options| {
        let hook = HookServer::new(&options, hub.clone(), runtime.directory(), metrics.clone(), tx.clone());
        (options, hook)
    });
    // Tasks of their own: a list is read on one processor while the loop turns on another.
    let mut tasks = JoinSet::new();
    tasks.spawn(pipelines(hub.clone(), namespace.clone(), tx.clone()));
    tasks.spawn(promotions(hub.clone(), namespace, tx.clone()));
    tasks.spawn(clusters(hub.clone(), tx.clone()));
    tasks.spawn(admission_policy::watch(hub.clone(), tx.clone()));
    tasks.spawn(runtime.run());
    let orders = match election {
        Some(election) => {
            tasks.spawn(Keeper::new(election, hub, metrics.clone(), tx).run(inbox));
            Some(orders)
        }
        None => {
            metrics.shards.set_ready();
            None
        }
    };
    tokio::select! {
        result = serve_all(ports, hook, metrics) => result,
        ended = tasks.join_next() => match ended {
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            _ => Ok(()),
        },
        () = leave(stop, orders) => Ok(()),
    }
}

/// Runs the servers, where each is wanted, until one of them fails.
async fn serve_all(
    (metrics_addr, health_addr): (Option<SocketAddr>, Option<SocketAddr>),
    hook: Option<(HookOptions, HookServer)>,
    metrics: Arc<Metrics>,
) -> Result<(), RunError> {
    let numbers = async {
        match metrics_addr {
            Some(at) => serve::metrics(at, metrics.clone()).await.map_err(|e| failed("metrics", at, e)),
            None => std::future::pending().await,
        }
    };
    let health = async {
        match health_addr {
            Some(at) => serve::health(at, metrics.clone()).await.map_err(|e| failed("health", at, e)),
            None => std::future::pending().await,
        }
    };
    let hooks = async {
        match hook {
            Some((options, hook)) => {
                hook::serve(&options, hook).await.map_err(|e| failed("hooks", options.address, e))
            }
            None => std::future::pending().await,
        }
    };
    tokio::try_join!(numbers, health, hooks).map(|_| ())
}

/// Once it is told to stop, has the shards handed back, and waits no longer than that may take: whoever
/// keeps them ends when it is done.
async fn leave(stop: impl Future<Output = ()>, orders: Option<mpsc::UnboundedSender<Order>>) {
    stop.await;
    if orders.is_some_and(|orders| orders.send(Order::Leave).is_ok()) {
        tracing::info!("stopping: handing back the shards");
        tokio::time::sleep(LEAVING).await;
        tracing::warn!("not every shard could be handed back: others wait until their Leases run out");
    }
}

fn failed(what: &'static str, address: SocketAddr, source: std::io::Error) -> RunError {
    RunError::Serve { what, address, source }
}

fn send(tx: &mpsc::UnboundedSender<Input>, input: Input) -> ControlFlow<()> {
    if tx.send(input).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

async fn pipelines(hub: Client, namespace: Option<String>, tx: mpsc::UnboundedSender<Input>) {
    let api: ParsedObjectApi<Pipeline> = match &namespace {
        Some(namespace) => Api::namespaced(hub, namespace),
        None => Api::all(hub),
    };
    follow(api, None, WatchLimits::hub("Pipelines"), Some, |seen| send(&tx, Input::Pipelines(seen))).await;
}

async fn promotions(hub: Client, namespace: Option<String>, tx: mpsc::UnboundedSender<Input>) {
    let api: ParsedObjectApi<Promotion> = match &namespace {
        Some(namespace) => Api::namespaced(hub, namespace),
        None => Api::all(hub),
    };
    follow(api, None, WatchLimits::hub("Promotions"), Some, |seen| send(&tx, Input::Promotions(seen))).await;
}

/// Follows the hub's GitopsClusters; a hub that has no such kind is asked again now and then.
async fn clusters(hub: Client, tx: mpsc::UnboundedSender<Input>) {
    let resource = gitops_cluster_resource();
    loop {
        let api: ParsedObjectApi<GitopsCluster> = Api::all_with(hub.clone(), &resource);
        let end = follow(api, None, WatchLimits::hub("GitopsClusters"), Some, |seen| match seen {
            ObjectEvent::Failed(error) if ReadError::from(error.error()) == ReadError::NotFound => {
                ControlFlow::Break(true)
            }
            seen => match send(&tx, Input::Clusters(Some(seen))) {
                ControlFlow::Continue(()) => ControlFlow::Continue(()),
                ControlFlow::Break(()) => ControlFlow::Break(false),
            },
        })
        .await;
        if !end || send(&tx, Input::Clusters(None)).is_break() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}
