//! The observed state of all clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::lock::{read, write};

use super::cluster_event::ClusterEvent;
use super::object_key::ClusterKey;
use super::observed_cluster::{AffectedTargets, ClusterState, ObservedCluster};
use super::owned_read::OwnedRead;

/// The observed state of all clusters. One thread applies events; others read through a [`Fleet`] at the same time.
#[derive(Debug, Default)]
pub struct Index {
    fleet: Fleet,
    clusters: BTreeMap<ClusterKey, SharedCluster>,
}

type SharedCluster = Arc<RwLock<ObservedCluster>>;

/// The observed state of all clusters, for readers. A reader holds one cluster at a time. The next event of that cluster
/// waits for as long as it reads.
#[derive(Clone, Debug, Default)]
pub struct Fleet(Arc<RwLock<BTreeMap<ClusterKey, SharedCluster>>>);

impl Fleet {
    /// Returns the keys of all clusters, the hub first.
    pub fn clusters(&self) -> Vec<ClusterKey> {
        self.shared().keys().cloned().collect()
    }

    /// Returns what a function reads from a cluster; `None` if the cluster is not observed.
    pub fn read<T>(&self, key: &ClusterKey, of: impl FnOnce(&ObservedCluster) -> T) -> Option<T> {
        let cluster = self.shared().get(key).cloned()?;
        let cluster = read(&cluster);
        Some(of(&cluster))
    }

    fn shared(&self) -> RwLockReadGuard<'_, BTreeMap<ClusterKey, SharedCluster>> {
        read(&self.0)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<ClusterKey, SharedCluster>> {
        write(&self.0)
    }
}

impl Index {
    /// Applies an event of a cluster.
    pub fn apply(&mut self, cluster: &ClusterKey, event: ClusterEvent) -> AffectedTargets {
        self.change(cluster, |cluster| cluster.apply(event))
    }

    /// Returns the reads that the checks of a cluster's Flux objects need since the last call.
    pub fn take_reads(&mut self, cluster: &ClusterKey) -> Vec<OwnedRead> {
        self.change(cluster, ObservedCluster::take_reads)
    }

    /// Sets the namespaces of a cluster with targets. If a kind is read by namespace, its objects in all other
    /// namespaces are removed, because they are not watched any more and would become outdated.
    pub fn set_target_namespaces(&mut self, cluster: &ClusterKey, namespaces: BTreeSet<String>) {
        self.change(cluster, |cluster| cluster.set_target_namespaces(namespaces));
    }

    /// Removes a cluster.
    pub fn forget(&mut self, cluster: &ClusterKey) {
        if self.clusters.remove(cluster).is_some() {
            self.fleet.write().remove(cluster);
        }
    }

    /// Returns a cluster; `None` before its first event.
    pub fn cluster(&self, key: &ClusterKey) -> Option<RwLockReadGuard<'_, ObservedCluster>> {
        self.clusters.get(key).map(|cluster| read(cluster))
    }

    /// Returns the number of clusters that are up, and the number of all clusters.
    pub fn clusters_up(&self) -> (usize, usize) {
        let is_up = |cluster: &&SharedCluster| *read(cluster).state() == ClusterState::Up;
        (self.clusters.values().filter(is_up).count(), self.clusters.len())
    }

    /// Returns the number of objects of all clusters.
    pub fn objects(&self) -> usize {
        self.clusters.values().map(|cluster| read(cluster).len()).sum()
    }

    /// Returns a view of the clusters that other threads can read.
    pub fn fleet(&self) -> Fleet {
        self.fleet.clone()
    }

    /// Shows the clusters in a fleet that readers have already.
    pub fn show_in(&mut self, fleet: Fleet) {
        fleet.write().clone_from(&self.clusters);
        self.fleet = fleet;
    }

    fn change<T>(&mut self, key: &ClusterKey, change: impl FnOnce(&mut ObservedCluster) -> T) -> T {
        let cluster = match self.clusters.get(key) {
            Some(known) => known.clone(),
            None => {
                let new = SharedCluster::default();
                self.clusters.insert(key.clone(), new.clone());
                self.fleet.write().insert(key.clone(), new.clone());
                new
            }
        };
        let mut cluster = write(&cluster);
        change(&mut cluster)
    }
}
