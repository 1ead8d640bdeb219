//! What starts a pipeline.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_core::fleet::index::Index;
use sluice_core::fleet::trigger_fact::{HookName, NamedObjects, TriggerFact};
use sluice_core::fleet::{ClusterKey, Fact, Kind, ObjectKey};
use sluice_view::triggers::{
    KnownObjects, ReadObjects, Related, TriggerObjects, TriggerView, all_related, related, triggers,
    unobserved,
};

use crate::fixture::promotion;
use crate::fleet::{key, observe, podinfo};

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
fn release(version: &str) -> ReadObjects {
    let source = json!({"kind": "HelmRepository", "name": "charts", "namespace": "flux-system"});
    let chart = json!({"chart": {"spec": {"chart": "podinfo", "version": version, "sourceRef": source}}});
    let mut release: sluice_api::flux::HelmRelease = object("podinfo", "podinfo", chart, json!({}));
    let owner = [("name", "apps"), ("namespace", "flux-system")];
    let labels = owner.map(|(key, value)| (format!("kustomize.toolkit.fluxcd.io/{key}"), value.to_string()));
    release.metadata.labels = Some(labels.into());
    let git = json!({"path": "./apps", "sourceRef": {"kind": "GitRepository", "name": "fleet"}});
    let repository = json!({"url": "https://git.example.com/fleet", "ref": {"branch": "main"}});
    ReadObjects {
        releases: vec![release],
        kustomizations: vec![object("flux-system", "apps", git, json!({}))],
        sources: vec![
            (
                Kind::HelmRepository,
                object("flux-system", "charts", json!({"url": "https://charts.example.com"}), json!({})),
            ),
            (Kind::GitRepository, object("flux-system", "fleet", repository, not_ready("no such host"))),
        ],
        ..ReadObjects::default()
    }
}

fn on_hub(read: &ReadObjects) -> KnownObjects {
    KnownObjects::from([(ClusterKey::Local, Ok(TriggerObjects::from(read)))])
}

