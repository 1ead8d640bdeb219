//! A target that is Ready and gets no new state, because Flux cannot apply it.

use serde_json::{Value, json};
use sluice_core::fleet::index::Index;
use sluice_core::fleet::observed_cluster::AffectedTargets;
use sluice_core::observed::Health;

use crate::support::{applied, by_app, helm_release, kustomization, local, namespace, with};

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
    let says = format!(
        "Kustomization flux-system/fleet is Failed (flux get kustomizations fleet -n flux-system): {WHY}"
    );
    assert_eq!(observed(&index), Some(says));
    // Labels alone prove nothing: another Kustomization does not tell its message to everybody.
    let other = kustomization("flux-system", "fleet", &["apps_other_helm.toolkit.fluxcd.io_HelmRelease"]);
    assert_eq!(observed(&local(&[namespace("apps"), broken(other), podinfo()])), None);
}

#[test]
fn a_change_of_the_kustomization_reaches_the_targets_that_it_applies() {
    let mut index = local(&[namespace("apps"), fleet(), podinfo()]);
    let affected = applied(&mut index, &broken(fleet()));
    let AffectedTargets::InNamespaces(namespaces) = affected else { panic!("{affected:?}") };
    assert!(namespaces.contains("apps"), "{namespaces:?}");
}
