//! The roles of the reader allow what the watches read, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_controller::observe::ObserveScope;
use sluice_core::fleet::{ClusterKey, Kind};

/// Returns the resources of a role, by API group. All of them may only be read.
fn allowed(role: &str) -> BTreeMap<String, BTreeSet<String>> {
    let role: Value = serde_saphyr::from_str(role).unwrap();
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let mut allowed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in role["rules"].as_array().unwrap() {
        assert_eq!(texts(&rule["verbs"]), ["get", "list", "watch"]);
        for group in texts(&rule["apiGroups"]) {
            allowed.entry(group).or_default().extend(texts(&rule["resources"]));
        }
    }
    allowed
}

#[test]
fn the_role_of_the_reader_has_exactly_the_observed_kinds() {
    let everywhere = allowed(include_str!("../../../../deploy/reader/every-cluster.yaml"));
    let mut on_hub = allowed(include_str!("../../../../deploy/reader/hub.yaml"));
    on_hub.extend(everywhere.clone());
    let remote = ClusterKey::Remote { namespace: "fleet".into(), name: "eu".into() };
    for (cluster, allowed) in [(remote, everywhere), (ClusterKey::Local, on_hub)] {
        let mut read: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for kind in ObserveScope::All.kinds(&cluster) {
            let (group, plural) = kind.resource();
            read.entry(group.into()).or_default().insert(plural.into());
        }
        assert_eq!(allowed, read, "{cluster}");
        assert_eq!(ObserveScope::Targets.kinds(&cluster), Kind::DECIDING, "{cluster}");
    }
}
