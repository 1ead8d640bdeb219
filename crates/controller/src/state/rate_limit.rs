//! Limits how often something happens to each of many things, whatever the cause. Pure.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A generic cell rate for each key: a burst without a pause, then once in each period.
#[derive(Debug)]
pub(super) struct RateLimit<K> {
    burst: u32,
    period: Duration,
    /// When each key may have a whole burst again. A key without an entry may have it now.
    full_at: HashMap<K, Instant>,
    purge_at: usize,
}

/// Entries without effect are removed when there are this many entries.
const MANY: usize = 256;

impl<K: Clone + Eq + Hash> RateLimit<K> {
    /// A limit of `burst` times without a pause, and then one in each `period`.
    pub(super) fn new(burst: u32, period: Duration) -> Self {
        Self { burst, period, full_at: HashMap::new(), purge_at: MANY }
    }

    /// How long the key must wait now.
    pub(super) fn pause(&self, key: &K, now: Instant) -> Duration {
        let full_at = self.full_at.get(key).copied().unwrap_or(now);
        full_at.saturating_duration_since(now).saturating_sub(self.period * (self.burst - 1))
    }

    /// Counts one time of the key, and returns the pause before it.
    pub(super) fn count(&mut self, key: &K, now: Instant) -> Duration {
        self.count_times(key, 1, now)
    }

    /// Counts several times of the key as one, and returns the pause before it.
    pub(super) fn count_times(&mut self, key: &K, times: u32, now: Instant) -> Duration {
        if self.full_at.len() >= self.purge_at {
            self.full_at.retain(|_, at| *at > now);
            self.purge_at = MANY.max(2 * self.full_at.len());
        }
        let pause = self.pause(key, now);
        let full_at = self.full_at.entry(key.clone()).or_insert(now);
        *full_at = (*full_at).max(now) + self.period * times;
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: u32 = 100;
    const PERIOD: Duration = Duration::from_secs(3);

    #[test]
    fn a_burst_is_free_and_what_follows_is_slow() {
        let (mut limit, begun) = (RateLimit::new(BURST, PERIOD), Instant::now());
        let (mut now, mut times) = (begun, 0u32);
        while now < begun + Duration::from_secs(600) {
            now += limit.count(&1, now) + Duration::from_millis(5);
            times += 1;
        }
        assert!((200..=BURST + 202).contains(&times), "{times} times in ten minutes");
        assert_eq!(limit.count(&2, now), Duration::ZERO, "another key is not slowed");
        // After a pause the burst is free again, and entries without effect are removed.
        let later = now + PERIOD * (BURST + 2);
        assert_eq!(limit.pause(&1, later), Duration::ZERO);
        for key in 0..5000u32 {
            limit.count(&key, later + PERIOD * key);
        }
        assert!(limit.full_at.len() <= 2 * MANY, "{}", limit.full_at.len());
    }
}
