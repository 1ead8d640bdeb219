//! What to reconcile for a pipeline.

use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_view::object_name::FluxName;
use sluice_view::reconcile::{group, plan, source_of};

/// A pipeline with targets on the hub, on another cluster, and behind a firewall.
fn pipeline() -> Pipeline {
    let commit = |branch: &str| json!({"strategy": {"commit": {"url": "https://git.example.com/fleet.git", "branch": branch}}});
    let found =
        json!([{"kind": "Kustomization", "name": "labeled"}, {"kind": "Deployment", "name": "podinfo"}]);
    serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps"},
        "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "promotion": commit("main"),
            "environments": [
                {"name": "dev", "targets": [{"name": "here", "namespace": "dev"}]},
                {"name": "staging", "promotion": commit("staging"), "targets": [
                    {"name": "eu", "namespace": "staging", "clusterRef": {"kind": "GitopsCluster", "name": "eu"}},
                    {"name": "us", "namespace": "staging", "clusterRef": {"kind": "GitopsCluster", "name": "us"}},
                ]},
                {"name": "prod", "targets": [{"name": "pushed", "namespace": "prod", "observe": "Push"}]},
            ],
        },
        "status": {"environments": {"dev": {"targets": [{"name": "here", "namespace": "dev", "workloads": found}]}}},
    }))
    .unwrap()
}

/// Returns the plan for the environments (or targets) of these names as lines of text.
fn planned(wanted: &[&str]) -> String {
    let is_wanted = |environment: &sluice_api::pipeline::Environment, target: &str| {
        wanted.contains(&environment.name.as_str()) || wanted.contains(&target)
    };
    let plan = plan(&pipeline(), is_wanted);
    let here = plan.here.iter().map(|object| format!("{} {}/{}", object.kind, object.namespace, object.name));
    let elsewhere =
        plan.elsewhere.iter().map(|c| format!("{} [{}]: {}", c.environment, c.cluster, c.command));
    let repositories = plan.repositories.iter().map(|repository| format!("{repository:?}"));
    here.chain(elsewhere).chain(repositories).collect::<Vec<_>>().join("\n")
}

#[test]
fn objects_on_the_hub_are_reconciled_and_others_have_a_command() {
    insta::assert_snapshot!(planned(&["dev", "staging", "prod"]), @r#"
    HelmRelease dev/podinfo
    Kustomization dev/labeled
    staging [eu]: flux reconcile helmrelease podinfo -n staging --with-source
    staging [us]: flux reconcile helmrelease podinfo -n staging --with-source
    prod []: flux reconcile helmrelease podinfo -n prod --with-source
    Repository { url: "https://git.example.com/fleet.git", branch: "main" }
    Repository { url: "https://git.example.com/fleet.git", branch: "staging" }
    "#);
    insta::assert_snapshot!(planned(&["us"]), @r#"
    staging [us]: flux reconcile helmrelease podinfo -n staging --with-source
    Repository { url: "https://git.example.com/fleet.git", branch: "staging" }
    "#);
    assert_eq!(planned(&["qa"]), "");
}

#[test]
fn the_source_is_where_each_kind_names_it() {
    let of = |kind: &str, spec: Value| {
        let named = FluxName { kind: kind.into(), namespace: "apps".into(), name: "podinfo".into() };
        source_of(&named, &spec).map(|source| format!("{} {}/{}", source.kind, source.namespace, source.name))
    };
    let source =
        |kind: &str, namespace: Option<&str>| json!({"kind": kind, "name": "s", "namespace": namespace});
    for (kind, spec, expected) in [
        ("Kustomization", json!({"sourceRef": source("GitRepository", None)}), Some("GitRepository apps/s")),
        ("Kustomization", json!({"sourceRef": source("Bucket", Some("flux"))}), Some("Bucket flux/s")),
        (
            "HelmRelease",
            json!({"chart": {"spec": {"sourceRef": source("HelmRepository", None)}}}),
            Some("HelmRepository apps/s"),
        ),
        ("HelmRelease", json!({"chartRef": source("OCIRepository", None)}), Some("OCIRepository apps/s")),
        ("HelmRelease", json!({"chartRef": source("ExternalArtifact", None)}), None),
        ("HelmRelease", json!({"chartRef": source("Secret", None)}), None),
        ("HelmRelease", json!({}), None),
    ] {
        assert_eq!(of(kind, spec.clone()).as_deref(), expected, "{spec}");
    }
}

#[test]
fn only_kinds_of_flux_that_reconcile_have_a_group() {
    for (kind, expected) in [
        ("HelmRelease", Some("helm.toolkit.fluxcd.io")),
        ("Kustomization", Some("kustomize.toolkit.fluxcd.io")),
        ("HelmChart", Some("source.toolkit.fluxcd.io")),
        ("ExternalArtifact", None),
        ("Deployment", None),
    ] {
        assert_eq!(group(kind), expected, "{kind}");
    }
}
