//! The metrics of the controller, and its liveness and readiness.

mod promotion_durations;

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

use self::promotion_durations::StepDurations;
pub use self::promotion_durations::{PromotionStep, completed};
use crate::hook::HookMetrics;
use crate::shard::ShardMetrics;
use crate::state::status_queue::WriteOutcome;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    forge: &'static str,
    method: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BudgetLabels {
    host: String,
    credential: String,
}

/// All metrics, and the state for liveness and readiness.
pub struct Metrics {
    registry: Registry,
    /// Reconciliations of pipelines.
    pub reconciles: Counter,
    failures: Family<ReasonLabel, Counter>,
    phases: Family<PhaseLabel, Counter>,
    writes: Family<WriteLabels, Counter>,
    clusters: Family<StateLabel, Gauge>,
    observed_objects: Gauge,
    /// Repeated lists of the objects of clusters.
    pub relists: Counter,
    wait: Histogram,
    /// How long the steps of promotions take.
    pub steps: StepDurations,
    /// The metrics of the hook server.
    pub hooks: HookMetrics,
    delivery: Delivery,
    git: Family<OperationLabel, Gauge>,
    forge: Family<CallLabels, Gauge>,
    budget: Family<BudgetLabels, Gauge>,
    pause: Family<BudgetLabels, Gauge<f64, AtomicU64>>,
    queue: Family<BudgetLabels, Gauge>,
    due: Gauge,
    /// 1 while the API server checks who approves, else 0.
    pub approvals_checked: Gauge,
    /// The metrics of shards and replicas.
    pub shards: ShardMetrics,
    started: Instant,
    /// The last iteration of the controller's loop, in milliseconds since the start.
    last_iteration: AtomicU64,
    hub_was_read: AtomicBool,
}

/// If the controller's loop makes no iteration for this time, the process counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

impl Metrics {
    /// Returns all metrics at zero. The metrics of git and forges are the counts of `delivery`.
    pub fn new(delivery: Delivery) -> Self {
        let mut registry = Registry::with_prefix("sluice");
        let (reconciles, relists) = <(Counter, Counter)>::default();
        let (due, approvals_checked) = <(Gauge, Gauge)>::default();
        let (failures, phases) = <(Family<ReasonLabel, Counter>, Family<PhaseLabel, Counter>)>::default();
        let writes = Family::<WriteLabels, Counter>::default();
        let clusters = Family::<StateLabel, Gauge>::default();
        let observed_objects = Gauge::default();
        let wait = Histogram::new(exponential_buckets(0.0005, 2.0, 16));
        let git = Family::<OperationLabel, Gauge>::default();
        let forge = Family::<CallLabels, Gauge>::default();
        let (budget, pause, queue) = <(Family<BudgetLabels, Gauge>, Family<_, _>, Family<_, _>)>::default();
        registry.register("reconciles", "Reconciliations of pipelines", reconciles.clone());
        registry.register("promotion_failures", "Failures of promotions, by reason", failures.clone());
        registry.register("promotion_phases", "Promotions that entered a phase", phases.clone());
        registry.register("api_writes", "Writes to the hub's API server", writes.clone());
        registry.register("clusters", "Observed clusters, by state", clusters.clone());
        registry.register("observed_objects", "Observed objects of all clusters", observed_objects.clone());
        registry.register("cluster_relists", "Repeated lists of the objects of clusters", relists.clone());
        registry.register("reconcile_wait_seconds", "Time from an event to the reconciliation", wait.clone());
        registry.register("git_operations", "Operations on git servers since the start", git.clone());
        registry.register("forge_calls", "Calls to forges since the start", forge.clone());
        registry.register("forge_budget", "Calls that the rate limit of a forge allows", budget.clone());
        registry.register("forge_pause_seconds", "Remaining pause of calls to a forge", pause.clone());
        registry.register("forge_queue", "Calls to a forge that wait in the queue", queue.clone());
        registry.register("due_pipelines", "Pipelines that wait for a reconciliation", due.clone());
        registry.register(
            "approvals_checked",
            "1 if Sluice's admission policy checks approvals, else 0",
            approvals_checked.clone(),
        );
        Self {
            steps: StepDurations::new(&mut registry),
            approvals_checked,
            hooks: HookMetrics::new(&mut registry),
            shards: ShardMetrics::new(&mut registry),
            registry,
            reconciles,
            failures,
            phases,
            writes,
            clusters,
            observed_objects,
            relists,
            wait,
            delivery,
            git,
            forge,
            budget,
            pause,
            queue,
            due,
            started: Instant::now(),
            last_iteration: AtomicU64::new(0),
            hub_was_read: AtomicBool::new(false),
        }
    }

