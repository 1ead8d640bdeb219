//! A complete status, from the objects of the clusters to the output of `kubectl get -o yaml`: the state of an
//! application in all environments, as in the second user story of RFC-0001.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::pipeline::{Pipeline, PipelineStatus, Report};
use sluice_api::promotion::Promotion;
use sluice_controller::observe::reported::Reports;
use sluice_controller::observe::target::{ObservedMembers, TargetQuery, observe};
use sluice_controller::record::status::{StatusFacts, compose};
use sluice_controller::translate;
use sluice_core::decide::{self, Decision, decide};
use sluice_core::fleet::index::Index;
use sluice_core::observed::{ObservedTarget, ObservedTargets};

use crate::support::{connect, deployment, helm_release, kustomization, labelled, namespace, remote, with};

fn pipeline() -> Value {
    let target = |cluster: &str| json!({"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": cluster, "namespace": "fleet"}});
    json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"namespace": "default", "name": "podinfo", "uid": "u", "generation": 1},
        "spec": {
            "tracks": ["image:ghcr.io/stefanprodan/podinfo"],
            "environments": [
                {"name": "dev", "targets": [target("dev-us"), target("dev-eu")]},
                {"name": "prod", "targets": [target("prod")]},
            ],
            "promotion": {"manual": true, "strategy": {"pull-request": {
                "type": "github", "url": "https://github.com/org/fleet", "baseBranch": "main", "secretRef": {"name": "forge"}}}},
        },
    })
}

/// Returns a HelmRelease with its Deployment in the inventory.
fn with_inventory(release: Value) -> Value {
    let entries = json!([{"id": "podinfo_podinfo_apps_Deployment", "v": "v1"}]);
    with(release, "status/inventory/entries", entries)
}

/// Two Deployments of one Kustomization in dev-us, a HelmRelease with one Deployment in dev-eu, and in prod a
/// HelmRelease of an earlier version whose Deployment is not ready.
fn clusters() -> Index {
    const IMAGE: &str = "ghcr.io/stefanprodan/podinfo:6.1.8";
    let member = |object| labelled(object, "pipelines.weave.works/pipeline", "podinfo");
    let mut index = Index::default();
    let by = ("kustomize", "podinfo", "podinfo-pipeline");
    let made = ["podinfo_podinfo-pipeline_apps_Deployment", "podinfo_podinfo-pipeline-2_apps_Deployment"];
    let us = [
        namespace("podinfo"),
        member(kustomization("podinfo", "podinfo-pipeline", &made)),
        deployment("podinfo", "podinfo-pipeline", by, IMAGE),
        deployment("podinfo", "podinfo-pipeline-2", by, IMAGE),
    ];
    connect(&mut index, &remote("dev-us"), &us);
    let by = ("helm", "podinfo", "podinfo-pipeline-helm");
    let eu = [
        namespace("podinfo"),
        member(with_inventory(helm_release("podinfo", "podinfo-pipeline-helm", "6.1.8"))),
        deployment("podinfo", "podinfo", by, IMAGE),
    ];
    connect(&mut index, &remote("dev-eu"), &eu);
    let old = deployment("podinfo", "podinfo", by, "ghcr.io/stefanprodan/podinfo:6.1.5");
    let prod = [
        namespace("podinfo"),
        member(with_inventory(helm_release("podinfo", "podinfo-pipeline-helm", "6.1.5"))),
        with(old, "status/readyReplicas", 0.into()),
    ];
    connect(&mut index, &remote("prod"), &prod);
    index
}

fn observe_all(object: &Pipeline, index: &Index) -> ObservedTargets {
    let model = translate::pipeline(object);
    let mut observed = ObservedTargets::default();
    for (spec, environment) in object.spec.environments.iter().zip(&model.environments) {
        for (target, name) in spec.targets.iter().zip(&environment.targets) {
            let cluster = target.cluster_key("default");
            let question =
                TargetQuery { pipeline: "podinfo", app: None, target, cluster: &cluster, tracks: &[] };
            observed.insert(
                &environment.name,
                name,
                observe(&question, index.cluster(&cluster).as_deref(), &mut ObservedMembers::default())
                    .unwrap(),
            );
        }
    }
    observed
}

fn compose_first(object: &Pipeline, observed: &ObservedTargets, promotions: &[&Promotion]) -> PipelineStatus {
    compose_after(&PipelineStatus::default(), &BTreeSet::new(), object, observed, promotions)
}

fn compose_after(
    before: &PipelineStatus,
    unanswered: &BTreeSet<(String, String)>,
    object: &Pipeline,
    observed: &ObservedTargets,
    promotions: &[&Promotion],
) -> PipelineStatus {
    let now: Timestamp = "2026-11-21T09:00:00Z".parse().unwrap();
    let pipeline = translate::pipeline(object);
    let evidence = translate::evidence(Some(before)).updated(&pipeline, observed, &[], now);
    let known: Vec<_> = promotions.iter().filter_map(|p| translate::promotion(object, p)).collect();
    let decision: Decision = decide(decide::Facts {
        pipeline: &pipeline,
        observed,
        evidence: &evidence,
        promotions: &known,
        unguarded: None,
        now,
    });
    compose(&StatusFacts {
        object,
        before,
        pipeline: &pipeline,
        observed,
        unanswered,
        reports: &before.reports,
        hook_secret: None,
        lost_clusters: Vec::new(),
        evidence: &evidence,
        decision: &decision,
        promotions,
        now,
    })
}

