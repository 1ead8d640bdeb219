//! Options of deliveries, which the command line sets.

use std::path::PathBuf;
use std::time::Duration;

use crate::address::AllowedHosts;
use crate::webhook::AllowedWebhooks;

/// Who makes commits where nobody says so.
pub const DEFAULT_AUTHOR: &str = "Sluice <sluice@localhost>";

/// How many bytes the caches take on disk where nobody says so: half of what deploy/deployment.yaml gives them.
pub const DEFAULT_CACHE_BYTES: u64 = 1 << 30;

/// How deliveries work.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where repositories are cached; may be wiped at any time.
    pub cache_dir: PathBuf,
    /// How long one run of git may take; calls to forges have 30 seconds, or this if it is less.
    pub deadline: Duration,
    /// Who makes commits, as `Name <address>`.
    pub author: String,
    /// How many git processes run at once here, and how many talk to one host.
    pub processes: usize,
    /// How many bytes the caches may take on disk; a file of a repository's cache may have half of it.
    pub cache_bytes: u64,
    /// Whether repositories may be folders on this machine. For tests.
    pub allow_file: bool,
    /// Whether credentials are sent over plain http, to git servers and to forges.
    pub insecure_http: bool,
    /// Where repositories and forges may be.
    pub allowed_hosts: AllowedHosts,
    /// Where webhooks may go.
    pub webhooks: AllowedWebhooks,
    /// Where notifications are sent to, beside the cluster's own events.
    pub events_addr: Option<String>,
}

impl Options {
    /// The usual ones.
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Options {
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
