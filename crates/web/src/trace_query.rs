//! The parameters of a trace: the cluster and the object.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::fleet::{ClusterKey, Kind, ObjectKey};

use crate::problem::Problem;

/// The object to trace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TraceQuery {
    /// The cluster, as `namespace/name` of its GitopsCluster; default is the hub.
    pub cluster: String,
    /// The kind, such as `Deployment` or `HelmRelease`, in any case.
    pub kind: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

impl TraceQuery {
    /// Returns the cluster and the object.
    pub(crate) fn object(&self) -> Result<(ClusterKey, ObjectKey), Problem> {
        let kinds = Kind::OWNED.into_iter().chain(Kind::SHOWN).chain([Kind::GitRepository]);
        let Some(kind) = kinds.clone().find(|kind| kind.name().eq_ignore_ascii_case(&self.kind)) else {
            let names: Vec<&str> = kinds.map(Kind::name).collect();
            return Err(Problem::bad_request(format!(
                "kind={:?} is not observed: write one of {}",
                self.kind,
                names.join(", ")
            )));
        };
        if !is_name(&self.namespace) || !is_name(&self.name) {
            return Err(Problem::bad_request(
                "write namespace=… and name=… of the object, as kubectl shows them",
            ));
        }
        let key = ObjectKey { kind, namespace: self.namespace.clone(), name: self.name.clone() };
        Ok((cluster_key(&self.cluster)?, key))
    }
}

/// Whether a text can be the name of an object or namespace. What the API server is asked about is limited by this: rights
/// are kept by name for a while.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !text.is_empty() && text.len() <= 253 && text.chars().all(is_part)
}

/// Reads the name of a cluster.
///
/// # Errors
/// When it cannot be the name of a cluster.
pub(crate) fn cluster_key(text: &str) -> Result<ClusterKey, Problem> {
    if text.is_empty() || text == "hub" {
        return Ok(ClusterKey::Local);
    }
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(ClusterKey::Remote { namespace: namespace.into(), name: name.into() })
        }
        _ => Err(Problem::bad_request(format!(
            "cluster={text:?} is not the name of a cluster: write <namespace>/<name> of its GitopsCluster, or hub"
        ))),
    }
}
