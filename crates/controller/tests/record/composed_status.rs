//! The status of a pipeline, composed from facts. The same facts always have the same status.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::pipeline::{Pipeline, PipelineStatus};
use sluice_api::promotion::Promotion;
use sluice_controller::observe::reported::Reports;
use sluice_controller::record::status::{StatusFacts, compose};
use sluice_controller::translate;
use sluice_core::decide::{Decision, Note};
use sluice_core::evidence::Evidence;
use sluice_core::observed::{Health, Member, ObservedTarget, ObservedTargets};
use sluice_core::tracks::DefaultFacet;

/// Returns a pipeline with dev (targets eu and us), staging and prod, all in the namespace apps.
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
        message: if health == Health::Ready { String::new() } else { "its message".into() },
        not_applied: None,
        since: None,
        version: chart.into(),
        gave_up: BTreeMap::new(),
        facets,
        default_facet: DefaultFacet::Chart,
        source: None,
        workloads: Vec::new(),
    };
    ObservedTarget::of(vec![member.into()])
}

/// The facts from which a status is composed. At first all targets are Ready at 6.1.8.
struct Fixture {
    object: Pipeline,
    observed: ObservedTargets,
    evidence: Evidence,
    decision: Decision,
    promotions: Vec<Promotion>,
}

impl Fixture {
    fn new() -> Self {
        let object = serde_json::from_value(pipeline()).unwrap();
        let (observed, evidence) = (ObservedTargets::default(), Evidence::default());
        let mut fixture =
            Fixture { object, observed, evidence, decision: Decision::default(), promotions: Vec::new() };
        for (environment, target) in [("dev", "eu"), ("dev", "us"), ("staging", "one"), ("prod", "one")] {
            fixture.observed.insert(environment, target, running("6.1.8", Health::Ready));
        }
        fixture
    }

