//! Starts the hub's watches, the servers, the lease manager and the loop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use sluice_api::gitops_cluster::gitops_cluster_resource;
use sluice_api::{GitopsCluster, Pipeline, Promotion};
use sluice_delivery::{Delivery, DeliveryError};
use std::ops::ControlFlow;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::hook::{self, HookOptions, HookServer};
use crate::metrics::Metrics;
use crate::metrics_and_probe_servers;
use crate::options::{ControllerOptions, Replica};
use crate::runtime::{Runtime, policy_watch};
use crate::shard::{LeaseCommand, LeaseManager};
use crate::snapshots::Shown;
use crate::state::Input;
use crate::state::unread_metadata::without_unread;
use crate::watch::limit::WatchLimits;
use crate::watch::read_error::ReadError;
use crate::watch::stream::{ObjectEvent, ParsedObjectApi, follow};

/// Why the controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A server could not be started.
    #[error("cannot serve {what} on {address}: {source}; is the port taken?")]
    Serve {
        /// `metrics`, `health` or `hooks`.
        what: &'static str,
        /// The address to listen on.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// How long handing back the shards may take at the end. Leases that are not handed back expire.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns what delivers promotions with these options.
///
/// # Errors
/// When the folder for caches cannot be used.
pub fn delivery(options: &ControllerOptions) -> Result<Delivery, DeliveryError> {
    Delivery::new(sluice_delivery::DeliveryOptions {
        deadline: options.delivery_timeout,
        author: options.git_author.clone(),
        events_addr: options.events_addr.clone(),
        allowed_hosts: options.allowed_hosts.clone(),
        webhooks: options.webhooks,
        cache_bytes: options.cache_bytes,
        insecure_http: options.insecure_git_http,
        ..sluice_delivery::DeliveryOptions::new(options.cache_dir.clone())
    })
}

/// Runs the controller until `stop` ends, or one of its servers fails. Its state is published in `shown`.
///
/// # Errors
/// When a server fails. Other failures are retried.
pub async fn run(
    options: ControllerOptions,
    hub: Client,
    delivery: Delivery,
    shown: Shown,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let metrics = Arc::new(Metrics::new(delivery.clone()));
    let ports = (options.metrics_addr, options.health_addr);
    let namespace = options.watch_namespace.clone();
    let (hook, replica) = (options.hook.clone(), options.replica.clone());
    let (lease_commands, received_commands) = mpsc::unbounded_channel();
    let (runtime, tx) =
        Runtime::new(options, hub.clone(), delivery, metrics.clone(), lease_commands.clone(), shown);
    let hook = hook.map(|options| {
        let hook = HookServer::new(&options, hub.clone(), runtime.directory(), metrics.clone(), tx.clone());
        (options, hook)
    });
    // Tasks of their own: a list is read on one processor while the loop runs on another.
    let mut tasks = JoinSet::new();
    tasks.spawn(pipelines(hub.clone(), namespace.clone(), tx.clone()));
    tasks.spawn(promotions(hub.clone(), namespace, tx.clone()));
    tasks.spawn(clusters(hub.clone(), tx.clone()));
    if !matches!(replica, Replica::Observer) {
        tasks.spawn(policy_watch::watch(hub.clone(), tx.clone()));
    }
    tasks.spawn(runtime.run());
    let lease_commands = match replica {
        Replica::Elected(election) => {
            let manager = LeaseManager::new(election, hub, metrics.clone(), tx);
            tasks.spawn(manager.run(received_commands));
            Some(lease_commands)
        }
        Replica::Only | Replica::Observer => {
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
        () = stop_and_hand_back(stop, lease_commands) => Ok(()),
    }
}

/// Runs the servers that have an address, until one of them fails.
async fn serve_all(
    (metrics_addr, health_addr): (Option<SocketAddr>, Option<SocketAddr>),
    hook: Option<(HookOptions, HookServer)>,
    metrics: Arc<Metrics>,
) -> Result<(), RunError> {
    let metrics_server = async {
        match metrics_addr {
            Some(at) => metrics_and_probe_servers::metrics(at, metrics.clone())
                .await
                .map_err(|e| cannot_serve("metrics", at, e)),
            None => std::future::pending().await,
        }
    };
    let health_server = async {
        match health_addr {
            Some(at) => metrics_and_probe_servers::health(at, metrics.clone())
                .await
                .map_err(|e| cannot_serve("health", at, e)),
            None => std::future::pending().await,
        }
    };
    let hook_server = async {
        match hook {
            Some((options, hook)) => {
                hook::serve(&options, hook).await.map_err(|e| cannot_serve("hooks", options.address, e))
            }
            None => std::future::pending().await,
        }
    };
    tokio::try_join!(metrics_server, health_server, hook_server).map(|_| ())
}

/// Waits until `stop` ends, and has the lease manager hand back the shards then. The lease manager ends when it
/// has done that, which ends [`run`]; this function ends after [`LEAVE_TIMEOUT`].
async fn stop_and_hand_back(
    stop: impl Future<Output = ()>,
    lease_commands: Option<mpsc::UnboundedSender<LeaseCommand>>,
) {
    stop.await;
    if lease_commands.is_some_and(|commands| commands.send(LeaseCommand::Leave).is_ok()) {
        tracing::info!("stopping: handing back the shards");
        tokio::time::sleep(LEAVE_TIMEOUT).await;
        tracing::warn!("not every shard could be handed back: other replicas wait until their Leases expire");
    }
}

fn cannot_serve(what: &'static str, address: SocketAddr, source: std::io::Error) -> RunError {
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
    let trim = |object| Some(without_unread(object));
    follow(api, None, WatchLimits::hub("Pipelines"), trim, |seen| send(&tx, Input::Pipelines(seen))).await;
}

async fn promotions(hub: Client, namespace: Option<String>, tx: mpsc::UnboundedSender<Input>) {
    let api: ParsedObjectApi<Promotion> = match &namespace {
        Some(namespace) => Api::namespaced(hub, namespace),
        None => Api::all(hub),
    };
    let trim = |object| Some(without_unread(object));
    follow(api, None, WatchLimits::hub("Promotions"), trim, |seen| send(&tx, Input::Promotions(seen))).await;
}

/// Follows the hub's GitopsClusters. A hub without that kind is asked again every ten seconds.
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
