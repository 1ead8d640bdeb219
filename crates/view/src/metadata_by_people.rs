//! The metadata of an object that people wrote, without what Flux, Helm and kubectl add to it.

use std::collections::BTreeMap;

use sluice_api::flux::{HELM_OWNER, HELM_RELEASE, KUSTOMIZE_OWNER};

/// Labels and annotations that programs set: kubectl remembers what it applied, and `flux reconcile` asks for one
/// reconciliation ([helm-controller](https://fluxcd.io/flux/components/helm/helmreleases/#triggering-a-reconcile)).
const OF_PROGRAMS: [&str; 4] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "reconcile.fluxcd.io/requestedAt",
    "reconcile.fluxcd.io/forceAt",
    "reconcile.fluxcd.io/resetAt",
];

/// Returns the labels or annotations that people wrote.
pub(crate) fn written(texts: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let of_programs = [&KUSTOMIZE_OWNER[..], &HELM_OWNER, &HELM_RELEASE, &OF_PROGRAMS].concat();
    let written = texts.iter().filter(|(key, _)| !of_programs.contains(&key.as_str()));
    written.map(|(key, text)| (key.clone(), text.clone())).collect()
}