    fn at(mut self, environment: &str, target: &str, observed: ObservedTarget) -> Self {
        self.observed.insert(environment, target, observed);
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

    /// Composes the status at nine o'clock, without an earlier status.
    fn compose_first(&self) -> PipelineStatus {
        self.compose(&PipelineStatus::default(), "2026-11-21T09:00:00.123Z")
    }

    /// Returns the conditions as type, status, reason and message.
    fn conditions(&self) -> Vec<[String; 4]> {
        self.compose_first()
            .conditions
            .into_iter()
            .map(|c| [c.type_, c.status, c.reason, c.message])
            .collect()
    }
}

const TEN: &str = "2026-11-21T10:00:00.456Z";

#[test]
fn the_same_facts_have_the_same_status_at_any_time() {
    let fixtures = [
        Fixture::new(),
        Fixture::new().at("dev", "us", ObservedTarget::unreadable("no such cluster")),
        Fixture::new()
            .at("dev", "us", running("6.1.9", Health::Progressing))
            .note("prod", "Waiting", "for us"),
        Fixture::new().promotion(1, "6.1.8", json!({"phase": "Proposed"})),
    ];
    for fixture in fixtures {
        let first = fixture.compose_first();
        assert_eq!(fixture.compose(&first, TEN), first);
        // Also after the status was serialized and parsed.
        let read: PipelineStatus = serde_json::from_value(serde_json::to_value(&first).unwrap()).unwrap();
        assert_eq!(fixture.compose(&read, TEN), first);
    }
}

#[test]
fn times_in_the_status_are_those_of_the_last_change() {
    let time = |status: &PipelineStatus| status.conditions[0].last_transition_time.0.to_string();
    let since = |status: &PipelineStatus| status.environments["dev"].targets[1].since.unwrap();
    let ready = Fixture::new().compose_first();
    assert_eq!(
        (time(&ready), since(&ready)),
        ("2026-11-21T09:00:00Z".parse().unwrap(), "2026-11-21T09:00:00Z".parse().unwrap())
    );
    let lost = Fixture::new().at("dev", "us", ObservedTarget::unreadable("no such cluster"));
    let at_ten = lost.compose(&ready, TEN);
    assert_eq!(
        (time(&at_ten), since(&at_ten)),
        ("2026-11-21T10:00:00Z".parse().unwrap(), "2026-11-21T10:00:00Z".parse().unwrap())
    );
    // Another error is not a transition.
    let lost_again = Fixture::new().at("dev", "us", ObservedTarget::unreadable("connection refused"));
    let at_eleven = lost_again.compose(&at_ten, "2026-11-21T11:00:00Z");
    assert_eq!((time(&at_eleven), since(&at_eleven)), (time(&at_ten), since(&at_ten)));
    assert_ne!(at_eleven.conditions[0].message, at_ten.conditions[0].message);
    // Other targets keep their times.
    assert_eq!(at_eleven.environments["dev"].targets[0], ready.environments["dev"].targets[0]);
}

/// Flux writes a new time after each reconciliation of a Kustomization, even if nothing has changed.
#[test]
fn the_time_of_flux_is_used_only_when_the_health_has_changed() {
    let at = |health, since: &str| {
        let mut target = running("6.1.8", health);
        std::sync::Arc::make_mut(&mut target.members[0]).since = Some(since.parse().unwrap());
        Fixture::new().at("prod", "one", target)
    };
    let since = |status: &PipelineStatus| status.environments["prod"].targets[0].since.unwrap();
    let first = at(Health::Ready, "2026-11-21T07:00:00Z").compose_first();
    assert_eq!(since(&first).to_string(), "2026-11-21T07:00:00Z");
    assert_eq!(at(Health::Ready, "2026-11-21T08:00:00Z").compose(&first, TEN), first);
    let failed = at(Health::Failed, "2026-11-21T09:30:00Z").compose(&first, TEN);
    assert_eq!(since(&failed).to_string(), "2026-11-21T09:30:00Z");
}

#[test]
fn ready_is_true_if_every_target_was_read_and_none_has_failed() {
    let ready = |status: &str, reason: &str, message: &str| {
        [["Ready", status, reason, message].map(String::from)].to_vec()
    };
    assert_eq!(
        Fixture::new().conditions(),
        ready("True", "ReconciliationSucceeded", "all targets were read")
    );
    let failed = Fixture::new().at("prod", "one", running("6.1.8", Health::Failed));
    let why = "prod/one: HelmRelease/podinfo is Failed: its message";
    assert_eq!(failed.conditions(), ready("False", "TargetFailed", why));
    // Unreadable targets come first, and failed targets follow.
    let both = failed.at("dev", "us", ObservedTarget::unreadable("no such cluster"));
    let why = format!("dev/us: no such cluster; {why}");
    assert_eq!(both.conditions(), ready("False", "TargetNotReadable", &why));
    let target_suspended = Fixture::new().at("prod", "one", running("6.1.8", Health::Suspended));
    let why = "all targets were read; prod/one is Suspended";
    assert_eq!(target_suspended.conditions(), ready("True", "ReconciliationSucceeded", why));
    let lost = Fixture::new()
        .at("prod", "one", ObservedTarget::unreadable("cluster fleet/prod refuses the connection: start it"))
        .at("dev", "us", ObservedTarget::unreadable("there is no namespace apps: create it"));
    let why = "dev/us: there is no namespace apps: create it; prod/one: cluster fleet/prod refuses the connection: \
               start it";
    assert_eq!(lost.conditions(), ready("False", "TargetNotReadable", why));
    let mut suspended = Fixture::new();
    suspended.object.spec.suspend = true;
    assert_eq!(suspended.conditions(), ready("True", "Suspended", "observed only: spec.suspend is true"));
}

#[test]
fn other_conditions_exist_only_while_they_are_true_and_list_environments_in_order() {
    let fixture = Fixture::new()
        .at("staging", "one", running("6.1.9", Health::Progressing))
        .at("dev", "eu", running("6.1.9", Health::Progressing))
        .note("staging", "WaitingForTargets", "waits for dev")
        .note("prod", "WaitingForGate", "waits for staging");
    let expected = [
        ["Ready", "True", "ReconciliationSucceeded", "all targets were read"],
        ["Reconciling", "True", "Progressing", "changing: dev/eu, staging/one"],
        ["PromotionPending", "True", "WaitingForTargets", "staging: waits for dev; prod: waits for staging"],
    ];
    assert_eq!(fixture.conditions(), expected.map(|row| row.map(String::from)));
    let environments = fixture.compose_first().environments;
    let reasons = ["dev", "staging", "prod"].map(|name| environments[name].reason.as_str());
    assert_eq!(reasons, ["", "WaitingForTargets", "WaitingForGate"]);
    let misnamed = Fixture::new().note("prod", "NameNotAccepted", "two are named prod").conditions();
    assert_eq!(misnamed[0], ["Stalled", "True", "NameNotAccepted", "two are named prod"].map(String::from));
    assert_eq!(misnamed[1], ["Ready", "False", "NameNotAccepted", "two are named prod"].map(String::from));
    let refused = Fixture::new().note("prod", "StrategyRefused", "use pull-request").conditions();
    let expected = [
        ["Stalled", "True", "StrategyRefused", "use pull-request"],
        ["Ready", "False", "StrategyRefused", "use pull-request"],
        ["PromotionPending", "True", "StrategyRefused", "prod: use pull-request"],
    ];
    assert_eq!(refused, expected.map(|row| row.map(String::from)));
}

#[test]
fn every_condition_has_the_observed_generation() {
    let fixture = Fixture::new().note("prod", "StrategyRefused", "no").at(
        "dev",
        "us",
        running("1", Health::Progressing),
    );
    let status = fixture.compose_first();
    assert_eq!(status.observed_generation, 3);
    assert_eq!(status.conditions.len(), 4);
    assert!(status.conditions.iter().all(|c| c.observed_generation == Some(3)));
}

#[test]
fn the_message_of_a_condition_is_cut_to_the_length_that_kubernetes_allows() {
    let fixture = Fixture::new().at("dev", "us", ObservedTarget::unreadable("é".repeat(40_000)));
    let length = fixture.compose_first().conditions[0].message.len();
    assert!((7_900..8_100).contains(&length), "{length}");
}

#[test]
fn a_target_has_an_error_unless_it_is_ready_or_progressing() {
    let table = [
        (Health::Ready, ""),
        (Health::Progressing, ""),
        (Health::Suspended, "HelmRelease/podinfo is Suspended: its message"),
        (Health::Pending, "HelmRelease/podinfo is Pending: its message"),
        (Health::Failed, "HelmRelease/podinfo is Failed: its message"),
    ];
    for (health, error) in table {
        let status = Fixture::new().at("dev", "us", running("6.1.9", health)).compose_first();
        let target = &status.environments["dev"].targets[1];
        assert_eq!((target.health, target.error.as_str()), (health, error));
        assert_eq!(target.ready, health == Health::Ready);
        assert_eq!(target.revision.as_deref(), Some("6.1.9"));
        assert_eq!(status.environments["dev"].health, health, "the worst of its targets");
    }
    let lost = Fixture::new().at("dev", "us", ObservedTarget::unreadable("no such cluster")).compose_first();
    let target = &lost.environments["dev"].targets[1];
    assert_eq!(
        (target.health, target.ready, target.error.as_str()),
        (Health::Unknown, false, "no such cluster")
    );
    assert_eq!((target.revision.as_deref(), target.workloads.len()), (None, 0));
}

#[test]
fn a_target_that_was_not_observed_is_unknown() {
    let mut fixture = Fixture::new();
    fixture.observed = ObservedTargets::default();
    let status = fixture.compose_first();
    assert_eq!(status.environments["prod"].health, Health::Unknown);
    assert_eq!(status.conditions[0].reason, "TargetNotReadable");
}

#[test]
fn an_environment_has_a_revision_only_if_all_targets_have_the_same() {
    let summary = |status: &PipelineStatus| status.summary.clone().unwrap().environments;
    let same = Fixture::new().compose_first();
    assert_eq!(same.environments["dev"].revision.as_deref(), Some("6.1.8"));
    assert_eq!(summary(&same), "dev:6.1.8 staging:6.1.8 prod:6.1.8");
    let mixed = Fixture::new().at("dev", "us", running("6.1.9", Health::Ready)).compose_first();
    assert_eq!(mixed.environments["dev"].revision, None);
    assert_eq!(summary(&mixed), "dev:mixed staging:6.1.8 prod:6.1.8");
    let unknown = Fixture::new().at("prod", "one", ObservedTarget::unreadable("lost")).compose_first();
    assert_eq!(summary(&unknown), "dev:6.1.8 staging:6.1.8 prod:?");
    let failed = Fixture::new().at("prod", "one", running("6.1.6", Health::Failed)).compose_first();
    assert_eq!(summary(&failed), "dev:6.1.8 staging:6.1.8 prod:6.1.6✗");
}

#[test]
fn the_shown_promotion_is_the_newest_open_one_or_else_the_newest_one_that_stopped() {
    let shown_promotion =
        |fixture: &Fixture| fixture.compose_first().environments["prod"].promotion.clone().map(|p| p.name);
    let in_phase = |phase: &str| json!({"phase": phase});
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
        let add = |fixture: Fixture, (i, phase): (usize, &&str)| {
            fixture.promotion(i as u64 + 1, "6.1.9", in_phase(phase))
        };
        let fixture = phases.iter().enumerate().fold(Fixture::new(), add);
        assert_eq!(shown_promotion(&fixture), expected.map(|n| format!("podinfo-prod-{n}")), "{phases:?}");
        assert_eq!(fixture.compose_first().environments["dev"].promotion, None);
    }
}

