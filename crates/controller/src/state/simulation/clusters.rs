//! Two clusters with the same namespaces and HelmReleases, and what they report.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::json;
use sluice_api::GitopsCluster;

use super::controller_simulation::{ControllerSimulation, ENVIRONMENTS, RunningVersion, SECOND_DEV};
use crate::observe::facts::{helm_release, metadata};
use crate::state::fixtures::WALL;
use crate::state::*;
use crate::watch::event_queue::EventQueue;
use sluice_core::fleet::owned_read::OwnedRead;
use sluice_core::fleet::{ClusterEvent, Fact, Kind, ObjectKey};

impl ControllerSimulation {
    /// The controller connects to a cluster, which reports all that it has.
    pub(super) fn connect(&mut self, cluster: ClusterKey) {
        if self.connected.contains_key(&cluster) {
            return;
        }
        self.connected.insert(cluster.clone(), self.elapsed);
        if self.is_eu_lost && cluster == eu() {
            let lost = ClusterEvent::Lost("no route to host".into());
            return self.cluster_events.push((cluster, vec![lost]));
        }
        let namespace = |name: &&str| {
            let key = ObjectKey { kind: Kind::Namespace, namespace: String::new(), name: (*name).into() };
            (key, Fact::Namespace { allowed: None })
        };
        let running = self.fleet.iter().map(|(environment, running)| reported_release(environment, *running));
        let mut releases: Vec<(ObjectKey, Fact)> = running.collect();
        let mut events = vec![ClusterEvent::Connected];
        for kind in Kind::DECIDING {
            let facts = match kind {
                Kind::Namespace => ENVIRONMENTS.iter().chain([&SECOND_DEV]).map(namespace).collect(),
                Kind::HelmRelease => std::mem::take(&mut releases),
                _ => Vec::new(),
            };
            events.push(ClusterEvent::Listed(kind, None, facts));
        }
        self.cluster_events.push((cluster, events));
    }

    /// A new version runs in dev.
    pub(super) fn release(&mut self, is_healthy: bool) {
        let version = self.fleet["dev"].version + 1;
        self.run("dev", RunningVersion { version, is_healthy });
    }

    /// Somebody brings an environment to a version without Sluice.
    pub(super) fn move_by_hand(&mut self, environment: &'static str, version: u32) {
        self.run(environment, RunningVersion { version, is_healthy: true });
    }

    pub(super) fn set_healthy(&mut self, environment: &'static str, is_healthy: bool) {
        let version = self.fleet[environment].version;
        self.run(environment, RunningVersion { version, is_healthy });
    }

    /// Flux applies what the files of an environment say.
    pub(super) fn apply_files(&mut self, environment: &'static str, is_healthy: bool) {
        let version = self.files[environment];
        if environment != "dev" && version != self.fleet[environment].version {
            self.run(environment, RunningVersion { version, is_healthy });
        }
    }

    fn run(&mut self, environment: &'static str, running: RunningVersion) {
        self.fleet.insert(environment, running);
        if running.is_healthy {
            self.proven.entry(environment).or_default().insert(running.version);
        }
        let applied = || {
            let (key, fact) = reported_release(environment, running);
            vec![ClusterEvent::Applied(key, fact)]
        };
        let reporting = self.connected.keys().filter(|cluster| match cluster {
            ClusterKey::Local => true,
            ClusterKey::Remote { .. } => environment == "prod" && !self.is_eu_lost,
        });
        self.cluster_events.extend(reporting.map(|cluster| (cluster.clone(), applied())));
    }

    /// The cluster `eu` cannot be reached any more, or can be reached again.
    pub(super) fn lose_eu(&mut self, is_lost: bool) {
        if self.is_eu_lost == is_lost {
            return;
        }
        self.is_eu_lost = is_lost;
        self.eu_back = (!is_lost).then_some(self.elapsed);
        let eu = eu();
        if !self.connected.contains_key(&eu) {
            return;
        }
        if is_lost {
            self.cluster_events.push((eu, vec![ClusterEvent::Lost("no route to host".into())]));
        } else {
            self.connected.remove(&eu);
            self.connect(eu);
        }
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

/// The object of the cluster of prod after it was moved.
pub(super) fn eu_cluster() -> GitopsCluster {
    static CLUSTER: LazyLock<GitopsCluster> = LazyLock::new(|| {
        let object = json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
            "metadata": {"name": "eu", "namespace": "apps"}, "spec": {"secretRef": {"name": "eu"}}});
        serde_json::from_value(object).unwrap()
    });
    CLUSTER.clone()
}

/// The cluster of prod after it was moved.
pub(super) fn eu() -> ClusterKey {
    ClusterKey::Remote { namespace: "apps".into(), name: "eu".into() }
}

/// An environment and what it runs.
type Release = (&'static str, RunningVersion);

thread_local! {
    /// The HelmReleases that were read from JSON before.
    static RELEASES: RefCell<HashMap<Release, (ObjectKey, Fact)>> = RefCell::default();
}

/// The same as [`helm_release`]. Thousands of histories report the same HelmReleases, so each is read from JSON once.
fn reported_release(environment: &'static str, running: RunningVersion) -> (ObjectKey, Fact) {
    RELEASES.with_borrow_mut(|known| {
        known.entry((environment, running)).or_insert_with(|| helm_release(environment, running)).clone()
    })
}

/// A HelmRelease that runs a version.
pub(in crate::state) fn helm_release(environment: &str, running: RunningVersion) -> (ObjectKey, Fact) {
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
