//! The settings of the controller. The binary reads them from flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::hook::HookOptions;
use crate::observe::ObserveScope;
use crate::shard::ElectionOptions;

/// The default of [`ControllerOptions::observed_memory`]: enough for 100,000 objects.
pub const OBSERVED_MEMORY: usize = 192 << 20;

/// The default of [`ControllerOptions::history_limit`].
pub const HISTORY_LIMIT: usize = 20;

/// The settings of the controller.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// Only pipelines in this namespace are handled; `None` for all.
    pub watch_namespace: Option<String>,
    /// What is observed on clusters.
    pub observe: ObserveScope,
    /// A pipeline may refer only to clusters in its own namespace and to its own namespace on the hub, unless an
    /// annotation of the referenced object allows more.
    pub no_cross_namespace_refs: bool,
    /// Run the programs that a kubeconfig names.
    pub insecure_kubeconfig_exec: bool,
    /// The most memory that the observed objects of all clusters may take, in bytes.
    pub observed_memory: usize,
    /// The address of the metrics server; `None` for no server.
    pub metrics_addr: Option<SocketAddr>,
    /// The address of the health server; `None` for no server.
    pub health_addr: Option<SocketAddr>,
    /// The settings of the hook server; `None` for no server.
    pub hook: Option<HookOptions>,
    /// The URL at which receivers of webhooks reach the hook server for callbacks.
    pub hook_url: Option<String>,
    /// The folder for copies of repositories. It may be deleted at any time.
    pub cache_dir: PathBuf,
    /// How many bytes these copies may take on disk.
    pub cache_bytes: u64,
    /// Send credentials over plain http, to git servers and to forges.
    pub insecure_git_http: bool,
    /// How often a new change request is polled.
    pub poll_interval: Duration,
    /// How many ended promotions of each environment are kept.
    pub history_limit: usize,
    /// How long one run of git may take. Calls to forges may take 30 seconds, or this if it is less.
    pub delivery_timeout: Duration,
    /// The author of commits, as `Name <address>`.
    pub git_author: String,
    /// Where the events of promotions are sent, besides the events of the cluster.
    pub events_addr: Option<String>,
    /// Which pipelines this process acts for.
    pub replica: Replica,
    /// The hosts that repositories and forges may be on.
    pub allowed_hosts: sluice_delivery::AllowedHosts,
    /// The URLs that the webhook strategy may call.
    pub webhooks: sluice_delivery::AllowedWebhooks,
}

impl ControllerOptions {
    /// Returns the settings of a process that only observes and shows, without servers. Changes that promotions would make
    /// are computed in `cache_dir`.
    pub fn observer(cache_dir: PathBuf) -> Self {
        Self {
            watch_namespace: None,
            observe: ObserveScope::All,
            no_cross_namespace_refs: false,
            insecure_kubeconfig_exec: false,
            observed_memory: OBSERVED_MEMORY,
            metrics_addr: None,
            health_addr: None,
            hook: None,
            hook_url: None,
            cache_dir,
            cache_bytes: 1 << 30,
            insecure_git_http: false,
            poll_interval: Duration::from_secs(30),
            history_limit: HISTORY_LIMIT,
            delivery_timeout: Duration::from_secs(60),
            git_author: sluice_delivery::DEFAULT_AUTHOR.into(),
            events_addr: None,
            replica: Replica::Observer,
            allowed_hosts: sluice_delivery::AllowedHosts::default(),
            webhooks: sluice_delivery::AllowedWebhooks::default(),
        }
    }
}

/// Which pipelines a process acts for.
#[derive(Clone, Debug)]
pub enum Replica {
    /// All: it is the only replica.
    Only,
    /// Those of the shards that it wins.
    Elected(ElectionOptions),
    /// None: it observes and shows, and writes nothing.
    Observer,
}
