//! What starts a pipeline.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_view::triggers::{FluxObjects, TriggerView, triggers};

use crate::fixture::promotion;

fn object<T: DeserializeOwned>(namespace: &str, name: &str, spec: Value, status: Value) -> T {
    let object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": name, "namespace": namespace},
        "spec": spec, "status": status});
    serde_json::from_value(object).unwrap()
}

/// Returns a pipeline whose first environment has this target, and whose second one is elsewhere.
fn pipeline(target: Value) -> Pipeline {
    let promotion = json!({"strategy": {"notification": {}, "secretRef": {"name": "hooks"}}});
    serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps"},
        "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "promotion": promotion,
            "environments": [
                {"name": "dev", "targets": [target]},
                {"name": "prod", "targets": [{"namespace": "podinfo-prod"}]},
            ]},
    }))
    .unwrap()
}

fn here() -> Value {
    json!({"namespace": "podinfo"})
}

fn not_ready(message: &str) -> Value {
    json!({"conditions": [{"type": "Ready", "status": "False", "reason": "R", "message": message}]})
}

/// Returns a HelmRelease of this version of the chart, which a Kustomization made.
fn release(version: &str) -> FluxObjects {
    let source = json!({"kind": "HelmRepository", "name": "charts", "namespace": "flux-system"});
    let chart = json!({"chart": {"spec": {"chart": "podinfo", "version": version, "sourceRef": source}}});
    let mut release: sluice_api::flux::HelmRelease = object("podinfo", "podinfo", chart, json!({}));
    let owner = [("name", "apps"), ("namespace", "flux-system")];
    let labels = owner.map(|(key, value)| (format!("kustomize.toolkit.fluxcd.io/{key}"), value.to_string()));
    release.metadata.labels = Some(labels.into());
    let git = json!({"path": "./apps", "sourceRef": {"kind": "GitRepository", "name": "fleet"}});
    let repository = json!({"url": "https://git.example.com/fleet", "ref": {"branch": "main"}});
    FluxObjects {
        releases: vec![release],
        kustomizations: vec![object("flux-system", "apps", git, json!({}))],
        sources: vec![
            (
                "HelmRepository".into(),
                object("flux-system", "charts", json!({"url": "https://charts.example.com"}), json!({})),
            ),
            ("GitRepository".into(), object("flux-system", "fleet", repository, not_ready("no such host"))),
        ],
        ..FluxObjects::default()
    }
}

