//! What is kept of sources, and what follows from it.

use serde_json::{Value, json};
use sluice_core::fleet::fact::{Origin, SourceFact};
use sluice_core::fleet::index::Index;
use sluice_core::fleet::observed_cluster::AffectedTargets;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Fact, Kind, ObjectKey};
use sluice_core::observed::Health;

use crate::support::{applied, connect, fact, flux_fact, helm_release, kustomization, namespace, with};

const REVISION: &str = "6.7.1@sha256:3b6cdcc7adcc9a84d3214ee1c029543789d90b5ae69debe9efa3f66e982875de";

/// An object of source-controller that is Ready, with further conditions.
fn source(kind: &str, spec: Value, status: Value) -> Value {
    let mut object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
        "metadata": {"namespace": "apps", "name": "podinfo", "generation": 1}, "spec": spec, "status": status});
    if object["status"].is_object() {
        object["status"]["observedGeneration"] = 1.into();
    }
    object
}

fn ready() -> Value {
    condition("Ready", "True")
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "Succeeded", "message": "stored artifact", "observedGeneration": 1})
}

fn source_fact(object: &Value) -> SourceFact {
    match fact(object).1 {
        Fact::Source(source) => *source,
        other => panic!("{other:?} is no source"),
    }
}

#[test]
fn the_chart_version_that_a_helm_release_asks_for_is_kept_if_flux_follows_it() {
    let desired = |chart: Value| {
        let object = with(helm_release("apps", "podinfo", "6.7.1"), "spec/chart/spec", chart);
        flux_fact(&object).desired_chart
    };
    let chart = |kind: &str, version: Value| json!({"chart": "podinfo", "version": version, "sourceRef": {"kind": kind, "name": "charts"}});
    assert_eq!(desired(chart("HelmRepository", " 6.x ".into())).as_deref(), Some("6.x"));
    let without = json!({"chart": "podinfo", "sourceRef": {"kind": "HelmRepository", "name": "charts"}});
    assert_eq!(desired(without).as_deref(), Some("*"));
    // Flux takes the version in the repository or bucket.
    assert_eq!(desired(chart("GitRepository", "6.x".into())), None);
    assert_eq!(desired(chart("Bucket", "6.x".into())), None);
    let by_ref = json!({"chartRef": {"kind": "OCIRepository", "name": "podinfo"}});
    assert_eq!(
        flux_fact(&with(helm_release("apps", "podinfo", "6.7.1"), "spec", by_ref)).desired_chart,
        None
    );
    // A hostile cluster may send any text.
    let long = desired(chart("HelmRepository", format!("6\u{1b}{}", "1".repeat(5000)).into())).unwrap();
    assert!(long.len() < 1100 && !long.contains('\u{1b}'), "{long}");
}

#[test]
fn a_source_says_what_it_follows_and_where_its_artifact_comes_from() {
    // Annotations that source-controller copies from the manifest of the artifact.
    let metadata = json!({"org.opencontainers.image.source": "https://github.com/stefanprodan/podinfo",
        "org.opencontainers.image.revision": "6.7.1@sha1:450796ddb2ab6724ee1cc32a4be56da032d1cca0",
        "org.opencontainers.image.created": "2026-11-20T10:15:20Z"});
    let oci = source_fact(&source(
        "OCIRepository",
        json!({"url": "oci://ghcr.io/stefanprodan/manifests/podinfo", "ref": {"tag": "6.7.1"}, "verify": {"provider": "cosign"}}),
        json!({"conditions": [ready(), condition("SourceVerified", "True")],
            "artifact": {"revision": REVISION, "metadata": metadata}}),
    ));
    assert_eq!(
        (oci.follows.as_str(), oci.revision.as_str(), oci.verified),
        ("tag 6.7.1", REVISION, Some(true))
    );
    assert_eq!(oci.status.health, Health::Ready);
    let origin = Origin {
        repository: "https://github.com/stefanprodan/podinfo".into(),
        revision: "6.7.1@sha1:450796ddb2ab6724ee1cc32a4be56da032d1cca0".into(),
    };
    assert_eq!(oci.origin.as_deref(), Some(&origin));

    let chart = source_fact(&source(
        "HelmChart",
        json!({"chart": "./charts/podinfo", "version": "*", "sourceRef": {"kind": "GitRepository", "name": "fleet"}}),
        json!({"conditions": [ready()], "artifact": {"revision": "6.7.1"},
            "observedSourceArtifactRevision": "main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0"}),
    ));
    let fleet = ObjectKey { kind: Kind::GitRepository, namespace: "apps".into(), name: "fleet".into() };
    assert_eq!(chart.made_from, Some((fleet, "./charts/podinfo".into())));
    assert_eq!(chart.origin.unwrap().revision, "main@sha1:6a19e380336e08b2c9535434389af69359f9b1f0");
    assert_eq!((chart.follows.as_str(), chart.verified), ("version *", None));
}