#[test]
fn an_environment_has_a_summary_of_its_promotion() {
    let status = json!({"phase": "Proposed", "message": "waits to be merged",
        "changeRequest": {"number": 7, "url": "https://forge/7", "state": "open", "branch": "b", "headCommit": "c"}});
    let fixture = Fixture::new().promotion(1, "main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0", status);
    let composed = fixture.compose_first();
    let promotion = serde_json::to_value(composed.environments["prod"].promotion.clone()).unwrap();
    let expected = json!({"name": "podinfo-prod-1", "revision": "main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0",
        "phase": "Proposed", "message": "waits to be merged", "pullRequest": {"url": "https://forge/7", "state": "open"}});
    assert_eq!(promotion, expected);
    assert_eq!(composed.summary.unwrap().promoting, "main@sha1:6a19e380→prod Proposed");
}

#[test]
fn the_revision_that_waits_for_approval_is_shown_until_it_is_approved() {
    let gate = |name: &str, open: bool| json!({"phase": "Pending", "gates": [{"name": name, "open": open}]});
    let waiting = |status: Value| {
        let fixture = Fixture::new().promotion(1, "6.1.9", status);
        fixture.compose_first().environments["prod"].waiting_approval.revision.clone()
    };
    assert_eq!(waiting(gate("Approval", false)), "6.1.9");
    assert_eq!(waiting(gate("Approval", true)), "");
    assert_eq!(waiting(gate("Downgrade", false)), "");
    assert_eq!(waiting(json!({"phase": "Pending"})), "");
    // Clients of the predecessor need the field even if nothing waits.
    let json_status = serde_json::to_value(Fixture::new().compose_first()).unwrap();
    assert_eq!(json_status["environments"]["prod"]["waitingApproval"], json!({"revision": ""}));
}

