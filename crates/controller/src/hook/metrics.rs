//! Metrics of the hook server.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    endpoint: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CutLabels {
    cause: &'static str,
}

/// Why the hook server closed a connection without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutCause {
    /// The peer has as many connections as it may have.
    Crowded,
    /// The TLS handshake failed.
    Handshake,
    /// The handshake, or the head of a request, did not come in time.
    Slow,
    /// The bytes were not HTTP.
    Unreadable,
    /// The connection was open for as long as a connection may be.
    Old,
}

impl CutCause {
    fn label(self) -> &'static str {
        match self {
            CutCause::Crowded => "crowded",
            CutCause::Handshake => "handshake",
            CutCause::Slow => "slow",
            CutCause::Unreadable => "unreadable",
            CutCause::Old => "old",
        }
    }
}

/// The metrics of the hook server.
pub struct HookMetrics {
    calls: Family<CallLabels, Counter>,
    time: Histogram,
    cuts: Family<CutLabels, Counter>,
    full: Counter,
    /// The number of open connections.
    pub connections: Gauge,
    /// 1 while the files of the server's certificate cannot be read again, otherwise 0.
    pub certificate_unreadable: Gauge,
}

impl HookMetrics {
    /// Registers the metrics, all at zero.
    pub fn new(registry: &mut Registry) -> Self {
        let made = Self {
            calls: Family::default(),
            time: Histogram::new(exponential_buckets(0.0001, 2.0, 18)),
            cuts: Family::default(),
            full: Counter::default(),
            connections: Gauge::default(),
            certificate_unreadable: Gauge::default(),
        };
        registry.register(
            "hook_calls",
            "Calls to the hook server, by endpoint and result",
            made.calls.clone(),
        );
        registry.register("hook_seconds", "Time from the head of a call to its answer", made.time.clone());
        registry.register(
            "hook_cuts",
            "Connections that the hook server closed without an answer",
            made.cuts.clone(),
        );
        registry.register("hook_full", "Times that all connections were in use", made.full.clone());
        registry.register(
            "hook_connections",
            "Open connections to the hook server",
            made.connections.clone(),
        );
        registry.register(
            "hook_certificate_unreadable",
            "Whether the hook server's certificate cannot be read again",
            made.certificate_unreadable.clone(),
        );
        made
    }

    /// Counts a call, with the time from its head to its answer.
    pub fn count_call(&self, endpoint: &'static str, result: &'static str, time: Duration) {
        self.calls.get_or_create(&CallLabels { endpoint, result }).inc();
        self.time.observe(time.as_secs_f64());
    }

    /// Counts a connection that was closed without an answer.
    pub fn count_cut(&self, cause: CutCause) {
        self.cuts.get_or_create(&CutLabels { cause: cause.label() }).inc();
    }

    /// Counts that all connections are in use, so that the next one waits until one closes.
    pub fn count_full(&self) {
        self.full.inc();
    }
}
