//! The metrics of shards and replicas.

use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The labels of `sluice_shard_changes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShardChangeLabels {
    change: &'static str,
}

/// The metrics of shards and replicas, and whether the election is ready.
#[derive(Debug, Default)]
pub struct ShardMetrics {
    held: Gauge,
    changes: Family<ShardChangeLabels, Counter>,
    replicas: Gauge,
    ready: AtomicBool,
}

impl ShardMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let new = Self::default();
        registry.register("shards_held", "Shards for which this replica acts", new.held.clone());
        registry.register(
            "shard_changes",
            "Shards that this replica gained, released or lost",
            new.changes.clone(),
        );
        registry.register("replicas", "Replicas that take part, as this one sees it", new.replicas.clone());
        new
    }

    /// Sets how many shards this replica holds, and how many replicas take part.
    pub(crate) fn set(&self, held: usize, replicas: usize) {
        self.held.set(held as i64);
        self.replicas.set(replicas as i64);
    }

    /// Counts a shard that was `gained`, `released` or `lost`.
    pub(crate) fn count_change(&self, change: &'static str) {
        self.changes.get_or_create(&ShardChangeLabels { change }).inc();
    }

    /// Notes that this replica takes part or stands by, or is the only one.
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Whether [`ShardMetrics::set_ready`] was called.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}
