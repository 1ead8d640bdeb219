//! How long the namespaces have held the slots of a queue lately, so that those with slow work yield to others. Pure.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// A slot that is held for less time does not count: a namespace with much quick work is not slow.
const MIN_COUNTED: Duration = Duration::from_secs(1);
/// The most time for which a namespace may hold slots before its work counts as slow: less than the timeouts of servers and
/// repositories.
const MAX_QUICK: Duration = Duration::from_secs(8);
/// The most time that counts. So slow work is forgotten an hour and a half later.
const MAX_COUNTED: Duration = Duration::from_secs(60);
/// In how many seconds a second is forgotten: fifty namespaces that take turns at one slot hold it for longer.
const FORGETTING: u32 = 100;

/// The time for which each namespace has held slots, and when that was computed. Namespaces without any time are absent.
#[derive(Debug, Default)]
pub(crate) struct SlotUse(HashMap<String, (Duration, Instant)>);

impl SlotUse {
    /// Counts the time for which a namespace has held a slot.
    pub(crate) fn add(&mut self, namespace: &str, held: Duration, now: Instant) {
        if held < MIN_COUNTED {
            return;
        }
        self.forget(now);
        let used = self.used(namespace, now).saturating_add(held).min(MAX_COUNTED);
        self.0.insert(namespace.into(), (used, now));
    }

    /// Whether the work of a namespace is slow.
    pub(crate) fn is_slow(&self, namespace: &str, now: Instant) -> bool {
        self.used(namespace, now) > MAX_QUICK
    }

    /// Whether the first of two namespaces has held slots for clearly less time lately than the second, which has held one for
    /// `held_now`.
    pub(crate) fn is_clearly_less(
        &self,
        (first, second): (&str, &str),
        held_now: Duration,
        now: Instant,
    ) -> bool {
        let of_second = self.used(second, now).saturating_add(held_now).min(MAX_COUNTED);
        self.used(first, now).saturating_add(MAX_QUICK) < of_second
    }

    /// Whether no namespace has any time.
    pub(crate) fn is_empty(&mut self, now: Instant) -> bool {
        self.forget(now);
        self.0.is_empty()
    }

    fn used(&self, namespace: &str, now: Instant) -> Duration {
        self.0.get(namespace).map(|used| remaining(used, now)).unwrap_or_default()
    }

    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, used| !remaining(used, now).is_zero());
    }
}

fn remaining((used, at): &(Duration, Instant), now: Instant) -> Duration {
    used.saturating_sub(now.saturating_duration_since(*at) / FORGETTING)
}
