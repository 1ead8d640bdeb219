//! What all calls to forges share: HTTP clients, rate budgets, and caches of answers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::header::HeaderValue;

use super::change_request::ForgeChangeRequest;
use super::rate_limit::RateBudgets;
use super::response::LargeResponses;
use crate::address::AllowedHosts;
use crate::http_client::HttpClients;
use crate::lru::Lru;
use crate::stats::Counters;

/// How long a call may take, unless a run of git may take less.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of change requests that are cached for conditional calls.
const MAX_CACHED_BYTES: usize = 16 << 20;
/// The most ids of commits that are cached.
pub(super) const MAX_COMMIT_IDS: usize = 20_000;
/// The most answers about conflicts that are cached.
const MAX_CONFLICT_ANSWERS: usize = 4_096;

/// What all forges of this process share.
#[derive(Debug)]
pub(crate) struct ForgeShared {
    pub(crate) counters: Arc<Counters>,
    pub(super) timeout: Duration,
    pub(super) clients: HttpClients,
    pub(crate) budgets: RateBudgets,
    /// Change requests with their `ETag`, for conditional calls.
    pub(super) change_requests: Mutex<Lru<(HeaderValue, ForgeChangeRequest), MAX_CACHED_BYTES>>,
    /// Whole ids of commits, by the short ids of a forge.
    pub(super) commit_ids: Mutex<Lru<String, MAX_COMMIT_IDS>>,
    /// Cached answers about conflicts.
    pub(super) conflicts: Mutex<Lru<(Instant, bool), MAX_CONFLICT_ANSWERS>>,
    pub(super) large: LargeResponses,
    /// The hosts that an address in a Secret may name.
    pub(super) hosts: AllowedHosts,
}

impl ForgeShared {
    pub(crate) fn new(counters: Arc<Counters>, timeout: Duration, hosts: AllowedHosts) -> Self {
        ForgeShared {
            counters,
            timeout: timeout.min(CALL_TIMEOUT),
            clients: HttpClients::default(),
            budgets: RateBudgets::default(),
            change_requests: Mutex::default(),
            commit_ids: Mutex::default(),
            conflicts: Mutex::default(),
            large: LargeResponses::default(),
            hosts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_never_takes_longer_than_a_run_of_git() {
        let of =
            |git| ForgeShared::new(Arc::default(), Duration::from_secs(git), AllowedHosts::default()).timeout;
        assert_eq!((of(120), of(5)), (CALL_TIMEOUT, Duration::from_secs(5)));
    }
}
