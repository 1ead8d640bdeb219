//! How an object does, by the rules that Flux and kstatus go by: Ready counts only when it speaks
//! of the object's present generation, and a failing object that is still being retried has failed.

use sluice_api::flux::FluxCondition;
use sluice_api::workload::{WorkloadSpec, WorkloadState};
use sluice_core::world::Health;

use super::facts::Verdict;

/// What Flux's status decision looks at.
pub struct FluxView<'a> {
    /// `metadata.generation`.
    pub generation: i64,
    /// Being deleted.
    pub terminating: bool,
    /// `spec.suspend`, or the annotation of the same meaning.
    pub suspended: bool,
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

/// How a Kustomization or HelmRelease does, by its own word.
pub fn flux(view: &FluxView<'_>) -> Verdict {
    let ready = condition(view.conditions, "Ready");
    let since = ready.map(|r| r.last_transition_time.clone()).filter(|t| !t.is_empty());
    let (health, message) = judge(view, ready);
    Verdict { health, message, since }
}

fn judge(view: &FluxView<'_>, ready: Option<&FluxCondition>) -> (Health, String) {
    let said = |c: Option<&FluxCondition>| c.map(|c| c.message.clone()).unwrap_or_default();
    if view.terminating {
        return (Health::Progressing, "it is being deleted".into());
    }
    if view.suspended {
        return (Health::Suspended, "Flux does not reconcile it: flux resume, once it may go on".into());
    }
    let Some(ready) = ready.filter(|_| view.observed_generation != Some(-1) || !view.conditions.is_empty()) else {
        return (Health::Pending, "waiting to be reconciled".into());
    };
    if let Some(stalled) = condition(view.conditions, "Stalled").filter(|c| c.status == "True") {
        return (Health::Failed, stalled.message.clone());
    }
    let reconciling = condition(view.conditions, "Reconciling").filter(|c| c.status == "True");
    let fresh = match ready.observed_generation {
        0 => view.observed_generation == Some(view.generation),
        generation => generation == view.generation,
    };
    match ready.status.as_str() {
        "True" if reconciling.is_none() && fresh => (Health::Ready, String::new()),
        "True" if reconciling.is_none() => {
            (Health::Progressing, "its status speaks of an older generation".into())
        }
        "False" if matches!(ready.reason.as_str(), "DependencyNotReady" | "HealthCheckCanceled") => {
            (Health::Progressing, ready.message.clone())
        }
        "False" => (Health::Failed, ready.message.clone()),
        _ => (Health::Progressing, said(reconciling.or(Some(ready)))),
    }
}

/// How a Deployment, StatefulSet, DaemonSet or CronJob does, by kstatus.
pub fn workload(
    kind: &str,
    generation: i64,
    terminating: bool,
    spec: &WorkloadSpec,
    state: &WorkloadState,
) -> Verdict {
    let (health, message) = if terminating {
        (Health::Progressing, "it is being deleted".to_string())
    } else if kind != "CronJob" && state.observed_generation.is_none_or(|seen| seen != generation) {
        (Health::Progressing, "its controller has not seen the change yet".into())
    } else {
        match kind {
            "Deployment" => deployment(spec, state),
            "StatefulSet" => stateful_set(spec, state),
            "DaemonSet" => daemon_set(spec, state),
            _ => (Health::Ready, String::new()),
        }
    };
    Verdict { health, message, since: None }
}

fn progress(done: i64, wanted: i64, what: &str) -> Option<(Health, String)> {
    (done < wanted).then(|| (Health::Progressing, format!("{done} of {wanted} pods are {what}")))
}

fn first(steps: impl IntoIterator<Item = Option<(Health, String)>>) -> (Health, String) {
    steps.into_iter().flatten().next().unwrap_or((Health::Ready, String::new()))
}

fn deployment(spec: &WorkloadSpec, state: &WorkloadState) -> (Health, String) {
    let wanted = spec.replicas.unwrap_or(1);
    let progressing = condition(&state.conditions, "Progressing");
    if let Some(stuck) = progressing.filter(|c| c.reason == "ProgressDeadlineExceeded") {
        return (Health::Failed, stuck.message.clone());
    }
    let rolled_out = spec.progress_deadline_seconds.is_none()
        || progressing.is_some_and(|c| c.status == "True" && c.reason == "NewReplicaSetAvailable");
    first([
        progress(state.updated_replicas, wanted, "updated"),
        (state.replicas > wanted).then(|| {
            (Health::Progressing, format!("{} old pods are ending", state.replicas - wanted))
        }),
        progress(state.available_replicas, state.updated_replicas, "available"),
        progress(state.ready_replicas, wanted, "ready"),
        (!rolled_out).then(|| (Health::Progressing, "it is being rolled out".into())),
        (!is_true(&state.conditions, "Available"))
            .then(|| (Health::Progressing, "it is not available yet".into())),
    ])
}

fn stateful_set(spec: &WorkloadSpec, state: &WorkloadState) -> (Health, String) {
    if spec.update_strategy.as_ref().is_some_and(|s| s.type_ == "OnDelete") {
        return (Health::Ready, String::new());
    }
    let wanted = spec.replicas.unwrap_or(1);
    first([
        progress(state.replicas, wanted, "there"),
        progress(state.ready_replicas, wanted, "ready"),
        (state.current_revision != state.update_revision)
            .then(|| (Health::Progressing, "it is being rolled out".into())),
    ])
}

fn daemon_set(_: &WorkloadSpec, state: &WorkloadState) -> (Health, String) {
    let wanted = state.desired_number_scheduled;
    first([
        progress(state.updated_number_scheduled, wanted, "updated"),
        progress(state.number_available, wanted, "available"),
        progress(state.number_ready, wanted, "ready"),
    ])
}
