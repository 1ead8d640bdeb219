//! The status of a pipeline: what it says of the facts, and that the same facts say the same.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::pipeline::{Health as Shown, Pipeline, PipelineStatus};
use sluice_api::promotion::Promotion;
use sluice_controller::observe::reported::Reports;
use sluice_controller::record::status::{StatusFacts, compose};
use sluice_controller::translate;
use sluice_core::decide::{Decision, Note};
use sluice_core::evidence::Evidence;
use sluice_core::observed::{Health, Member, ObservedTarget, ObservedTargets};
use sluice_core::tracks::DefaultFacet;

/// A pipeline with dev (eu, us), staging and prod, all in namespace apps.
fn pipeline() -> Value {
    json!({
        "metadata": {"namespace": "apps", "name": "podinfo", "uid": "u", "generation": 3},
        "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "environments": [
                {"name": "dev", "targets": [{"name": "eu", "namespace": "apps"}, {"name": "us", "namespace": "apps"}]},
                {"name": "staging", "targets": [{"name": "one", "namespace": "apps"}]},
                {"name": "prod", "targets": [{"name": "one", "namespace": "apps"}]},
            ],
        },
    })
}

fn running(chart: &str, health: Health) -> ObservedTarget {
    let facets = [(sluice_core::revision::Facet::Chart, chart.to_string())].into();
    let member = Member {
        kind: "HelmRelease".into(),
        name: "podinfo".into(),
        health,
        message: if health == Health::Ready { String::new() } else { "its own words".into() },
        since: None,
        version: chart.into(),
        gave_up: BTreeMap::new(),
        facets,
        default_facet: DefaultFacet::Chart,
        source: None,
        workloads: Vec::new(),
    };
    ObservedTarget { error: None, members: vec![member] }
}

/// Everything that a status is made from; calm, at 6.1.8 everywhere.
struct Scene {
    object: Pipeline,
    observed: ObservedTargets,
    evidence: Evidence,
    decision: Decision,
    promotions: Vec<Promotion>,
}

impl Scene {
    fn new() -> Self {
        let object = serde_json::from_value(pipeline()).unwrap();
        let (observed, evidence) = (ObservedTargets::default(), Evidence::default());
        let mut scene =
            Scene { object, observed, evidence, decision: Decision::default(), promotions: Vec::new() };
        for (environment, target) in [("dev", "eu"), ("dev", "us"), ("staging", "one"), ("prod", "one")] {
            scene.observed.insert(environment, target, running("6.1.8", Health::Ready));
        }
        scene
    }

    fn at(mut self, environment: &str, target: &str, shown: ObservedTarget) -> Self {
        self.observed.insert(environment, target, shown);
        self
    }

    fn note(mut self, environment: &str, reason: &'static str, message: &str) -> Self {
        self.decision.notes.insert(environment.into(), Note { reason, message: message.into() });
        self
    }

    fn promotion(mut self, sequence: u64, revision: &str, status: Value) -> Self {
        let object = json!({
            "metadata": {"namespace": "apps", "name": format!("podinfo-prod-{sequence}")},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": revision, "sequence": sequence,
                "facets": {"HelmRelease/podinfo:chart": revision}},
            "status": status,
        });
        self.promotions.push(serde_json::from_value(object).unwrap());
        self
    }

    fn compose(&self, before: &PipelineStatus, now: &str) -> PipelineStatus {
        let pipeline = translate::pipeline(&self.object);
        compose(&StatusFacts {
            object: &self.object,
            before,
            pipeline: &pipeline,
            observed: &self.observed,
            unanswered: &BTreeSet::new(),
            reports: &Reports::new(),
            hook_secret: None,
            lost_clusters: Vec::new(),
            evidence: &self.evidence,
            decision: &self.decision,
            promotions: &self.promotions.iter().collect::<Vec<_>>(),
            now: now.parse().unwrap(),
        })
    }

    /// At nine o'clock, with nothing written before.
    fn first(&self) -> PipelineStatus {
        self.compose(&PipelineStatus::default(), "2026-11-21T09:00:00.123Z")
    }

    /// The conditions as type, status, reason and message.
    fn conditions(&self) -> Vec<[String; 4]> {
        self.first().conditions.into_iter().map(|c| [c.type_, c.status, c.reason, c.message]).collect()
    }
}

