//! The command `sluice controller`: its start and its end.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use kube::{Client, Config};
use sluice_cli::{Exit, Failure, Io, width_of_stderr};
use sluice_controller::hook::{HookOptions, Proxies};
use sluice_controller::{
    AllowedHosts, AllowedWebhooks, ControllerOptions, ElectionOptions, LeaseTiming, Replica, Shown,
    snapshot_channel,
};
use sluice_core::fleet::index::Fleet;
use sluice_web::Api;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{SignalKind, signal};

use crate::controller_flags::Flags;
use crate::hub_port::{GitAccess, HubPort};
use crate::log;

/// How long the process waits at its end for threads that compute.
const LAST_THREADS: Duration = Duration::from_millis(200);

/// Runs the controller until SIGTERM or SIGINT ends it.
pub fn main(flags: Flags) -> ExitCode {
    log::start(flags.log_level, flags.log_encoding);
    match run_on_threads(flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let failure = error.downcast::<Failure>();
            let failure = failure.unwrap_or_else(|error| Failure::new(Exit::Error, format!("{error:#}")));
            let (mut out, mut err) = (std::io::sink(), std::io::stderr());
            Io { out: &mut out, err: &mut err, color: false, terminal: None, err_width: width_of_stderr() }
                .fail(&failure);
            failure.exit.into()
        }
    }
}

/// Runs the controller on threads of its own, and the API and the pages on others: however many requests people send, the
/// threads that renew Leases and observe clusters are not occupied by them.
fn run_on_threads(flags: Flags) -> anyhow::Result<()> {
    let threads = || Builder::new_multi_thread().enable_all().build().context("cannot start");
    let (runtime, api_runtime) = (threads()?, threads()?);
    let ended = runtime.block_on(run(flags, api_runtime.handle()));
    // Ends what a request has begun, and removes its files. An edit of large files cannot be stopped, and changes nothing
    // outside of the process.
    api_runtime.shutdown_timeout(LAST_THREADS);
    runtime.shutdown_timeout(LAST_THREADS);
    ended
}

async fn run(flags: Flags, api_runtime: &Handle) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let config = hub_config(&flags)?;
    let hub = Client::try_from(config.clone()).context("cannot make a client for the cluster")?;
    let namespace = flags.leader_election_namespace.as_deref().unwrap_or(hub.default_namespace()).to_string();
    let replica = replica(&flags, &namespace)?;
    let hook = flags.hook_addr.0.map(|address| hook_options(&flags, address));
    let cache_dir = match flags.cache_dir {
        Some(folder) => folder,
        None => std::env::temp_dir().join("sluice"),
    };
    let options = ControllerOptions {
        watch_namespace: flags.watch_namespace,
        observe: flags.observe.into(),
        no_cross_namespace_refs: flags.no_cross_namespace_refs,
        insecure_kubeconfig_exec: flags.insecure_kubeconfig_exec,
        observed_memory: flags.observed_memory << 20,
        metrics_addr: flags.metrics_addr.0,
        health_addr: flags.health_addr.0,
        hook,
        hook_url: flags.hook_url,
        cache_dir,
        cache_bytes: flags.cache_size << 20,
        insecure_git_http: flags.insecure_git_http,
        poll_interval: flags.poll_interval,
        history_limit: flags.history_limit,
        delivery_timeout: flags.delivery_timeout,
        git_author: flags.git_author,
        events_addr: flags.events_addr,
        replica,
        allowed_hosts: AllowedHosts::new(flags.allowed_hosts),
        webhooks: AllowedWebhooks {
            http: flags.insecure_webhook_http,
            private: flags.insecure_webhook_private_addresses,
        },
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
    let stop = async {
        tokio::select! { _ = terminated.recv() => {}, _ = interrupted.recv() => {} }
    };
    let (fleet, (reader, snapshots)) = (Fleet::default(), snapshot_channel());
    let delivery = sluice_controller::delivery(&options)?;
    // A connection is served by the threads of who opens it, so that a client has to stay on one side.
    let api_hub = {
        let _threads = api_runtime.enter();
        Client::try_from(config.clone()).context("cannot make a client for the cluster")?
    };
    let git = GitAccess::new(&api_hub, &delivery);
    let port = HubPort::new(api_hub, &config, reader, git, namespace);
    let pages = Api::new(fleet.clone(), port, flags.api_actions).with_sign_in(flags.sign_in.options()?);
    let api = api(flags.api_addr.0, pages, api_runtime.clone()).await?;
    let shown = Shown { fleet, snapshots };
    tokio::select! {
        ended = sluice_controller::run(options, hub, delivery, shown, stop) => Ok(ended?),
        ended = api => ended,
    }
}

fn hook_options(flags: &Flags, address: SocketAddr) -> HookOptions {
    HookOptions {
        address,
        certificate: flags.hook_tls_cert.clone().zip(flags.hook_tls_key.clone()),
        proxies: Proxies::new(flags.hook_trusted_proxies.clone()),
        peer_rate: flags.hook_peer_rate,
        pipeline_rate: flags.hook_pipeline_rate,
        connections: HookOptions::CONNECTIONS,
        callbacks: flags.hook_url.is_some(),
    }
}

/// Listens on an address, serves the API and the pages there on the threads of `runtime`, and returns a future that ends when
/// the server fails. Without an address, it never ends.
async fn api(
    address: Option<SocketAddr>,
    api: Api<HubPort>,
    runtime: Handle,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>>> {
    let served = match address {
        Some(at) => {
            let listener = runtime.spawn(TcpListener::bind(at)).await?.with_context(|| {
                format!(
                    "cannot serve the API on {at}: is the port taken? --api-addr sets another, or 0 for none"
                )
            })?;
            Some(runtime.spawn(sluice_web::serve(listener, api)))
        }
        None => None,
    };
    Ok(async move {
        match served {
            Some(served) => Ok(served.await??),
            None => std::future::pending().await,
        }
    })
}

/// Returns which pipelines the process acts for: all with `--leader-elect=false`.
fn replica(flags: &Flags, namespace: &str) -> anyhow::Result<Replica> {
    if !flags.leader_elect {
        anyhow::ensure!(flags.shards == 1, "--shards={} needs --leader-elect", flags.shards);
        return Ok(Replica::Only);
    }
    let timing = LeaseTiming {
        lease_duration: flags.leader_election_lease_duration,
        renew_deadline: flags.leader_election_renew_deadline,
        retry_period: flags.leader_election_retry_period,
    };
    timing.check().map_err(anyhow::Error::msg)?;
    // Several installations, each for another watched namespace, may have their Leases in the same namespace.
    let name = flags.watch_namespace.as_ref().map_or("sluice".into(), |watched| format!("sluice.{watched}"));
    Ok(Replica::Elected(ElectionOptions { shards: flags.shards, namespace: namespace.into(), name, timing }))
}

fn hub_config(flags: &Flags) -> anyhow::Result<Config> {
    let mut config = sluice_cli::cluster_config(flags.kubeconfig.clone(), flags.context.clone())?;
    config.connect_timeout = Some(Duration::from_secs(10));
    // Each caller has its own retries, and logs the server's error, which kube's retries would not.
    config.default_retry = false;
    Ok(config)
}
