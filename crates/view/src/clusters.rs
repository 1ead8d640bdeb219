//! The clusters that pipelines refer to, and those that are known on the hub.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::{GitopsCluster, Pipeline};
use sluice_core::observed::Health;

use crate::running::RunningTarget;

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRow {
    /// The GitopsCluster as `namespace/name`; empty for the hub.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The Secret with its kubeconfig; empty for the hub.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub secret: String,
    /// How many targets are on it.
    pub targets: usize,
    /// How many of them are Ready.
    pub ready: usize,
    /// What a person should look at first; empty if there is nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// Returns all clusters, the hub first, then by name. `known` are all GitopsClusters of the namespaces for which
/// `is_listed` returns true.
pub fn clusters(
    known: &[GitopsCluster],
    is_listed: impl Fn(&str) -> bool,
    pipelines: &[Pipeline],
) -> Vec<ClusterRow> {
    let mut rows: BTreeMap<String, ClusterRow> = BTreeMap::new();
    for cluster in known {
        let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
        let name = format!("{namespace}/{}", cluster.metadata.name.as_deref().unwrap_or_default());
        let secret = cluster.spec.kubeconfig_secret().map(|secret| format!("{namespace}/{secret}"));
        let problem = match secret {
            Some(_) => String::new(),
            None => "it names no kubeconfig: set spec.secretRef.name or spec.capiClusterRef.name".into(),
        };
        let secret = secret.unwrap_or_default();
        rows.insert(name.clone(), ClusterRow { name, secret, problem, ..ClusterRow::default() });
    }
    for pipeline in pipelines {
        let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
        for target in RunningTarget::all(pipeline) {
            let name = match target.cluster.as_str() {
                "" => String::new(),
                cluster if cluster.contains('/') => cluster.into(),
                cluster => format!("{home}/{cluster}"),
            };
            let missing = || ClusterRow {
                problem: match name.split_once('/') {
                    Some((namespace, _)) if is_listed(namespace) => {
                        format!(
                            "there is no GitopsCluster {name}: create it, or correct the target's clusterRef"
                        )
                    }
                    _ => String::new(),
                },
                name: name.clone(),
                ..ClusterRow::default()
            };
            let row = rows.entry(name.clone()).or_insert_with(missing);
            row.targets += 1;
            row.ready += usize::from(target.health() == Health::Ready);
            // A target that cannot be read says why its cluster cannot be read.
            let error =
                target.status.filter(|status| status.health == Health::Unknown).map(|status| &status.error);
            if let (true, Some(error)) = (row.problem.is_empty(), error) {
                row.problem.clone_from(error);
            }
        }
    }
    rows.into_values().collect()
}
