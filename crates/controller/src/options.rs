//! The settings of the controller, ready to use; flags are the binary's business.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::hook::HookOptions;
use crate::shard::Election;

/// The most memory that what is observed on all clusters may take by default, in bytes: enough for 100,000
/// workloads.
pub const OBSERVED_MEMORY: usize = 128 << 20;

/// How the controller shall run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only pipelines in this namespace are looked after.
    pub watch_namespace: Option<String>,
    /// A pipeline may refer only to clusters in its own namespace and to its own namespace on the hub,
    /// unless an annotation of what it refers to allows more.
    pub no_cross_namespace_refs: bool,
    /// Programs that a kubeconfig names are run.
    pub insecure_kubeconfig_exec: bool,
    /// The most memory that what is observed on all clusters may take, in bytes.
    pub observed_memory: usize,
    /// Where metrics are served; `None` for nowhere.
    pub metrics_addr: Option<SocketAddr>,
    /// Where health is served; `None` for nowhere.
    pub health_addr: Option<SocketAddr>,
    /// How calls of Flux are served; `None` for not at all.
    pub hook: Option<HookOptions>,
    /// Where the hook server is reached from outside: those who are called may call back there.
    pub hook_url: Option<String>,
    /// Where copies of repositories are kept. May be wiped at any time.
    pub cache_dir: PathBuf,
    /// How many bytes these copies may take on disk.
    pub cache_bytes: u64,
    /// Credentials are sent over plain http, to git servers and to forges.
    pub insecure_git_http: bool,
    /// How often a new change request is looked at.
    pub poll_interval: Duration,
    /// How many ended promotions of each environment are kept.
    pub history_limit: usize,
    /// How long one run of git may take, and a call that takes less than 30 seconds anyway.
    pub delivery_timeout: Duration,
    /// Who makes commits, as `Name <address>`.
    pub git_author: String,
    /// Where the events of the notification strategy are sent to, beside the cluster's own events.
    pub events_addr: Option<String>,
    /// How replicas share the pipelines; `None` where this is the only one, and has all.
    pub election: Option<Election>,
    /// Where repositories and forges may be.
    pub allowed_hosts: sluice_delivery::AllowedHosts,
    /// Where the webhook strategy may go.
    pub webhooks: sluice_delivery::AllowedWebhooks,
}