const TEN: &str = "2026-11-21T10:00:00.456Z";

#[test]
fn the_same_facts_say_the_same_at_any_time() {
    let scenes = [
        Scene::new(),
        Scene::new().at("dev", "us", ObservedTarget::unreadable("no such cluster")),
        Scene::new().at("dev", "us", running("6.1.9", Health::Progressing)).note("prod", "Waiting", "for us"),
        Scene::new().promotion(1, "6.1.8", json!({"phase": "Proposed"})),
    ];
    for scene in scenes {
        let first = scene.first();
        assert_eq!(scene.compose(&first, TEN), first);
        // Also after it was written and read again.
        let read: PipelineStatus = serde_json::from_value(serde_json::to_value(&first).unwrap()).unwrap();
        assert_eq!(scene.compose(&read, TEN), first);
    }
}

#[test]
fn times_are_those_of_the_last_change() {
    let time = |status: &PipelineStatus| status.conditions[0].last_transition_time.0.to_string();
    let since = |status: &PipelineStatus| status.environments["dev"].targets[1].since.clone().unwrap();
    let calm = Scene::new().first();
    assert_eq!((time(&calm), since(&calm)), ("2026-11-21T09:00:00Z".into(), "2026-11-21T09:00:00Z".into()));
    let lost = Scene::new().at("dev", "us", ObservedTarget::unreadable("no such cluster"));
    let at_ten = lost.compose(&calm, TEN);
    assert_eq!(
        (time(&at_ten), since(&at_ten)),
        ("2026-11-21T10:00:00Z".into(), "2026-11-21T10:00:00Z".into())
    );
    // Another reason is no transition.
    let burnt = Scene::new().at("dev", "us", ObservedTarget::unreadable("burnt down"));
    let at_eleven = burnt.compose(&at_ten, "2026-11-21T11:00:00Z");
    assert_eq!((time(&at_eleven), since(&at_eleven)), (time(&at_ten), since(&at_ten)));
    assert_ne!(at_eleven.conditions[0].message, at_ten.conditions[0].message);
    // The others keep their time all along.
    assert_eq!(at_eleven.environments["dev"].targets[0], calm.environments["dev"].targets[0]);
}

/// Flux writes a new time each time it has gone through a Kustomization, also when nothing changed.
#[test]
fn flux_own_time_counts_when_something_has_changed_and_only_then() {
    let at = |health, since: &str| {
        let mut target = running("6.1.8", health);
        target.members[0].since = Some(since.into());
        Scene::new().at("prod", "one", target)
    };
    let since = |status: &PipelineStatus| status.environments["prod"].targets[0].since.clone().unwrap();
    let first = at(Health::Ready, "2026-11-21T07:00:00Z").first();
    assert_eq!(since(&first), "2026-11-21T07:00:00Z");
    assert_eq!(at(Health::Ready, "2026-11-21T08:00:00Z").compose(&first, TEN), first);
    let failed = at(Health::Failed, "2026-11-21T09:30:00Z").compose(&first, TEN);
    assert_eq!(since(&failed), "2026-11-21T09:30:00Z");
}