#[test]
fn a_source_follows_the_reference_that_flux_prefers() {
    let sha = "6a19e380336e08b2c9535434389af69359f9b1f0";
    for (kind, reference, follows) in [
        ("GitRepository", json!({}), "branch master"),
        ("GitRepository", json!({"branch": "main", "tag": "v1"}), "tag v1"),
        ("GitRepository", json!({"branch": "main", "tag": "v1", "semver": ">=1.0"}), "range >=1.0"),
        (
            "GitRepository",
            json!({"semver": ">=1.0", "name": "refs/pull/7/head"}),
            "reference refs/pull/7/head",
        ),
        ("GitRepository", json!({"name": "refs/heads/x", "commit": sha}), &format!("commit {sha}")),
        ("OCIRepository", json!({"tag": "latest", "semver": ">=1.0"}), "range >=1.0"),
        ("OCIRepository", json!({"semver": ">=1.0", "digest": "sha256:ab"}), "digest sha256:ab"),
        ("OCIRepository", json!({}), ""),
    ] {
        let object = source(kind, json!({"url": "https://example.com/a", "ref": reference}), json!({}));
        assert_eq!(source_fact(&object).follows, follows, "{object}");
    }
}

#[test]
fn a_repository_of_an_oci_registry_has_no_status_and_is_ready() {
    let object = source("HelmRepository", json!({"type": "oci", "url": "oci://ghcr.io/charts"}), Value::Null);
    assert_eq!(source_fact(&object).status.health, Health::Ready);
    let object = source("HelmRepository", json!({"url": "https://example.com/charts"}), Value::Null);
    assert_eq!(source_fact(&object).status.health, Health::Pending);
}

