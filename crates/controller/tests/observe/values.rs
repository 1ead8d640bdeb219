//! What clusters say is somebody else's input: a value that cannot be one never becomes part of a
//! revision, and words lose what a terminal would obey.

use serde_json::{Value, json};
use sluice_core::observed::ObservedTarget;

use crate::support::{
    Ask, by_app, condition, deployment, flux_fact, helm_release, kustomization, local, namespace, with,
};

fn see(ask: &Ask, objects: &[Value]) -> ObservedTarget {
    ask.see(&local(&[&[namespace("apps")], objects].concat()))
}

/// Values that no version, tag or digest can be.
fn bad() -> Vec<String> {
    let long = "1".repeat(300);
    ["1.0\u{1b}[31m", "1.0\n2.0", "a/b", "../../x", "1 0", "1.0;rm", "ä", &long].map(String::from).into()
}

fn refuses(ask: &Ask, objects: &[Value], what: &str, value: &str) {
    let shown = see(ask, objects);
    let error = shown.error.clone().unwrap_or_default();
    assert!(error.contains(what), "{value:?} of {what} was taken: {shown:?}");
    assert!(!error.contains(char::is_control), "{error:?}");
    assert!(error.len() < 600, "{error}");
    assert!(shown.members.is_empty() && shown.revision(&[]).is_none(), "{value:?} of {what}");
}

#[test]
fn a_chart_version_that_cannot_be_one_makes_the_target_unreadable() {
    for value in bad() {
        let object = helm_release("apps", "podinfo", &value);
        refuses(&by_app("HelmRelease", "apps"), &[object], "chart", &value);
    }
    let good = helm_release("apps", "podinfo", "1.0.0-rc.1+0cc9a8446c95");
    assert_eq!(see(&by_app("HelmRelease", "apps"), &[good]).revision(&[]).unwrap().to_string(), "1.0.0-rc.1");
}

#[test]
fn a_tag_or_digest_that_cannot_be_one_makes_the_target_unreadable() {
    let ask = by_app("Kustomization", "apps");
    let oci = || with(kustomization("apps", "podinfo", &[]), "spec/sourceRef/kind", "OCIRepository".into());
    for value in bad() {
        let revision = format!("{value}@sha256:{}", "a".repeat(64));
        let object = with(oci(), "status/lastAppliedRevision", revision.into());
        refuses(&ask, &[object], "tag", &value);
        let object = with(oci(), "status/lastAppliedRevision", format!("1.0.0@sha256:{value}").into());
        if !value.contains('/') {
            refuses(&ask.tracking(&["digest"]), &[object], "digest", &value);
        }
    }
}

#[test]
fn an_image_that_cannot_be_one_makes_the_target_unreadable() {
    let ask = by_app("Kustomization", "apps");
    let member = || kustomization("apps", "podinfo", &["apps_web_apps_Deployment"]);
    let web = |image: &str| deployment("apps", "web", ("kustomize", "apps", "podinfo"), image);
    for value in bad() {
        let image = format!("ghcr.io/x/web:{value}");
        refuses(&ask, &[member(), web(&image)], "Deployment web", &value);
        refuses(&ask, &[member(), web(&format!("ghcr.io/{value}?/web:1"))], "Deployment web", &value);
    }
    let port = see(&ask, &[member(), web("registry.example.com:5000/x/web:1.2")]);
    assert_eq!(port.revision(&[]).unwrap().to_string(), "1.2");
    let digest = format!("ghcr.io/x/web@sha256:{}", "a".repeat(64));
    assert!(see(&ask, &[member(), web(&digest)]).revision(&[]).is_some());
}

/// A value that makes no revision of the pipeline does not stand in its way.
#[test]
fn a_bad_value_counts_only_where_it_would_be_part_of_the_revision() {
    let object = helm_release("apps", "podinfo", "1.0.0");
    let object = with(object, "status/history/0/appVersion", "\u{1b}[2J".into());
    let ask = by_app("HelmRelease", "apps");
    assert_eq!(see(&ask, std::slice::from_ref(&object)).revision(&[]).unwrap().to_string(), "1.0.0");
    refuses(&ask.tracking(&["chart", "app"]), &[object], "app", "\u{1b}[2J");
    let branch = with(
        kustomization("apps", "podinfo", &["apps_web_apps_Deployment"]),
        "status/lastAppliedRevision",
        "fix #1@sha1:aa".into(),
    );
    let web = deployment("apps", "web", ("kustomize", "apps", "podinfo"), "web:1");
    let ask = by_app("Kustomization", "apps");
    assert_eq!(see(&ask, &[branch.clone(), web.clone()]).revision(&[]).unwrap().to_string(), "1");
    refuses(&ask.tracking(&["source"]), &[branch, web], "source", "fix #1");
}

#[test]
fn words_of_a_cluster_lose_control_characters_and_have_an_end() {
    let said = format!("\u{1b}]0;owned\u{7}\u{1b}[31mfailed\nhere {}", "x".repeat(100_000));
    let conditions = json!([condition("Ready", "False", "UpgradeFailed", &said, 2)]);
    let fact = flux_fact(&with(helm_release("apps", "podinfo", "1.0.0"), "status/conditions", conditions));
    let message = &fact.status.message;
    assert!(message.contains("failed\nhere"), "{message}");
    assert!(message.len() < 5000 && !message.contains(|c: char| c.is_control() && c != '\n'), "{message:?}");
    let mut odd = condition("Ready", "True", "UpgradeSucceeded", "fine", 2);
    odd["lastTransitionTime"] = "\u{1b}[31mnever".into();
    let fact = flux_fact(&with(helm_release("apps", "podinfo", "1.0.0"), "status/conditions", json!([odd])));
    assert_eq!(fact.status.since, None);
}
