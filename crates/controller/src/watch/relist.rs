//! Limits how often Sluice lists the objects of a cluster. A list costs the cluster and Sluice far more than a
//! watch. If the watches of a cluster end again and again, so that each time a new list is needed, the pauses
//! between lists grow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;

use sluice_core::fleet::Kind;
use sluice_core::lock::lock;

/// The pause between the end of the first list and the next list. The pause doubles with each list.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// After this time without a list, the next list counts as the first again.
const STABLE_AFTER: Duration = Duration::from_secs(600);
/// A longer pause is reported to the user. A shorter one is not, because Sluice sees a cluster that comes back
/// within 15 seconds.
const REPORTED_PAUSE: Duration = Duration::from_secs(10);

/// A kind in one namespace, or in all.
type ListScope = (Kind, Option<String>);

/// The lists of one cluster, over all connections to it.
#[derive(Debug, Default)]
pub struct Lists {
    last: Mutex<HashMap<ListScope, LastList>>,
    relists: Counter,
}

#[derive(Clone, Copy, Debug)]
struct LastList {
    ended: Instant,
    /// The least time from the end of this list to the next list.
    pause: Duration,
}

impl Lists {
    /// Returns a record of no lists. `relists` counts the repeated lists.
    pub fn new(relists: Counter) -> Arc<Self> {
        Arc::new(Self { relists, ..Self::default() })
    }

    /// Returns how long to wait before the next list of a scope.
    fn pause(&self, scope: &ListScope, now: Instant) -> Duration {
        let last = lock(&self.last);
        last.get(scope)
            .map_or(Duration::ZERO, |last| (last.ended + last.pause).saturating_duration_since(now))
    }

    /// Records that a list of a scope has ended, complete or not.
    fn record_end(&self, scope: &ListScope, now: Instant) {
        let mut last = lock(&self.last);
        let previous = last.get(scope).copied();
        if previous.is_some() {
            self.relists.inc();
        }
        let recent = previous.filter(|previous| now.duration_since(previous.ended) < STABLE_AFTER);
        let pause = recent.map_or(MIN_PAUSE, |previous| (previous.pause * 2).min(MAX_PAUSE));
        last.insert(scope.clone(), LastList { ended: now, pause });
    }
}

/// The lists of one scope of a cluster.
#[derive(Clone)]
pub struct ScopeLists {
    lists: Arc<Lists>,
    scope: ListScope,
}

impl ScopeLists {
    /// Returns the lists of a kind in one namespace, or in all.
    pub fn new(lists: Arc<Lists>, kind: Kind, namespace: Option<String>) -> Self {
        Self { lists, scope: (kind, namespace) }
    }

    /// Returns how long to wait before the next list, and an error to report if that is long.
    pub fn pause(&self) -> (Duration, Option<HeldBack>) {
        let pause = self.lists.pause(&self.scope, Instant::now());
        (pause, (pause > REPORTED_PAUSE).then_some(HeldBack))
    }

    /// Records that a list has ended, complete or not.
    pub fn record_end(&self) {
        self.lists.record_end(&self.scope, Instant::now());
    }
}

/// The error while a list waits for its pause. The message continues the name of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has ended its watches too often: Sluice lists it at most once in {} seconds", MAX_PAUSE.as_secs())]
pub struct HeldBack;

impl From<HeldBack> for kube::Error {
    fn from(held: HeldBack) -> Self {
        kube::Error::ReadEvents(std::io::Error::other(held))
    }
}

/// Whether an error is [`HeldBack`].
pub fn is_held_back(error: &kube::Error) -> bool {
    let kube::Error::ReadEvents(error) = error else { return false };
    error.get_ref().is_some_and(|inner| inner.is::<HeldBack>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_lists_double_and_are_reset_after_a_stable_time() {
        let (lists, start) = (Lists::new(Counter::default()), Instant::now());
        let (scope, other) = ((Kind::Deployment, None), (Kind::Deployment, Some("apps".into())));
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = lists.pause(&scope, now);
            pauses.push(pause.as_secs());
            now += pause;
            lists.record_end(&scope, now);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(lists.relists.get(), 8);
        assert_eq!(lists.pause(&other, now), Duration::ZERO, "every scope has a pause of its own");
        now += STABLE_AFTER;
        assert_eq!(lists.pause(&scope, now), Duration::ZERO);
        lists.record_end(&scope, now);
        assert_eq!(lists.pause(&scope, now), MIN_PAUSE);
    }

    #[test]
    fn only_the_held_back_error_is_recognized_as_held_back() {
        assert!(is_held_back(&HeldBack.into()));
        assert!(!is_held_back(&crate::timeout::timed_out(MIN_PAUSE)));
    }
}
