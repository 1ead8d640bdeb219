//! Counts of what went out, for metrics and for tests that hold the budgets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What has gone out since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls to forges by forge, method and status; status 0 means that no answer came.
    pub forge_calls: BTreeMap<(&'static str, &'static str, u16), u64>,
    /// How many more calls each forge's host said it would take.
    pub forge_budget: BTreeMap<String, u64>,
    /// Fetches from repositories.
    pub git_fetches: u64,
    /// Pushes to repositories.
    pub git_pushes: u64,
    /// Caches that were thrown away and built anew.
    pub git_rebuilds: u64,
}

impl Stats {
    /// Calls to forges with this method, whatever came of them.
    pub fn calls(&self, method: &str) -> u64 {
        self.forge_calls.iter().filter(|((_, m, _), _)| *m == method).map(|(_, n)| n).sum()
    }
}

/// The running counts behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    forge: Mutex<ForgeCounts>,
    pub(crate) fetches: AtomicU64,
    pub(crate) pushes: AtomicU64,
    pub(crate) rebuilds: AtomicU64,
}

#[derive(Debug, Default)]
struct ForgeCounts {
    calls: BTreeMap<(&'static str, &'static str, u16), u64>,
    budget: BTreeMap<String, u64>,
}

impl Counters {
    pub(crate) fn forge_call(&self, forge: &'static str, method: &'static str, status: u16) {
        *self.forge().calls.entry((forge, method, status)).or_default() += 1;
    }

    pub(crate) fn budget(&self, host: &str, left: u64) {
        self.forge().budget.insert(host.into(), left);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let forge = self.forge();
        Stats {
            forge_calls: forge.calls.clone(),
            forge_budget: forge.budget.clone(),
            git_fetches: self.fetches.load(Ordering::Relaxed),
            git_pushes: self.pushes.load(Ordering::Relaxed),
            git_rebuilds: self.rebuilds.load(Ordering::Relaxed),
        }
    }

    fn forge(&self) -> MutexGuard<'_, ForgeCounts> {
        self.forge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
