//! How long promotions take from the time at which their revision was healthy until they are proposed, delivered
//! and running, and how long they wait at gates. There is a histogram of all promotions, and a gauge of the last
//! promotion of each application.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use sluice_api::promotion::{Phase, PromotionSpec, PromotionStatus};
use sluice_core::Time;
use sluice_core::lock::lock;

/// The most pairs of application and environment with a gauge. The least recently promoted lose theirs.
const MAX_APPLICATIONS: usize = 1000;
/// Upper bounds of the histograms, in seconds: from a second to a week.
const BUCKETS: [f64; 14] = [
    1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0,
    604_800.0,
];

/// A duration in the life of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionStep {
    /// From the time at which the revision was healthy to an open change request.
    Proposed,
    /// From the same time to the merge, the commit, or the receiver's acceptance.
    Delivered,
    /// From the same time to healthy targets that run the revision.
    Running,
    /// From the first closed gate until all gates are open.
    Gates,
}

impl PromotionStep {
    const ALL: [PromotionStep; 4] =
        [PromotionStep::Proposed, PromotionStep::Delivered, PromotionStep::Running, PromotionStep::Gates];

    fn name(self) -> &'static str {
        match self {
            PromotionStep::Proposed => "proposed",
            PromotionStep::Delivered => "delivered",
            PromotionStep::Running => "running",
            PromotionStep::Gates => "gates",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApplicationLabels {
    namespace: String,
    pipeline: String,
    environment: String,
    step: &'static str,
}

/// Returns the steps that a change of status completes, with their durations in seconds.
pub fn completed(
    spec: &PromotionSpec,
    before: &PromotionStatus,
    after: &PromotionStatus,
    now: Timestamp,
) -> Vec<(PromotionStep, f64)> {
    // The clock may have been set back.
    let seconds_since = |time: Time| now.duration_since(*time).as_secs_f64().max(0.0);
    let healthy = spec.evidence.iter().map(|e| e.at).max();
    let healthy = healthy.or(spec.trigger.as_ref().map(|t| t.at)).map(seconds_since);
    let entered = |phase: &str| after.times.contains_key(phase) && !before.times.contains_key(phase);
    let steps = [
        ("Proposed", PromotionStep::Proposed),
        ("Delivered", PromotionStep::Delivered),
        ("Succeeded", PromotionStep::Running),
    ];
    let mut completed: Vec<(PromotionStep, f64)> = steps
        .iter()
        .filter(|(phase, _)| entered(phase))
        .filter_map(|(_, step)| Some((*step, healthy?)))
        .collect();
    let was_waiting = before.phase == Phase::Pending && before.gates.iter().any(|gate| !gate.open);
    let has_passed = !after.gates.is_empty() && after.gates.iter().all(|gate| gate.open);
    if was_waiting && has_passed && !after.phase.has_ended() {
        let waited = before.times.get("Pending").map(|time| seconds_since(*time));
        completed.extend(waited.map(|waited| (PromotionStep::Gates, waited)));
    }
    completed
}

/// The metrics of how long the steps of promotions took.
#[derive(Debug)]
pub struct StepDurations {
    all: Family<StepLabel, Histogram, fn() -> Histogram>,
    last: Family<ApplicationLabels, Gauge<f64, AtomicU64>>,
    /// The namespace, pipeline and environment of each application with a gauge, the least recently promoted
    /// first.
    applications: Mutex<VecDeque<(String, String, String)>>,
}

impl StepDurations {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let make: fn() -> Histogram = || Histogram::new(BUCKETS);
        let (all, last) = (Family::new_with_constructor(make), Family::default());
        registry.register(
            "promotion_step_seconds",
            "Time from a healthy revision to proposed, delivered and running, and the wait at gates",
            all.clone(),
        );
        registry.register(
            "promotion_last_seconds",
            "The steps of the last promotion of each application",
            last.clone(),
        );
        Self { all, last, applications: Mutex::default() }
    }

    /// Records the steps that a promotion has completed.
    pub fn completed(&self, namespace: &str, spec: &PromotionSpec, steps: &[(PromotionStep, f64)]) {
        if steps.is_empty() {
            return;
        }
        self.mark_latest((namespace.into(), spec.pipeline.clone(), spec.place()));
        for (step, seconds) in steps {
            self.all.get_or_create(&StepLabel { step: step.name() }).observe(*seconds);
            self.last.get_or_create(&labels(namespace, &spec.pipeline, &spec.place(), *step)).set(*seconds);
        }
    }

    /// Makes an application the most recently promoted one, and removes the gauges of the least recent one if
    /// there are too many.
    fn mark_latest(&self, application: (String, String, String)) {
        let mut applications = lock(&self.applications);
        if let Some(at) = applications.iter().position(|a| *a == application) {
            applications.remove(at);
        }
        applications.push_back(application);
        if applications.len() > MAX_APPLICATIONS
            && let Some((namespace, pipeline, environment)) = applications.pop_front()
        {
            for step in PromotionStep::ALL {
                self.last.remove(&labels(&namespace, &pipeline, &environment, step));
            }
        }
    }
}

fn labels(namespace: &str, pipeline: &str, environment: &str, step: PromotionStep) -> ApplicationLabels {
    let [namespace, pipeline, environment] = [namespace, pipeline, environment].map(String::from);
    ApplicationLabels { namespace, pipeline, environment, step: step.name() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(pipeline: &str) -> PromotionSpec {
        serde_json::from_value(json!({"pipeline": pipeline, "environment": "prod", "revision": "1",
            "facets": {}, "evidence": [
                {"environment": "dev", "target": "a", "at": "2026-11-21T09:00:00Z"},
                {"environment": "dev", "target": "b", "at": "2026-11-21T10:00:00Z"}]}))
        .unwrap()
    }

    fn status(phase: &str, gate_closed: bool, times: &[(&str, &str)]) -> PromotionStatus {
        let gates = json!([{"name": "Approval", "open": !gate_closed}]);
        let times: serde_json::Map<String, serde_json::Value> =
            times.iter().map(|(phase, at)| (phase.to_string(), json!(format!("2026-11-21T{at}Z")))).collect();
        serde_json::from_value(json!({"phase": phase, "gates": gates, "times": times})).unwrap()
    }

    #[test]
    fn each_step_is_counted_once_when_it_is_completed() {
        let new = PromotionStatus::default();
        let pending = status("Pending", true, &[("Pending", "10:00:05")]);
        let passed = status("Pending", false, &[("Pending", "10:00:05")]);
        let rejected = status("Rejected", true, &[("Pending", "10:00:05"), ("Rejected", "10:00:30")]);
        let proposed = status("Proposed", false, &[("Pending", "10:00:05"), ("Proposed", "10:01:00")]);
        let delivered = status(
            "Delivered",
            false,
            &[("Pending", "10:00:05"), ("Proposed", "10:01:00"), ("Delivered", "10:02:00")],
        );
        let mut succeeded = delivered.clone();
        succeeded.times.insert("Succeeded".into(), "2026-11-21T10:03:00Z".parse().unwrap());
        let steps = |before, after, now: &str| {
            completed(&spec("a"), before, after, format!("2026-11-21T{now}Z").parse().unwrap())
        };
        assert_eq!(steps(&new, &pending, "10:00:05"), []);
        assert_eq!(steps(&pending, &rejected, "10:00:30"), []);
        assert_eq!(steps(&pending, &passed, "10:00:45"), [(PromotionStep::Gates, 40.0)]);
        assert_eq!(
            steps(&passed, &proposed, "10:01:00"),
            [(PromotionStep::Proposed, 60.0)],
            "the duration starts at the newest evidence"
        );
        assert_eq!(
            steps(&pending, &proposed, "10:01:00"),
            [(PromotionStep::Proposed, 60.0), (PromotionStep::Gates, 55.0)],
            "the gates opened and the change request was found in one step"
        );
        assert_eq!(steps(&proposed, &proposed, "10:01:30"), []);
        assert_eq!(steps(&proposed, &delivered, "10:02:00"), [(PromotionStep::Delivered, 120.0)]);
        assert_eq!(steps(&delivered, &succeeded, "10:03:00"), [(PromotionStep::Running, 180.0)]);
        // The clock was set back.
        assert_eq!(
            steps(&new, &delivered, "08:00:00"),
            [(PromotionStep::Proposed, 0.0), (PromotionStep::Delivered, 0.0)]
        );
    }

    #[test]
    fn the_number_of_applications_with_a_gauge_is_limited() {
        let mut registry = Registry::default();
        let steps = StepDurations::new(&mut registry);
        steps.completed("apps", &spec("old"), &[(PromotionStep::Running, 1.0)]);
        steps.completed("apps", &spec("busy"), &[(PromotionStep::Running, 1.0)]);
        for n in 0..MAX_APPLICATIONS {
            steps.completed("apps", &spec(&format!("a{n}")), &[(PromotionStep::Running, 1.0)]);
            steps.completed("apps", &spec("busy"), &[(PromotionStep::Running, 2.0)]);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let series = text.lines().filter(|line| line.starts_with("promotion_last_seconds{")).count();
        assert_eq!(series, MAX_APPLICATIONS);
        assert!(!text.contains("pipeline=\"old\"") && text.contains("pipeline=\"busy\""));
    }
}
