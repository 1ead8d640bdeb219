//! Clusters are untrusted: an invalid value never becomes part of a revision, and messages lose their control
//! characters.

use serde_json::{Value, json};
use sluice_core::observed::ObservedTarget;

use crate::support::{
    QueryBuilder, by_app, condition, deployment, flux_fact, helm_release, kustomization, local, namespace,
    with,
};

fn observe(query: &QueryBuilder, objects: &[Value]) -> ObservedTarget {
    query.observe(&local(&[&[namespace("apps")], objects].concat()))
}

/// Values that are not valid as a version, tag or digest.
fn invalid_values() -> Vec<String> {
    let long = "1".repeat(300);
    ["1.0\u{1b}[31m", "1.0\n2.0", "a/b", "../../x", "1 0", "1.0;rm", "ä", &long].map(String::from).into()
}

fn assert_rejected(query: &QueryBuilder, objects: &[Value], what: &str, value: &str) {
    let observed = observe(query, objects);
    let error = observed.error.clone().unwrap_or_default();
    assert!(error.contains(what), "{value:?} of {what} was accepted: {observed:?}");
    assert!(!error.contains(char::is_control), "{error:?}");
    assert!(error.len() < 600, "{error}");
    assert!(observed.members.is_empty() && observed.revision(&[]).is_none(), "{value:?} of {what}");
}

#[test]
fn an_invalid_chart_version_makes_the_target_unreadable() {
    for value in invalid_values() {
        let object = helm_release("apps", "podinfo", &value);
        assert_rejected(&by_app("HelmRelease", "apps"), &[object], "chart", &value);
    }
    let valid = helm_release("apps", "podinfo", "1.0.0-rc.1+0cc9a8446c95");
    assert_eq!(
        observe(&by_app("HelmRelease", "apps"), &[valid]).revision(&[]).unwrap().to_string(),
        "1.0.0-rc.1"
    );
}

#[test]
fn an_invalid_tag_or_digest_makes_the_target_unreadable() {
    let query = by_app("Kustomization", "apps");
    let oci = || with(kustomization("apps", "podinfo", &[]), "spec/sourceRef/kind", "OCIRepository".into());
    for value in invalid_values() {
        let revision = format!("{value}@sha256:{}", "a".repeat(64));
        let object = with(oci(), "status/lastAppliedRevision", revision.into());
        assert_rejected(&query, &[object], "tag", &value);
        let object = with(oci(), "status/lastAppliedRevision", format!("1.0.0@sha256:{value}").into());
        if !value.contains('/') {
            assert_rejected(&query.tracking(&["digest"]), &[object], "digest", &value);
        }
    }
}

#[test]
fn an_invalid_image_makes_the_target_unreadable() {
    let query = by_app("Kustomization", "apps");
    let member = || kustomization("apps", "podinfo", &["apps_web_apps_Deployment"]);
    let web = |image: &str| deployment("apps", "web", ("kustomize", "apps", "podinfo"), image);
    for value in invalid_values() {
        let image = format!("ghcr.io/x/web:{value}");
        assert_rejected(&query, &[member(), web(&image)], "Deployment web", &value);
        assert_rejected(
            &query,
            &[member(), web(&format!("ghcr.io/{value}?/web:1"))],
            "Deployment web",
            &value,
        );
    }
    let port = observe(&query, &[member(), web("registry.example.com:5000/x/web:1.2")]);
    assert_eq!(port.revision(&[]).unwrap().to_string(), "1.2");
    let digest = format!("ghcr.io/x/web@sha256:{}", "a".repeat(64));
    assert!(observe(&query, &[member(), web(&digest)]).revision(&[]).is_some());
}

#[test]
fn an_invalid_value_counts_only_if_it_would_be_part_of_the_revision() {
    let object = helm_release("apps", "podinfo", "1.0.0");
    let object = with(object, "status/history/0/appVersion", "\u{1b}[2J".into());
    let query = by_app("HelmRelease", "apps");
    assert_eq!(observe(&query, std::slice::from_ref(&object)).revision(&[]).unwrap().to_string(), "1.0.0");
    assert_rejected(&query.tracking(&["chart", "app"]), &[object], "app", "\u{1b}[2J");
    let branch = with(
        kustomization("apps", "podinfo", &["apps_web_apps_Deployment"]),
        "status/lastAppliedRevision",
        "fix #1@sha1:aa".into(),
    );
    let web = deployment("apps", "web", ("kustomize", "apps", "podinfo"), "web:1");
    let query = by_app("Kustomization", "apps");
    assert_eq!(observe(&query, &[branch.clone(), web.clone()]).revision(&[]).unwrap().to_string(), "1");
    assert_rejected(&query.tracking(&["source"]), &[branch, web], "source", "fix #1");
}

#[test]
fn messages_of_a_cluster_lose_control_characters_and_are_cut() {
    let long = format!("\u{1b}]0;owned\u{7}\u{1b}[31mfailed\nhere {}", "x".repeat(100_000));
    let conditions = json!([condition("Ready", "False", "UpgradeFailed", &long, 2)]);
    let fact = flux_fact(&with(helm_release("apps", "podinfo", "1.0.0"), "status/conditions", conditions));
    let message = &fact.status.message;
    assert!(message.contains("failed\nhere"), "{message}");
    assert!(message.len() < 5000 && !message.contains(|c: char| c.is_control() && c != '\n'), "{message:?}");
    let mut with_invalid_time = condition("Ready", "True", "UpgradeSucceeded", "fine", 2);
    with_invalid_time["lastTransitionTime"] = "\u{1b}[31mnever".into();
    let fact = flux_fact(&with(
        helm_release("apps", "podinfo", "1.0.0"),
        "status/conditions",
        json!([with_invalid_time]),
    ));
    assert_eq!(fact.status.since, None);
}
