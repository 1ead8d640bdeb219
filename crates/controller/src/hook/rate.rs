//! How many calls are taken from one peer, and for one pipeline. Pure: the time comes in.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A table that keeps what was used last and drops the rest: at least `most` entries, at most twice as many. Entries
/// are dropped a generation at a time, so that every use takes constant time.
#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    most: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// An empty table.
    pub fn new(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), most }
    }

    /// The entry of a key, made if there is none.
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

/// A limit of calls a second for each key, on average; ten seconds' worth may come at once.
#[derive(Debug)]
pub struct Limits<K> {
    rate: f64,
    buckets: Recent<K, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// The number of buckets that are kept at least.
const MANY: usize = 50_000;
/// What may be saved up, in seconds.
const BURST: f64 = 10.0;

impl<K: Eq + Hash> Limits<K> {
    /// A limit of `rate` calls a second for each key; 0 for no limit.
    pub fn new(rate: u32) -> Self {
        Self { rate: f64::from(rate), buckets: Recent::new(MANY) }
    }

    /// Counts a call. A key that was not seen lately starts with a full bucket.
    ///
    /// # Errors
    /// How long to wait, in whole seconds, when the call is over the limit.
    pub fn take(&mut self, key: K, now: Instant) -> Result<(), Duration> {
        if self.rate == 0.0 {
            return Ok(());
        }
        let (rate, most) = (self.rate, self.rate * BURST);
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

/// Remembers what people were told lately, so that they are told each thing once in ten minutes.
#[derive(Debug)]
pub struct Pauses<K>(Recent<K, Option<Instant>>);

/// How long nothing is said again.
const PAUSE: Duration = Duration::from_secs(600);

impl<K: Eq + Hash> Default for Pauses<K> {
    fn default() -> Self {
        Self(Recent::new(1000))
    }
}

impl<K: Eq + Hash> Pauses<K> {
    /// Whether this is to be said now; then it is taken for said.
    pub fn is_due(&mut self, key: K, now: Instant) -> bool {
        let last = self.0.entry(key, || None);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
