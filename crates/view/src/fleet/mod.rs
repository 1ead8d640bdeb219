//! Views of everything that is observed on clusters, whether or not a pipeline names it.

pub mod cluster_environments;
pub mod matrix;
pub mod observed_clusters;
pub mod trace;
pub mod versions;

use sluice_api::Pipeline;
use sluice_core::fleet::{ClusterKey, ObjectKey};

use crate::running::RunningTarget;

/// Returns the name of a cluster as people write it: `namespace/name` of its GitopsCluster, or empty for the hub.
pub fn cluster_name(key: &ClusterKey) -> String {
    match key {
        ClusterKey::Local => String::new(),
        ClusterKey::Remote { namespace, name } => format!("{namespace}/{name}"),
    }
}

/// Returns what the targets of a pipeline in a namespace on a cluster have, as `kind/name`. The cluster is
/// `namespace/name` of its GitopsCluster, or empty for the hub.
pub fn running_on(pipeline: &Pipeline, cluster: &str, namespace: &str) -> Vec<String> {
    let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let is_there = |target: &RunningTarget<'_>| {
        let is_on = match cluster.split_once('/') {
            Some((owner, name)) if owner == home && target.cluster == name => true,
            _ => target.cluster == cluster,
        };
        is_on && target.namespace == namespace
    };
    let targets = RunningTarget::all(pipeline).into_iter().filter(is_there);
    let workloads = targets.flat_map(|target| target.workloads().iter());
    workloads.map(|workload| format!("{}/{}", workload.kind.to_lowercase(), workload.name)).collect()
}

/// Returns an object as people write it: `Kind/name`.
fn object_name(key: &ObjectKey) -> String {
    format!("{}/{}", key.kind.name(), key.name)
}
