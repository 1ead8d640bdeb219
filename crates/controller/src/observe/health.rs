//! How an object does, by the rules that Flux and kstatus go by: Ready counts only when it speaks
//! of the object's present generation, and a failing object that is still being retried has failed.

use sluice_api::flux::FluxCondition;
use sluice_api::workload::{WorkloadSpec, WorkloadState};
use sluice_core::observed::Health;

use super::facts::HealthStatus;

/// What Flux's status decision looks at.
pub struct FluxView<'a> {
    /// `metadata.generation`.
    pub generation: i64,
    /// Being deleted.
    pub terminating: bool,
    /// Flux leaves it alone: what to do so that it no longer does.
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
    condition(conditions, type_).is_some_and(|c| c.status == "True")
}

/// What a condition says, since when it says so.
fn by(health: Health, said: &FluxCondition) -> HealthStatus {
    let since = Some(said.last_transition_time.clone()).filter(|t| !t.is_empty());
    HealthStatus { health, message: said.message.clone(), since }
}

fn own(health: Health, message: impl Into<String>) -> HealthStatus {
    HealthStatus { health, message: message.into(), since: None }
}

/// How a Kustomization or HelmRelease does, by its own word. The first failure of a Kustomization
/// leaves its `observedGeneration` at -1: it has failed all the same, and is not waiting.
pub fn flux(view: &FluxView<'_>) -> HealthStatus {
    if view.terminating {
        return own(Health::Progressing, "it is being deleted");
    }
    let ready = condition(view.conditions, "Ready");
    if let Some(remedy) = view.suspended {
        let said = ready.map(|r| r.message.as_str()).filter(|m| !m.is_empty());
        let last = said.map(|m| format!("; its last word was: {m}")).unwrap_or_default();
        return own(Health::Suspended, format!("Flux does not reconcile it: {remedy}{last}"));
    }
    let never_done = view.observed_generation == Some(-1);
    let Some(ready) = ready.filter(|r| !never_done || r.status != "True") else {
        return own(Health::Pending, "waiting to be reconciled");
    };
    if let Some(stalled) = condition(view.conditions, "Stalled").filter(|c| c.status == "True") {
        let failed = Some(ready).filter(|ready| ready.status == "False" && !ready.message.is_empty());
        let message = failed.map_or_else(|| stalled.message.clone(), |ready| cause(view.conditions, ready));
        return HealthStatus { message, ..by(Health::Failed, stalled) };
    }
    let reconciling = condition(view.conditions, "Reconciling").filter(|c| c.status == "True");
    let fresh = match ready.observed_generation {
        0 => view.observed_generation == Some(view.generation),
        generation => generation == view.generation,
    };
    match ready.status.as_str() {
        "True" if reconciling.is_none() && fresh => {
            HealthStatus { message: String::new(), ..by(Health::Ready, ready) }
        }
        "True" if reconciling.is_none() => {
            own(Health::Progressing, "its status speaks of an older generation")
        }
        "False" if matches!(ready.reason.as_str(), "DependencyNotReady" | "HealthCheckCanceled") => {
            by(Health::Progressing, ready)
        }
        "False" => HealthStatus { message: cause(view.conditions, ready), ..by(Health::Failed, ready) },
        _ => by(Health::Progressing, reconciling.unwrap_or(ready)),
    }
}

/// Why a HelmRelease or Kustomization is not Ready. After a remediation Ready says only how the
/// remediation went: Helm's own cause is in the condition of the release or of its tests. Source:
/// helm-controller, `internal/reconcile/release.go`, `summarize`.
fn cause(conditions: &[FluxCondition], ready: &FluxCondition) -> String {
    let failed = ["Released", "TestSuccess"].into_iter().find_map(|type_| {
        condition(conditions, type_).filter(|c| c.status == "False" && !c.message.is_empty())
    });
    match failed {
        Some(failed) if failed.message != ready.message && is_true(conditions, "Remediated") => {
            format!("{}; {}", failed.message, ready.message)
        }
        _ => ready.message.clone(),
    }
}

