//! A target that is Ready and gets no new state, because Flux cannot apply it.

use serde_json::{Value, json};
use sluice_core::fleet::index::Index;
use sluice_core::observed::Health;

use crate::support::{by_app, helm_release, kustomization, local, namespace, with};

const WHY: &str = "kustomize build failed: MalformedYAMLError: yaml: line 7: could not find expected ':'";

/// Returns podinfo as the Kustomization fleet has applied it.
fn podinfo() -> Value {
    let labels = json!({"kustomize.toolkit.fluxcd.io/name": "fleet", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
    with(helm_release("apps", "podinfo", "1.0.0"), "metadata/labels", labels)
}

fn fleet() -> Value {
    kustomization("flux-system", "fleet", &["apps_podinfo_helm.toolkit.fluxcd.io_HelmRelease"])
}

fn broken(object: Value) -> Value {
    with(
        object,
        "status/conditions/0",
        json!({"type": "Ready", "status": "False", "reason": "BuildFailed",
        "message": WHY, "observedGeneration": 2, "lastTransitionTime": "2026-11-21T10:00:00Z"}),
    )
}

fn observed(index: &Index) -> Option<String> {
    let target = by_app("HelmRelease", "apps").observe(index);
    assert_eq!((target.health(), target.complaint()), (Health::Ready, String::new()));
    target.not_applied().map(String::from)
}

#[test]
fn the_kustomization_that_applies_a_member_is_the_cause() {
    assert_eq!(observed(&local(&[namespace("apps"), fleet(), podinfo()])), None);
    let index = local(&[namespace("apps"), broken(fleet()), podinfo()]);
    let says = "Kustomization flux-system/fleet is Failed (flux get kustomizations fleet -n flux-system)";
    assert_eq!(observed(&index).as_deref(), Some(says), "its message is for those who may read it");
    // Labels alone prove nothing: another Kustomization does not tell its message to everybody.
    let other = kustomization("flux-system", "fleet", &["apps_other_helm.toolkit.fluxcd.io_HelmRelease"]);
    assert_eq!(observed(&local(&[namespace("apps"), broken(other), podinfo()])), None);
}

/// A HelmRelease whose chart is in a GitRepository.
fn from_git(repository: &Value) -> Value {
    let release = helm_release("apps", "podinfo", "1.0.0");
    with(release, "spec/chart", json!({"spec": {"chart": "./charts/podinfo", "sourceRef": repository}}))
}

#[test]
fn the_message_of_a_source_is_shown_in_its_own_namespace_only() {
    let source = |namespace: &str| {
        broken(json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"namespace": namespace, "name": "charts", "generation": 2},
            "spec": {"url": "https://git.example/charts"},
            "status": {"observedGeneration": 2, "conditions": [{}]}}))
    };
    let release = from_git(&json!({"kind": "GitRepository", "name": "charts"}));
    let says = format!("GitRepository apps/charts is Failed (flux get sources git charts -n apps): {WHY}");
    assert_eq!(observed(&local(&[namespace("apps"), source("apps"), release])), Some(says));
    // A tenant may name any GitRepository, and must not learn whether it exists.
    let release = from_git(&json!({"kind": "GitRepository", "name": "charts", "namespace": "other"}));
    assert_eq!(observed(&local(&[namespace("apps"), source("other"), release])), None);
}