#[test]
fn a_failed_verification_and_a_text_of_a_hostile_cluster_are_shown_without_harm() {
    let bad = "a\u{1b}[31m\u{202e}".repeat(1000);
    let object = source(
        "OCIRepository",
        json!({"url": bad, "ref": {"tag": bad}}),
        json!({"conditions": [condition("SourceVerified", "False")], "artifact": {"revision": bad,
            "metadata": {"org.opencontainers.image.source": bad, "org.opencontainers.image.revision": bad}}}),
    );
    let fact = source_fact(&object);
    assert_eq!(fact.verified, Some(false));
    let origin = fact.origin.unwrap();
    for text in [fact.repository.url, fact.follows, fact.revision, origin.repository, origin.revision] {
        assert!(text.len() < 1200 && !text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }
}

#[test]
fn a_flux_object_names_its_source_and_what_it_takes_from_it() {
    let key = |kind, namespace: &str, name: &str| {
        Some(ObjectKey { kind, namespace: namespace.into(), name: name.into() })
    };
    let release = helm_release("apps", "podinfo", "1.0.0");
    let template =
        json!({"spec": {"chart": "podinfo", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}});
    for (spec, source, content) in [
        (json!({"chart": template}), key(Kind::HelmRepository, "apps", "charts"), "podinfo"),
        (
            json!({"chartRef": {"kind": "OCIRepository", "name": "podinfo", "namespace": "flux-system"}}),
            key(Kind::OciRepository, "flux-system", "podinfo"),
            "",
        ),
        (json!({"chartRef": {"kind": "Pod", "name": "podinfo"}}), None, ""),
        (json!({"chartRef": {"kind": "HelmChart", "name": "../etc"}}), None, ""),
    ] {
        let object =
            with(with(release.clone(), "spec", spec), "status/helmChart", "apps/apps-podinfo".into());
        let fact = crate::support::flux_fact(&object);
        assert_eq!((fact.source, fact.content.as_str()), (source, content), "{object}");
        assert_eq!(fact.chart, key(Kind::HelmChart, "apps", "apps-podinfo"));
    }
}

#[test]
fn a_new_artifact_reconciles_no_pipeline_and_a_new_branch_does() {
    let git = |branch: &str, revision: &str| {
        let spec = json!({"url": "https://example.com/fleet.git", "ref": {"branch": branch}});
        let mut object = source(
            "GitRepository",
            spec,
            json!({"conditions": [ready()], "artifact": {"revision": revision}}),
        );
        object["metadata"]["name"] = "fleet".into();
        object
    };
    let member = with(
        kustomization("apps", "podinfo", &[]),
        "spec/sourceRef",
        json!({"kind": "GitRepository", "name": "fleet"}),
    );
    let mut index = Index::default();
    connect(&mut index, &ClusterKey::Local, &[namespace("apps"), member, git("main", "main@sha1:1")]);
    assert_eq!(applied(&mut index, &git("main", "main@sha1:2")), AffectedTargets::None);
    let shown = index.fleet().read(&ClusterKey::Local, |hub| {
        hub.object(&fact(&git("main", "")).0)
            .map(|fact| matches!(fact, Fact::Source(s) if s.revision == "main@sha1:2"))
    });
    assert_eq!(shown, Some(Some(true)));
    let in_apps = AffectedTargets::InNamespaces(["apps".to_string()].into());
    assert_eq!(applied(&mut index, &git("release", "main@sha1:2")), in_apps);
}

#[test]
fn kinds_that_only_views_show_neither_delay_a_cluster_nor_reconcile_a_pipeline() {
    let mut index = Index::default();
    let hub = ClusterKey::Local;
    connect(&mut index, &hub, &[namespace("apps")]);
    assert_eq!(index.clusters_up(), (1, 1));
    for event in [
        ClusterEvent::Listed(Kind::HelmChart, None, Vec::new()),
        ClusterEvent::Absent(Kind::Bucket),
        ClusterEvent::Unreadable(Kind::OciRepository, None, "forbidden".into()),
        ClusterEvent::ByNamespace(Kind::ExternalArtifact),
        ClusterEvent::Listed(Kind::Receiver, None, Vec::new()),
        ClusterEvent::Absent(Kind::ImagePolicy),
        ClusterEvent::Unreadable(Kind::Alert, None, "forbidden".into()),
    ] {
        assert_eq!(index.apply(&hub, event), AffectedTargets::None);
    }
    let mut stranger = crate::support::deployment("apps", "web", ("helm", "apps", "web"), "web:1");
    stranger["metadata"]["labels"] = json!({});
    let nobody = AffectedTargets::InNamespaces(Default::default());
    assert_eq!(applied(&mut index, &stranger), nobody);
    for kind in Kind::SHOWN_ON_HUB {
        let object = json!({"apiVersion": "v1", "kind": kind.name(), "spec": {},
            "metadata": {"namespace": "apps", "name": "podinfo"}});
        assert_eq!(applied(&mut index, &object), nobody, "{kind:?}");
    }
}
