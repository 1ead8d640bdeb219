//! `sluice controller`: its flags, its log, and how it ends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{ArgAction, Args};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use sluice_controller::hook::{HookOptions, Network, Proxies};
use sluice_controller::{
    AllowedHost, AllowedHosts, AllowedWebhooks, ControllerOptions, ElectionOptions, LeaseTiming,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::log;

/// The flags of `sluice controller`; names and meanings are those of Flux's controllers.
#[derive(Args)]
pub struct Flags {
    /// Kubeconfig of the hub; default is KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// Look after pipelines in this namespace only
    #[arg(long, value_name = "NAMESPACE")]
    watch_namespace: Option<String>,
    /// Where to serve metrics; "0" for nowhere
    #[arg(long, default_value = ":8080", value_parser = address)]
    metrics_addr: Address,
    /// Where to serve /healthz and /readyz; "0" for nowhere
    #[arg(long, default_value = ":9440", value_parser = address)]
    health_addr: Address,
    /// Where to take calls of Flux's notification-controller; "0" for nowhere
    #[arg(long, default_value = ":8082", value_parser = address)]
    hook_addr: Address,
    /// Certificate of the hook server, in PEM; read again when it changes. Without it, plain HTTP
    #[arg(long, value_name = "FILE", requires = "hook_tls_key")]
    hook_tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "hook_tls_cert")]
    hook_tls_key: Option<PathBuf>,
    /// Proxies whose X-Forwarded-For tells who calls a hook, as address ranges
    #[arg(long, value_name = "RANGE,...", value_delimiter = ',')]
    hook_trusted_proxies: Vec<Network>,
    /// How many calls a second to take from one peer, and ten times as many at once; 0 for all
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    hook_peer_rate: u32,
    /// How many calls a second to take for one pipeline, and ten times as many at once; 0 for all
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    hook_pipeline_rate: u32,
    /// Where the hook server is reached from outside, such as https://sluice.example.com: those whom the
    /// webhook strategy calls may then report back
    #[arg(long, value_name = "URL", value_parser = web_address)]
    hook_url: Option<String>,
    /// Where to keep copies of repositories; may be wiped at any time
    #[arg(long, value_name = "FOLDER", env = "SLUICE_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
    /// How much these copies may take on disk, in MiB; those not used for the longest time go first. A file in
    /// them may have half of it
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..))]
    cache_size: u64,
    /// Send credentials to git servers and forges over plain http, where everybody on the way can read them
    #[arg(long)]
    insecure_git_http: bool,
    /// How often to ask the forge about a new change request; older ones are asked less often
    #[arg(long, default_value = "30s", value_parser = duration)]
    poll_interval: Duration,
    /// How many ended promotions of each environment to keep; what is needed to roll back stays anyway
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    history_limit: usize,
    /// Who makes commits. Forges show a signature as verified for the owner of this address
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = sluice_controller::DEFAULT_AUTHOR)]
    git_author: String,
    /// How long one run of git may take, and any other call, which ends after 30s anyway
    #[arg(long, default_value = "2m", value_parser = duration)]
    delivery_timeout: Duration,
    /// Refuse targets on clusters and in hub namespaces other than the Pipeline's own, unless their
    /// annotation pipelines.weave.works/allowed-namespaces lists its namespace
    #[arg(long)]
    no_cross_namespace_refs: bool,
    /// Run programs that a cluster's kubeconfig names; whoever may write such a Secret can then run
    /// programs here
    #[arg(long)]
    insecure_kubeconfig_exec: bool,
    /// How much memory the objects observed on all clusters may take, in MiB; no cluster may have more than
    /// a third of it
    #[arg(long, default_value_t = sluice_controller::OBSERVED_MEMORY >> 20, value_name = "MIB")]
    observed_memory: usize,
    /// Where to send the events of the notification strategy: notification-controller's address, such
    /// as http://notification-controller.flux-system.svc.cluster.local./
    #[arg(long, value_name = "URL", value_parser = web_address)]
    events_addr: Option<String>,
    /// Hosts that repositories and forges may be at: git.example.com, *.example.com for all below it, with :8443 or :* for
    /// other ports than the usual one of https, http and ssh. Default is any host
    #[arg(long, value_name = "HOST[:PORT],...", value_delimiter = ',')]
    allowed_hosts: Vec<AllowedHost>,
    /// Let the webhook strategy call http addresses; what it says, and its headers, can be read on the way
    #[arg(long)]
    insecure_webhook_http: bool,
    /// Let the webhook strategy call private, loopback and link-local addresses; whoever may write a
    /// Pipeline then reaches what this controller reaches
    #[arg(long)]
    insecure_webhook_private_addresses: bool,
    /// Share the pipelines with other replicas by Leases; false only where there is no other, ever
    #[arg(
        long,
        alias = "enable-leader-election",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    leader_elect: bool,
    /// Over how many shards to split the pipelines; the same for all replicas. One replica at a time
    /// acts for a shard
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=256))]
    shards: u32,
    /// Namespace of the Leases; default is the pod's own, or that of the kubeconfig's context
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,
    /// How long a Lease that is not renewed is left to its holder; whole seconds
    #[arg(long, default_value = "10s", value_parser = duration)]
    leader_election_lease_duration: Duration,
    /// How long a holder acts after it last asked for a renewal that it got; less than the lease's duration
    #[arg(long, default_value = "8s", value_parser = duration)]
    leader_election_renew_deadline: Duration,
    /// How often a Lease is renewed, and how long to wait after a failure; less than the renew deadline
    #[arg(long, default_value = "2s", value_parser = duration)]
    leader_election_retry_period: Duration,
    /// Least level to log
    #[arg(long, default_value = "info", value_enum)]
    log_level: log::Level,
    /// How to write the log
    #[arg(long, default_value = "json", value_enum)]
    log_encoding: log::Encoding,
}

