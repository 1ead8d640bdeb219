//! The statuses that real Flux controllers wrote in one scenario, object by object.

use serde_json::Value;
use sluice_core::fleet::Fact;
use sluice_core::observed::Health;
use sluice_core::revision::Facet;

use crate::support::{by_app, deployment, fact, flux_fact, local, namespace};

const SCENARIO: [(&str, &str); 9] = [
    ("installed", include_str!("../data/flux-2.9/01-installed.json")),
    ("upgrading", include_str!("../data/flux-2.9/02-upgrading.json")),
    ("upgraded", include_str!("../data/flux-2.9/03-upgraded.json")),
    ("drift corrected", include_str!("../data/flux-2.9/04-drift-corrected.json")),
    ("failed", include_str!("../data/flux-2.9/05-failed.json")),
    ("waiting for health", include_str!("../data/flux-2.9/06-waiting-for-health.json")),
    ("health failed", include_str!("../data/flux-2.9/07-health-failed.json")),
    ("suspended", include_str!("../data/flux-2.9/08-suspended.json")),
    ("pruned", include_str!("../data/flux-2.9/09-pruned.json")),
];

const A: &str = "main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0";
const B: &str = "main@sha1:347e3e05bda79785e5adf284f30b2ba5dbcab7a3";

/// The health, a part of the message, the default facet, the shown version, and the time of the health.
type Expected = (Health, &'static str, &'static str, &'static str, Option<&'static str>);

use Health::{Failed, Progressing, Ready, Suspended};

const KUSTOMIZATION: [Expected; 9] = [
    (Ready, "", A, "main@sha1:6a19e380", Some("2026-11-21T08:44:58Z")),
    (Ready, "", A, "main@sha1:6a19e380", Some("2026-11-21T08:44:58Z")),
    (Ready, "", B, "main@sha1:347e3e05", Some("2026-11-21T08:45:27Z")),
    (Ready, "", B, "main@sha1:347e3e05", Some("2026-11-21T08:45:52Z")),
    // It has failed although the condition Reconciling is True with the reason ProgressingWithRetry.
    (Failed, "MalformedYAMLError", B, "main@sha1:347e3e05", Some("2026-11-21T08:46:37Z")),
    // The facet is the last revision that was applied and healthy, and not the current attempt.
    (Progressing, "Running health checks", B, "main@sha1:347e3e05", Some("2026-11-21T08:46:47Z")),
    (Progressing, "Running health checks", B, "main@sha1:347e3e05", Some("2026-11-21T08:47:27Z")),
    (Suspended, "its last message: Reconciliation in progress", B, "main@sha1:347e3e05", None),
    (Progressing, "Running health checks", B, "main@sha1:347e3e05", Some("2026-11-21T08:47:27Z")),
];

const HELM_RELEASE: [Expected; 9] = [
    (Ready, "", "6.1.5", "6.1.5", Some("2026-11-21T08:44:27Z")),
    (Ready, "", "6.1.5", "6.1.5", Some("2026-11-21T08:44:27Z")),
    (Ready, "", "6.1.6", "6.1.6", Some("2026-11-21T08:45:27Z")),
    (Ready, "", "6.1.6", "6.1.6", Some("2026-11-21T08:45:27Z")),
    // The upgrade to 6.1.7 failed, and 6.1.6 runs.
    (Failed, "tag must be set", "6.1.6", "6.1.6", Some("2026-11-21T08:46:31Z")),
    (Ready, "", "6.1.8", "6.1.8", Some("2026-11-21T08:46:47Z")),
    (Ready, "", "6.1.8", "6.1.8", Some("2026-11-21T08:46:47Z")),
    (Ready, "", "6.1.8", "6.1.8", Some("2026-11-21T08:46:47Z")),
    (Ready, "", "6.1.8", "6.1.8", Some("2026-11-21T08:46:47Z")),
];

fn items(text: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(text).unwrap();
    list["items"].as_array().unwrap().clone()
}

#[test]
fn the_facts_of_every_flux_object_in_the_scenario_are_correct() {
    let mut read = 0;
    for (i, (step, text)) in SCENARIO.into_iter().enumerate() {
        for object in items(text) {
            let (expected, facet) = match object["kind"].as_str().unwrap() {
                "Kustomization" => (KUSTOMIZATION[i], Facet::Source),
                "HelmRelease" => (HELM_RELEASE[i], Facet::Chart),
                _ => continue,
            };
            read += 1;
            let found = flux_fact(&object);
            let (health, message, value, version, since) = expected;
            let what = format!("{}, {step}: {found:?}", object["kind"]);
            assert_eq!(found.status.health, health, "{what}");
            assert!(found.status.message.contains(message), "{what}");
            assert_eq!(found.status.message.is_empty(), message.is_empty(), "{what}");
            assert_eq!(found.facets.get(&facet).map(String::as_str), Some(value), "{what}");
            assert_eq!(found.version, version, "{what}");
            assert_eq!(found.status.since, since.map(|since| since.parse().unwrap()), "{what}");
        }
    }
    assert_eq!(read, 18);
}

#[test]
fn a_helm_release_has_the_app_version_of_its_chart() {
    let app: Vec<_> = SCENARIO
        .iter()
        .filter_map(|(_, text)| {
            let release = items(text).into_iter().find(|o| o["kind"] == "HelmRelease")?;
            flux_fact(&release).facets.get(&Facet::App).cloned()
        })
        .collect();
    assert_eq!(app, ["6.1.5", "6.1.5", "6.1.6", "6.1.6", "6.1.6", "6.1.8", "6.1.8", "6.1.8", "6.1.8"]);
}

#[test]
fn the_branch_of_the_source_is_known_at_every_step() {
    for (step, text) in SCENARIO {
        let source = items(text).into_iter().find(|o| o["kind"] == "GitRepository").unwrap();
        let Fact::Source(source) = fact(&source).1 else { panic!("{step}") };
        assert_eq!(source.repository.branch, "main", "{step}");
        assert!(source.repository.url.ends_with("/fleet.git"), "{step}");
    }
}

/// In the scenario the Kustomization does not wait, so it is Ready from the first step on although no pod runs.
#[test]
fn a_kustomization_that_does_not_wait_is_only_as_healthy_as_its_workloads() {
    let mut observed = items(SCENARIO[0].1);
    observed.retain(|o| o["kind"] != "HelmChart");
    observed.push(namespace("podinfo"));
    let without_pod = by_app("Kustomization", "podinfo").observe(&local(&observed));
    assert_eq!(without_pod.health(), Progressing);
    let mut pod = deployment("podinfo", "podinfo", ("kustomize", "podinfo", "podinfo"), "podinfo:6.1.5");
    pod["status"]["readyReplicas"] = 0.into();
    let unready =
        by_app("Kustomization", "podinfo").observe(&local(&[observed.clone(), vec![pod.clone()]].concat()));
    assert_eq!(unready.health(), Progressing);
    assert_eq!(
        unready.complaint(),
        "Kustomization/podinfo is Progressing: Deployment podinfo: 0 of 1 pods are ready"
    );
    pod["status"]["readyReplicas"] = 1.into();
    let ready = by_app("Kustomization", "podinfo").observe(&local(&[observed, vec![pod]].concat()));
    assert_eq!(ready.health(), Ready);
    assert_eq!(ready.revision(&[]).unwrap().to_string(), "6.1.5");
    let source = ready.members[0].source.clone().expect("a GitRepository in the same namespace");
    assert_eq!(source.branch, "main");
}
