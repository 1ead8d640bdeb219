//! References from a Pipeline to other objects.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reference to a Flux object by kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppRef {
    /// API group and version, for example `helm.toolkit.fluxcd.io/v2`. Only the group counts.
    pub api_version: String,
    /// `HelmRelease` or `Kustomization`.
    pub kind: String,
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A reference to a GitopsCluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    /// Not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// `GitopsCluster`.
    #[schemars(extend("enum" = ["GitopsCluster"]))]
    pub kind: String,
    /// The GitopsCluster's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The GitopsCluster's namespace; default is the Pipeline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl ClusterRef {
    /// Returns the namespace; `home` is that of the Pipeline.
    pub fn namespace_or<'a>(&'a self, home: &'a str) -> &'a str {
        self.namespace.as_deref().unwrap_or(home)
    }
}

/// A reference to a member of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    /// `Kustomization` or `HelmRelease`.
    #[schemars(extend("enum" = ["Kustomization", "HelmRelease"]))]
    pub kind: String,
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A reference to a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct SecretRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')").message("a Secret's name is made of lower-case letters, digits, '-' and '.', and starts and ends with a letter or digit"))]
    pub name: String,
}
