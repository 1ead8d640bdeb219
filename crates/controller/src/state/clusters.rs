//! Handles the watch of GitopsClusters, and the events of the clusters.

use std::collections::{BTreeSet, HashMap};

use kube::ResourceExt;
use sluice_api::pipeline::Target;

use super::effect::Effect;
use super::{Input, KnownCluster, State};
use crate::key::PipelineKey;
use crate::observe::debounce::{Debounced, HOLD};
use crate::observe::facts::{AllowedNamespaces, ClusterEvent, ClusterKey, ObjectKey};
use crate::observe::index::{AffectedTargets, ClusterState, ObservedCluster};
use crate::observe::target::NoAnswerYet;
use crate::tenancy;
use crate::watch::parsed_object::UnreadableObject;
use crate::watch::session::KubeconfigSource;
use crate::watch::stream::ObjectEvent;

impl State {
    /// Takes in an event of the watch of GitopsClusters; `None` if the hub does not serve that kind.
    pub(super) fn gitops_cluster_event(&mut self, event: Option<ObjectEvent<sluice_api::GitopsCluster>>) {
        let key = |c: &sluice_api::GitopsCluster| (c.namespace().unwrap_or_default(), c.name_any());
        self.has_cluster_kind = event.is_some();
        let known = |c: sluice_api::GitopsCluster| {
            let allowed = AllowedNamespaces::of(c.annotations());
            (key(&c), KnownCluster { spec: c.spec, allowed })
        };
        let users = match event {
            None => self.set_clusters(HashMap::new()),
            Some(ObjectEvent::Listed(all, _)) => self.set_clusters(all.into_iter().map(known).collect()),
            Some(ObjectEvent::Applied(c)) => {
                let (key, now) = known(c);
                self.set_cluster(key, Some(now))
            }
            Some(
                ObjectEvent::Deleted(metadata) | ObjectEvent::Unreadable(UnreadableObject { metadata, .. }),
            ) => {
                let gone = PipelineKey::named(&metadata);
                self.set_cluster((gone.namespace, gone.name), None)
            }
            Some(ObjectEvent::Failed(error)) => {
                tracing::warn!(%error, "cannot watch GitopsClusters: may the controller read them?");
                Vec::new()
            }
        };
        users.iter().for_each(|pipeline| self.enqueue(pipeline));
        self.settle_fleet();
    }

    /// Replaces all clusters. Returns the pipelines that use a cluster whose list of allowed namespaces has
    /// changed.
    fn set_clusters(&mut self, all: HashMap<(String, String), KnownCluster>) -> Vec<PipelineKey> {
        let allowed = |clusters: &HashMap<(String, String), KnownCluster>, key: &ClusterKey| {
            let ClusterKey::Remote { namespace, name } = key else { return None };
            clusters.get(&(namespace.clone(), name.clone()))?.allowed.clone()
        };
        let before = self.clusters.take().unwrap_or_default();
        let changed = self.users.iter().filter(|(key, _)| allowed(&before, key) != allowed(&all, key));
        let users = changed.flat_map(|(_, places)| places.values().flatten().cloned()).collect();
        self.clusters = Some(all);
        users
    }