#[test]
fn ready_says_whether_every_target_was_read_and_none_has_failed() {
    let ready = |status: &str, reason: &str, message: &str| {
        [["Ready", status, reason, message].map(String::from)].to_vec()
    };
    assert_eq!(Scene::new().conditions(), ready("True", "ReconciliationSucceeded", "all targets were read"));
    let failed = Scene::new().at("prod", "one", running("6.1.8", Health::Failed));
    let why = "prod/one: HelmRelease/podinfo is Failed: its own words";
    assert_eq!(failed.conditions(), ready("False", "TargetFailed", why));
    // What cannot be read comes first, and hides nothing that fails.
    let both = failed.at("dev", "us", ObservedTarget::unreadable("no such cluster"));
    let why = format!("dev/us: no such cluster; {why}");
    assert_eq!(both.conditions(), ready("False", "TargetNotReadable", &why));
    let asleep = Scene::new().at("prod", "one", running("6.1.8", Health::Suspended));
    let why = "all targets were read; prod/one is Suspended";
    assert_eq!(asleep.conditions(), ready("True", "ReconciliationSucceeded", why));
    let lost = Scene::new()
        .at("prod", "one", ObservedTarget::unreadable("cluster fleet/prod refuses the connection: start it"))
        .at("dev", "us", ObservedTarget::unreadable("there is no namespace apps: create it"));
    let why = "dev/us: there is no namespace apps: create it; prod/one: cluster fleet/prod refuses the connection: \
               start it";
    assert_eq!(lost.conditions(), ready("False", "TargetNotReadable", why));
    let mut suspended = Scene::new();
    suspended.object.spec.suspend = true;
    assert_eq!(suspended.conditions(), ready("True", "Suspended", "observed only: spec.suspend is true"));
}

#[test]
fn what_is_not_as_usual_is_there_only_while_it_is_so_and_in_the_pipelines_order() {
    let scene = Scene::new()
        .at("staging", "one", running("6.1.9", Health::Progressing))
        .at("dev", "eu", running("6.1.9", Health::Progressing))
        .note("staging", "WaitingForTargets", "waits for dev")
        .note("prod", "WaitingForGate", "waits for staging");
    let expected = [
        ["Ready", "True", "ReconciliationSucceeded", "all targets were read"],
        ["Reconciling", "True", "Progressing", "on its way: dev/eu, staging/one"],
        ["PromotionPending", "True", "WaitingForTargets", "staging: waits for dev; prod: waits for staging"],
    ];
    assert_eq!(scene.conditions(), expected.map(|row| row.map(String::from)));
    let refused = Scene::new().note("prod", "StrategyRefused", "use pull-request").conditions();
    let expected = [
        ["Stalled", "True", "StrategyRefused", "use pull-request"],
        ["Ready", "False", "StrategyRefused", "use pull-request"],
        ["PromotionPending", "True", "StrategyRefused", "prod: use pull-request"],
    ];
    assert_eq!(refused, expected.map(|row| row.map(String::from)));
}

#[test]
fn every_condition_speaks_of_the_generation_that_was_read() {
    let scene =
        Scene::new().note("prod", "StrategyRefused", "no").at("dev", "us", running("1", Health::Progressing));
    let status = scene.first();
    assert_eq!(status.observed_generation, 3);
    assert_eq!(status.conditions.len(), 4);
    assert!(status.conditions.iter().all(|c| c.observed_generation == Some(3)));
}

#[test]
fn a_message_is_no_longer_than_kubernetes_allows() {
    let scene = Scene::new().at("dev", "us", ObservedTarget::unreadable("é".repeat(40_000)));
    let length = scene.first().conditions[0].message.len();
    assert!((7_900..8_100).contains(&length), "{length}");
}

