//! The role of the reader allows what the watches read, and nothing else.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_core::fleet::Kind;

#[test]
fn the_role_of_the_reader_has_exactly_the_observed_kinds() {
    let role: Value = serde_saphyr::from_str(include_str!("../../../../deploy/reader/role.yaml")).unwrap();
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let mut allowed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for rule in role["rules"].as_array().unwrap() {
        assert_eq!(texts(&rule["verbs"]), ["get", "list", "watch"]);
        for group in texts(&rule["apiGroups"]) {
            allowed.entry(group).or_default().extend(texts(&rule["resources"]));
        }
    }
    let mut read: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in Kind::DECIDING.into_iter().chain(Kind::SHOWN) {
        let (group, plural) = kind.resource();
        read.entry(group.into()).or_default().push(plural.into());
    }
    for kinds in [&mut allowed, &mut read] {
        kinds.values_mut().for_each(|plurals| plurals.sort());
    }
    assert_eq!(allowed, read);
}
