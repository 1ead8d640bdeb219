//! Views of everything that is observed on clusters, whether or not a pipeline names it.

pub mod matrix;
pub mod observed_clusters;
pub mod trace;
pub mod versions;

use sluice_core::fleet::{ClusterKey, ObjectKey};

/// Returns the name of a cluster as people write it: `namespace/name` of its GitopsCluster, or empty for the hub.
pub fn cluster_name(key: &ClusterKey) -> String {
    match key {
        ClusterKey::Local => String::new(),
        ClusterKey::Remote { namespace, name } => format!("{namespace}/{name}"),
    }
}

/// Returns an object as people write it: `Kind/name`.
fn object_name(key: &ObjectKey) -> String {
    format!("{}/{}", key.kind.name(), key.name)
}
