//! What the hub tells of clusters, and what the clusters tell of themselves.

use std::collections::{BTreeSet, HashMap};

use kube::ResourceExt;

use super::{Input, PipelineKey, named};
use crate::engine::Engine;
use crate::observe::early::{Heard, STANDING};
use crate::observe::facts::{ClusterEvent, ClusterKey};
use crate::observe::index::Touched;
use crate::watch::guard::Unreadable;
use crate::watch::session::Access;
use crate::watch::stream::Seen;

impl Engine {
    pub(crate) fn clusters_seen(&mut self, seen: Option<Seen<sluice_api::GitopsCluster>>) {
        let key = |c: &sluice_api::GitopsCluster| (c.namespace().unwrap_or_default(), c.name_any());
        self.has_cluster_kind = seen.is_some();
        match seen {
            None => self.clusters = Some(HashMap::new()),
            Some(Seen::Listed(all, _)) => {
                self.clusters = Some(all.into_iter().map(|c| (key(&c), c.spec)).collect())
            }
            Some(Seen::Applied(c)) => {
                self.clusters.get_or_insert_default().insert(key(&c), c.spec);
            }
            Some(Seen::Deleted(metadata) | Seen::Unreadable(Unreadable { metadata, .. })) => {
                let gone = named(&metadata);
                self.clusters.get_or_insert_default().remove(&(gone.namespace, gone.name));
            }
            Some(Seen::Failed(error)) => {
                tracing::warn!(%error, "cannot watch GitopsClusters: may the controller read them?");
            }
        }
        self.settle_fleet();
    }

    /// Has a session with each cluster that a pipeline refers to, and with no other.
    pub(crate) fn settle_fleet(&mut self) {
        if !self.listed.0 {
            return;
        }
        let unwanted: Vec<ClusterKey> =
            self.places.iter().filter(|(_, places)| places.is_empty()).map(|(key, _)| key.clone()).collect();
        for key in unwanted {
            self.places.remove(&key);
            self.fleet.end(&key);
            self.index.forget(&key);
        }
        let wanted: Vec<(ClusterKey, BTreeSet<String>)> =
            self.places.iter().map(|(key, places)| (key.clone(), places.keys().cloned().collect())).collect();
        for (key, namespaces) in wanted {
            match self.access(&key) {
                None => {}
                Some(Ok(access)) => self.fleet.keep(&key, access, namespaces),
                Some(Err(why)) => {
                    self.fleet.end(&key);
                    self.cluster_event(&key, ClusterEvent::Lost(why));
                }
            }
        }
    }

    /// Where the kubeconfig of a cluster is; `None` before the hub's clusters are known.
    fn access(&self, key: &ClusterKey) -> Option<Result<Access, String>> {
        let ClusterKey::Remote { namespace, name } = key else { return Some(Ok(Access::Local)) };
        if !self.has_cluster_kind {
            return Some(Err(
                "this cluster has no kind GitopsCluster (gitops.weave.works): apply deploy/gitopscluster.yaml, or leave clusterRef out"
                    .into(),
            ));
        }
        let Some(spec) = self.clusters.as_ref()?.get(&(namespace.clone(), name.clone())) else {
            return Some(Err(format!(
                "there is no GitopsCluster {namespace}/{name}: create it, or correct the target's clusterRef"
            )));
        };
        Some(match spec.kubeconfig_secret() {
            Some(secret) => Ok(Access::Secret { namespace: namespace.clone(), name: secret }),
            None => Err(format!(
                "GitopsCluster {namespace}/{name} says not where its kubeconfig is: set spec.secretRef.name or \
                 spec.capiClusterRef.name"
            )),
        })
    }

    /// Takes in what a cluster says, or lets it wait where it may have come too early.
    pub(crate) fn cluster_said(&mut self, key: ClusterKey, event: ClusterEvent) {
        match self.early.hear(&self.index, &key, event) {
            Heard::Now(event) => self.cluster_event(&key, event),
            Heard::Later(object, number) => {
                let tell = self.tell.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(STANDING).await;
                    let _ = tell.send(Input::Stood(key, object, number));
                });
            }
        }
    }

    pub(crate) fn cluster_event(&mut self, key: &ClusterKey, event: ClusterEvent) {
        // A cluster that nobody refers to any more has nothing to say.
        let Some(places) = self.places.get(key) else { return };
        let touched = self.index.apply(key, event);
        let pipelines: Vec<PipelineKey> = match touched {
            Touched::Nothing => return,
            Touched::Everything => places.values().flatten().cloned().collect(),
            Touched::Namespaces(namespaces) => {
                namespaces.iter().filter_map(|n| places.get(n)).flatten().cloned().collect()
            }
        };
        pipelines.iter().for_each(|pipeline| self.touch(pipeline));
    }
}