/// Whether Flux says of this generation that it will not try again.
pub fn has_given_up(generation: i64, conditions: &[FluxCondition]) -> bool {
    let current = |c: &FluxCondition| c.status == "True" && c.observed_generation == generation;
    condition(conditions, "Stalled").is_some_and(current)
}

/// Whether a status only tells that Flux is at work: what comes of it is not known yet.
pub fn is_reconciling(conditions: &[FluxCondition]) -> bool {
    condition(conditions, "Ready").is_some_and(|r| r.status == "Unknown" && r.reason == "Progressing")
}

/// How a Deployment, StatefulSet, DaemonSet or CronJob does, by kstatus. Stricter in one thing: a
/// workload that no controller has looked at is on its way, also where kstatus would let it pass.
pub fn workload(
    kind: &str,
    generation: i64,
    terminating: bool,
    spec: &WorkloadSpec,
    state: &WorkloadState,
) -> HealthStatus {
    let (health, message) = if terminating {
        (Health::Progressing, "it is being deleted".to_string())
    } else if kind != "CronJob" && state.observed_generation.is_none_or(|seen| seen != generation) {
        (Health::Progressing, "its controller has not seen the change yet".into())
    } else if let Some(said) = by_convention(&state.conditions) {
        said
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

/// The conditions that any kind may have.
fn by_convention(conditions: &[FluxCondition]) -> Option<(Health, String)> {
    let said = |type_| condition(conditions, type_).filter(|c| c.status == "True").map(|c| c.message.clone());
    let at_work = said("Reconciling").map(|message| (Health::Progressing, message));
    at_work.or_else(|| said("Stalled").map(|message| (Health::Failed, message)))
}

fn progress(done: i64, wanted: i64, what: &str) -> Option<(Health, String)> {
    (done < wanted).then(|| (Health::Progressing, format!("{done} of {wanted} pods are {what}")))
}

fn surplus(there: i64, wanted: i64) -> Option<(Health, String)> {
    let ending = there - wanted;
    (ending > 0).then(|| (Health::Progressing, format!("{ending} old pods are ending")))
}

fn unless(done: bool, what: &str) -> Option<(Health, String)> {
    (!done).then(|| (Health::Progressing, what.to_string()))
}

fn first(steps: impl IntoIterator<Item = Option<(Health, String)>>) -> (Health, String) {
    steps.into_iter().flatten().next().unwrap_or((Health::Ready, String::new()))
}

/// The progress deadline that Kubernetes takes for none: its greatest number.
const NO_DEADLINE: i64 = i32::MAX as i64;

fn deployment(spec: &WorkloadSpec, state: &WorkloadState) -> (Health, String) {
    let wanted = spec.replicas.unwrap_or(1);
    let progressing = condition(&state.conditions, "Progressing");
    if let Some(stuck) = progressing.filter(|c| c.reason == "ProgressDeadlineExceeded") {
        return (Health::Failed, stuck.message.clone());
    }
    let rolled_out = spec.progress_deadline_seconds.is_none_or(|s| s == NO_DEADLINE)
        || progressing.is_some_and(|c| c.status == "True" && c.reason == "NewReplicaSetAvailable");
    first([
        progress(state.replicas, wanted, "there"),
        progress(state.updated_replicas, wanted, "updated"),
        surplus(state.replicas, wanted),
        progress(state.available_replicas, state.updated_replicas, "available"),
        progress(state.ready_replicas, wanted, "ready"),
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
        Some(partition) => progress(state.updated_replicas, wanted - partition, "updated"),
        None => progress(state.current_replicas, wanted, "updated")
            .or_else(|| unless(state.current_revision == state.update_revision, "it is being rolled out")),
    };
    first([
        progress(state.replicas, wanted, "there"),
        progress(state.ready_replicas, wanted, "ready"),
        surplus(state.replicas, wanted),
        rollout,
    ])
}

fn daemon_set(state: &WorkloadState) -> (Health, String) {
    let wanted = state.desired_number_scheduled;
    first([
        progress(state.current_number_scheduled, wanted, "there"),
        progress(state.updated_number_scheduled, wanted, "updated"),
        progress(state.number_available, wanted, "available"),
        progress(state.number_ready, wanted, "ready"),
    ])
}
