//! `tree`, `charts`, `images` and `clusters`: what runs where.

use serde_json::{Value, json};
use sluice_api::{GitopsCluster, Pipeline};
use sluice_view::clusters::clusters;
use sluice_view::fleet::running_on;
use sluice_view::tree::{TargetNode, WorkloadNode, tree};
use sluice_view::versions::{VersionRow, charts, images};

/// Returns a target in the status that runs a chart version and an image tag.
fn running(name: &str, chart: &str, tag: &str) -> Value {
    json!({"name": name, "namespace": "podinfo", "health": "Ready", "ready": true, "revision": chart, "workloads": [
        {"kind": "HelmRelease", "name": "podinfo", "version": chart, "health": "Ready"},
        {"kind": "Deployment", "name": "podinfo", "version": tag, "health": "Ready",
            "images": [format!("ghcr.io/stefanprodan/podinfo:{tag}")]},
    ]})
}

/// Returns a pipeline of dev on the hub and prod on three clusters, with these targets in the status of prod.
fn pipeline(name: &str, prod: &[Value]) -> Pipeline {
    let on = |cluster: Value| json!({"name": cluster["name"], "namespace": "podinfo", "clusterRef": cluster});
    serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": name, "namespace": "apps"},
        "spec": {"environments": [
            {"name": "dev", "targets": [{"name": "dev", "namespace": "podinfo"}]},
            {"name": "prod", "targets": [
                on(json!({"kind": "GitopsCluster", "name": "eu"})),
                on(json!({"kind": "GitopsCluster", "name": "us"})),
                on(json!({"kind": "GitopsCluster", "name": "asia", "namespace": "fleet"})),
            ]},
        ]},
        "status": {"observedGeneration": 1, "environments": {
            "dev": {"targets": [running("dev", "6.1.8", "6.1.8")]},
            "prod": {"targets": prod},
        }},
    }))
    .unwrap()
}

fn text(row: &VersionRow) -> String {
    let outliers: Vec<String> =
        row.outliers.iter().map(|o| format!("{}@{} {}", o.target, o.cluster, o.version)).collect();
    format!(
        "{} {} {} {} ×{} [{}]",
        row.name,
        row.pipeline,
        row.environment,
        row.version,
        row.targets,
        outliers.join("; ")
    )
}

