//! Rate limits of calls, by peer and by pipeline. Pure: the time is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A table of the entries that were used last: at least `most`, at most twice as many. Entries are dropped a
/// generation at a time, so that every use takes constant time.
#[derive(Debug)]
pub struct RecentEntries<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    most: usize,
}

impl<K: Eq + Hash, V> RecentEntries<K, V> {
    /// An empty table.
    pub fn new(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), most }
    }

    /// Returns the entry of a key. Makes it if there is none.
    pub fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let is_young = self.young.contains_key(&key);
        let known = if is_young { None } else { self.old.remove(&key) };
        if !is_young && self.young.len() >= self.most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.entry(key).or_insert_with(|| known.unwrap_or_else(make))
    }

    /// The number of entries.
    pub fn count(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

/// A limit of calls a second for each key, on average. The calls of [`BURST_SECONDS`] may come at the same time.
#[derive(Debug)]
pub struct RateLimits<K> {
    rate: f64,
    buckets: RecentEntries<K, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// The least number of buckets that are kept in memory.
const MIN_BUCKETS: usize = 50_000;
/// How many seconds of unused calls a key may save.
const BURST_SECONDS: f64 = 10.0;

impl<K: Eq + Hash> RateLimits<K> {
    /// A limit of `rate` calls a second for each key. 0 is no limit.
    pub fn new(rate: u32) -> Self {
        Self { rate: f64::from(rate), buckets: RecentEntries::new(MIN_BUCKETS) }
    }

    /// Counts a call. A key without a bucket starts with a full one.
    ///
    /// # Errors
    /// When the call is over the limit: how long the caller must wait, in whole seconds.
    pub fn count_call(&mut self, key: K, now: Instant) -> Result<(), Duration> {
        if self.rate == 0.0 {
            return Ok(());
        }
        let (rate, most) = (self.rate, self.rate * BURST_SECONDS);
        let bucket = self.buckets.entry(key, || Bucket { left: most, at: now });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.left, bucket.at) = ((bucket.left + passed * rate).min(most), now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64(((1.0 - bucket.left) / rate).ceil().max(1.0)))
    }

    /// The number of buckets in memory.
    pub fn count(&self) -> usize {
        self.buckets.count()
    }
}

/// Lets a notice pass once in [`NOTICE_INTERVAL`] for each key.
#[derive(Debug)]
pub struct NoticeThrottle<K>(RecentEntries<K, Option<Instant>>);

/// How long a notice is not repeated.
const NOTICE_INTERVAL: Duration = Duration::from_secs(600);

impl<K: Eq + Hash> Default for NoticeThrottle<K> {
    fn default() -> Self {
        Self(RecentEntries::new(1000))
    }
}

impl<K: Eq + Hash> NoticeThrottle<K> {
    /// Returns true if a notice is due, and counts it as given then.
    pub fn is_due(&mut self, key: K, now: Instant) -> bool {
        let last = self.0.entry(key, || None);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= NOTICE_INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
