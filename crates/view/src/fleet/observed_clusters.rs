//! The observed clusters, and whether they can be read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::fleet::ClusterKey;
use sluice_core::fleet::observed_cluster::{ClusterState, ObservedCluster};

use super::cluster_name;

/// Observed clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clusters {
    /// The clusters, ordered by name.
    pub items: Vec<ObservedClusterRow>,
}

/// One observed cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedClusterRow {
    /// The cluster, as `namespace/name` of its GitopsCluster; empty for the hub.
    pub name: String,
    /// Whether it can be read.
    pub state: ClusterReadability,
    /// Why it is not `Up`, and what to do; empty while it connects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The number of observed objects.
    pub objects: usize,
}

/// Whether a cluster can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterReadability {
    /// All that views show of it is read.
    Up,
    /// Some kinds or namespaces cannot be read.
    Partial,
    /// The first lists are still missing.
    Connecting,
    /// It cannot be read at all.
    Lost,
}

impl ClusterReadability {
    /// Returns the word that people read.
    pub fn word(self) -> &'static str {
        match self {
            ClusterReadability::Up => "Up",
            ClusterReadability::Partial => "Partial",
            ClusterReadability::Connecting => "Connecting",
            ClusterReadability::Lost => "Lost",
        }
    }
}

/// Returns the state of a cluster.
pub fn cluster_state(key: &ClusterKey, cluster: &ObservedCluster) -> ObservedClusterRow {
    let (state, message) = match cluster.state() {
        ClusterState::Up => match unread(cluster) {
            Some(why) => (ClusterReadability::Partial, why),
            None => (ClusterReadability::Up, String::new()),
        },
        ClusterState::Connecting => (ClusterReadability::Connecting, String::new()),
        ClusterState::Lost(why) => (ClusterReadability::Lost, why.clone()),
    };
    ObservedClusterRow { name: cluster_name(key), state, message, objects: cluster.len() }
}

/// Returns what of a connected cluster cannot be read, and what to do.
fn unread(cluster: &ObservedCluster) -> Option<String> {
    let mut causes = cluster.unreadable();
    if let Some(first) = causes.next() {
        let others = match causes.count() {
            0 => String::new(),
            more => format!("; and {more} more kinds or namespaces cannot be read"),
        };
        return Some(format!("{first}{others}"));
    }
    match cluster.unread_kinds().count() {
        0 => None,
        kinds => Some(format!(
            "its kubeconfig may not list {kinds} kinds of objects on the whole cluster, and no target names a namespace: grant \
             its user the rights of deploy/reader"
        )),
    }
}