fn lines(found: &[TriggerView]) -> String {
    let line = |trigger: &TriggerView| {
        let last = trigger.last.map(|at| format!(" [{at}]")).unwrap_or_default();
        let problem =
            if trigger.problem.is_empty() { String::new() } else { format!(" ✗ {}", trigger.problem) };
        format!("{}: {}{last}: {}{problem}", trigger.environment, trigger.what, trigger.how)
    };
    found.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_release_starts_by_its_chart_and_by_the_commit_that_changes_it() {
    insta::assert_snapshot!(lines(&triggers(&pipeline(here()), &[], &release("6.x"))), @"
    dev: HelmRelease podinfo/podinfo: installs the newest chart podinfo 6.x of HelmRepository flux-system/charts (https://charts.example.com)
    dev: Kustomization flux-system/apps: applies what GitRepository flux-system/fleet (branch main of https://git.example.com/fleet; no such host) has in apps
    dev: POST /trigger/apps/podinfo: a call signed with the trigger-key of Secret hooks, if it has one, promotes the revision that it names
    ");
}

#[test]
fn the_version_of_a_chart_says_whether_a_new_one_starts_the_pipeline() {
    for (version, part) in [
        ("", "installs the newest chart podinfo of"),
        ("*", "installs the newest chart podinfo of"),
        (">=6.0.0 <7.0.0", "installs the newest chart podinfo >=6.0.0 <7.0.0 of"),
        ("6.1", "installs the newest chart podinfo 6.1 of"),
        ("^6.1.0", "installs the newest chart podinfo ^6.1.0 of"),
        ("6.1.8", "and another version when its spec is changed"),
        ("6.1.8-rc.1", "and another version when its spec is changed"),
    ] {
        let found = triggers(&pipeline(here()), &[], &release(version));
        assert!(found[0].how.contains(part), "{version}: {}", found[0].how);
    }
}

#[test]
fn automations_receivers_and_alerts_of_the_sources_are_triggers() {
    let mut flux = release("6.1.8");
    let fleet = json!({"kind": "GitRepository", "name": "fleet"});
    let automation = json!({"sourceRef": fleet, "update": {"path": "./apps"}});
    let pushed = json!({"lastPushTime": "2026-11-21T11:00:00Z",
        "observedPolicies": {"podinfo": {"name": "ghcr.io/podinfo", "tag": "6.2.0"}}});
    let policy = json!({"policy": {"semver": {"range": "6.x"}}});
    let latest = json!({"latestRef": {"name": "ghcr.io/podinfo", "tag": "6.2.0"}});
    flux.automations = vec![
        object("flux-system", "images", automation.clone(), pushed),
        object("other", "images", automation, json!({})),
    ];
    flux.policies = vec![object("flux-system", "podinfo", policy, latest)];
    let resources =
        json!([{"kind": "GitRepository", "name": "*"}, {"kind": "HelmRepository", "name": "other"}]);
    let receiver = json!({"type": "github", "resources": resources, "suspend": true});
    flux.receivers = vec![
        object("flux-system", "github", receiver.clone(), json!({"webhookPath": "/hook/1"})),
        object("other", "github", receiver, json!({})),
    ];
    let address = "https://sluice.example.com/promotion/apps/podinfo/dev";
    flux.providers = vec![object("podinfo", "sluice", json!({"address": address}), Value::Null)];
    flux.alerts = vec![
        object("podinfo", "sluice", json!({"providerRef": {"name": "sluice"}}), Value::Null),
        object("podinfo", "slack", json!({"providerRef": {"name": "slack"}}), Value::Null),
    ];
    let mut called = promotion("dev", 1, json!({}));
    called.spec.trigger =
        serde_json::from_value(json!({"key": "build-7", "at": "2026-11-21T10:00:00Z"})).unwrap();
    let found = triggers(&pipeline(here()), &[called, promotion("prod", 2, json!({}))], &flux);
    insta::assert_snapshot!(lines(&found[2..]), @"
    dev: ImageUpdateAutomation flux-system/images [2026-11-21T11:00:00Z]: writes new images into the files of GitRepository fleet in apps: ImagePolicy podinfo (range 6.x, now ghcr.io/podinfo:6.2.0)
    dev: Receiver flux-system/github: a webhook of github at /hook/1 makes Flux look at GitRepository flux-system/fleet immediately ✗ it is suspended
    dev: Alert podinfo/sluice: sends Flux's events to Sluice, which then looks immediately
    dev: POST /trigger/apps/podinfo [2026-11-21T10:00:00Z]: a call signed with the trigger-key of Secret hooks, if it has one, promotes the revision that it names
    ");
}

#[test]
fn objects_on_other_clusters_and_unreadable_objects_are_named() {
    let cluster = json!({"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": "eu"}});
    insta::assert_snapshot!(lines(&triggers(&pipeline(cluster), &[], &release("6.x"))), @"
    dev: HelmRelease podinfo/podinfo: what Flux applies on cluster eu: sluice trace shows where it comes from, with the rights to see that cluster
    dev: POST /trigger/apps/podinfo: a call signed with the trigger-key of Secret hooks, if it has one, promotes the revision that it names
    ");
    let found = triggers(&pipeline(here()), &[], &FluxObjects::default());
    assert!(found[0].how.contains("you may not read it"), "{}", found[0].how);
}
