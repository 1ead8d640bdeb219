//! A word that comes before what was written before it proves nothing.

use serde_json::json;
use sluice_controller::observe::early::{Early, Heard};
use sluice_controller::observe::facts::{ClusterEvent, ClusterKey};
use sluice_core::world::Health;

use crate::support::{applied, by_app, deployment, fact, kustomization, local, namespace, with};

fn said(object: &serde_json::Value) -> ClusterEvent {
    let (key, fact) = fact(object);
    ClusterEvent::Applied(key, fact)
}

/// Ready at a revision of an OCI artifact, without waiting for its Deployment.
fn at(tag: &str) -> serde_json::Value {
    let object = kustomization("apps", "podinfo", &["apps_web_apps_Deployment"]);
    let object = with(object, "spec/sourceRef", json!({"kind": "OCIRepository", "name": "podinfo"}));
    with(object, "status/lastAppliedRevision", format!("{tag}@sha256:aa").into())
}

fn web(tag: &str) -> serde_json::Value {
    deployment("apps", "web", ("kustomize", "apps", "podinfo"), &format!("web:{tag}"))
}

#[test]
fn a_new_revision_is_believed_only_after_its_workloads_had_time_to_be_heard() {
    let mut index = local(&[namespace("apps"), at("1.0.0"), web("1.0.0")]);
    let mut early = Early::default();
    let shown = |index: &_| by_app("Kustomization", "apps").see(index);
    assert_eq!(shown(&index).health(), Health::Ready);
    let Heard::Later(object, number) = early.hear(&index, &ClusterKey::Local, said(&at("1.1.0"))) else {
        panic!("it was believed at once");
    };
    // Meanwhile the Deployment's change is heard: it has not rolled out.
    applied(&mut index, &with(web("1.1.0"), "metadata/generation", 7.into()));
    let due = early.due(&ClusterKey::Local, &object, number).unwrap();
    index.apply(&ClusterKey::Local, due);
    assert_eq!(shown(&index).health(), Health::Progressing);
    assert_eq!(shown(&index).proves(&[]), None);
}

#[test]
fn what_is_newer_or_needs_no_wait_is_believed_at_once() {
    let index = local(&[namespace("apps"), at("1.0.0"), web("1.0.0")]);
    let mut early = Early::default();
    let hear =
        |early: &mut Early, object: &serde_json::Value| early.hear(&index, &ClusterKey::Local, said(object));
    assert!(matches!(hear(&mut early, &at("1.0.0")), Heard::Now(_)));
    let waits = with(at("1.1.0"), "spec/wait", true.into());
    assert!(matches!(hear(&mut early, &waits), Heard::Now(_)));
    let Heard::Later(object, number) = hear(&mut early, &at("1.1.0")) else { panic!("believed at once") };
    // It says something else before the time is over: only that counts.
    let failed = with(at("1.1.0"), "spec/suspend", true.into());
    assert!(matches!(hear(&mut early, &failed), Heard::Now(_)));
    assert!(early.due(&ClusterKey::Local, &object, number).is_none());
}
