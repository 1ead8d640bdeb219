use sluice_controller::hook::event::{Meaning, ReceivedEvent};

use crate::all_bodies;

/// The events that report that their object runs the revision which they name.
const DEPLOYED: [&str; 15] = [
    "003-kustomization-reconciliationsucceeded.json",
    "004-helmrelease-installsucceeded.json",
    "005-kustomization-reconciliationsucceeded.json",
    "008-kustomization-reconciliationsucceeded.json",
    "009-helmrelease-upgradesucceeded.json",
    "010-kustomization-reconciliationsucceeded.json",
    "025-helmrelease-upgradesucceeded.json",
    "hr-chart-install-succeeded.json",
    "hr-chart-test-succeeded.json",
    "hr-chart-upgrade-succeeded-legacy-v2beta1.json",
    "hr-chart-upgrade-succeeded.json",
    "hr-oci-upgrade-succeeded.json",
    "ks-git-success-legacy-v1beta2.json",
    "ks-git-success.json",
    "ks-oci-success.json",
];

#[test]
fn events_of_success_report_a_deployment_and_events_of_failure_a_failure() {
    for (file, body, _) in all_bodies() {
        let event: ReceivedEvent = serde_json::from_slice(&body).unwrap_or_else(|e| panic!("{file}: {e}"));
        let expected = match file.as_str() {
            "v1-ks-git-success.json" => Meaning::Deployed,
            file if DEPLOYED.contains(&file) => Meaning::Deployed,
            file if file.contains("fail") => Meaning::Failed,
            _ => Meaning::Nothing,
        };
        assert_eq!(event.meaning(), expected, "{file}");
        if expected == Meaning::Deployed {
            assert!(event.revision().is_some() && event.timestamp.is_some(), "{file}");
        }
    }
}

#[test]
fn metadata_is_read_with_and_without_the_prefix_of_the_objects_group() {
    let event = |metadata: &str| -> ReceivedEvent {
        let text = format!(
            r#"{{"involvedObject": {{"kind": "HelmRelease", "apiVersion": "helm.toolkit.fluxcd.io/v2", "name": "a"}},
                "metadata": {metadata}, "unknown": [1]}}"#
        );
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(event(r#"{"revision": "1"}"#).revision(), Some("1"));
    assert_eq!(event(r#"{"helm.toolkit.fluxcd.io/revision": "2"}"#).revision(), Some("2"));
    assert_eq!(event(r#"{"kustomize.toolkit.fluxcd.io/revision": "3"}"#).revision(), None);
    assert_eq!(event(r#"{"revision": ""}"#).revision(), None);
    assert_eq!(event("{}").revision(), None);
}
