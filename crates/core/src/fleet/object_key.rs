//! The identity of clusters and of objects.

use std::fmt;

use super::watched_kind::Kind;

/// A cluster whose objects are observed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterKey {
    /// The hub, which stores the Pipelines.
    Local,
    /// A cluster that a GitopsCluster names.
    Remote {
        /// The GitopsCluster's namespace.
        namespace: String,
        /// The GitopsCluster's name.
        name: String,
    },
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterKey::Local => f.write_str("the local cluster"),
            ClusterKey::Remote { namespace, name } => write!(f, "cluster {namespace}/{name}"),
        }
    }
}

/// The identity of an object on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for a Namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}
