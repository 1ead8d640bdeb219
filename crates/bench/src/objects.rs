//! The objects of the measurements, with the fields that real controllers write.

use serde_json::{Value, json};
use sluice_core::Revision;
use sluice_core::pipeline::{Environment, Pipeline};
use sluice_core::promotion_name::promotion_name;
use std::collections::BTreeMap;

/// The environments of every pipeline, in order; each has one target.
pub const ENVIRONMENTS: [&str; 3] = ["dev", "staging", "prod"];
/// The first chart version of all targets.
pub const VERSION: &str = "6.1.5";

/// The API path of namespaces.
pub const NAMESPACES: &str = "/api/v1/namespaces";
/// The API version of HelmReleases.
pub const HELM_RELEASE: &str = "helm.toolkit.fluxcd.io/v2";
/// The API path of HelmReleases, without the namespace.
pub const HELM: &str = "/apis/helm.toolkit.fluxcd.io/v2";
/// The API path of Kustomizations, without the namespace.
pub const KUSTOMIZE: &str = "/apis/kustomize.toolkit.fluxcd.io/v1";
/// The API path of Sluice's kinds, without the namespace.
pub const SLUICE: &str = "/apis/pipelines.weave.works/v1alpha1";

const DIGEST: &str = "sha256:f6f1ebf1e1c4a4ab9e7d9bd4d6f4e5dd24c4e5d34fe6a4d2d6ea6b9e0ab7b5c2";
const NOW: &str = "2025-01-01T00:00:00Z";

/// The namespace of an application in an environment.
pub fn namespace(application: &str, environment: &str) -> String {
    format!("{application}-{environment}")
}

/// A HelmRelease as a Kustomization applies it.
pub fn helm_release(application: &str, environment: &str) -> Value {
    let namespace = namespace(application, environment);
    json!({
        "apiVersion": HELM_RELEASE,
        "kind": "HelmRelease",
        "metadata": {
            "name": application,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/part-of": application,
                "kustomize.toolkit.fluxcd.io/name": "apps",
                "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
            },
        },
        "spec": {
            "interval": "10m",
            "releaseName": application,
            "chart": {"spec": {"chart": application, "version": VERSION, "interval": "5m",
                "sourceRef": {"kind": "HelmRepository", "name": "charts", "namespace": "flux-system"}}},
            "install": {"remediation": {"retries": 3}},
            "upgrade": {"remediation": {"retries": 3, "remediateLastFailure": true}},
            "values": {
                "replicaCount": 2,
                "ui": {"color": "#34577c", "message": format!("{application} in {environment}")},
                "ingress": {"enabled": true, "className": "nginx", "hosts": [
                    {"host": format!("{namespace}.example.com"), "paths": [{"path": "/", "pathType": "Prefix"}]}]},
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            },
        },
    })
}

/// The status of a healthy HelmRelease: all fields that helm-controller writes after an upgrade.
pub fn healthy(application: &str, environment: &str, version: &str) -> Value {
    let namespace = namespace(application, environment);
    let message = format!(
        "Helm upgrade succeeded for release {namespace}/{application}.v2 with chart {application}@{version}"
    );
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": "UpgradeSucceeded", "message": message,
            "observedGeneration": 1, "lastTransitionTime": NOW})
    };
    let snapshot = |number: i64, status: &str, version: &str| {
        json!({"name": application, "namespace": namespace, "version": number, "status": status,
            "chartName": application, "chartVersion": version, "appVersion": version, "action": "upgrade",
            "configDigest": DIGEST, "digest": DIGEST, "firstDeployed": NOW, "lastDeployed": NOW})
    };
    let entry = |group: &str, kind: &str, v: &str| json!({"id": format!("{namespace}_{application}_{group}_{kind}"), "v": v});
    json!({"status": {
        "observedGeneration": 1,
        "lastAttemptedGeneration": 1,
        "lastAttemptedReleaseAction": "upgrade",
        "lastAttemptedRevision": version,
        "lastAttemptedConfigDigest": DIGEST,
        "storageNamespace": namespace,
        "helmChart": format!("flux-system/{namespace}-{application}"),
        "conditions": [condition("Ready"), condition("Released")],
        "history": [snapshot(2, "deployed", version), snapshot(1, "superseded", "6.1.4")],
        "inventory": {"entries": [
            entry("apps", "Deployment", "v1"),
            entry("", "Service", "v1"),
            entry("", "ServiceAccount", "v1"),
            entry("networking.k8s.io", "Ingress", "v1"),
        ]},
    }})
}

/// A Kustomization of an application.
pub fn kustomization(application: &str, environment: &str) -> Value {
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": application, "namespace": namespace(application, environment)},
        "spec": {
            "interval": "10m",
            "path": format!("./apps/{application}/{environment}"),
            "prune": true,
            "wait": true,
            "sourceRef": {"kind": "GitRepository", "name": "fleet", "namespace": "flux-system"},
        },
    })
}

