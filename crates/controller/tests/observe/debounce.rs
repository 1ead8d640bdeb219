//! An event that may have arrived before earlier ones is delayed, so that it does not prove a revision too early.

use serde_json::json;
use sluice_controller::observe::debounce::{Debounce, Debounced};
use sluice_core::fleet::{ClusterEvent, ClusterKey};
use sluice_core::observed::Health;

use crate::support::{applied, by_app, deployment, fact, kustomization, local, namespace, with};

fn event(object: &serde_json::Value) -> ClusterEvent {
    let (key, fact) = fact(object);
    ClusterEvent::Applied(key, fact)
}

/// Returns a Kustomization that is Ready at a revision of an OCI artifact, and does not wait for its Deployment.
fn at(tag: &str) -> serde_json::Value {
    let object = kustomization("apps", "podinfo", &["apps_web_apps_Deployment"]);
    let object = with(object, "spec/sourceRef", json!({"kind": "OCIRepository", "name": "podinfo"}));
    with(object, "status/lastAppliedRevision", format!("{tag}@sha256:aa").into())
}

fn web(tag: &str) -> serde_json::Value {
    deployment("apps", "web", ("kustomize", "apps", "podinfo"), &format!("web:{tag}"))
}

#[test]
fn a_new_revision_counts_only_after_the_events_of_its_workloads_had_time_to_arrive() {
    let mut index = local(&[namespace("apps"), at("1.0.0"), web("1.0.0")]);
    let mut debounce = Debounce::default();
    let observe = |index: &_| by_app("Kustomization", "apps").observe(index);
    assert_eq!(observe(&index).health(), Health::Ready);
    let Debounced::Later(object, number) = debounce.observe(&index, &ClusterKey::Local, event(&at("1.1.0")))
    else {
        panic!("it counts immediately");
    };
    // Meanwhile the change of the Deployment arrives, which is not rolled out yet.
    applied(&mut index, &with(web("1.1.0"), "metadata/generation", 7.into()));
    let due = debounce.due(&ClusterKey::Local, &object, number).unwrap();
    index.apply(&ClusterKey::Local, due);
    assert_eq!(observe(&index).health(), Health::Progressing);
    assert_eq!(observe(&index).proves(&[]), None);
}

#[test]
fn an_event_that_cannot_be_early_counts_immediately() {
    let index = local(&[namespace("apps"), at("1.0.0"), web("1.0.0")]);
    let mut debounce = Debounce::default();
    let observe = |debounce: &mut Debounce, object: &serde_json::Value| {
        debounce.observe(&index, &ClusterKey::Local, event(object))
    };
    assert!(matches!(observe(&mut debounce, &at("1.0.0")), Debounced::Now(_)));
    let waits = with(at("1.1.0"), "spec/wait", true.into());
    assert!(matches!(observe(&mut debounce, &waits), Debounced::Now(_)));
    let Debounced::Later(object, number) = observe(&mut debounce, &at("1.1.0")) else {
        panic!("counts immediately")
    };
    // A newer event replaces the waiting one.
    let failed = with(at("1.1.0"), "spec/suspend", true.into());
    assert!(matches!(observe(&mut debounce, &failed), Debounced::Now(_)));
    assert!(debounce.due(&ClusterKey::Local, &object, number).is_none());
}
