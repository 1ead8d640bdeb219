//! The command `sluice controller`: its flags, and its start and end.

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
    AllowedHost, AllowedHosts, AllowedWebhooks, ControllerOptions, ElectionOptions, LeaseTiming, ObserveScope,
};
use sluice_core::fleet::index::Fleet;
use sluice_web::Api;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::api_access::HubAccess;
use crate::log;

/// The flags of `sluice controller`. Flags that Flux's controllers have too have the same names and meanings.
#[derive(Args)]
pub struct Flags {
    /// Kubeconfig of the hub; default is KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// Handle pipelines in this namespace only; default is all namespaces
    #[arg(long, value_name = "NAMESPACE")]
    watch_namespace: Option<String>,
    /// Address of the metrics; "0" for none
    #[arg(long, default_value = ":8080", value_parser = address)]
    metrics_addr: Address,
    /// Address of /healthz and /readyz; "0" for none
    #[arg(long, default_value = ":9440", value_parser = address)]
    health_addr: Address,
    /// Address of the hook server, which Flux, CI systems and forges call; "0" for none
    #[arg(long, default_value = ":8082", value_parser = address)]
    hook_addr: Address,
    /// Address of the API for commands, on this machine only: others reach it through a port-forward; "0" for none
    #[arg(long, default_value = "127.0.0.1:8083", value_parser = loopback_address)]
    api_addr: Address,
    /// Certificate of the hook server, in PEM; read again when it changes. Default is plain HTTP
    #[arg(long, value_name = "FILE", requires = "hook_tls_key")]
    hook_tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "hook_tls_cert")]
    hook_tls_key: Option<PathBuf>,
    /// Proxies in front of the hook server whose X-Forwarded-For is trusted, as address ranges
    #[arg(long, value_name = "RANGE,...", value_delimiter = ',')]
    hook_trusted_proxies: Vec<Network>,
    /// Average calls a second that the hook server accepts from one peer; bursts of ten times as many; 0 for no
    /// limit
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    hook_peer_rate: u32,
    /// Average calls a second that the hook server accepts for one pipeline; bursts of ten times as many; 0 for no
    /// limit
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    hook_pipeline_rate: u32,
    /// External address of the hook server, such as https://sluice.example.com; receivers of the webhook strategy
    /// report results there
    #[arg(long, value_name = "URL", value_parser = web_address)]
    hook_url: Option<String>,
    /// Folder for copies of repositories; may be deleted at any time
    #[arg(long, value_name = "FOLDER", env = "SLUICE_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
    /// Disk space for these copies, in MiB; the least recently used are removed first. One file may take half of
    /// it
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..))]
    cache_size: u64,
    /// Allow plain http to git servers and forges, which sends credentials without encryption
    #[arg(long)]
    insecure_git_http: bool,
    /// How often to ask the forge about a new change request; it is asked less often about older ones
    #[arg(long, default_value = "30s", value_parser = duration)]
    poll_interval: Duration,
    /// How many ended promotions of each environment to keep, apart from those that a rollback needs
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    history_limit: usize,
    /// Author of commits; forges show a signature as verified if the address belongs to the key's owner
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = sluice_controller::DEFAULT_AUTHOR)]
    git_author: String,
    /// Timeout of one run of git; other outgoing calls have the same timeout, but 30s at most
    #[arg(long, default_value = "2m", value_parser = duration)]
    delivery_timeout: Duration,
    /// What to observe on clusters: `all` is every GitopsCluster, with the objects that only the views of the fleet show;
    /// `targets` is what pipelines need
    #[arg(long, default_value = "all", value_enum, value_name = "SCOPE")]
    observe: Observe,
    /// Refuse GitopsClusters in other namespaces than the Pipeline's, and targets in other namespaces of the hub,
    /// unless their annotation pipelines.weave.works/allowed-namespaces lists the Pipeline's namespace
    #[arg(long)]
    no_cross_namespace_refs: bool,
    /// Run the programs that a cluster's kubeconfig names; a user who may write such a Secret can then run
    /// programs on the controller's machine
    #[arg(long)]
    insecure_kubeconfig_exec: bool,
    /// Memory for the objects observed on all clusters, in MiB; one cluster may have a third of it
    #[arg(long, default_value_t = sluice_controller::OBSERVED_MEMORY >> 20, value_name = "MIB")]
    observed_memory: usize,
    /// Address of notification-controller for the events of the notification strategy, such as
    /// http://notification-controller.flux-system.svc.cluster.local./
    #[arg(long, value_name = "URL", value_parser = web_address)]
    events_addr: Option<String>,
    /// Allowed hosts of repositories and forges: git.example.com, or *.example.com for its subdomains, with :8443
    /// or :* for ports other than the defaults of https, http and ssh. Default is any host
    #[arg(long, value_name = "HOST[:PORT],...", value_delimiter = ',')]
    allowed_hosts: Vec<AllowedHost>,
    /// Let the webhook strategy call http addresses, which sends headers and bodies without encryption
    #[arg(long)]
    insecure_webhook_http: bool,
    /// Let the webhook strategy call private, loopback and link-local addresses; a user who may write a
    /// Pipeline can then call every address that the controller can
    #[arg(long)]
    insecure_webhook_private_addresses: bool,
    /// Share the pipelines with other replicas by Leases; set to false only if there is never another replica
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
    /// Number of shards that the pipelines are split into; the same for all replicas. One replica at a time
    /// acts for a shard
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=256))]
    shards: u32,
    /// Namespace of the Leases; default is the pod's own, or that of the kubeconfig's context
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,
    /// How long other replicas wait before they take over a Lease that is not renewed; whole seconds
    #[arg(long, default_value = seconds(LeaseTiming::default().lease_duration), value_parser = duration)]
    leader_election_lease_duration: Duration,
    /// How long a holder acts after its last successful renewal; less than the lease's duration
    #[arg(long, default_value = seconds(LeaseTiming::default().renew_deadline), value_parser = duration)]
    leader_election_renew_deadline: Duration,
    /// How often to renew a Lease, and to retry after a failure; less than the renew deadline
    #[arg(long, default_value = seconds(LeaseTiming::default().retry_period), value_parser = duration)]
    leader_election_retry_period: Duration,
    /// Lowest level to log
    #[arg(long, default_value = "info", value_enum)]
    log_level: log::Level,
    /// Encoding of the log
    #[arg(long, default_value = "json", value_enum)]
    log_encoding: log::Encoding,
}