#[test]
fn a_target_says_what_is_wrong_with_it_unless_it_is_only_on_its_way() {
    let table = [
        (Health::Ready, Shown::Ready, ""),
        (Health::Progressing, Shown::Progressing, ""),
        (Health::Suspended, Shown::Suspended, "HelmRelease/podinfo is Suspended: its own words"),
        (Health::Pending, Shown::Pending, "HelmRelease/podinfo is Pending: its own words"),
        (Health::Failed, Shown::Failed, "HelmRelease/podinfo is Failed: its own words"),
    ];
    for (health, shown, error) in table {
        let status = Scene::new().at("dev", "us", running("6.1.9", health)).first();
        let target = &status.environments["dev"].targets[1];
        assert_eq!((target.health, target.error.as_str()), (shown, error));
        assert_eq!(target.ready, health == Health::Ready);
        assert_eq!(target.revision.as_deref(), Some("6.1.9"));
        assert_eq!(status.environments["dev"].health, shown, "the worst of its targets");
    }
    let lost = Scene::new().at("dev", "us", ObservedTarget::unreadable("no such cluster")).first();
    let target = &lost.environments["dev"].targets[1];
    assert_eq!(
        (target.health, target.ready, target.error.as_str()),
        (Shown::Unknown, false, "no such cluster")
    );
    assert_eq!((target.revision.as_deref(), target.workloads.len()), (None, 0));
}

#[test]
fn a_target_that_nobody_looked_at_is_unknown() {
    let mut scene = Scene::new();
    scene.observed = ObservedTargets::default();
    let status = scene.first();
    assert_eq!(status.environments["prod"].health, Shown::Unknown);
    assert_eq!(status.conditions[0].reason, "TargetNotReadable");
}

#[test]
fn an_environment_has_a_revision_only_when_all_its_targets_agree() {
    let summary = |status: &PipelineStatus| status.summary.clone().unwrap().environments;
    let agreed = Scene::new().first();
    assert_eq!(agreed.environments["dev"].revision.as_deref(), Some("6.1.8"));
    assert_eq!(summary(&agreed), "dev:6.1.8 staging:6.1.8 prod:6.1.8");
    let mixed = Scene::new().at("dev", "us", running("6.1.9", Health::Ready)).first();
    assert_eq!(mixed.environments["dev"].revision, None);
    assert_eq!(summary(&mixed), "dev:mixed staging:6.1.8 prod:6.1.8");
    let unknown = Scene::new().at("prod", "one", ObservedTarget::unreadable("lost")).first();
    assert_eq!(summary(&unknown), "dev:6.1.8 staging:6.1.8 prod:?");
    let failed = Scene::new().at("prod", "one", running("6.1.6", Health::Failed)).first();
    assert_eq!(summary(&failed), "dev:6.1.8 staging:6.1.8 prod:6.1.6✗");
}

#[test]
fn the_promotion_in_hand_is_the_newest_that_goes_on_or_else_the_newest_that_stopped() {
    let shown = |scene: &Scene| scene.first().environments["prod"].promotion.clone().map(|p| p.name);
    let end = |phase: &str| json!({"phase": phase});
    let table = [
        (vec!["Succeeded", "Delivered", "Proposed"], Some(3)),
        (vec!["Proposed", "Superseded"], Some(1)),
        (vec!["Succeeded", "Failed"], Some(2)),
        (vec!["Rejected"], Some(1)),
        (vec!["Failed", "Succeeded"], None),
        (vec!["Failed", "Superseded"], None),
        (vec!["Succeeded"], None),
        (vec![], None),
    ];
    for (phases, expected) in table {
        let add =
            |scene: Scene, (i, phase): (usize, &&str)| scene.promotion(i as u64 + 1, "6.1.9", end(phase));
        let scene = phases.iter().enumerate().fold(Scene::new(), add);
        assert_eq!(shown(&scene), expected.map(|n| format!("podinfo-prod-{n}")), "{phases:?}");
        assert_eq!(scene.first().environments["dev"].promotion, None);
    }
}

#[test]
fn a_promotion_is_told_in_short() {
    let status = json!({"phase": "Proposed", "message": "waits to be merged",
        "changeRequest": {"number": 7, "url": "https://forge/7", "state": "open", "branch": "b", "headCommit": "c"}});
    let scene = Scene::new().promotion(1, "main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0", status);
    let composed = scene.first();
    let promotion = serde_json::to_value(composed.environments["prod"].promotion.clone()).unwrap();
    let expected = json!({"name": "podinfo-prod-1", "revision": "main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0",
        "phase": "Proposed", "message": "waits to be merged", "pullRequest": {"url": "https://forge/7", "state": "open"}});
    assert_eq!(promotion, expected);
    assert_eq!(composed.summary.unwrap().promoting, "main@sha1:6a19e380→prod Proposed");
}

