//! How much is observed.

use sluice_core::fleet::{ClusterKey, Kind};

/// What is observed on clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserveScope {
    /// Every cluster, with what only views show.
    All,
    /// The clusters that Pipelines name, with what decisions and statuses need.
    Targets,
}

impl ObserveScope {
    /// Returns the kinds that are observed on a cluster.
    pub fn kinds(self, cluster: &ClusterKey) -> Vec<Kind> {
        let shown = if self == ObserveScope::All { &Kind::SHOWN[..] } else { &[] };
        let is_whole_hub = self == ObserveScope::All && *cluster == ClusterKey::Local;
        let on_hub = if is_whole_hub { &Kind::SHOWN_ON_HUB[..] } else { &[] };
        [&Kind::DECIDING[..], shown, on_hub].concat()
    }
}