    /// Returns the delivery whose counts are part of the metrics.
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// Counts a failure of a promotion.
    pub fn count_failure(&self, reason: &str) {
        self.failures.get_or_create(&ReasonLabel { reason: reason.into() }).inc();
    }

    /// Counts a promotion that entered a phase.
    pub fn count_phase(&self, phase: &str) {
        self.phases.get_or_create(&PhaseLabel { phase: phase.into() }).inc();
    }

    /// Counts a write of a status by its outcome. A withheld write does not count.
    pub fn count_status_write(&self, kind: &str, outcome: &WriteOutcome) {
        let result = match outcome {
            WriteOutcome::Stored(_) => "ok",
            WriteOutcome::Gone => "gone",
            WriteOutcome::Failed(_) => "failed",
            WriteOutcome::Conflict(_) => "overtaken",
            WriteOutcome::Withheld => return,
        };
        self.writes.get_or_create(&WriteLabels { kind: kind.into(), result }).inc();
    }

    /// Counts a successful write of an object.
    pub fn count_write(&self, kind: &str) {
        self.writes.get_or_create(&WriteLabels { kind: kind.into(), result: "ok" }).inc();
    }

    /// Records the time from an event to the reconciliation of its pipeline.
    pub fn observe_wait(&self, time: Duration) {
        self.wait.observe(time.as_secs_f64());
    }

    /// Sets the number of clusters that are up, of all clusters, and of their objects.
    pub fn set_clusters(&self, up: usize, all: usize, objects: usize) {
        self.observed_objects.set(objects as i64);
        self.clusters.get_or_create(&StateLabel { state: "up" }).set(up as i64);
        self.clusters.get_or_create(&StateLabel { state: "down" }).set((all - up) as i64);
    }

    /// Sets the metrics that delivery counts.
    fn set_delivery_stats(&self, stats: &Stats) {
        let git = [("fetch", stats.git_fetches), ("push", stats.git_pushes), ("rebuild", stats.git_rebuilds)];
        for (operation, n) in git {
            self.git.get_or_create(&OperationLabel { operation }).set(n as i64);
        }
        for ((forge, method, status), n) in &stats.forge_calls {
            self.forge.get_or_create(&CallLabels { forge, method, status: *status }).set(*n as i64);
        }
        // Removes the series of budgets that delivery has dropped.
        self.budget.clear();
        self.pause.clear();
        self.queue.clear();
        for budget in &stats.forge_budgets {
            let labels = BudgetLabels { host: budget.host.clone(), credential: budget.credential.clone() };
            if let Some(left) = budget.left {
                self.budget.get_or_create(&labels).set(left as i64);
            }
            self.pause.get_or_create(&labels).set(budget.pause.as_secs_f64());
            self.queue.get_or_create(&labels).set(budget.waiting as i64);
        }
    }

    /// Records an iteration of the controller's loop, after which this number of pipelines waits.
    pub fn record_iteration(&self, due: usize) {
        self.due.set(due as i64);
        self.last_iteration.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Records that the controller has read the hub.
    pub fn set_ready(&self) {
        self.hub_was_read.store(true, Ordering::Relaxed);
    }

    /// Whether the controller has read the hub and the Leases.
    pub fn is_ready(&self) -> bool {
        self.hub_was_read.load(Ordering::Relaxed) && self.shards.is_ready()
    }

    /// Whether the last iteration of the controller's loop is less than a minute ago.
    pub fn is_live(&self) -> bool {
        let last = Duration::from_millis(self.last_iteration.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last) < STUCK_AFTER
    }

    /// Returns all metrics in the text format of OpenMetrics. Do not call it concurrently: one call could return
    /// metrics that the other call has set in part.
    pub fn render(&self) -> String {
        self.set_delivery_stats(&self.delivery.stats());
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n"),
        }
    }
}
