//! When pipelines are reconciled next if no event comes before. Pure.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use crate::pipeline_key::PipelineKey;

/// One time for each pipeline at most.
#[derive(Debug, Default)]
pub(super) struct Timers {
    times: BTreeSet<(Instant, PipelineKey)>,
    by_key: HashMap<PipelineKey, Instant>,
}

impl Timers {
    /// Sets the time of a pipeline, unless it has an earlier one.
    pub(super) fn set(&mut self, key: &PipelineKey, at: Instant) {
        if self.by_key.get(key).is_some_and(|earlier| *earlier <= at) {
            return;
        }
        self.cancel(key);
        self.times.insert((at, key.clone()));
        self.by_key.insert(key.clone(), at);
    }

    /// Removes the time of a pipeline.
    pub(super) fn cancel(&mut self, key: &PipelineKey) {
        if let Some(at) = self.by_key.remove(key) {
            self.times.remove(&(at, key.clone()));
        }
    }

    /// The earliest time.
    pub(super) fn next(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Removes and returns the pipelines whose time has come.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<PipelineKey> {
        let mut expired = Vec::new();
        while let Some((at, key)) = self.times.first().cloned().filter(|(at, _)| *at <= now) {
            self.times.remove(&(at, key.clone()));
            self.by_key.remove(&key);
            expired.push(key);
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_time_of_a_pipeline_counts() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let key = |name: &str| PipelineKey { namespace: "apps".into(), name: name.into() };
        let at = |seconds| now + Duration::from_secs(seconds);
        timers.set(&key("a"), at(5));
        timers.set(&key("a"), at(9));
        timers.set(&key("b"), at(7));
        timers.set(&key("b"), at(3));
        timers.set(&key("c"), at(1));
        timers.cancel(&key("c"));
        assert_eq!(timers.next(), Some(at(3)));
        assert!(timers.expired(at(2)).is_empty());
        assert_eq!(timers.expired(at(5)), [key("b"), key("a")]);
        assert_eq!(timers.next(), None);
    }
}