#[test]
fn evidence_is_the_same_after_the_status_was_written_and_read() {
    let mut fixture = Fixture::new();
    let pipeline = translate::pipeline(&fixture.object);
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let mut evidence =
        Evidence::default().updated(&pipeline, &fixture.observed, &[], at("2026-11-21T07:00:00Z"));
    for (chart, hour) in [("6.1.9", "08"), ("6.1.8", "09"), ("6.2.0", "10")] {
        fixture = fixture.at("dev", "eu", running(chart, Health::Ready));
        evidence =
            evidence.updated(&pipeline, &fixture.observed, &[], at(&format!("2026-11-21T{hour}:00:00Z")));
    }
    fixture.evidence = evidence.clone();
    let status = fixture.compose_first();
    let verified = &status.environments["dev"].targets[0].verified;
    let charts: Vec<_> =
        verified.iter().map(|v| (v.facets["HelmRelease/podinfo:chart"].as_str(), v.run)).collect();
    assert_eq!(
        charts,
        [("6.1.9", 0), ("6.1.8", 1), ("6.2.0", 0)],
        "oldest first, with the number of returns to a chart"
    );
    let read: PipelineStatus = serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
    assert_eq!(translate::evidence(Some(&read)), evidence);
    assert_eq!(translate::evidence(None), Evidence::default());
}

