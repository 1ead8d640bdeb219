//! A pipeline of three environments and its promotions, as the API server stores them.

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};

/// The time at which all views are rendered.
pub fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

/// Returns an environment in the status with one target that runs a revision.
pub fn runs(name: &str, revision: &str, health: &str) -> Value {
    json!({"health": health, "revision": revision, "targets": [target(name, revision, health, "")]})
}

/// Returns a target in the status.
pub fn target(name: &str, revision: &str, health: &str, error: &str) -> Value {
    json!({"name": name, "namespace": "podinfo", "health": health, "since": "2026-11-21T11:50:00Z",
        "ready": health == "Ready", "revision": revision, "error": error})
}

/// Returns the pipeline dev, staging, prod with these environments in its status; prod needs an approval.
pub fn pipeline(environments: Value) -> Pipeline {
    let target = |name: &str| json!([{"name": name, "namespace": "podinfo"}]);
    let commit = json!({"commit": {"url": "https://git.example.com/fleet.git", "branch": "main"}});
    serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps", "generation": 2},
        "spec": {
            "promotion": {"strategy": commit},
            "environments": [
                {"name": "dev", "targets": target("dev")},
                {"name": "staging", "targets": target("staging")},
                {"name": "prod", "targets": target("prod"), "promotion": {"manual": true, "strategy": commit}},
            ],
        },
        "status": {"observedGeneration": 2, "environments": environments,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "all targets were read",
                "lastTransitionTime": "2026-11-21T10:00:00Z"}]},
    }))
    .unwrap()
}

/// Returns the promotion of 6.1.8 into an environment.
pub fn promotion(environment: &str, sequence: u64, status: Value) -> Promotion {
    serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
        "metadata": {"name": format!("podinfo-{environment}-{sequence}"), "namespace": "apps",
            "creationTimestamp": format!("2026-11-21T11:0{sequence}:00Z")},
        "spec": {"pipeline": "podinfo", "environment": environment, "revision": "6.1.8", "replaces": "6.1.5",
            "facets": {"HelmRelease/podinfo:chart": "6.1.8"}, "sequence": sequence,
            "evidence": [{"environment": "dev", "target": "dev", "at": "2026-11-21T10:59:58Z"}]},
        "status": status,
    }))
    .unwrap()
}
