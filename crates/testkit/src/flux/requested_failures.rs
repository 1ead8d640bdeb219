//! Failures that a test requests for an object at a revision.

use kube::ResourceExt;
use kube::api::DynamicObject;
use std::sync::{Mutex, PoisonError};

/// How an object fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FluxFailure {
    /// The manifests or the chart's templates are wrong: `BuildFailed` for a Kustomization, `UpgradeFailed` for a
    /// HelmRelease. Nothing is applied.
    BuildFailed,
    /// The cluster rejects the objects: `ReconciliationFailed` or `UpgradeFailed`.
    UpgradeFailed,
    /// The objects are applied and not healthy: `HealthCheckFailed` or `UpgradeFailed`, without waiting for the timeout.
    HealthCheckFailed,
    /// The Deployments never become available. The object fails only if it waits for them, after its timeout.
    NeverHealthy,
    /// No more tries: `Stalled=True`.
    Stalled,
}

#[derive(Debug, Clone)]
struct RequestedFailure {
    kind: String,
    namespace: String,
    name: String,
    matching: String,
    failure: FluxFailure,
}

/// All requested failures that were not healed.
#[derive(Debug, Default)]
pub(crate) struct RequestedFailures(Mutex<Vec<RequestedFailure>>);

impl RequestedFailures {
    pub fn add(&self, kind: &str, namespace: &str, name: &str, matching: &str, failure: FluxFailure) {
        let requested = RequestedFailure {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            matching: matching.to_owned(),
            failure,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(requested);
    }

    pub fn heal(&self, kind: &str, namespace: &str, name: &str) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures
            .retain(|f| (f.kind.as_str(), f.namespace.as_str(), f.name.as_str()) != (kind, namespace, name));
    }

    /// Returns the failure of an object. `text` contains its revision, version or images.
    pub fn matching(&self, kind: &str, namespace: &str, name: &str, text: &str) -> Option<FluxFailure> {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let matches = |f: &&RequestedFailure| {
            (f.kind.as_str(), f.namespace.as_str(), f.name.as_str()) == (kind, namespace, name)
                && text.contains(&f.matching)
        };
        failures.iter().find(matches).map(|f| f.failure)
    }

    /// Returns the failure of the Kustomization or HelmRelease in a workload's labels.
    pub fn matching_owner(&self, workload: &DynamicObject, text: &str) -> Option<FluxFailure> {
        let owner = |kind: &str, group: &str| {
            let label = |key: &str| workload.labels().get(&format!("{group}/{key}"));
            self.matching(kind, label("namespace")?, label("name")?, text)
        };
        owner("Kustomization", "kustomize.toolkit.fluxcd.io")
            .or_else(|| owner("HelmRelease", "helm.toolkit.fluxcd.io"))
    }

    /// Describes all failures requested for an object, at any revision; empty if there are none.
    pub fn description(&self, kind: &str, namespace: &str, name: &str) -> String {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_object = |f: &&RequestedFailure| {
            (f.kind.as_str(), f.namespace.as_str(), f.name.as_str()) == (kind, namespace, name)
        };
        failures.iter().filter(of_object).map(|f| format!("{} {:?};", f.matching, f.failure)).collect()
    }
}