/// The status of a healthy Kustomization: all fields that kustomize-controller writes.
pub fn applied(application: &str, environment: &str) -> Value {
    let namespace = namespace(application, environment);
    let revision = "main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f";
    let condition = |type_: &str, reason: &str| {
        json!({"type": type_, "status": "True", "reason": reason, "message": format!("Applied revision: {revision}"),
            "observedGeneration": 1, "lastTransitionTime": NOW})
    };
    let entry = |group: &str, kind: &str, v: &str| json!({"id": format!("{namespace}_{application}_{group}_{kind}"), "v": v});
    json!({"status": {
        "observedGeneration": 1,
        "conditions": [condition("Ready", "ReconciliationSucceeded"), condition("Healthy", "Succeeded")],
        "lastAppliedRevision": revision,
        "lastAttemptedRevision": revision,
        "inventory": {"entries": [
            entry("helm.toolkit.fluxcd.io", "HelmRelease", "v2"),
            entry("", "ConfigMap", "v1"),
        ]},
    }})
}

/// The Deployment of the HelmRelease.
pub fn deployment(application: &str, environment: &str) -> Value {
    let namespace = namespace(application, environment);
    let labels = json!({"app.kubernetes.io/name": application});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": application, "namespace": namespace, "labels": {
            "app.kubernetes.io/name": application,
            "app.kubernetes.io/managed-by": "Helm",
            "helm.toolkit.fluxcd.io/name": application,
            "helm.toolkit.fluxcd.io/namespace": namespace,
        }},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{
                "name": application,
                "image": format!("ghcr.io/example/{application}:{VERSION}"),
                "ports": [{"name": "http", "containerPort": 9898}],
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": 9898}},
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 9898}},
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            }]},
        }},
    })
}

/// The status of the Deployment when its pods run.
pub fn rolled_out() -> Value {
    let condition = |type_: &str, reason: &str| {
        json!({"type": type_, "status": "True", "reason": reason, "message": "as it should be",
            "lastTransitionTime": NOW, "lastUpdateTime": NOW})
    };
    json!({"status": {
        "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable"),
            condition("Progressing", "NewReplicaSetAvailable"),
        ],
    }})
}

/// A pipeline of an application through all environments.
pub fn pipeline(application: &str, namespace_name: &str, environments: &[&str], promotion: &Value) -> Value {
    let environments: Vec<Value> = environments
        .iter()
        .map(|name| json!({"name": name, "targets": [{"namespace": namespace(application, name)}]}))
        .collect();
    json!({
        "apiVersion": "pipelines.weave.works/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": application, "namespace": namespace_name},
        "spec": {
            "appRef": {"apiVersion": HELM_RELEASE, "kind": "HelmRelease", "name": application},
            "environments": environments,
            "promotion": promotion,
        },
    })
}

/// A promotion into prod, of the pipeline with this metadata. Its name follows from its spec: Sluice ends any other as
/// tampered with. `None` if the metadata has no name or UID.
pub fn promotion(pipeline: &Value) -> Option<Value> {
    let application = pipeline["name"].as_str()?;
    let facets = BTreeMap::from([(format!("HelmRelease/{application}:chart"), "6.1.4".to_owned())]);
    let revision = Revision::from_strings(&facets)?;
    let prod = Environment {
        name: "prod".into(),
        targets: Vec::new(),
        depends_on: Vec::new(),
        policy: None,
        only_target: None,
    };
    let of = Pipeline {
        namespace: String::new(),
        name: application.into(),
        uid: pipeline["uid"].as_str()?.into(),
        suspended: false,
        tracks: Vec::new(),
        environments: Vec::new(),
    };
    Some(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1",
        "kind": "Promotion",
        "metadata": {"name": promotion_name(&of, &prod, &revision, 0)},
        "spec": {
            "pipeline": application,
            "environment": prod.name,
            "revision": revision.to_string(),
            "facets": facets,
            "evidence": [{"environment": "staging", "target": "eu", "at": "2026-11-20T10:00:00Z"}],
            "approval": {"by": "jane", "at": "2026-11-20T11:00:00Z"},
        },
    }))
}

/// The status of a succeeded promotion.
pub fn succeeded() -> Value {
    json!({"status": {
        "phase": "Succeeded",
        "reason": "Succeeded",
        "message": "every target runs it, healthily",
        "times": {"Pending": "2026-11-20T10:00:00Z", "Succeeded": "2026-11-20T11:10:00Z"},
        "commit": "1eabc9a41ca088515cab83f1cce49eb43e84b67f",
    }})
}
