//! The `GitopsCluster` of Weave's cluster-controller: how a hub cluster names other clusters.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::{ApiResource, Object};
use serde::{Deserialize, Serialize};

use crate::pipeline::SecretRef;

/// A cluster that Sluice can reach, read from the hub.
pub type GitopsCluster = Object<GitopsClusterSpec, GitopsClusterStatus>;

/// Where the cluster's kubeconfig is. Exactly one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GitopsClusterSpec {
    /// A Secret in the cluster's namespace with the kubeconfig.
    pub secret_ref: Option<SecretRef>,
    /// A Cluster API cluster; its kubeconfig is in the Secret `<name>-kubeconfig`.
    pub capi_cluster_ref: Option<SecretRef>,
}

impl GitopsClusterSpec {
    /// The Secret that holds the kubeconfig. A Cluster API cluster comes first, as it did in the
    /// predecessor.
    pub fn kubeconfig_secret(&self) -> Option<String> {
        match (&self.capi_cluster_ref, &self.secret_ref) {
            (Some(capi), _) => Some(format!("{}-kubeconfig", capi.name)),
            (None, Some(secret)) => Some(secret.name.clone()),
            (None, None) => None,
        }
    }
}

/// What cluster-controller says of the cluster; only that the Secret is there, not that the
/// cluster answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitopsClusterStatus {
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

/// The kind as the hub serves it.
pub fn gitops_cluster_resource() -> ApiResource {
    ApiResource {
        group: "gitops.weave.works".into(),
        version: "v1alpha1".into(),
        api_version: "gitops.weave.works/v1alpha1".into(),
        kind: "GitopsCluster".into(),
        plural: "gitopsclusters".into(),
    }
}

/// The keys under which a kubeconfig is found in a Secret, in the order in which they are tried:
/// Cluster API and Flux write `value`, some users `value.yaml`, Weave's code `kubeconfig`.
pub const KUBECONFIG_KEYS: [&str; 3] = ["value", "value.yaml", "kubeconfig"];
