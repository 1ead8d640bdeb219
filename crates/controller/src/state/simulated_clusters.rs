//! Two clusters with the same namespaces and HelmReleases, and what they report.

use std::sync::Arc;

use serde_json::json;

use super::simulation::{ControllerSimulation, ENVIRONMENTS, RunningVersion};
use super::tests::WALL;
use super::*;
use crate::observe::facts::{helm_release, metadata};
use crate::watch::limit::EventQueue;
use sluice_core::fleet::owned_read::OwnedRead;
use sluice_core::fleet::{ClusterEvent, Fact, Kind, ObjectKey};

impl ControllerSimulation {
    /// The controller connects to a cluster, which reports all that it has.
    pub(super) fn connect(&mut self, cluster: ClusterKey) {
        if self.connected.contains_key(&cluster) {
            return;
        }
        self.connected.insert(cluster.clone(), self.elapsed);
        let namespace = |name: &&str| {
            let key = ObjectKey { kind: Kind::Namespace, namespace: String::new(), name: (*name).into() };
            (key, Fact::Namespace { allowed: None })
        };
        let running = self.fleet.iter().map(|(environment, running)| helm_release(environment, *running));
        let mut releases: Vec<(ObjectKey, Fact)> = running.collect();
        let mut events = vec![ClusterEvent::Connected];
        for kind in Kind::DECIDING {
            let facts = match kind {
                Kind::Namespace => ENVIRONMENTS.iter().map(namespace).collect(),
                Kind::HelmRelease => std::mem::take(&mut releases),
                _ => Vec::new(),
            };
            events.push(ClusterEvent::Listed(kind, None, facts));
        }
        self.cluster_events.push((cluster, events));
    }

    /// A cluster answers what a HelmRelease owns: nothing.
    pub(super) fn answer_read(&mut self, cluster: ClusterKey, read: OwnedRead) {
        let answer = ClusterEvent::OwnedWasRead(read.owner, read.number, Ok(Vec::new()));
        self.cluster_events.push((cluster, vec![answer]));
    }

    /// Delivers the next event of the cluster.
    pub(super) fn deliver_cluster_event(&mut self) {
        if !self.cluster_events.is_empty() {
            let (cluster, events) = self.cluster_events.remove(0);
            for event in events {
                let slot = Arc::new(EventQueue::default()).slot();
                self.step(Input::Cluster(cluster.clone(), 1, event, slot));
            }
        }
    }
}

/// A HelmRelease that runs a version.
pub(super) fn helm_release(environment: &str, running: RunningVersion) -> (ObjectKey, Fact) {
    let status = if running.is_healthy { "True" } else { "False" };
    let chart = format!("1.0.{}", running.version);
    let object = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"namespace": environment, "name": "podinfo", "generation": 2},
        "spec": {"chart": {"spec": {"chart": "podinfo", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}},
        "status": {"observedGeneration": 2,
            "conditions": [{"type": "Ready", "status": status, "reason": "Upgrade", "message": "Helm",
                "observedGeneration": 2, "lastTransitionTime": WALL}],
            "history": [{"version": 4, "status": "deployed", "chartVersion": chart}]}});
    let object = serde_json::from_value(object).unwrap();
    (metadata::key(Kind::HelmRelease, &object), helm_release::facts(&object))
}
