//! What is kept of the objects that start pipelines, and what is not: secrets, and texts without end.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::flux::trigger_facts::{image_policy, image_update_automation, provider, receiver};
use sluice_core::fleet::trigger_fact::{HookName, NamedObjects, TriggerFact};
use sluice_core::fleet::{Kind, ObjectKey};

fn object<T: DeserializeOwned>(spec: Value, status: Value) -> T {
    let metadata = json!({"name": "podinfo", "namespace": "apps"});
    serde_json::from_value(
        json!({"apiVersion": "v1", "kind": "K", "metadata": metadata, "spec": spec, "status": status}),
    )
    .unwrap()
}

#[test]
fn of_the_address_of_a_provider_only_the_hook_is_kept() {
    let hook = |environment: &str| {
        let (namespace, pipeline) = ("apps".into(), "podinfo".into());
        Some(HookName { namespace, pipeline, environment: environment.into() })
    };
    for (address, kept) in [
        ("https://sluice.example.com/promotion/apps/podinfo/dev", hook("dev")),
        ("http://sluice-hooks.sluice-system:8082/promotion/apps/podinfo/prod-eu/", hook("prod-eu")),
        ("https://token@sluice.example.com/promotion/apps/podinfo/dev?key=secret#x", hook("dev")),
        ("https://hooks.slack.com/services/T0/B0/secret", None),
        ("https://example.com/promotion/apps/podinfo", None),
        ("https://example.com/promotion/apps/podinfo/dev/secret", None),
        ("https://example.com/promotion/apps/podinfo/<script>", None),
        ("https://example.com/promotion/../podinfo/dev", None),
        ("", None),
    ] {
        let fact = provider(&object(json!({"address": address, "suspend": true}), Value::Null));
        assert_eq!(fact, TriggerFact::Provider { hook: kept, suspended: true }, "{address}");
        let text = format!("{fact:?}");
        assert!(!text.contains("secret") && !text.contains("token"), "{text}");
    }
}

#[test]
fn of_a_receiver_the_objects_are_kept_and_not_its_path() {
    let path = format!("/hook/{}", "a1".repeat(32));
    let resources = json!([
        {"kind": "GitRepository", "name": "fleet"},
        {"kind": "HelmRelease", "name": "*", "namespace": "web", "matchLabels": {"app": "x"}},
        {"kind": "ArtifactGenerator", "name": "other"},
        {"kind": "GitRepository", "name": "../etc"},
    ]);
    let ready = json!({"type": "Ready", "status": "True", "message": format!("Receiver initialized for path: {path}")});
    let status = json!({"webhookPath": path, "conditions": [ready]});
    let fact = receiver(&object(json!({"type": "generic", "resources": resources}), status));
    let named = |kind, namespace: &str, name: Option<&str>| NamedObjects {
        kind,
        namespace: namespace.into(),
        name: name.map(String::from),
    };
    let objects =
        vec![named(Kind::GitRepository, "apps", Some("fleet")), named(Kind::HelmRelease, "web", None)];
    let wanted = TriggerFact::Receiver { sender: "generic".into(), objects, problem: String::new() };
    assert_eq!(fact, wanted);
    assert!(!format!("{fact:?}").contains("/hook/"));
}

#[test]
fn an_automation_and_its_policies_are_kept() {
    let status = json!({"lastPushTime": "2026-11-21T11:00:00Z", "observedPolicies": {"podinfo": {}, "../etc": {}},
        "conditions": [{"type": "Ready", "status": "False", "message": "authentication required"}]});
    let source = json!({"kind": "GitRepository", "name": "fleet", "namespace": "flux-system"});
    let spec = json!({"sourceRef": source, "update": {"path": "./apps"}});
    let repository =
        ObjectKey { kind: Kind::GitRepository, namespace: "flux-system".into(), name: "fleet".into() };
    assert_eq!(
        image_update_automation(&object(spec, status)),
        TriggerFact::ImageUpdateAutomation {
            repository: Some(repository),
            path: "./apps".into(),
            policies: vec!["podinfo".into()],
            last_push: Some("2026-11-21T11:00:00Z".parse().unwrap()),
            problem: "authentication required".into(),
        }
    );
}

#[test]
fn a_hostile_object_takes_little_memory_and_has_no_odd_characters() {
    let long = "a\u{1b}[31m\u{202e}".repeat(10_000);
    let many: Vec<Value> =
        (0..10_000).map(|n| json!({"kind": "GitRepository", "name": format!("r{n}")})).collect();
    let policies: Value =
        (0..10_000).map(|n| (format!("p{n}"), json!({}))).collect::<serde_json::Map<_, _>>().into();
    let conditions = json!([{"type": "Ready", "status": "False", "message": long}]);
    let facts = [
        receiver(&object(json!({"type": long, "resources": many}), json!({"conditions": conditions}))),
        image_update_automation(&object(
            json!({"sourceRef": {"kind": "GitRepository", "name": long}, "update": {"path": long}}),
            json!({"conditions": conditions, "observedPolicies": policies}),
        )),
        image_policy(&object(
            json!({"policy": {"semver": {"range": long}}}),
            json!({"conditions": conditions, "latestRef": {"name": long, "tag": long}}),
        )),
    ];
    for fact in facts {
        let text = format!("{fact:?}");
        assert!(text.len() < 20_000, "{}", text.len());
        assert!(!text.contains("\\u{1b}") && !text.contains("\\u{202e}"), "{text}");
    }
}
