//! Failures on demand: what is to go wrong, for which object, at which revision.

use kube::ResourceExt;
use kube::api::DynamicObject;
use std::sync::{Mutex, PoisonError};

/// How an object fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The manifests or the chart's templates do not make objects: `BuildFailed` on a
    /// Kustomization, `UpgradeFailed` before anything is applied on a HelmRelease.
    BuildFailed,
    /// The cluster refuses what was made: `ReconciliationFailed` or `UpgradeFailed`.
    UpgradeFailed,
    /// It is applied and never gets healthy: `HealthCheckFailed` or `UpgradeFailed` at once,
    /// without waiting for the timeout.
    HealthCheckFailed,
    /// Its Deployments never become available. The object itself says so only if it waits for
    /// them, and only after its own timeout.
    NeverHealthy,
    /// It has given up: `Stalled=True`.
    Stalled,
}

#[derive(Debug, Clone)]
struct Fault {
    kind: String,
    namespace: String,
    name: String,
    matching: String,
    how: Failure,
}

/// All failures that were asked for and not healed.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub fn add(&self, kind: &str, namespace: &str, name: &str, matching: &str, how: Failure) {
        let fault = Fault {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            matching: matching.to_owned(),
            how,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    pub fn heal(&self, kind: &str, namespace: &str, name: &str) {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults
            .retain(|f| (f.kind.as_str(), f.namespace.as_str(), f.name.as_str()) != (kind, namespace, name));
    }

    /// What is to go wrong for an object whose revision, version or images are in `text`.
    pub fn of(&self, kind: &str, namespace: &str, name: &str, text: &str) -> Option<Failure> {
        let faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hit = |f: &&Fault| {
            (f.kind.as_str(), f.namespace.as_str(), f.name.as_str()) == (kind, namespace, name)
                && text.contains(&f.matching)
        };
        faults.iter().find(hit).map(|f| f.how)
    }

    /// The same for the Kustomization or HelmRelease that a workload's labels name.
    pub fn of_owner(&self, workload: &DynamicObject, text: &str) -> Option<Failure> {
        let owner = |kind: &str, group: &str| {
            let label = |key: &str| workload.labels().get(&format!("{group}/{key}"));
            self.of(kind, label("namespace")?, label("name")?, text)
        };
        owner("Kustomization", "kustomize.toolkit.fluxcd.io")
            .or_else(|| owner("HelmRelease", "helm.toolkit.fluxcd.io"))
    }

    /// All that is asked for this object, now or at another revision; empty when nothing is.
    pub fn asked(&self, kind: &str, namespace: &str, name: &str) -> String {
        let faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mine =
            |f: &&Fault| (f.kind.as_str(), f.namespace.as_str(), f.name.as_str()) == (kind, namespace, name);
        faults.iter().filter(mine).map(|f| format!("{} {:?};", f.matching, f.how)).collect()
    }
}