#[test]
#[allow(clippy::too_many_lines, reason = "most lines are the snapshot of the status")]
fn a_status_shows_the_revision_of_each_target_and_the_promotion_in_progress() {
    let object: Pipeline = serde_json::from_value(pipeline()).unwrap();
    let observed = observe_all(&object, &clusters());
    let promotion: Promotion = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "podinfo-prod-0a1b2c"},
        "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "sequence": 1,
            "facets": {"HelmRelease/podinfo-pipeline-helm:image:ghcr.io/stefanprodan/podinfo": "6.1.8"}},
        "status": {"phase": "Pending", "message": "waits for a person",
            "gates": [{"name": "Approval", "open": false, "message": "a person approves"}]},
    }))
    .unwrap();
    let status = compose_first(&object, &observed, &[&promotion]);
    insta::assert_snapshot!(serde_saphyr::to_string(&status).unwrap(), @r#"
    observedGeneration: 1
    conditions:
    - lastTransitionTime: "2026-11-21T09:00:00Z"
      message: all targets were read
      observedGeneration: 1
      reason: ReconciliationSucceeded
      status: "True"
      type: Ready
    - lastTransitionTime: "2026-11-21T09:00:00Z"
      message: "changing: prod/prod-podinfo"
      observedGeneration: 1
      reason: Progressing
      status: "True"
      type: Reconciling
    - lastTransitionTime: "2026-11-21T09:00:00Z"
      message: "prod: 6.1.8 waits for approval: sluice approve -n default podinfo-prod-0a1b2c"
      observedGeneration: 1
      reason: WaitingForGate
      status: "True"
      type: PromotionPending
    summary:
      environments: dev:6.1.8 prod:6.1.5
      promoting: 6.1.8→prod Pending
    environments:
      dev:
        health: Ready
        revision: "6.1.8"
        targets:
        - name: dev-us-podinfo
          namespace: podinfo
          clusterAppRef:
            clusterRef:
              kind: GitopsCluster
              name: dev-us
              namespace: fleet
          health: Ready
          since: "2026-11-21T08:00:00Z"
          ready: true
          revision: "6.1.8"
          workloads:
          - kind: Kustomization
            name: podinfo-pipeline
            version: main@sha1:6a19e380
            health: Ready
          - kind: Deployment
            name: podinfo-pipeline
            version: "6.1.8"
            health: Ready
            images:
            - ghcr.io/stefanprodan/podinfo:6.1.8
          - kind: Deployment
            name: podinfo-pipeline-2
            version: "6.1.8"
            health: Ready
            images:
            - ghcr.io/stefanprodan/podinfo:6.1.8
          verified:
          - facets:
              "Kustomization/podinfo-pipeline:image:ghcr.io/stefanprodan/podinfo": "6.1.8"
            arrival: 1
            at: "2026-11-21T09:00:00Z"
        - name: dev-eu-podinfo
          namespace: podinfo
          clusterAppRef:
            clusterRef:
              kind: GitopsCluster
              name: dev-eu
              namespace: fleet
          health: Ready
          since: "2026-11-21T08:00:00Z"
          ready: true
          revision: "6.1.8"
          workloads:
          - kind: HelmRelease
            name: podinfo-pipeline-helm
            version: "6.1.8"
            health: Ready
          - kind: Deployment
            name: podinfo
            version: "6.1.8"
            health: Ready
            images:
            - ghcr.io/stefanprodan/podinfo:6.1.8
          verified:
          - facets:
              "HelmRelease/podinfo-pipeline-helm:image:ghcr.io/stefanprodan/podinfo": "6.1.8"
            arrival: 2
            at: "2026-11-21T09:00:00Z"
        waitingApproval:
          revision: ""
      prod:
        health: Progressing
        revision: "6.1.5"
        message: "6.1.8 waits for approval: sluice approve -n default podinfo-prod-0a1b2c"
        reason: WaitingForGate
        targets:
        - name: prod-podinfo
          namespace: podinfo
          clusterAppRef:
            clusterRef:
              kind: GitopsCluster
              name: prod
              namespace: fleet
          health: Progressing
          since: "2026-11-21T09:00:00Z"
          ready: false
          revision: "6.1.5"
          workloads:
          - kind: HelmRelease
            name: podinfo-pipeline-helm
            version: "6.1.5"
            health: Progressing
            message: "Deployment podinfo: 0 of 1 pods are ready"
          - kind: Deployment
            name: podinfo
            version: "6.1.5"
            health: Progressing
            message: 0 of 1 pods are ready
            images:
            - ghcr.io/stefanprodan/podinfo:6.1.5
          unverified:
            "HelmRelease/podinfo-pipeline-helm:image:ghcr.io/stefanprodan/podinfo": "6.1.5"
        waitingApproval:
          revision: "6.1.8"
        promotion:
          name: podinfo-prod-0a1b2c
          revision: "6.1.8"
          phase: Pending
          message: waits for a person
    "#);
}

