//! What the controller tells of itself in numbers.

mod steps;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use sluice_delivery::{Delivery, Stats};

use self::steps::Steps;
pub use self::steps::{PromotionStep, completed};
use crate::hook::HookMetrics;
use crate::shard::ShardMetrics;
use crate::state::status_queue::WriteOutcome;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    kind: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    forge: &'static str,
    method: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Purse {
    host: String,
    credential: String,
}

/// All metrics, and what liveness and readiness are judged by.
pub struct Metrics {
    registry: Registry,
    /// Turns of pipelines.
    pub reconciles: Counter,
    failures: Family<Reason, Counter>,
    phases: Family<Phase, Counter>,
    writes: Family<Write, Counter>,
    clusters: Family<State, Gauge>,
    /// Lists of clusters that were made again.
    pub relists: Counter,
    wait: Histogram,
    /// How long promotions take.
    pub steps: Steps,
    /// Of the hook server.
    pub hooks: HookMetrics,
    delivery: Delivery,
    git: Family<Operation, Gauge>,
    forge: Family<Call, Gauge>,
    budget: Family<Purse, Gauge>,
    pause: Family<Purse, Gauge<f64, AtomicU64>>,
    queue: Family<Purse, Gauge>,
    due: Gauge,
    /// 1 while the API server checks who approves, else 0.
    pub approvals_checked: Gauge,
    /// Of shards and replicas.
    pub shards: ShardMetrics,
    begun: Instant,
    last_tick: AtomicU64,
    ready: AtomicBool,
}

/// How long the loop may go without a turn before the process counts as stuck.
const STUCK: Duration = Duration::from_secs(60);

impl Metrics {
    /// All of them at zero, and those of delivery as it counts them.
    pub fn new(delivery: Delivery) -> Self {
        let mut registry = Registry::with_prefix("sluice");
        let (reconciles, relists) = <(Counter, Counter)>::default();
        let (due, approvals_checked) = <(Gauge, Gauge)>::default();
        let (failures, phases) = <(Family<Reason, Counter>, Family<Phase, Counter>)>::default();
        let writes = Family::<Write, Counter>::default();
        let clusters = Family::<State, Gauge>::default();
        let wait = Histogram::new(exponential_buckets(0.0005, 2.0, 16));
        let git = Family::<Operation, Gauge>::default();
        let forge = Family::<Call, Gauge>::default();
        let (budget, pause, queue) = <(Family<Purse, Gauge>, Family<_, _>, Family<_, _>)>::default();
        registry.register("turns", "Turns of pipelines", reconciles.clone());
        registry.register("promotion_failures", "Failures of promotions, by reason", failures.clone());
        registry.register("promotion_phases", "Promotions that came into a phase", phases.clone());
        registry.register("api_writes", "Writes to the hub's API server", writes.clone());
        registry.register("clusters", "Clusters that pipelines refer to, by state", clusters.clone());
        registry.register("cluster_relists", "Lists of clusters made again", relists.clone());
        registry.register("turn_wait_seconds", "From an event to the turn that answers it", wait.clone());
        registry.register("git_operations", "Operations on git servers so far", git.clone());
        registry.register("forge_calls", "Calls of forges so far", forge.clone());
        registry.register(
            "forge_budget",
            "Calls that a forge's host said it would still take",
            budget.clone(),
        );
        registry.register(
            "forge_pause_seconds",
            "How long a forge is not called, since it asked",
            pause.clone(),
        );
        registry.register("forge_queue", "Calls of a forge that wait for their turn", queue.clone());
        registry.register("due_pipelines", "Pipelines that wait for a turn", due.clone());
        registry.register(
            "approvals_checked",
            "1 while the API server checks who approves, by Sluice's admission policy; else 0",
            approvals_checked.clone(),
        );
        Self {
            steps: Steps::new(&mut registry),
            approvals_checked,
            hooks: HookMetrics::new(&mut registry),
            shards: ShardMetrics::new(&mut registry),
            registry,
            reconciles,
            failures,
            phases,
            writes,
            clusters,
            relists,
            wait,
            delivery,
            git,
            forge,
            budget,
            pause,
            queue,
            due,
            begun: Instant::now(),
            last_tick: AtomicU64::new(0),
            ready: AtomicBool::new(false),
        }
    }

    /// The delivery whose figures these metrics tell.
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// Something failed on the way of a promotion.
    pub fn count_failure(&self, reason: &str) {
        self.failures.get_or_create(&Reason { reason: reason.into() }).inc();
    }

    /// A promotion came into a phase.
    pub fn count_phase(&self, phase: &str) {
        self.phases.get_or_create(&Phase { phase: phase.into() }).inc();
    }

    /// A status was written, or was not.
    pub fn count_status_write(&self, kind: &str, outcome: &WriteOutcome) {
        let result = match outcome {
            WriteOutcome::Stored(_) => "ok",
            WriteOutcome::Gone => "gone",
            WriteOutcome::Failed(_) => "failed",
            WriteOutcome::Conflict(_) => "overtaken",
            WriteOutcome::Withheld => return,
        };
        self.writes.get_or_create(&Write { kind: kind.into(), result }).inc();
    }

    /// An object was written.
    pub fn count_write(&self, kind: &str) {
        self.writes.get_or_create(&Write { kind: kind.into(), result: "ok" }).inc();
    }

    /// An event waited so long for its turn.
    pub fn observe_wait(&self, time: Duration) {
        self.wait.observe(time.as_secs_f64());
    }

    /// So many clusters are up, of so many.
    pub fn set_clusters(&self, up: usize, all: usize) {
        self.clusters.get_or_create(&State { state: "up" }).set(up as i64);
        self.clusters.get_or_create(&State { state: "down" }).set((all - up) as i64);
    }

    /// What delivery has counted.
    fn count(&self, stats: &Stats) {
        let git = [("fetch", stats.git_fetches), ("push", stats.git_pushes), ("rebuild", stats.git_rebuilds)];
        for (operation, n) in git {
            self.git.get_or_create(&Operation { operation }).set(n as i64);
        }
        for ((forge, method, status), n) in &stats.forge_calls {
            self.forge.get_or_create(&Call { forge, method, status: *status }).set(*n as i64);
        }
        // Those that are not kept any more lose their series.
        self.budget.clear();
        self.pause.clear();
        self.queue.clear();
        for purse in &stats.forge_budgets {
            let of = Purse { host: purse.host.clone(), credential: purse.credential.clone() };
            if let Some(left) = purse.left {
                self.budget.get_or_create(&of).set(left as i64);
            }
            self.pause.get_or_create(&of).set(purse.pause.as_secs_f64());
            self.queue.get_or_create(&of).set(purse.waiting as i64);
        }
    }

    /// The loop has turned, and left so many pipelines waiting.
    pub fn record_iteration(&self, due: usize) {
        self.due.set(due as i64);
        self.last_tick.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// The hub has been read.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Whether the hub has been read, and the Leases.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && self.shards.is_ready()
    }

    /// Whether the loop has turned lately.
    pub fn is_live(&self) -> bool {
        let last = Duration::from_millis(self.last_tick.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(last) < STUCK
    }

    /// Everything in the text format of OpenMetrics. Not by two at the same time: one could see the half of what the
    /// other counts.
    pub fn render(&self) -> String {
        self.count(&self.delivery.stats());
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n"),
        }
    }
}