    /// Replaces one cluster, or removes it. Returns the pipelines that use it if its list of allowed namespaces
    /// has changed.
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
        let places = self.users.get(&ClusterKey::Remote { namespace, name });
        places.into_iter().flat_map(|places| places.values().flatten().cloned()).collect()
    }

    /// Why a pipeline may not have this target; `None` if it may.
    ///
    /// # Errors
    /// When that is not known yet.
    pub(super) fn target_refusal(
        &self,
        pipeline: &PipelineKey,
        cluster: &ClusterKey,
        target: &Target,
    ) -> Result<Option<String>, NoAnswerYet> {
        let locked = self.settings.no_cross_namespace_refs;
        let from = pipeline.namespace.as_str();
        match cluster {
            ClusterKey::Local => {
                let hub = self.index.cluster(&ClusterKey::Local);
                tenancy::namespace_refusal(locked, &target.namespace, from, hub)
            }
            ClusterKey::Remote { namespace, .. } if namespace == from => Ok(None),
            ClusterKey::Remote { namespace, name } => {
                let known =
                    self.clusters.as_ref().ok_or(NoAnswerYet)?.get(&(namespace.clone(), name.clone()));
                let allowed = known.and_then(|known| known.allowed.as_ref());
                Ok(tenancy::cluster_refusal(locked, cluster, from, allowed))
            }
        }
    }

    /// Connects to each cluster that a pipeline refers to, and to no other.
    pub(super) fn settle_fleet(&mut self) {
        if !self.listed.0 {
            return;
        }
        let unwanted: Vec<ClusterKey> =
            self.users.iter().filter(|(_, places)| places.is_empty()).map(|(key, _)| key.clone()).collect();
        for key in unwanted {
            self.users.remove(&key);
            self.first_used.remove(&key);
            self.emit(Effect::Disconnect(key.clone()));
            self.index.forget(&key);
        }
        let wanted: Vec<(ClusterKey, BTreeSet<String>)> =
            self.users.iter().map(|(key, places)| (key.clone(), places.keys().cloned().collect())).collect();
        for (key, namespaces) in wanted {
            self.first_used.entry(key.clone()).or_insert(self.now.instant);
            self.index.set_target_namespaces(&key, namespaces.clone());
            match self.access(&key) {
                None => {}
                Some(Ok(access)) => self.emit(Effect::Connect(key, access, namespaces)),
                Some(Err(why)) => {
                    self.emit(Effect::Disconnect(key.clone()));
                    self.cluster_event(&key, ClusterEvent::Lost(why));
                }
            }
        }
    }

    /// Where the kubeconfig of a cluster is, or why there is none. `None` before the GitopsClusters are known.
    fn access(&self, key: &ClusterKey) -> Option<Result<KubeconfigSource, String>> {
        let ClusterKey::Remote { namespace, name } = key else { return Some(Ok(KubeconfigSource::Local)) };
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
            Some(secret) => Ok(KubeconfigSource::Secret { namespace: namespace.clone(), name: secret }),
            None => Err(format!(
                "GitopsCluster {namespace}/{name} does not name its kubeconfig: set spec.secretRef.name or \
                 spec.capiClusterRef.name"
            )),
        })
    }

    /// Takes in an event of a cluster, or holds it back if it may have overtaken an earlier one.
    pub(super) fn cluster_reported(&mut self, key: ClusterKey, event: ClusterEvent) {
        match self.debounce.observe(&self.index, &key, event) {
            Debounced::Now(event) => self.cluster_event(&key, event),
            Debounced::Later(object, number) => {
                self.emit(Effect::Later(HOLD, Box::new(Input::Debounced(key, object, number))));
            }
        }
    }

    /// Takes in an event that was held back, unless a newer one of the object has replaced it.
    pub(super) fn debounced(&mut self, key: &ClusterKey, object: &ObjectKey, number: u64) {
        if let Some(event) = self.debounce.due(key, object, number) {
            self.cluster_event(key, event);
        }
    }

    /// Takes in an event of a cluster, and queues the pipelines that it affects.
    pub(super) fn cluster_event(&mut self, key: &ClusterKey, event: ClusterEvent) {
        // Events of a cluster that no pipeline refers to any more do not count.
        let Some(users) = self.users.get(key) else { return };
        let before = self.index.cluster(key).map(|cluster| cluster.state().clone());
        let touched = self.index.apply(key, event);
        match self.index.cluster(key).map(ObservedCluster::state) {
            now if now == before.as_ref() => {}
            Some(ClusterState::Lost(why)) => {
                tracing::warn!(cluster = %key, error = %why, "a cluster cannot be reached")
            }
            Some(ClusterState::Up) => tracing::info!(cluster = %key, "a cluster is connected"),
            Some(ClusterState::Connecting) | None => {}
        }
        let pipelines: Vec<PipelineKey> = match touched {
            AffectedTargets::None => return,
            AffectedTargets::All => users.values().flatten().cloned().collect(),
            AffectedTargets::InNamespaces(namespaces) => {
                namespaces.iter().filter_map(|n| users.get(n)).flatten().cloned().collect()
            }
        };
        pipelines.iter().for_each(|pipeline| self.enqueue(pipeline));
    }
}