/// The values of `--observe`.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Observe {
    All,
    Targets,
}

impl From<Observe> for ObserveScope {
    fn from(flag: Observe) -> Self {
        match flag {
            Observe::All => ObserveScope::All,
            Observe::Targets => ObserveScope::Targets,
        }
    }
}

/// An address to listen on, or none.
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

/// Tokens must not cross a network without encryption, and the API has none.
fn loopback_address(text: &str) -> Result<Address, String> {
    let wrong = "write an address of this machine, such as 127.0.0.1:8083, or 0 for none: tokens must not cross a network \
                 without encryption; kubectl port-forward reaches the API from elsewhere";
    let address = address(text).map_err(|_| wrong)?;
    match address.0 {
        Some(at) if !at.ip().is_loopback() => Err(wrong.into()),
        _ => Ok(address),
    }
}

fn web_address(text: &str) -> Result<String, String> {
    let web = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match web {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') && !rest.contains('@') => Ok(text.into()),
        _ => Err("write an address such as http://notification-controller.flux-system.svc/".into()),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs())
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a duration such as 30s, 2m or 1h30m".to_string();
    let parsed: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(parsed).ok().filter(|d| !d.is_zero()).ok_or_else(wrong)
}

/// Runs the controller until SIGTERM or SIGINT ends it.
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
    let fleet = Fleet::default();
    let api = api(flags.api_addr.0, Api::new(fleet.clone(), HubAccess::new(hub.clone()))).await?;
    tokio::select! {
        ended = sluice_controller::run(options, hub, fleet, stop) => Ok(ended?),
        ended = api => ended,
    }
}

/// Listens on an address, and returns a future that serves the API. Without an address, it never ends.
async fn api(
    address: Option<SocketAddr>,
    api: Api<HubAccess>,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>>> {
    let listener = match address {
        Some(at) => Some(TcpListener::bind(at).await.with_context(|| {
            format!("cannot serve the API on {at}: is the port taken? --api-addr sets another, or 0 for none")
        })?),
        None => None,
    };
    Ok(async move {
        match listener {
            Some(listener) => Ok(sluice_web::serve(listener, api).await?),
            None => std::future::pending().await,
        }
    })
}

/// Returns how replicas share the pipelines; `None` with `--leader-elect=false`.
fn election(flags: &Flags, default_namespace: &str) -> anyhow::Result<Option<ElectionOptions>> {
    if !flags.leader_elect {
        anyhow::ensure!(flags.shards == 1, "--shards={} needs --leader-elect", flags.shards);
        return Ok(None);
    }
    let timing = LeaseTiming {
        lease_duration: flags.leader_election_lease_duration,
        renew_deadline: flags.leader_election_renew_deadline,
        retry_period: flags.leader_election_retry_period,
    };
    timing.check().map_err(anyhow::Error::msg)?;
    let namespace = flags.leader_election_namespace.as_deref().unwrap_or(default_namespace).to_string();
    // Several installations, each for another watched namespace, may have their Leases in the same namespace.
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
            Config::from_kubeconfig(&options).await.context("cannot use this context of the kubeconfig")?
        }
        None => Config::infer().await.context(
            "no cluster to work on: set --kubeconfig or KUBECONFIG, or run in a pod with a service account",
        )?,
    };
    config.connect_timeout = Some(Duration::from_secs(10));
    // Each caller has its own retries, and logs the server's error, which kube's retries would not.
    config.default_retry = false;
    Client::try_from(config).context("cannot make a client for the cluster")
}
