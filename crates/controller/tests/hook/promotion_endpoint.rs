use serde_json::json;
use sluice_api::Pipeline;
use sluice_controller::hook::event::ReceivedEvent;
use sluice_controller::hook::promotion::{EventVerdict, accepts_unsigned, classify, signing_secrets};

use crate::{all_bodies, bodies};

fn pipeline(spec: serde_json::Value) -> Pipeline {
    let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// A pipeline whose `appRef` names an application of this kind, or that has no `appRef`.
fn pipeline_of(app: Option<&str>) -> Pipeline {
    let app = app.map(|kind| match kind {
        "HelmRelease" => json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": kind, "name": "podinfo"}),
        kind => json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": kind, "name": "podinfo"}),
    });
    pipeline(json!({"appRef": app, "environments": [
        {"name": "dev", "targets": [{"namespace": "other"}, {"namespace": "podinfo"}]},
        {"name": "prod", "targets": [{"namespace": "prod"}]}]}))
}

fn event(file: &str) -> ReceivedEvent {
    let mut all = all_bodies().into_iter();
    serde_json::from_slice(&all.find(|(name, ..)| name == file).unwrap().1).unwrap()
}

#[test]
fn a_success_of_a_member_is_accepted_and_an_invalid_event_is_answered_with_the_reason() {
    let helm = event("hr-chart-upgrade-succeeded.json");
    let kustomize = event("ks-git-success.json");
    for app in [Some("HelmRelease"), None] {
        assert_eq!(classify(&pipeline_of(app), "dev", &helm), EventVerdict::Reconcile);
    }
    for app in [Some("Kustomization"), None] {
        assert_eq!(classify(&pipeline_of(app), "dev", &kustomize), EventVerdict::Reconcile);
    }
    let rejection = |pipeline: &Pipeline, environment: &str, event: &ReceivedEvent| match classify(
        pipeline,
        environment,
        event,
    ) {
        EventVerdict::Invalid(why) => why,
        other => panic!("{other:?}"),
    };
    let why = rejection(&pipeline_of(None), "qa", &helm);
    assert_eq!(why, "pipeline podinfo has no environment qa: call with one of dev, prod");
    let why = rejection(&pipeline_of(None), "prod", &helm);
    assert!(why.contains("HelmRelease podinfo/podinfo is not part of environment prod"), "{why}");
    let why = rejection(&pipeline_of(Some("Kustomization")), "dev", &helm);
    assert!(why.contains("eventSources"), "{why}");
    let mut without_metadata = helm.clone();
    without_metadata.metadata.clear();
    let why = rejection(&pipeline_of(None), "dev", &without_metadata);
    assert!(why.contains("no revision in its metadata"), "{why}");
    let mut of_another_group = helm;
    of_another_group.involved_object.api_version = "example.com/v1".into();
    assert_eq!(classify(&pipeline_of(None), "dev", &of_another_group), EventVerdict::Ignored);
}

/// Failure, progress, rollback, drift, pruning, dependencies and sources are ignored without an error.
#[test]
fn only_events_of_success_have_a_pipeline_reconciled() {
    let mut accepted = Vec::new();
    for (file, body, _) in bodies("captured").into_iter().chain(bodies("composed")) {
        let event: ReceivedEvent = serde_json::from_slice(&body).unwrap();
        match classify(&pipeline_of(None), "dev", &event) {
            EventVerdict::Reconcile => accepted.push(file),
            EventVerdict::Ignored => {}
            other => panic!("{file}: {other:?}"),
        }
    }
    let of_success = |file: &String| file.contains("succe") && !file.contains("rollback");
    assert!(accepted.iter().all(of_success), "{accepted:?}");
    assert_eq!(accepted.len(), 16);
}

#[test]
fn calls_are_signed_with_keys_of_the_environment_and_of_those_after_it() {
    let strategy = |secret: &str| json!({"strategy": {"notification": {}, "secretRef": {"name": secret}}});
    let line = pipeline(json!({"promotion": strategy("all"), "environments": [
        {"name": "dev", "targets": []},
        {"name": "staging", "targets": [], "promotion": strategy("staging")},
        {"name": "prod", "targets": []},
        {"name": "audit", "targets": [], "after": ["dev"], "promotion": strategy("audit")}]}));
    // The environment's own Secret is first: its key is the one to give to the environment's clusters.
    assert_eq!(signing_secrets(&line, "dev"), ["all", "staging", "audit"]);
    assert_eq!(signing_secrets(&line, "staging"), ["staging", "all"]);
    assert_eq!(signing_secrets(&line, "prod"), ["all"]);
    assert_eq!(signing_secrets(&line, "audit"), ["audit"]);
    // A caller with any key learns that there is no such environment.
    assert_eq!(signing_secrets(&line, "none"), ["all", "staging", "audit"]);
    assert!(!accepts_unsigned(&line, "dev"));
    let open = pipeline(json!({"environments": [{"name": "dev", "targets": []}],
        "promotion": {"strategy": {"notification": {}, "allowUnsigned": true}}}));
    assert!(accepts_unsigned(&open, "dev") && accepts_unsigned(&open, "none"));
    assert!(!accepts_unsigned(&pipeline_of(None), "dev"));
}
