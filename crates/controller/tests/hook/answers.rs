use serde_json::json;
use sluice_api::Pipeline;
use sluice_controller::hook::event::Event;
use sluice_controller::hook::promotion::{Verdict, is_open, judge, secrets};

use crate::{all_bodies, bodies};

fn pipeline(spec: serde_json::Value) -> Pipeline {
    let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn of(app: Option<&str>) -> Pipeline {
    let app = app.map(|kind| match kind {
        "HelmRelease" => json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": kind, "name": "podinfo"}),
        kind => json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": kind, "name": "podinfo"}),
    });
    pipeline(json!({"appRef": app, "environments": [
        {"name": "dev", "targets": [{"namespace": "other"}, {"namespace": "podinfo"}]},
        {"name": "prod", "targets": [{"namespace": "prod"}]}]}))
}

fn event(file: &str) -> Event {
    let mut all = all_bodies().into_iter();
    serde_json::from_slice(&all.find(|(name, ..)| name == file).unwrap().1).unwrap()
}

#[test]
fn a_success_of_a_member_is_accepted_and_what_is_wrong_is_said() {
    let helm = event("hr-chart-upgrade-succeeded.json");
    let kustomize = event("ks-git-success.json");
    for app in [Some("HelmRelease"), None] {
        assert_eq!(judge(&of(app), "dev", &helm), Verdict::Look);
    }
    for app in [Some("Kustomization"), None] {
        assert_eq!(judge(&of(app), "dev", &kustomize), Verdict::Look);
    }
    let wrong =
        |pipeline: &Pipeline, environment: &str, event: &Event| match judge(pipeline, environment, event) {
            Verdict::Wrong(why) => why,
            other => panic!("{other:?}"),
        };
    let why = wrong(&of(None), "qa", &helm);
    assert_eq!(why, "pipeline podinfo has no environment qa: call with one of dev, prod");
    let why = wrong(&of(None), "prod", &helm);
    assert!(why.contains("HelmRelease podinfo/podinfo is not part of environment prod"), "{why}");
    let why = wrong(&of(Some("Kustomization")), "dev", &helm);
    assert!(why.contains("eventSources"), "{why}");
    let mut bare = helm.clone();
    bare.metadata.clear();
    assert!(wrong(&of(None), "dev", &bare).contains("no revision in its metadata"));
    let mut foreign = helm;
    foreign.involved_object.api_version = "example.com/v1".into();
    assert_eq!(judge(&of(None), "dev", &foreign), Verdict::Nothing);
}

/// Failure, progress, rollback, drift, pruning, dependencies and sources: answered well, and nothing
/// follows.
#[test]
fn nothing_but_success_starts_anything() {
    let mut accepted = Vec::new();
    for (file, body, _) in bodies("captured").into_iter().chain(bodies("composed")) {
        let event: Event = serde_json::from_slice(&body).unwrap();
        match judge(&of(None), "dev", &event) {
            Verdict::Look => accepted.push(file),
            Verdict::Nothing => {}
            other => panic!("{file}: {other:?}"),
        }
    }
    let of_success = |file: &String| file.contains("succe") && !file.contains("rollback");
    assert!(accepted.iter().all(of_success), "{accepted:?}");
    assert_eq!(accepted.len(), 16);
}

#[test]
fn the_keys_are_those_of_the_environment_and_of_what_comes_after_it() {
    let strategy = |secret: &str| json!({"strategy": {"notification": {}, "secretRef": {"name": secret}}});
    let line = pipeline(json!({"promotion": strategy("all"), "environments": [
        {"name": "dev", "targets": []},
        {"name": "staging", "targets": [], "promotion": strategy("staging")},
        {"name": "prod", "targets": []},
        {"name": "audit", "targets": [], "after": ["dev"], "promotion": strategy("audit")}]}));
    // Its own first: that is the one to give to its clusters.
    assert_eq!(secrets(&line, "dev"), ["all", "staging", "audit"]);
    assert_eq!(secrets(&line, "staging"), ["staging", "all"]);
    assert_eq!(secrets(&line, "prod"), ["all"]);
    assert_eq!(secrets(&line, "audit"), ["audit"]);
    // Whoever knows any of them is told that there is no such environment.
    assert_eq!(secrets(&line, "none"), ["all", "staging", "audit"]);
    assert!(!is_open(&line, "dev"));
    let open = pipeline(json!({"environments": [{"name": "dev", "targets": []}],
        "promotion": {"strategy": {"notification": {}, "allowUnsigned": true}}}));
    assert!(is_open(&open, "dev") && is_open(&open, "none"));
    assert!(!is_open(&of(None), "dev"));
}
