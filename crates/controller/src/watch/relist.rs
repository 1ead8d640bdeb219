//! How often the objects of a foreign cluster are listed. A list costs both sides far more than a watch: a cluster
//! whose watches end again and again, so that everything must be listed again, is listed less and less often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;

use crate::observe::facts::Kind;

/// The least time between the end of the first list and the next one. It doubles with each list.
const SHORTEST_GAP: Duration = Duration::from_secs(1);
/// The longest such time.
const LONGEST_GAP: Duration = Duration::from_secs(60);
/// When the last list is this long ago, the next one counts as the first again.
const STABLE: Duration = Duration::from_secs(600);
/// A pause up to this length is not worth telling: a cluster that comes back is seen within 15 seconds.
const UNTOLD: Duration = Duration::from_secs(10);

/// What is listed: a kind in one namespace, or in all.
type Scope = (Kind, Option<String>);

/// The lists of one cluster, over all connections to it.
#[derive(Debug, Default)]
pub struct Lists {
    last: Mutex<HashMap<Scope, Last>>,
    again: Counter,
}

/// The last list of a scope.
#[derive(Clone, Copy, Debug)]
struct Last {
    ended: Instant,
    /// The least time until the next one.
    gap: Duration,
}

impl Lists {
    /// Returns a record of no lists. `again` counts those that are made again.
    pub fn new(again: Counter) -> Arc<Self> {
        Arc::new(Self { again, ..Self::default() })
    }

    /// Returns how long the next list of a scope must wait.
    fn pause(&self, scope: &Scope, now: Instant) -> Duration {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.get(scope).map_or(Duration::ZERO, |last| (last.ended + last.gap).saturating_duration_since(now))
    }

    /// Notes that a list of a scope has ended, whole or broken off.
    fn ended(&self, scope: &Scope, now: Instant) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.get(scope).copied();
        if before.is_some() {
            self.again.inc();
        }
        let recent = before.filter(|before| now.duration_since(before.ended) < STABLE);
        let gap = recent.map_or(SHORTEST_GAP, |before| (before.gap * 2).min(LONGEST_GAP));
        last.insert(scope.clone(), Last { ended: now, gap });
    }
}

/// The lists of one scope of a cluster.
#[derive(Clone)]
pub struct ScopeLists {
    lists: Arc<Lists>,
    scope: Scope,
}

impl ScopeLists {
    /// Returns the lists of a kind in one namespace, or in all.
    pub fn new(lists: Arc<Lists>, kind: Kind, namespace: Option<String>) -> Self {
        Self { lists, scope: (kind, namespace) }
    }

    /// Returns how long the next list must wait, and whether people should know.
    pub fn pause(&self) -> (Duration, Option<HeldBack>) {
        let pause = self.lists.pause(&self.scope, Instant::now());
        (pause, (pause > UNTOLD).then_some(HeldBack))
    }

    /// Notes that a list has ended, whole or broken off.
    pub fn ended(&self) {
        self.lists.ended(&self.scope, Instant::now());
    }
}

/// A list is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has ended its watches too often, and is listed once in {} seconds at most", LONGEST_GAP.as_secs())]
pub struct HeldBack;

impl From<HeldBack> for kube::Error {
    fn from(held: HeldBack) -> Self {
        kube::Error::ReadEvents(std::io::Error::other(held))
    }
}

/// Returns whether an error of a client says that a list is held back.
pub fn is_held_back(error: &kube::Error) -> bool {
    let kube::Error::ReadEvents(error) = error else { return false };
    error.get_ref().is_some_and(|inner| inner.is::<HeldBack>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_listed_again_at_once_but_not_all_the_time() {
        let (lists, start) = (Lists::new(Counter::default()), Instant::now());
        let (scope, other) = ((Kind::Deployment, None), (Kind::Deployment, Some("apps".into())));
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = lists.pause(&scope, now);
            pauses.push(pause.as_secs());
            now += pause;
            lists.ended(&scope, now);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(lists.again.get(), 8);
        assert_eq!(lists.pause(&other, now), Duration::ZERO, "every scope has a pause of its own");
        // After a watch that lasted, lists are free again.
        now += STABLE;
        assert_eq!(lists.pause(&scope, now), Duration::ZERO);
        lists.ended(&scope, now);
        assert_eq!(lists.pause(&scope, now), SHORTEST_GAP);
    }

    #[test]
    fn a_list_that_is_held_back_is_told_as_such() {
        assert!(is_held_back(&HeldBack.into()));
        assert!(!is_held_back(&crate::timeout::timed_out(SHORTEST_GAP)));
    }
}