#[test]
fn a_target_with_another_version_than_most_of_its_environment_is_an_outlier() {
    let old = running("us", "6.1.5", "6.1.5");
    let all =
        [pipeline("podinfo", &[running("eu", "6.1.6", "6.1.6"), old, running("asia", "6.1.6", "6.1.6")])];
    let rows: Vec<String> = charts(&all).iter().chain(&images(&all)).map(text).collect();
    insta::assert_snapshot!(rows.join("\n"), @r"
    podinfo apps/podinfo dev 6.1.8 ×1 []
    podinfo apps/podinfo prod 6.1.6 ×2 [us@us 6.1.5]
    ghcr.io/stefanprodan/podinfo apps/podinfo dev 6.1.8 ×1 []
    ghcr.io/stefanprodan/podinfo apps/podinfo prod 6.1.6 ×2 [us@us 6.1.5]
    ");
}

#[test]
fn among_equally_frequent_versions_that_of_the_first_target_is_usual() {
    let (eu, us) = (running("eu", "6.1.6", "6.1.6"), running("us", "6.1.7", "6.1.7"));
    let rows = charts(&[pipeline("podinfo", &[eu, us])]);
    assert_eq!((rows[1].version.as_str(), rows[1].targets), ("6.1.6", 1));
    assert_eq!(rows[1].outliers[0].version, "6.1.7");
}

#[test]
fn pipelines_are_apart_and_in_the_order_of_names() {
    let rows = charts(&[pipeline("web", &[]), pipeline("api", &[])]);
    let pipelines: Vec<&str> = rows.iter().map(|row| row.pipeline.as_str()).collect();
    assert_eq!(pipelines, ["apps/api", "apps/web"], "an environment without an observed target has no row");
}

#[test]
fn the_tree_shows_workloads_below_the_flux_object_that_made_them() {
    let environments = tree(&pipeline("podinfo", &[running("eu", "6.1.6", "6.1.6")]));
    let [dev, prod] = &environments[..] else { panic!("{environments:?}") };
    assert_eq!((&dev.after[..], &prod.after[..]), (&[][..], &["dev".to_owned()][..]));
    let TargetNode { name, cluster, runs, members, .. } = &prod.targets[0];
    assert_eq!((name.as_str(), cluster.as_str(), runs.as_deref()), ("eu", "eu", Some("6.1.6")));
    let [WorkloadNode { name, version, made, .. }] = &members[..] else { panic!("{members:?}") };
    assert_eq!((name.as_str(), version.as_str()), ("HelmRelease/podinfo", "6.1.6"));
    assert_eq!((made[0].name.as_str(), made[0].images.len()), ("Deployment/podinfo", 1));
    let unseen = &prod.targets[2];
    assert_eq!((unseen.cluster.as_str(), unseen.health.to_string()), ("fleet/asia", "Unknown".to_owned()));
}

#[test]
fn a_cluster_shows_its_targets_and_what_is_wrong_with_it() {
    let cluster = |name: &str, spec: Value| -> GitopsCluster {
        serde_json::from_value(json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
            "metadata": {"name": name, "namespace": "apps"}, "spec": spec}))
        .unwrap()
    };
    let known = [
        cluster("eu", json!({"secretRef": {"name": "eu-kubeconfig"}})),
        cluster("unused", json!({"capiClusterRef": {"name": "unused"}})),
        cluster("us", json!({})),
    ];
    let lost =
        json!({"name": "eu", "namespace": "podinfo", "health": "Unknown", "error": "connection refused"});
    let rows = clusters(&known, |namespace| namespace == "apps", &[pipeline("podinfo", &[lost])]);
    let rows: Vec<String> = rows
        .iter()
        .map(|r| format!("{:?} {:?} {}/{} {}", r.name, r.secret, r.ready, r.targets, r.problem))
        .collect();
    insta::assert_snapshot!(rows.join("\n"), @r#"
    "" "" 1/1 
    "apps/eu" "apps/eu-kubeconfig" 0/1 connection refused
    "apps/unused" "apps/unused-kubeconfig" 0/0 
    "apps/us" "" 0/1 it names no kubeconfig: set spec.secretRef.name or spec.capiClusterRef.name
    "fleet/asia" "" 0/1 
    "#);
}

#[test]
fn the_objects_of_targets_are_named_by_cluster_and_namespace() {
    let podinfo = pipeline("podinfo", &[running("eu", "6.1.5", "6.1.5")]);
    let found = |cluster: &str, namespace: &str| running_on(&podinfo, cluster, namespace).join(" ");
    let expected = "helmrelease/podinfo deployment/podinfo";
    assert_eq!(found("apps/eu", "podinfo"), expected, "{podinfo:?}");
    assert_eq!([found("", "web"), found("apps/nosuch", "podinfo"), found("apps/eu", "web")], ["", "", ""]);
}

#[test]
fn a_target_that_cannot_be_read_keeps_what_it_ran_healthily_last() {
    let proof =
        json!({"facets": {"HelmRelease/podinfo:chart": "6.1.5"}, "arrival": 1, "at": "2026-11-20T10:00:00Z"});
    let lost = json!({"name": "prod", "namespace": "podinfo", "health": "Unknown", "since": "2026-11-21T11:50:00Z",
        "error": "cluster fleet/prod refuses the connection"});
    let last = |verified: Value, proofs: &str, revision: Option<&str>| {
        let mut target = lost.clone();
        target["verified"] = verified;
        target["proofs"] = json!(proofs);
        target["revision"] = json!(revision);
        let mut pipeline =
            crate::fixture::pipeline(json!({"prod": {"health": "Unknown", "targets": [target]}}));
        let facets = json!([{"HelmRelease/podinfo:chart": "6.1.4"}]);
        pipeline.status.as_mut().unwrap().revisions = serde_json::from_value(facets).unwrap();
        let last = tree(&pipeline)[2].targets[0].last_known.clone();
        last.map(|last| format!("{} {}", last.revision, last.at))
    };
    assert_eq!(last(json!([proof]), "", None).as_deref(), Some("6.1.5 2026-11-20T10:00:00Z"));
    // A large status has the proofs in short form.
    assert_eq!(
        last(json!([]), "0/3/0/2026-11-19T10:00:00Z", None).as_deref(),
        Some("6.1.4 2026-11-19T10:00:00Z")
    );
    assert_eq!(last(json!([]), "", None), None);
    assert_eq!(last(json!([proof]), "", Some("6.1.6")), None, "it is known what it runs");
}
