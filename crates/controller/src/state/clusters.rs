//! What the hub tells of clusters, and what the clusters tell of themselves.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use kube::ResourceExt;
use sluice_api::pipeline::Target;

use super::{Input, PipelineKey, named};
use crate::engine::{Engine, KnownCluster};
use crate::observe::early::{Heard, STANDING};
use crate::observe::facts::{Allowed, ClusterEvent, ClusterKey};
use crate::observe::index::{Cluster, Link, Touched};
use crate::observe::target::NotYet;
use crate::tenancy;
use crate::watch::guard::Unreadable;
use crate::watch::session::Access;
use crate::watch::stream::Seen;

impl Engine {
    pub(crate) fn clusters_seen(&mut self, seen: Option<Seen<sluice_api::GitopsCluster>>) {
        let key = |c: &sluice_api::GitopsCluster| (c.namespace().unwrap_or_default(), c.name_any());
        self.has_cluster_kind = seen.is_some();
        let known = |c: sluice_api::GitopsCluster| {
            let allowed = Allowed::of(c.annotations());
            (key(&c), KnownCluster { spec: c.spec, allowed })
        };
        let users = match seen {
            None => self.set_clusters(HashMap::new()),
            Some(Seen::Listed(all, _)) => self.set_clusters(all.into_iter().map(known).collect()),
            Some(Seen::Applied(c)) => {
                let (key, now) = known(c);
                self.set_cluster(key, Some(now))
            }
            Some(Seen::Deleted(metadata) | Seen::Unreadable(Unreadable { metadata, .. })) => {
                let gone = named(&metadata);
                self.set_cluster((gone.namespace, gone.name), None)
            }
            Some(Seen::Failed(error)) => {
                tracing::warn!(%error, "cannot watch GitopsClusters: may the controller read them?");
                Vec::new()
            }
        };
        users.iter().for_each(|pipeline| self.touch(pipeline));
        self.settle_fleet();
    }

    /// Replaces all clusters. Returns the pipelines that use one which lists other namespaces than before.
    fn set_clusters(&mut self, all: HashMap<(String, String), KnownCluster>) -> Vec<PipelineKey> {
        let allowed = |clusters: &HashMap<(String, String), KnownCluster>, key: &ClusterKey| {
            let ClusterKey::Remote { namespace, name } = key else { return None };
            clusters.get(&(namespace.clone(), name.clone()))?.allowed.clone()
        };
        let before = self.clusters.take().unwrap_or_default();
        let changed = self.places.iter().filter(|(key, _)| allowed(&before, key) != allowed(&all, key));
        let users = changed.flat_map(|(_, places)| places.values().flatten().cloned()).collect();
        self.clusters = Some(all);
        users
    }

    /// Replaces one cluster, or removes it. Returns the pipelines that use it if it lists other namespaces than
    /// before.
    fn set_cluster(&mut self, key: (String, String), now: Option<KnownCluster>) -> Vec<PipelineKey> {
        let clusters = self.clusters.get_or_insert_default();
        let allowed = now.as_ref().and_then(|now| now.allowed.clone());
        let before = match now {
            Some(now) => clusters.insert(key.clone(), now),
            None => clusters.remove(&key),
        };
        if before.and_then(|before| before.allowed) == allowed {
            return Vec::new();
        }
        let (namespace, name) = key;
        let places = self.places.get(&ClusterKey::Remote { namespace, name });
        places.into_iter().flat_map(|places| places.values().flatten().cloned()).collect()
    }

    /// Why a pipeline may not refer to what a target names; `None` when it may.
    ///
    /// # Errors
    /// [`NotYet`] before that is known.
    pub(crate) fn refuses(
        &self,
        pipeline: &PipelineKey,
        cluster: &ClusterKey,
        target: &Target,
    ) -> Result<Option<String>, NotYet> {
        let locked = self.options.no_cross_namespace_refs;
        let from = pipeline.namespace.as_str();
        match cluster {
            ClusterKey::Local => {
                let hub = self.index.cluster(&ClusterKey::Local);
                tenancy::refuses_namespace(locked, &target.namespace, from, hub)
            }
            ClusterKey::Remote { namespace, .. } if namespace == from => Ok(None),
            ClusterKey::Remote { namespace, name } => {
                let known = self.clusters.as_ref().ok_or(NotYet)?.get(&(namespace.clone(), name.clone()));
                let allowed = known.and_then(|known| known.allowed.as_ref());
                Ok(tenancy::refuses_cluster(locked, cluster, from, allowed))
            }
        }
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
            self.first_used.remove(&key);
            self.fleet.end(&key);
            self.index.forget(&key);
        }
        let wanted: Vec<(ClusterKey, BTreeSet<String>)> =
            self.places.iter().map(|(key, places)| (key.clone(), places.keys().cloned().collect())).collect();
        for (key, namespaces) in wanted {
            self.first_used.entry(key.clone()).or_insert_with(Instant::now);
            self.index.narrow(&key, namespaces.clone());
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
        let Some(known) = self.clusters.as_ref()?.get(&(namespace.clone(), name.clone())) else {
            return Some(Err(format!(
                "there is no GitopsCluster {namespace}/{name}: create it, or correct the target's clusterRef"
            )));
        };
        Some(match known.spec.kubeconfig_secret() {
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
        let before = self.index.cluster(key).map(|cluster| cluster.link().clone());
        let touched = self.index.apply(key, event);
        match self.index.cluster(key).map(Cluster::link) {
            now if now == before.as_ref() => {}
            Some(Link::Lost(why)) => tracing::warn!(cluster = %key, error = %why, "a cluster cannot be used"),
            Some(Link::Up) => tracing::info!(cluster = %key, "a cluster is read"),
            Some(Link::Connecting) | None => {}
        }
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