/// An address to serve on, or none.
#[derive(Clone, Copy)]
struct Address(Option<SocketAddr>);

fn address(text: &str) -> Result<Address, String> {
    if text == "0" || text.is_empty() {
        return Ok(Address(None));
    }
    let full = if text.starts_with(':') { format!("[::]{text}") } else { text.to_string() };
    let parsed = full.parse().map_err(|_| "write an address such as :8080 or 127.0.0.1:8080, or 0 for none");
    Ok(Address(Some(parsed?)))
}

fn web_address(text: &str) -> Result<String, String> {
    let web = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match web {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') && !rest.contains('@') => Ok(text.into()),
        _ => Err("write an address such as http://notification-controller.flux-system.svc/".into()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a duration such as 30s, 2m or 1h30m".to_string();
    let parsed: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(parsed).ok().filter(|d| !d.is_zero()).ok_or_else(wrong)
}

/// Runs the controller until a signal ends it.
pub fn main(flags: Flags) -> ExitCode {
    log::start(flags.log_level, flags.log_encoding);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.context("cannot start").and_then(|runtime| runtime.block_on(run(flags)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("✗ {}", sluice_cli::safe_text::line(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: Flags) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let hub = hub(&flags).await?;
    let election = election(&flags, hub.default_namespace())?;
    let cache_dir = match flags.cache_dir {
        Some(folder) => folder,
        None => std::env::temp_dir().join("sluice"),
    };
    let hook = flags.hook_addr.0.map(|address| HookOptions {
        address,
        certificate: flags.hook_tls_cert.zip(flags.hook_tls_key),
        proxies: Proxies::new(flags.hook_trusted_proxies),
        peer_rate: flags.hook_peer_rate,
        pipeline_rate: flags.hook_pipeline_rate,
        connections: HookOptions::CONNECTIONS,
        callbacks: flags.hook_url.is_some(),
    });
    let options = ControllerOptions {
        watch_namespace: flags.watch_namespace,
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
        election,
        allowed_hosts: AllowedHosts::new(flags.allowed_hosts),
        webhooks: AllowedWebhooks {
            http: flags.insecure_webhook_http,
            private: flags.insecure_webhook_private_addresses,
        },
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
    let stop = async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    Ok(sluice_controller::run(options, hub, stop).await?)
}

/// How replicas share the pipelines, as the flags say.
fn election(flags: &Flags, default_namespace: &str) -> anyhow::Result<Option<ElectionOptions>> {
    if !flags.leader_elect {
        anyhow::ensure!(flags.shards == 1, "--shards={} wants --leader-elect", flags.shards);
        return Ok(None);
    }
    let timing = LeaseTiming {
        lease_duration: flags.leader_election_lease_duration,
        renew_deadline: flags.leader_election_renew_deadline,
        retry_period: flags.leader_election_retry_period,
    };
    anyhow::ensure!(
        timing.lease_duration.subsec_nanos() == 0,
        "--leader-election-lease-duration: write whole seconds, such as 10s: a Lease has no fractions"
    );
    anyhow::ensure!(
        timing.retry_period < timing.renew_deadline && timing.renew_deadline < timing.lease_duration,
        "write --leader-election-retry-period shorter than --leader-election-renew-deadline, and that shorter \
         than --leader-election-lease-duration: in between a holder stops before another begins"
    );
    let namespace = flags.leader_election_namespace.as_deref().unwrap_or(default_namespace).to_string();
    // Installations for different namespaces may be in one.
    let name = flags.watch_namespace.as_ref().map_or("sluice".into(), |watched| format!("sluice.{watched}"));
    Ok(Some(ElectionOptions { shards: flags.shards, namespace, name, timing }))
}

async fn hub(flags: &Flags) -> anyhow::Result<Client> {
    let options = KubeConfigOptions { context: flags.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match &flags.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await.context("cannot use the kubeconfig")?
        }
        None if flags.context.is_some() => {
            Config::from_kubeconfig(&options).await.context("cannot use that context of the kubeconfig")?
        }
        None => Config::infer().await.context(
            "no cluster to work on: set --kubeconfig or KUBECONFIG, or run in a pod with a service account",
        )?,
    };
    config.connect_timeout = Some(Duration::from_secs(10));
    // Whoever asks has a pace of its own, and tells what the server said instead of falling silent.
    config.default_retry = false;
    Client::try_from(config).context("cannot make a client for the cluster")
}