#[test]
fn what_waits_for_an_approval_is_named_until_it_is_given() {
    let gate = |name: &str, open: bool| json!({"phase": "Pending", "gates": [{"name": name, "open": open}]});
    let waiting = |status: Value| {
        let scene = Scene::new().promotion(1, "6.1.9", status);
        scene.first().environments["prod"].waiting_approval.revision.clone()
    };
    assert_eq!(waiting(gate("Approval", false)), "6.1.9");
    assert_eq!(waiting(gate("Approval", true)), "");
    assert_eq!(waiting(gate("Downgrade", false)), "");
    assert_eq!(waiting(json!({"phase": "Pending"})), "");
    // Readers of the predecessor's status find the field also where nothing waits.
    let spelled = serde_json::to_value(Scene::new().first()).unwrap();
    assert_eq!(spelled["environments"]["prod"]["waitingApproval"], json!({"revision": ""}));
}

#[test]
fn what_was_proven_survives_being_written_and_read() {
    let mut scene = Scene::new();
    let pipeline = translate::pipeline(&scene.object);
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let mut evidence = Evidence::default().updated(&pipeline, &scene.observed, 0, at("2026-11-21T07:00:00Z"));
    for (chart, hour) in [("6.1.9", "08"), ("6.1.8", "09"), ("6.2.0", "10")] {
        scene = scene.at("dev", "eu", running(chart, Health::Ready));
        evidence = evidence.updated(&pipeline, &scene.observed, 0, at(&format!("2026-11-21T{hour}:00:00Z")));
    }
    scene.evidence = evidence.clone();
    let status = scene.first();
    let verified = &status.environments["dev"].targets[0].verified;
    let told: Vec<_> =
        verified.iter().map(|v| (v.facets["HelmRelease/podinfo:chart"].as_str(), v.run)).collect();
    assert_eq!(told, [("6.1.9", 0), ("6.1.8", 1), ("6.2.0", 0)], "oldest first, with its returns");
    let read: PipelineStatus = serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
    assert_eq!(translate::evidence(Some(&read)), evidence);
    assert_eq!(translate::evidence(None), Evidence::default());
}

#[test]
fn the_application_is_named_as_the_predecessor_named_it() {
    let mut scene = Scene::new();
    let reference = json!({"kind": "GitopsCluster", "name": "dev", "namespace": "fleet"});
    scene.object.spec.environments[0].targets[0].cluster_ref =
        Some(serde_json::from_value(reference.clone()).unwrap());
    let spelled = serde_json::to_value(scene.first()).unwrap();
    let target = |i: usize| spelled["environments"]["dev"]["targets"][i]["clusterAppRef"].clone();
    let app = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"});
    assert_eq!(target(1), app);
    let mut remote = app;
    remote["clusterRef"] = reference;
    assert_eq!(target(0), remote);
    scene.object.spec.app_ref = None;
    let without: BTreeMap<_, _> = scene.first().environments;
    assert_eq!(without["dev"].targets[1].cluster_app_ref, None);
}

#[test]
fn an_empty_strategy_is_refused_with_what_to_write() {
    let text = include_str!("../../../api/tests/data/predecessor-level-mode.json");
    let object: Pipeline = serde_json::from_str(text).unwrap();
    let model = translate::pipeline(&object);
    let refused = model.environments[1].policy.as_ref().unwrap().refused.clone().unwrap();
    assert!(
        refused.starts_with("promotion.strategy is empty: write one of pull-request, commit"),
        "{refused}"
    );
}
