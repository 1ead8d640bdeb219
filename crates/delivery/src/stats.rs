//! Counts of calls to other systems, for metrics and for tests that check budgets.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::StatusCode;
use sluice_core::lock::lock;

/// Counts of calls to other systems since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls to forges by forge, method and status. Status 0 means that no answer came.
    pub forge_calls: BTreeMap<(&'static str, &'static str, u16), u64>,
    /// What is left of the rate limit of each credential.
    pub forge_budgets: Vec<RateBudget>,
    /// Fetches from repositories.
    pub git_fetches: u64,
    /// Pushes to repositories.
    pub git_pushes: u64,
    /// Caches that were removed and built again.
    pub git_rebuilds: u64,
}

/// What is left of the rate limit of a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateBudget {
    /// The forge's host.
    pub host: String,
    /// A fingerprint of the credential.
    pub credential: String,
    /// How many more calls the forge accepts, if it returned that.
    pub left: Option<u64>,
    /// How long Sluice does not call, because the forge asked for that.
    pub pause: Duration,
    /// How many calls wait.
    pub waiting: usize,
}

impl Stats {
    /// The number of calls to forges with this method, whatever the status.
    pub fn calls(&self, method: &str) -> u64 {
        self.forge_calls.iter().filter(|((_, m, _), _)| *m == method).map(|(_, n)| n).sum()
    }
}

/// The running counts behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    forge: Mutex<BTreeMap<(&'static str, &'static str, u16), u64>>,
    pub(crate) fetches: AtomicU64,
    pub(crate) pushes: AtomicU64,
    pub(crate) rebuilds: AtomicU64,
}

impl Counters {
    /// Counts a call. A status without a standard name counts as the first of its class: a hostile forge could
    /// return a new status each time.
    pub(crate) fn forge_call(&self, forge: &'static str, method: &'static str, status: u16) {
        let is_known = StatusCode::from_u16(status).is_ok_and(|code| code.canonical_reason().is_some());
        let status = if is_known { status } else { status / 100 * 100 };
        let mut calls = lock(&self.forge);
        *calls.entry((forge, method, status)).or_default() += 1;
    }

    pub(crate) fn snapshot(&self, forge_budgets: Vec<RateBudget>) -> Stats {
        Stats {
            forge_calls: lock(&self.forge).clone(),
            forge_budgets,
            git_fetches: self.fetches.load(Ordering::Relaxed),
            git_pushes: self.pushes.load(Ordering::Relaxed),
            git_rebuilds: self.rebuilds.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forge_that_returns_many_statuses_has_few_counts() {
        let counters = Counters::default();
        (0..=999).for_each(|status| counters.forge_call("github", "GET", status));
        let calls = counters.snapshot(Vec::new()).forge_calls;
        assert!(calls.len() < 80, "{} counts", calls.len());
        assert_eq!(calls.values().sum::<u64>(), 1000);
        assert_eq!(calls[&("github", "GET", 404)], 1);
        assert_eq!(calls[&("github", "GET", 900)], 100);
    }
}