fn lines(found: &[TriggerView]) -> String {
    let line = |trigger: &TriggerView| {
        let last = trigger.last.map(|at| format!(" [{at}]")).unwrap_or_default();
        let problem =
            if trigger.problem.is_empty() { String::new() } else { format!(" ✗ {}", trigger.problem) };
        let on = if trigger.cluster.is_empty() { String::new() } else { format!(" on {}", trigger.cluster) };
        format!("{}: {}{on}{last}: {}{problem}", trigger.environment, trigger.what, trigger.how)
    };
    found.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_release_starts_by_its_chart_and_by_the_commit_that_changes_it() {
    insta::assert_snapshot!(lines(&triggers::<Promotion>(&pipeline(here()), &[], &on_hub(&release("6.x")))), @"
    dev: HelmRelease podinfo/podinfo: installs the newest chart podinfo 6.x of HelmRepository flux-system/charts (https://charts.example.com)
    dev: Kustomization flux-system/apps: applies what GitRepository flux-system/fleet (branch main of https://git.example.com/fleet; no such host) has in apps
    dev: POST /promotion/apps/podinfo/dev: an event of Flux signed with the hmac-key of Secret hooks, if it has one, makes Sluice look immediately
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
        let found = triggers::<Promotion>(&pipeline(here()), &[], &on_hub(&release(version)));
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
    let found = triggers(&pipeline(here()), &[called, promotion("prod", 2, json!({}))], &on_hub(&flux));
    insta::assert_snapshot!(lines(&found[2..]), @"
    dev: ImageUpdateAutomation flux-system/images [2026-11-21T11:00:00Z]: writes new images into the files of GitRepository flux-system/fleet in apps: ImagePolicy podinfo (range 6.x, now ghcr.io/podinfo:6.2.0)
    dev: Receiver flux-system/github: a webhook of github makes Flux look at GitRepository flux-system/fleet immediately (kubectl get receiver github -n flux-system shows its path) ✗ it is suspended
    dev: POST /promotion/apps/podinfo/dev: an event of Flux signed with the hmac-key of Secret hooks, if it has one, makes Sluice look immediately
    dev: Alert podinfo/sluice: sends Flux's events to Sluice, which then looks immediately
    dev: POST /trigger/apps/podinfo [2026-11-21T10:00:00Z]: a call signed with the trigger-key of Secret hooks, if it has one, promotes the revision that it names
    ");
}

#[test]
fn objects_on_other_clusters_and_unreadable_objects_are_named() {
    let cluster = json!({"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": "eu"}});
    insta::assert_snapshot!(lines(&triggers::<Promotion>(&pipeline(cluster), &[], &on_hub(&release("6.x")))), @"
    dev: HelmRelease podinfo/podinfo on apps/eu: what Flux applies on cluster apps/eu: sluice trace shows where it comes from, with the rights to see that cluster
    dev: POST /promotion/apps/podinfo/dev: an event of Flux signed with the hmac-key of Secret hooks, if it has one, makes Sluice look immediately
    dev: POST /trigger/apps/podinfo: a call signed with the trigger-key of Secret hooks, if it has one, promotes the revision that it names
    ");
    let found = triggers::<Promotion>(&pipeline(here()), &[], &on_hub(&ReadObjects::default()));
    assert!(found[0].how.contains("you may not read it"), "{}", found[0].how);
}

/// A hub with the objects of podinfo, and these.
fn hub_with(others: Vec<(ObjectKey, TriggerFact)>) -> Index {
    let mut index = Index::default();
    let others = others.into_iter().map(|(key, fact)| (key, Fact::Trigger(Box::new(fact))));
    observe(&mut index, &ClusterKey::Local, podinfo("6.7.1").into_iter().chain(others).collect());
    index
}

/// The objects on the hub that have something to do with a pipeline, as the controller observes them.
fn observed(pipeline: &Pipeline, others: Vec<(ObjectKey, TriggerFact)>) -> Related {
    let index = hub_with(others);
    let hub = index.cluster(&ClusterKey::Local).unwrap();
    assert!(unobserved(&hub).is_empty());
    related(pipeline, &ClusterKey::Local, &hub, |_| true)
}

fn receiver_of(source: ObjectKey, namespace: &str, name: &str) -> (ObjectKey, TriggerFact) {
    let ObjectKey { kind, namespace: of, name: named } = source;
    let objects = vec![NamedObjects { kind, namespace: of, name: Some(named) }];
    let fact = TriggerFact::Receiver { sender: "github".into(), objects, problem: String::new() };
    (key(Kind::Receiver, namespace, name), fact)
}

fn automation(repository: &ObjectKey) -> TriggerFact {
    TriggerFact::ImageUpdateAutomation {
        repository: Some(repository.clone()),
        path: "./apps".into(),
        policies: vec!["podinfo".into()],
        last_push: None,
        problem: String::new(),
    }
}

fn policy() -> TriggerFact {
    TriggerFact::ImagePolicy {
        choice: "range 6.x".into(),
        latest: "ghcr.io/podinfo:6.2.0".into(),
        problem: String::new(),
    }
}

#[test]
fn what_a_caller_is_asked_about_does_not_depend_on_the_number_of_others() {
    let fleet = key(Kind::GitRepository, "flux-system", "fleet");
    let named = |kind, n: usize| key(kind, &format!("n{n:02}"), "podinfo");
    let automations = (0..60).map(|n| (named(Kind::ImageUpdateAutomation, n), automation(&fleet)));
    let policies = (0..60).map(|n| (named(Kind::ImagePolicy, n), policy()));
    let index = hub_with(automations.chain(policies).collect());
    let (hub, here) = (index.cluster(&ClusterKey::Local).unwrap(), json!({"namespace": "apps"}));
    let all = all_related(&pipeline(here), &ClusterKey::Local, &hub);
    let missing: Vec<ObjectKey> =
        (0..60).map(|n| named(Kind::ImagePolicy, n)).filter(|key| !all.contains(key)).collect();
    assert_eq!(missing, []);
}

#[test]
fn the_controller_finds_the_same_in_what_it_observes() {
    let pipeline = pipeline(json!({"namespace": "apps"}));
    let fleet = key(Kind::GitRepository, "flux-system", "fleet");
    let (automation, policy) = (automation(&fleet), policy());
    let hook = HookName { namespace: "apps".into(), pipeline: "podinfo".into(), environment: "dev".into() };
    let alert = TriggerFact::Alert { provider: "sluice".into(), suspended: false };
    let related = observed(
        &pipeline,
        vec![
            (key(Kind::ImageUpdateAutomation, "flux-system", "images"), automation),
            (key(Kind::ImagePolicy, "flux-system", "podinfo"), policy.clone()),
            (key(Kind::ImagePolicy, "flux-system", "other"), policy),
            receiver_of(fleet, "flux-system", "github"),
            receiver_of(key(Kind::GitRepository, "flux-system", "other"), "flux-system", "other"),
            (key(Kind::Alert, "flux-system", "sluice"), alert),
            (
                key(Kind::Provider, "flux-system", "sluice"),
                TriggerFact::Provider { hook: Some(hook), suspended: false },
            ),
            (
                key(Kind::Provider, "flux-system", "slack"),
                TriggerFact::Provider { hook: None, suspended: false },
            ),
        ],
    );
    assert!(!related.objects.keys().any(|key| ["other", "slack"].contains(&key.name.as_str())));
    let known = KnownObjects::from([(ClusterKey::Local, Ok(related.objects.clone()))]);
    insta::assert_snapshot!(lines(&triggers::<Promotion>(&pipeline, &[], &known)), @"
    dev: HelmRelease apps/podinfo: installs the newest chart podinfo 6.x of HelmRepository flux-system/charts (https://example.com/charts)
    dev: Kustomization flux-system/apps: applies what GitRepository flux-system/fleet (branch main of https://example.com/fleet.git) has in apps/prod
    dev: ImageUpdateAutomation flux-system/images: writes new images into the files of GitRepository flux-system/fleet in apps: ImagePolicy podinfo (range 6.x, now ghcr.io/podinfo:6.2.0)
    dev: Receiver flux-system/github: a webhook of github makes Flux look at GitRepository flux-system/fleet immediately (kubectl get receiver github -n flux-system shows its path)
    dev: POST /promotion/apps/podinfo/dev: an event of Flux signed with the hmac-key of Secret hooks, if it has one, makes Sluice look immediately
    dev: Alert flux-system/sluice: sends Flux's events to Sluice, which then looks immediately
    dev: POST /trigger/apps/podinfo: a call signed with the trigger-key of Secret hooks, if it has one, promotes the revision that it names
    ");
    // Without the right to get the Kustomization, nothing behind it is told.
    let mut objects = related.objects;
    objects.retain(|key, _| key.kind != Kind::Kustomization);
    let known = KnownObjects::from([(ClusterKey::Local, Ok(objects))]);
    let shown = lines(&triggers::<Promotion>(&pipeline, &[], &known));
    assert!(!shown.contains("fleet.git") && !shown.contains("Receiver"), "{shown}");
}

#[test]
fn the_receivers_of_one_namespace_do_not_displace_those_of_others() {
    let fleet = key(Kind::GitRepository, "flux-system", "fleet");
    let hostile = (0..1000).map(|n| receiver_of(fleet.clone(), "eve", &format!("r{n:04}")));
    let receivers = hostile.chain([receiver_of(fleet.clone(), "flux-system", "github")]).collect();
    let related = observed(&pipeline(json!({"namespace": "apps"})), receivers);
    let shown = related.objects.keys().filter(|key| key.kind == Kind::Receiver).count();
    assert_eq!((shown, related.cut), (50, vec![Kind::Receiver]));
    assert!(related.objects.contains_key(&key(Kind::Receiver, "flux-system", "github")));
}
