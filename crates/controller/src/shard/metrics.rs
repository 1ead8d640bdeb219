//! What is told of shards in numbers.

use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Change {
    change: &'static str,
}

/// The numbers about shards and replicas, and whether this one takes part.
#[derive(Debug, Default)]
pub struct ShardMetrics {
    held: Gauge,
    changes: Family<Change, Counter>,
    replicas: Gauge,
    ready: AtomicBool,
}

impl ShardMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let new = Self::default();
        registry.register("shards_held", "Shards for which this replica acts", new.held.clone());
        registry.register(
            "shard_changes",
            "Shards that came to this replica or left it, by how",
            new.changes.clone(),
        );
        registry.register("replicas", "Replicas that take part, as this one sees it", new.replicas.clone());
        new
    }

    /// So many shards are held, and so many replicas take part.
    pub(crate) fn count(&self, held: usize, replicas: usize) {
        self.held.set(held as i64);
        self.replicas.set(replicas as i64);
    }

    /// A shard was gained, released or lost.
    pub(crate) fn changed(&self, change: &'static str) {
        self.changes.get_or_create(&Change { change }).inc();
    }

    /// This replica takes part or stands by, or it is the only one.
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}
