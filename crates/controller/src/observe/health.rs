//! The health of an object, by the rules of Flux and kstatus. Ready counts only for the current generation. An
//! object that fails while Flux retries it has failed.

use sluice_api::flux::FluxCondition;
use sluice_api::workload::{WorkloadSpec, WorkloadState};
use sluice_core::observed::Health;

use sluice_core::fleet::fact::HealthStatus;

/// The parts of a Flux object that decide its health.
pub struct FluxView<'a> {
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether the object is being deleted.
    pub terminating: bool,
    /// If Flux does not reconcile the object, what the user must do to resume.
    pub suspended: Option<&'static str>,
    /// `status.observedGeneration`.
    pub observed_generation: Option<i64>,
    /// `status.conditions`.
    pub conditions: &'a [FluxCondition],
}

fn condition<'a>(conditions: &'a [FluxCondition], type_: &str) -> Option<&'a FluxCondition> {
    conditions.iter().find(|c| c.type_ == type_)
}

fn is_true(conditions: &[FluxCondition], type_: &str) -> bool {
    condition(conditions, type_).is_some_and(|c| c.is_true())
}

/// Returns a health with the message and time of a condition.
fn from_condition(health: Health, condition: &FluxCondition) -> HealthStatus {
    HealthStatus { health, message: condition.message.clone(), since: condition.last_transition_time }
}

fn without_time(health: Health, message: impl Into<String>) -> HealthStatus {
    HealthStatus { health, message: message.into(), since: None }
}

/// Returns the health that a Kustomization or HelmRelease reports. If the first reconciliation of a Kustomization
/// fails, its `observedGeneration` stays -1. Such a Kustomization has failed, and is not pending.
pub fn flux(view: &FluxView<'_>) -> HealthStatus {
    if view.terminating {
        return without_time(Health::Progressing, "it is being deleted");
    }
    let ready = condition(view.conditions, "Ready");
    if let Some(remedy) = view.suspended {
        let message = ready.map(|r| r.message.as_str()).filter(|m| !m.is_empty());
        let last = message.map(|m| format!("; its last message: {m}")).unwrap_or_default();
        return without_time(Health::Suspended, format!("Flux does not reconcile it: {remedy}{last}"));
    }
    let never_completed = view.observed_generation == Some(-1);
    let Some(ready) = ready.filter(|r| !never_completed || !r.is_true()) else {
        return without_time(Health::Pending, "Flux has not reconciled it yet");
    };
    if let Some(stalled) = condition(view.conditions, "Stalled").filter(|c| c.is_true()) {
        let failed = Some(ready).filter(|ready| ready.is_false() && !ready.message.is_empty());
        let message = failed.map_or_else(|| stalled.message.clone(), |ready| cause(view.conditions, ready));
        return HealthStatus { message, ..from_condition(Health::Failed, stalled) };
    }
    let reconciling = condition(view.conditions, "Reconciling").filter(|c| c.is_true());
    let is_current = match ready.observed_generation {
        0 => view.observed_generation == Some(view.generation),
        generation => generation == view.generation,
    };
    match (ready.is_true(), ready.is_false()) {
        (true, _) if reconciling.is_none() && is_current => {
            HealthStatus { message: String::new(), ..from_condition(Health::Ready, ready) }
        }
        (true, _) if reconciling.is_none() => {
            without_time(Health::Progressing, "Flux has not reconciled the latest change yet")
        }
        (_, true) if matches!(ready.reason.as_str(), "DependencyNotReady" | "HealthCheckCanceled") => {
            from_condition(Health::Progressing, ready)
        }
        (_, true) => {
            HealthStatus { message: cause(view.conditions, ready), ..from_condition(Health::Failed, ready) }
        }
        _ => from_condition(Health::Progressing, reconciling.unwrap_or(ready)),
    }
}

/// Returns why a HelmRelease or Kustomization is not Ready. After a remediation the condition Ready has only the
/// result of the remediation, and Helm's cause is in the condition of the release or of its tests. Source:
/// helm-controller, `internal/reconcile/release.go`, `summarize`.
fn cause(conditions: &[FluxCondition], ready: &FluxCondition) -> String {
    let failed = ["Released", "TestSuccess"]
        .into_iter()
        .find_map(|type_| condition(conditions, type_).filter(|c| c.is_false() && !c.message.is_empty()));
    match failed {
        Some(failed) if failed.message != ready.message && is_true(conditions, "Remediated") => {
            format!("{}; {}", failed.message, ready.message)
        }
        _ => ready.message.clone(),
    }
}

/// Whether Flux reports for this generation that it will not try again.
pub fn has_given_up(generation: i64, conditions: &[FluxCondition]) -> bool {
    let is_stalled = |c: &FluxCondition| c.is_true() && c.observed_generation == generation;
    condition(conditions, "Stalled").is_some_and(is_stalled)
}

