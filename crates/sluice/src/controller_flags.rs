//! The flags of `sluice controller`, their defaults, and how their values are read.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use sluice_controller::hook::Network;
use sluice_controller::{AllowedHost, LeaseTiming, ObserveScope};

use crate::log;
use crate::sign_in_flags::SignInFlags;

pub const EXAMPLES: &str = "Examples:
  # On your machine, with your kubeconfig and readable lines
  sluice controller --log-encoding=console

  # The pipelines of one namespace, with people who approve on the pages
  sluice controller --watch-namespace=apps --api-actions";

/// The flags of `sluice controller`. Flags that Flux's controllers have too have the same names and meanings.
#[derive(Args)]
pub struct Flags {
    /// Kubeconfig of the hub; default is KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long)]
    pub context: Option<String>,
    /// Handle pipelines in this namespace only; default is all namespaces
    #[arg(long, value_name = "NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Address of the metrics; "0" for none
    #[arg(long, default_value = ":8080", value_parser = address)]
    pub metrics_addr: Address,
    /// Address of /healthz and /readyz; "0" for none
    #[arg(long, default_value = ":9440", value_parser = address)]
    pub health_addr: Address,
    /// Address of the hook server, which Flux, CI systems and forges call; "0" for none
    #[arg(long, default_value = ":8082", value_parser = address)]
    pub hook_addr: Address,
    /// Address of the API and the pages, on this machine only: others reach it through a port-forward; "0" for none
    #[arg(long, default_value = "127.0.0.1:8083", value_parser = loopback_address)]
    pub api_addr: Address,
    /// Let people approve, reject, retry, suspend and resume from the pages, each with their own rights
    #[arg(long)]
    pub api_actions: bool,
    #[command(flatten)]
    pub sign_in: SignInFlags,
    /// Certificate of the hook server, in PEM; read again when it changes. Default is plain HTTP
    #[arg(long, value_name = "FILE", requires = "hook_tls_key")]
    pub hook_tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "hook_tls_cert")]
    pub hook_tls_key: Option<PathBuf>,
    /// Proxies in front of the hook server whose X-Forwarded-For is trusted, as address ranges
    #[arg(long, value_name = "RANGE,...", value_delimiter = ',')]
    pub hook_trusted_proxies: Vec<Network>,
    /// Average calls a second that the hook server accepts from one peer; bursts of ten times as many; 0 for no
    /// limit
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    pub hook_peer_rate: u32,
    /// Average calls a second that the hook server accepts for one pipeline; bursts of ten times as many; 0 for no
    /// limit
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    pub hook_pipeline_rate: u32,
    /// External address of the hook server, such as https://sluice.example.com; receivers of the webhook strategy
    /// report results there
    #[arg(long, value_name = "URL", value_parser = web_address)]
    pub hook_url: Option<String>,
    /// Folder for copies of repositories; may be deleted at any time
    #[arg(long, value_name = "FOLDER", env = "SLUICE_CACHE_DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Disk space for these copies, in MiB; the least recently used are removed first. One file may take half of
    /// it
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..))]
    pub cache_size: u64,
    /// Allow plain http to git servers and forges, which sends credentials without encryption
    #[arg(long)]
    pub insecure_git_http: bool,
    /// How often to ask the forge about a new change request; it is asked less often about older ones
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub poll_interval: Duration,
    /// How many ended promotions of each environment to keep. The last two that succeeded and the last 50 rejected ones
    /// are kept in addition
    #[arg(long, default_value_t = sluice_controller::HISTORY_LIMIT, value_name = "COUNT")]
    pub history_limit: usize,
    /// Author of commits; forges show a signature as verified if the address belongs to the key's owner
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = sluice_controller::DEFAULT_AUTHOR)]
    pub git_author: String,
    /// Timeout of one run of git; other outgoing calls have the same timeout, but 30s at most
    #[arg(long, default_value = "2m", value_parser = duration)]
    pub delivery_timeout: Duration,
    /// What to observe on clusters: `all` is every GitopsCluster, with the objects that only the views of the fleet show;
    /// `targets` is what pipelines need
    #[arg(long, default_value = "all", value_enum, value_name = "SCOPE")]
    pub observe: ObserveFlag,
    /// Refuse GitopsClusters in other namespaces than the Pipeline's, and targets in other namespaces of the hub,
    /// unless their annotation pipelines.weave.works/allowed-namespaces lists the Pipeline's namespace
    #[arg(long)]
    pub no_cross_namespace_refs: bool,
    /// Run the programs that a cluster's kubeconfig names; a user who may write such a Secret can then run
    /// programs on the controller's machine
    #[arg(long)]
    pub insecure_kubeconfig_exec: bool,
    /// Memory for the objects observed on all clusters, in MiB; one cluster may have a third of it
    #[arg(long, default_value_t = sluice_controller::OBSERVED_MEMORY >> 20, value_name = "MIB")]
    pub observed_memory: usize,
    /// Address of notification-controller for the events of the notification strategy, such as
    /// http://notification-controller.flux-system.svc.cluster.local./
    #[arg(long, value_name = "URL", value_parser = web_address)]
    pub events_addr: Option<String>,
    /// Allowed hosts of repositories and forges: git.example.com, or *.example.com for its subdomains, with :8443
    /// or :* for ports other than the defaults of https, http and ssh. Default is any host
    #[arg(long, value_name = "HOST[:PORT],...", value_delimiter = ',')]
    pub allowed_hosts: Vec<AllowedHost>,
    /// Let the webhook strategy call http addresses, which sends headers and bodies without encryption
    #[arg(long)]
    pub insecure_webhook_http: bool,
    /// Let the webhook strategy call private, loopback and link-local addresses; a user who may write a
    /// Pipeline can then call every address that the controller can
    #[arg(long)]
    pub insecure_webhook_private_addresses: bool,
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
    pub leader_elect: bool,
    /// Number of shards that the pipelines are split into; the same for all replicas. One replica at a time
    /// acts for a shard
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub shards: u32,
    /// Namespace of the Leases; default is the pod's own, or that of the kubeconfig's context
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,
    /// How long other replicas wait before they take over a Lease that is not renewed; whole seconds
    #[arg(long, default_value = seconds(LeaseTiming::default().lease_duration), value_parser = duration)]
    pub leader_election_lease_duration: Duration,
    /// How long a holder acts after its last successful renewal; less than the lease's duration
    #[arg(long, default_value = seconds(LeaseTiming::default().renew_deadline), value_parser = duration)]
    pub leader_election_renew_deadline: Duration,
    /// How often to renew a Lease, and to retry after a failure; less than the renew deadline
    #[arg(long, default_value = seconds(LeaseTiming::default().retry_period), value_parser = duration)]
    pub leader_election_retry_period: Duration,
    /// Lowest level to log
    #[arg(long, default_value = "info", value_enum)]
    pub log_level: log::Level,
    /// Encoding of the log
    #[arg(long, default_value = "json", value_enum)]
    pub log_encoding: log::Encoding,
}

/// The values of `--observe`.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum ObserveFlag {
    All,
    Targets,
}

impl From<ObserveFlag> for ObserveScope {
    fn from(flag: ObserveFlag) -> Self {
        match flag {
            ObserveFlag::All => ObserveScope::All,
            ObserveFlag::Targets => ObserveScope::Targets,
        }
    }
}

/// An address to listen on, or none.
#[derive(Clone, Copy)]
pub struct Address(pub Option<SocketAddr>);

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
