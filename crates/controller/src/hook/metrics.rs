//! What the hook server tells of itself in numbers.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    endpoint: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

/// Its metrics.
pub struct HookMetrics {
    calls: Family<Outcome, Counter>,
    time: Histogram,
    cuts: Family<Cause, Counter>,
    full: Counter,
    /// Connections that there are.
    pub connections: Gauge,
    /// 1 while the files of its certificate cannot be read again.
    pub certificate_unreadable: Gauge,
}

impl HookMetrics {
    /// All of them at zero.
    pub fn new(registry: &mut Registry) -> Self {
        let made = Self {
            calls: Family::default(),
            time: Histogram::new(exponential_buckets(0.0001, 2.0, 18)),
            cuts: Family::default(),
            full: Counter::default(),
            connections: Gauge::default(),
            certificate_unreadable: Gauge::default(),
        };
        registry.register("hook_calls", "Calls of the hook server, by how they ended", made.calls.clone());
        registry.register("hook_seconds", "From the head of a call to its answer", made.time.clone());
        registry.register("hook_cuts", "Connections that the hook server has ended", made.cuts.clone());
        registry.register("hook_full", "Times that the hook server had no place left", made.full.clone());
        registry.register("hook_connections", "Connections of the hook server", made.connections.clone());
        registry.register(
            "hook_certificate_unreadable",
            "Whether the hook server's certificate cannot be read again",
            made.certificate_unreadable.clone(),
        );
        made
    }

    /// A call was answered so, after so long.
    pub fn called(&self, endpoint: &'static str, result: &'static str, time: Duration) {
        self.calls.get_or_create(&Outcome { endpoint, result }).inc();
        self.time.observe(time.as_secs_f64());
    }

    /// A connection was ended, without an answer that is counted.
    pub fn cut(&self, cause: &'static str) {
        self.cuts.get_or_create(&Cause { cause }).inc();
    }

    /// There is no place left: who connects now waits until somebody has gone.
    pub fn filled(&self) {
        self.full.inc();
    }
}
