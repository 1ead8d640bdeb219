//! Options of deliveries, which the command line sets.

use std::path::PathBuf;
use std::time::Duration;

use crate::address::AllowedHosts;
use crate::webhook::AllowedWebhooks;

/// The default author of commits.
pub const DEFAULT_AUTHOR: &str = "Sluice <sluice@localhost>";

/// The default size of all caches on disk, in bytes: half of what deploy/deployment.yaml gives them.
pub const DEFAULT_CACHE_BYTES: u64 = 1 << 30;

/// How deliveries work.
#[derive(Clone, Debug)]
pub struct DeliveryOptions {
    /// Where repositories are cached. The folder can be removed at any time.
    pub cache_dir: PathBuf,
    /// How long one run of git may take. Calls to forges may take 30 seconds, or this if it is less.
    pub deadline: Duration,
    /// The author of commits, as `Name <address>`.
    pub author: String,
    /// How many local git processes run at the same time, and how many connect to one host.
    pub processes: usize,
    /// How many bytes all caches may take on disk. One file of a cache may have half of that.
    pub cache_bytes: u64,
    /// Whether repositories may be local folders. For tests.
    pub allow_file: bool,
    /// Whether credentials are sent over plain http, to git servers and to forges.
    pub insecure_http: bool,
    /// The hosts that repositories and forges may have.
    pub allowed_hosts: AllowedHosts,
    /// The addresses that webhooks may have.
    pub webhooks: AllowedWebhooks,
    /// The address that receives notifications, in addition to the events in the cluster.
    pub events_addr: Option<String>,
}

impl DeliveryOptions {
    /// The defaults, with this folder for caches.
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        DeliveryOptions {
            cache_dir: cache_dir.into(),
            deadline: Duration::from_secs(120),
            author: DEFAULT_AUTHOR.into(),
            processes: 8,
            cache_bytes: DEFAULT_CACHE_BYTES,
            allow_file: false,
            insecure_http: false,
            allowed_hosts: AllowedHosts::default(),
            webhooks: AllowedWebhooks::default(),
            events_addr: None,
        }
    }
}