#[test]
fn the_cluster_app_ref_of_a_target_has_the_form_of_the_predecessor() {
    let mut fixture = Fixture::new();
    let reference = json!({"kind": "GitopsCluster", "name": "dev", "namespace": "fleet"});
    fixture.object.spec.environments[0].targets[0].cluster_ref =
        Some(serde_json::from_value(reference.clone()).unwrap());
    let json_status = serde_json::to_value(fixture.compose_first()).unwrap();
    let target = |i: usize| json_status["environments"]["dev"]["targets"][i]["clusterAppRef"].clone();
    let app = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"});
    assert_eq!(target(1), app);
    let mut remote = app;
    remote["clusterRef"] = reference;
    assert_eq!(target(0), remote);
    fixture.object.spec.app_ref = None;
    let without: BTreeMap<_, _> = fixture.compose_first().environments;
    assert_eq!(without["dev"].targets[1].cluster_app_ref, None);
}

#[test]
fn the_error_about_an_empty_strategy_says_what_to_write() {
    let text = include_str!("../../../api/tests/data/predecessor-level-mode.json");
    let object: Pipeline = serde_json::from_str(text).unwrap();
    let model = translate::pipeline(&object);
    let refused = model.environments[1].policy.as_ref().unwrap().refused.clone().unwrap();
    assert!(
        refused.starts_with("promotion.strategy is empty: write one of pull-request, commit"),
        "{refused}"
    );
}

#[test]
fn the_error_about_an_older_form_says_what_to_write() {
    let forms = [
        (
            json!({"pull-request": {"type": "github"}}),
            "promotion.pull-request is",
            "{strategy: {pull-request: {",
        ),
        (
            json!({"pullRequest": {"url": "https://h/a"}}),
            "promotion.pullRequest is",
            "{strategy: {pull-request: {",
        ),
        (json!({"notification": {}}), "promotion.notification is", "{strategy: {notification: {"),
        (json!({"webhook": {"url": "https://h/a"}}), "promotion.webhook is", "{strategy: {webhook: {"),
        (json!({"manual": true}), "promotion.strategy is empty", "remove promotion"),
    ];
    for (form, begins, says) in forms {
        let object: Pipeline = serde_json::from_value(json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
            "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "a"}], "promotion": form}]},
        }))
        .unwrap();
        let model = translate::pipeline(&object);
        let refused = model.environments[0].policy.as_ref().unwrap().refused.clone().unwrap();
        assert!(refused.starts_with(begins) && refused.contains(says), "{refused}");
    }
}

#[test]
fn the_texts_of_a_spec_are_safe_to_print() {
    const ODD: &str = "x\u{1b}[2J\u{202e}y";
    let mut object = pipeline();
    object["spec"]["appRef"] = json!({"apiVersion": ODD, "kind": ODD, "name": ODD});
    object["spec"]["environments"][0]["targets"] = json!([
        {"namespace": "apps", "clusterRef": {"apiVersion": ODD, "kind": "GitopsCluster", "name": format!("{ODD}\n! ok")}},
        {"namespace": "apps", "clusterRef": {"apiVersion": ODD, "kind": "GitopsCluster", "name": "eu"}},
    ]);
    let mut member = running("6.1.8", Health::Failed);
    let own = std::sync::Arc::make_mut(&mut member.members[0]);
    (own.name, own.message) = (ODD.into(), ODD.into());
    let mut fixture = Fixture::new().note("staging", "WaitingForTargets", ODD);
    fixture.object = serde_json::from_value(object).unwrap();
    let names = fixture.object.spec.environments[0].target_names();
    assert_eq!(names, ["x[2Jy! ok-apps", "eu-apps"]);
    let fixture = fixture
        .at("dev", &names[0], ObservedTarget::unreadable(format!("there is no cluster {ODD}")))
        .at("dev", &names[1], member)
        .at("prod", "one", ObservedTarget::unreadable(ODD));
    let status = fixture.compose_first();
    let text = format!("{}", serde_json::to_value(&status).unwrap());
    assert!(!text.contains("\\u") && !text.contains("\\n"), "{text}");
    assert_eq!(text.chars().find(|c| sluice_core::value_check::is_unsafe(*c)), None, "{text}");
    // No cluster has the first name.
    let cluster = |at: usize| {
        let app = status.environments["dev"].targets[at].cluster_app_ref.clone();
        app.and_then(|app| app.cluster_ref).map(|cluster| cluster.name)
    };
    assert_eq!([cluster(0), cluster(1)], [None, Some("eu".into())]);
}