#[test]
fn no_text_of_a_workload_controls_a_terminal() {
    let object: Pipeline = serde_json::from_value(pipeline()).unwrap();
    let mut observed = observe_all(&object, &clusters());
    let mut state = observed.target("prod", "prod-podinfo").unwrap().clone();
    let odd = "x\u{1b}[2J\u{202e}y".to_string();
    // A chart may have other images than the one that the pipeline tracks. The API server accepts any text there.
    let member = std::sync::Arc::make_mut(&mut state.members[0]);
    member.workloads[0].images = vec![format!("{odd}:{odd}"), format!("a:{}", "1".repeat(5000))];
    (member.workloads[0].message, member.message) = (odd.clone(), odd);
    observed.insert("prod", "prod-podinfo", state);
    let status = compose_first(&object, &observed, &[]);
    for workload in &status.environments["prod"].targets[0].workloads {
        let texts = [&workload.kind, &workload.name, &workload.version, &workload.message];
        for text in texts.into_iter().chain(&workload.images) {
            assert!(!text.contains(['\u{1b}', '\u{202e}']) && text.len() < 1100, "{text:?}");
        }
    }
}

#[test]
fn a_target_that_was_not_observed_since_the_start_keeps_its_former_status() {
    let object: Pipeline = serde_json::from_value(pipeline()).unwrap();
    let mut observed = observe_all(&object, &clusters());
    let before = compose_first(&object, &observed, &[]);
    let name = before.environments["prod"].targets[0].name.clone();
    observed.insert("prod", &name, ObservedTarget::unreadable("it has not answered yet"));
    let unanswered = BTreeSet::from([("prod".to_string(), name)]);
    let now = compose_after(&before, &unanswered, &object, &observed, &[]);
    assert_eq!(now.environments["prod"].targets, before.environments["prod"].targets);
    let later = compose_after(&before, &BTreeSet::new(), &object, &observed, &[]);
    assert_eq!(later.environments["prod"].targets[0].error, "it has not answered yet");
}

#[test]
fn a_status_with_thousands_of_workloads_omits_them_and_stays_below_the_size_limit() {
    let mut object = pipeline();
    let target = |n: usize| json!({"namespace": "podinfo", "name": format!("target-{n}")});
    object["spec"]["environments"] = (0..16)
        .map(|e| json!({"name": format!("e{e}"), "targets": (0..128).map(target).collect::<Vec<_>>()}))
        .collect();
    let object: Pipeline = serde_json::from_value(object).unwrap();
    let dev = observe_all(&serde_json::from_value(pipeline()).unwrap(), &clusters());
    let state = dev.target("dev", "dev-us-podinfo").unwrap();
    assert!(!state.members[0].workloads.is_empty());
    let mut observed = ObservedTargets::default();
    for environment in &object.spec.environments {
        for target in &environment.targets {
            observed.insert(&environment.name, target.name.as_ref().unwrap(), state.clone());
        }
    }
    let status = compose_first(&object, &observed, &[]);
    let bytes = serde_json::to_vec(&status).unwrap().len();
    assert!(bytes < 1_400_000, "{bytes} bytes");
    // Long errors do not exceed the limit either.
    let mut with_errors = ObservedTargets::default();
    for environment in &object.spec.environments {
        for target in &environment.targets {
            let name = target.name.as_ref().unwrap();
            with_errors.insert(&environment.name, name, ObservedTarget::unreadable("a lot ".repeat(4000)));
        }
    }
    let with_errors = compose_first(&object, &with_errors, &[]);
    let bytes = serde_json::to_vec(&with_errors).unwrap().len();
    assert!(bytes < 1_400_000, "{bytes} bytes");
    let summarized = with_errors.conditions.iter().find(|c| c.type_ == "Summarized").unwrap();
    assert!(summarized.message.contains("is too large for one object"), "{}", summarized.message);
    // Neither do many reports beside targets that are shown in full.
    let mut some = object.clone();
    some.spec.environments.iter_mut().for_each(|e| e.targets.truncate(80));
    let report = Report { message: "a lot ".repeat(160), ..Report::default() };
    let key = |n: usize| format!("e0/target-{n}/HelmRelease/podinfo");
    let reports: Reports = (0..440).map(|n| (key(n), report.clone())).collect();
    let before = PipelineStatus { reports, ..PipelineStatus::default() };
    let status_of_some = compose_after(&before, &BTreeSet::new(), &some, &observed, &[]);
    let bytes =
        serde_json::to_vec(&PipelineStatus { reports: before.reports, ..status_of_some }).unwrap().len();
    assert!(bytes < 1_400_000, "{bytes} bytes");
    let one = &status.environments["e9"].targets[127];
    assert_eq!(one.proofs.split_whitespace().count(), 1);
    assert!(one.ready && one.revision.is_some());
}