/// Whether Flux reconciles the object now, so that the result is not known yet.
pub fn is_reconciling(conditions: &[FluxCondition]) -> bool {
    condition(conditions, "Ready").is_some_and(|r| r.status == "Unknown" && r.reason == "Progressing")
}

/// Returns the health of a Deployment, StatefulSet, DaemonSet or CronJob, by the rules of kstatus with one
/// addition: a workload whose controller has not observed it is always Progressing.
pub fn workload(
    kind: &str,
    generation: i64,
    terminating: bool,
    spec: &WorkloadSpec,
    state: &WorkloadState,
) -> HealthStatus {
    let (health, message) = if terminating {
        (Health::Progressing, "it is being deleted".to_string())
    } else if kind != "CronJob" && state.observed_generation.is_none_or(|observed| observed != generation) {
        (Health::Progressing, "its controller has not observed the latest change yet".into())
    } else if let Some(found) = generic_conditions(&state.conditions) {
        found
    } else {
        match kind {
            "Deployment" => deployment(spec, state),
            "StatefulSet" => stateful_set(spec, state),
            "DaemonSet" => daemon_set(state),
            _ => (Health::Ready, String::new()),
        }
    };
    HealthStatus { health, message, since: None }
}

/// Returns the health by the conditions that kstatus reads of each kind.
fn generic_conditions(conditions: &[FluxCondition]) -> Option<(Health, String)> {
    let message = |type_| condition(conditions, type_).filter(|c| c.is_true()).map(|c| c.message.clone());
    let reconciling = message("Reconciling").map(|message| (Health::Progressing, message));
    reconciling.or_else(|| message("Stalled").map(|message| (Health::Failed, message)))
}

fn too_few(actual: i64, wanted: i64, state: &str) -> Option<(Health, String)> {
    (actual < wanted).then(|| (Health::Progressing, format!("{actual} of {wanted} pods are {state}")))
}

fn too_many(actual: i64, wanted: i64) -> Option<(Health, String)> {
    let terminating = actual - wanted;
    (terminating > 0).then(|| (Health::Progressing, format!("{terminating} old pods are terminating")))
}

fn unless(done: bool, message: &str) -> Option<(Health, String)> {
    (!done).then(|| (Health::Progressing, message.to_string()))
}

/// Returns the first open step of a rollout, or Ready if none is open.
fn first_open(steps: impl IntoIterator<Item = Option<(Health, String)>>) -> (Health, String) {
    steps.into_iter().flatten().next().unwrap_or((Health::Ready, String::new()))
}

/// The progress deadline that means no deadline in Kubernetes.
const NO_DEADLINE: i64 = i32::MAX as i64;

fn deployment(spec: &WorkloadSpec, state: &WorkloadState) -> (Health, String) {
    let wanted = spec.replicas.unwrap_or(1);
    let progressing = condition(&state.conditions, "Progressing");
    if let Some(stuck) = progressing.filter(|c| c.reason == "ProgressDeadlineExceeded") {
        return (Health::Failed, stuck.message.clone());
    }
    let rolled_out = spec.progress_deadline_seconds.is_none_or(|s| s == NO_DEADLINE)
        || progressing.is_some_and(|c| c.is_true() && c.reason == "NewReplicaSetAvailable");
    first_open([
        too_few(state.replicas, wanted, "created"),
        too_few(state.updated_replicas, wanted, "updated"),
        too_many(state.replicas, wanted),
        too_few(state.available_replicas, state.updated_replicas, "available"),
        too_few(state.ready_replicas, wanted, "ready"),
        unless(rolled_out, "it is being rolled out"),
        unless(is_true(&state.conditions, "Available"), "it is not available yet"),
    ])
}

fn stateful_set(spec: &WorkloadSpec, state: &WorkloadState) -> (Health, String) {
    let strategy = spec.update_strategy.clone().unwrap_or_default();
    if strategy.type_ == "OnDelete" {
        return (Health::Ready, String::new());
    }
    let wanted = spec.replicas.unwrap_or(1);
    let rollout = match strategy.rolling_update.and_then(|r| r.partition) {
        Some(partition) => too_few(state.updated_replicas, wanted - partition, "updated"),
        None => too_few(state.current_replicas, wanted, "updated")
            .or_else(|| unless(state.current_revision == state.update_revision, "it is being rolled out")),
    };
    first_open([
        too_few(state.replicas, wanted, "created"),
        too_few(state.ready_replicas, wanted, "ready"),
        too_many(state.replicas, wanted),
        rollout,
    ])
}

fn daemon_set(state: &WorkloadState) -> (Health, String) {
    let wanted = state.desired_number_scheduled;
    first_open([
        too_few(state.current_number_scheduled, wanted, "created"),
        too_few(state.updated_number_scheduled, wanted, "updated"),
        too_few(state.number_available, wanted, "available"),
        too_few(state.number_ready, wanted, "ready"),
    ])
}
