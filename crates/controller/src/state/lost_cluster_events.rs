//! Events about clusters of a pipeline that are lost, or back again. The status names the clusters that were
//! reported as lost: events follow from the difference between two statuses, also after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::entries::PipelineEntry;
use super::pipelines::watched_targets;
use crate::record::pending_event::PendingEvent;
use sluice_core::fleet::ClusterKey;
use sluice_core::fleet::index::Index;
use sluice_core::fleet::observed_cluster::ClusterState;

/// The least time between two events about one cluster of a pipeline.
const MIN_EVENT_PAUSE: Duration = Duration::from_secs(60);

/// The lost clusters of a pipeline, as its next status names them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LostClusters {
    /// Their names, in order.
    pub names: Vec<String>,
    /// When a held-back change may be reported. A change is held back if an event about its cluster was sent
    /// shortly before.
    pub held_until: Option<Instant>,
}

/// Returns the clusters that the next status names as lost. `clusters` says whether each is lost (`None` while it
/// is being connected), `before` are the lost clusters of the last status, and `sent` is when the last event about
/// each was sent.
fn lost(
    clusters: &BTreeMap<ClusterKey, Option<bool>>,
    before: &[String],
    sent: &BTreeMap<ClusterKey, Instant>,
    now: Instant,
) -> LostClusters {
    let mut lost = LostClusters::default();
    for (cluster, is_lost) in clusters {
        let name = cluster.to_string();
        let was_lost = before.contains(&name);
        let mut is_lost = is_lost.unwrap_or(was_lost);
        let due =
            sent.get(cluster).map(|at| *at + MIN_EVENT_PAUSE).filter(|due| is_lost != was_lost && *due > now);
        if let Some(due) = due {
            is_lost = was_lost;
            lost.held_until = Some(lost.held_until.map_or(due, |earlier| earlier.min(due)));
        }
        lost.names.extend(is_lost.then_some(name));
    }
    lost
}

impl PipelineEntry {
    /// Returns the clusters that the next status names as lost, after a status that names those in `before`.
    pub(super) fn lost_clusters(&self, index: &Index, before: &[String], now: Instant) -> LostClusters {
        let is_lost = |cluster: &ClusterKey| match index.cluster(cluster)?.state() {
            ClusterState::Lost(_) => Some(true),
            ClusterState::Up => Some(false),
            ClusterState::Connecting => None,
        };
        let clusters = self.watched_clusters().map(|cluster| (is_lost(&cluster), cluster));
        let clusters = clusters.map(|(is_lost, cluster)| (cluster, is_lost)).collect();
        lost(&clusters, before, &self.cluster_events, now)
    }

    /// Returns an event for each cluster of the pipeline that only one of two statuses names as lost.
    pub(super) fn new_cluster_events(
        &mut self,
        index: &Index,
        (before, after): (&[String], &[String]),
        now: Instant,
    ) -> Vec<PendingEvent> {
        let clusters: BTreeSet<ClusterKey> = self.watched_clusters().collect();
        self.cluster_events.retain(|cluster, _| clusters.contains(cluster));
        let mut events = Vec::new();
        for key in clusters {
            let cluster = key.to_string();
            let is_lost = after.contains(&cluster);
            if is_lost == before.contains(&cluster) {
                continue;
            }
            let why = index.cluster(&key).and_then(|known| match known.state() {
                ClusterState::Lost(why) => Some(why.clone()),
                ClusterState::Connecting | ClusterState::Up => None,
            });
            let (pipeline, lost) = (self.object().clone(), why.filter(|_| is_lost));
            events.push(PendingEvent::Cluster { pipeline, cluster, lost });
            self.cluster_events.insert(key, now);
        }
        events
    }

    /// The clusters of the targets that Sluice watches, once for each target.
    fn watched_clusters(&self) -> impl Iterator<Item = ClusterKey> {
        let namespace = self.object().metadata.namespace.as_deref().unwrap_or_default();
        watched_targets(self.object()).map(move |target| target.cluster_key(namespace))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::effect::Effect;
    use super::super::fixtures::{key, state};
    use super::*;
    use sluice_core::fleet::{ClusterEvent, Kind};

    fn eu() -> ClusterKey {
        ClusterKey::Remote { namespace: "apps".into(), name: "eu".into() }
    }

    #[test]
    fn a_cluster_that_flaps_is_reported_once_a_minute() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let named = [eu().to_string()];
        for (before, is_lost, sent, expected, held) in [
            (&[][..], Some(true), None, &named[..], None),
            (&[], Some(false), None, &[], None),
            (&named, Some(false), None, &[], None),
            // While the cluster is being connected, its state is not known.
            (&named, None, None, &named, None),
            (&[], None, None, &[], None),
            (&[], Some(true), Some(now), &[], Some(at(60))),
            (&named, Some(false), Some(now), &named, Some(at(60))),
            (&named, Some(true), Some(now), &named, None),
        ] {
            let sent = sent.map(|at| (eu(), at)).into_iter().collect();
            let clusters = [(eu(), is_lost)].into();
            let next = lost(&clusters, before, &sent, at(1));
            assert_eq!(
                next,
                LostClusters { names: expected.into(), held_until: held },
                "{before:?} {is_lost:?}"
            );
            assert_eq!(lost(&clusters, before, &sent, at(60)).held_until, None);
        }
    }

    /// Starts a process that finds a status and receives these events of the only cluster. Returns the status that
    /// it writes, and whether each event that it sends is about a loss.
    fn restarted(status: &serde_json::Value, events: Vec<ClusterEvent>) -> (serde_json::Value, Vec<bool>) {
        let mut state = state();
        let target = json!({"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": "eu"}});
        let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "resourceVersion": "4"},
            "spec": {"environments": [{"name": "dev", "targets": [target]}]}, "status": status});
        state.put_pipeline(serde_json::from_value(pipeline).unwrap());
        state.observed.insert(eu());
        events.into_iter().for_each(|event| state.cluster_event(&eu(), event));
        state.reconcile(&key());
        let announced = state.effects.iter().filter_map(|effect| match effect {
            Effect::SendEvent(PendingEvent::Cluster { lost, .. }) => Some(lost.is_some()),
            _ => None,
        });
        let announced = announced.collect();
        (serde_json::to_value(state.pipelines[&key()].cached.parts.status()).unwrap(), announced)
    }

    #[test]
    fn each_loss_and_return_is_reported_once_also_across_restarts() {
        // The cluster answers, and the target still fails, because the cluster has no kind of Flux.
        let is_up = || {
            let absent = Kind::DECIDING.into_iter().map(ClusterEvent::Absent);
            std::iter::once(ClusterEvent::Connected).chain(absent).collect::<Vec<_>>()
        };
        let is_lost = || vec![ClusterEvent::Lost("no route to host".into())];
        let mut status = json!({});
        for (number, (events, expected)) in [
            (is_up(), &[][..]),
            (is_lost(), &[true]),
            (is_lost(), &[]),
            (is_up(), &[false]),
            (is_up(), &[]),
            (is_lost(), &[true]),
        ]
        .into_iter()
        .enumerate()
        {
            let announced;
            (status, announced) = restarted(&status, events);
            assert_eq!(announced, expected, "{number}");
        }
    }
}
