//! Fixtures of the tests of the state.

use crate::observe::ObserveScope;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::effect::Job;
use super::*;
use crate::act::{EndedJob, JobOutcome};

/// The wall clock at the start of a test.
pub(super) const WALL: &str = "2026-11-22T10:00:00Z";

/// A point in time, in seconds after the start of a test.
pub(super) fn at(start: Instant, seconds: u64) -> Now {
    let passed = Duration::from_secs(seconds);
    let wall: Timestamp = WALL.parse().unwrap();
    Now { instant: start + passed, wall: wall.checked_add(passed).unwrap(), boot: passed }
}

/// A state that acts for all pipelines, and has listed no object.
pub(super) fn state() -> State {
    state_at(at(Instant::now(), 0))
}

/// The same, at a point in time.
pub(super) fn state_at(now: Now) -> State {
    State::new(settings(), Shards::all(), now)
}

/// The same, with these settings.
pub(super) fn state_with(settings: StateSettings) -> State {
    State::new(settings, Shards::all(), at(Instant::now(), 0))
}

/// The settings of most tests.
pub(super) fn settings() -> StateSettings {
    StateSettings {
        observe: ObserveScope::All,
        watch_namespace: None,
        no_cross_namespace_refs: false,
        serves_hooks: false,
        history_limit: crate::HISTORY_LIMIT,
        poll_interval: Duration::from_secs(30),
    }
}

/// The pipeline of most tests.
pub(super) fn key() -> PipelineKey {
    PipelineKey { namespace: "apps".into(), name: "podinfo".into() }
}

/// A record that was read.
pub(super) fn record(object: sluice_api::Promotion) -> Record {
    let cached = cached::Cached::new(object);
    Record { cached, is_stored: true, is_first_try: false, reported: None }
}

/// Adds a record to the state.
pub(super) fn insert(state: &mut State, record: Record) {
    let name = kube::ResourceExt::name_any(record.object().as_ref());
    state.promotions.entry(key()).or_default().insert(name, record);
}

/// A pipeline with dev and prod, and the strategy `commit`.
pub(super) fn pipeline() -> sluice_api::Pipeline {
    let target = |name: &str| json!([{"namespace": format!("podinfo-{name}"), "name": name}]);
    let strategy = json!({"commit": {"url": "https://git.example.com/acme/fleet.git", "branch": "main"}});
    let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "resourceVersion": "4"},
        "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "environments": [{"name": "dev", "targets": target("d")}, {"name": "prod", "targets": target("p")}],
            "promotion": {"strategy": strategy}}});
    serde_json::from_value(object).unwrap()
}

/// A state with the promotion `p` into prod, whose change request is open.
pub(super) fn proposed() -> State {
    let mut state = state();
    let mut object = pipeline();
    let strategy = json!({"pull-request": {"type": "github", "url": "https://github.com/acme/fleet",
        "secretRef": {"name": "git"}}});
    object.spec.promotion.as_mut().unwrap().strategy = serde_json::from_value(strategy).unwrap();
    state.put_pipeline(object);
    let request = json!({"number": 7, "url": "https://github.com/acme/fleet/pull/7", "state": "open",
        "branch": "sluice/apps/podinfo/prod", "headCommit": "c0ffee"});
    let proposed = json!({"metadata": {"name": "p", "namespace": "apps", "uid": "p", "resourceVersion": "5"},
        "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {"HelmRelease/a:chart": "1"}},
        "status": {"phase": "Proposed", "changeRequest": request}});
    insert(&mut state, record(serde_json::from_value(proposed).unwrap()));
    state
}

/// The end of a job that used no Secret.
pub(super) fn ended(job: &Job, outcome: JobOutcome) -> EndedJob {
    EndedJob {
        pipeline: job.pipeline.clone(),
        place: job.place.clone(),
        promotion: job.promotion.name_any(),
        uid: job.promotion.uid(),
        strategy: job.strategy.clone(),
        secret: None,
        outcome,
    }
}
