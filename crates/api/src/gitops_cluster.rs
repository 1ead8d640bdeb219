//! The `GitopsCluster` of Weave's cluster-controller, with which a hub cluster names other clusters.

use kube::core::{ApiResource, NotUsed, Object};
use serde::{Deserialize, Serialize};

use crate::pipeline::SecretRef;

/// A cluster that Sluice connects to, as stored on the hub. The status by cluster-controller says that the Secret exists,
/// not that the cluster answers, and is not read.
pub type GitopsCluster = Object<GitopsClusterSpec, NotUsed>;

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
    /// Returns the name of the Secret with the kubeconfig. A Cluster API cluster takes precedence, as in the predecessor.
    pub fn kubeconfig_secret(&self) -> Option<String> {
        match (&self.capi_cluster_ref, &self.secret_ref) {
            (Some(capi), _) => Some(format!("{}-kubeconfig", capi.name)),
            (None, Some(secret)) => Some(secret.name.clone()),
            (None, None) => None,
        }
    }
}

/// Returns the GitopsCluster resource as the hub serves it.
pub fn gitops_cluster_resource() -> ApiResource {
    ApiResource {
        group: "gitops.weave.works".into(),
        version: "v1alpha1".into(),
        api_version: "gitops.weave.works/v1alpha1".into(),
        kind: "GitopsCluster".into(),
        plural: "gitopsclusters".into(),
    }
}
