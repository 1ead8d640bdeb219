//! Events about clusters of a pipeline that are lost, or back again. The status names the clusters that people were
//! told are lost: an event follows from the difference between two statuses, also after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sluice_api::pipeline::Observe;

use crate::engine::Entry;
use crate::observe::facts::ClusterKey;
use crate::observe::index::{Index, Link};
use crate::record::events::Events;
use crate::translate;

/// The least time between two events about one cluster of a pipeline.
const PAUSE: Duration = Duration::from_secs(60);

/// The lost clusters of a pipeline, as its next status names them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Their names, in order.
    pub names: Vec<String>,
    /// When a change may be told that is held back now: an event about the same cluster was sent shortly before.
    pub held_until: Option<Instant>,
}

/// Returns the clusters that are lost, given whether each is (`None` while it is being connected), which ones the
/// last status names, and when the last event about each was sent.
fn lost(
    clusters: &BTreeMap<ClusterKey, Option<bool>>,
    before: &[String],
    sent: &BTreeMap<ClusterKey, Instant>,
    now: Instant,
) -> Lost {
    let mut lost = Lost::default();
    for (cluster, is_lost) in clusters {
        let name = cluster.to_string();
        let was_lost = before.contains(&name);
        let mut is_lost = is_lost.unwrap_or(was_lost);
        let due = sent.get(cluster).map(|at| *at + PAUSE).filter(|due| is_lost != was_lost && *due > now);
        if let Some(due) = due {
            is_lost = was_lost;
            lost.held_until = Some(lost.held_until.map_or(due, |earlier| earlier.min(due)));
        }
        lost.names.extend(is_lost.then_some(name));
    }
    lost
}

impl Entry {
    /// Returns the clusters whose loss the next status tells, after a status that names those in `before`.
    pub(crate) fn lost_clusters(&self, index: &Index, before: &[String], now: Instant) -> Lost {
        let is_lost = |cluster: &ClusterKey| match index.cluster(cluster)?.link() {
            Link::Lost(_) => Some(true),
            Link::Up => Some(false),
            Link::Connecting => None,
        };
        let clusters = self.watched_clusters().map(|cluster| (is_lost(&cluster), cluster));
        let clusters = clusters.map(|(is_lost, cluster)| (cluster, is_lost)).collect();
        lost(&clusters, before, &self.cluster_events, now)
    }

    /// Sends an event for each cluster of the pipeline that only one of two statuses names as lost.
    pub(crate) fn tell_of_clusters(
        &mut self,
        events: &Events,
        index: &Index,
        (before, after): (&[String], &[String]),
        now: Instant,
    ) {
        let clusters: BTreeSet<ClusterKey> = self.watched_clusters().collect();
        self.cluster_events.retain(|cluster, _| clusters.contains(cluster));
        for cluster in clusters {
            let name = cluster.to_string();
            let is_lost = after.contains(&name);
            if is_lost == before.contains(&name) {
                continue;
            }
            let why = index.cluster(&cluster).and_then(|known| match known.link() {
                Link::Lost(why) => Some(why.as_str()),
                Link::Connecting | Link::Up => None,
            });
            events.cluster(&self.object, &name, why.filter(|_| is_lost));
            self.cluster_events.insert(cluster, now);
        }
    }

    /// The clusters of the targets that Sluice watches; one that has several targets comes several times.
    fn watched_clusters(&self) -> impl Iterator<Item = ClusterKey> {
        let targets = self.object.spec.environments.iter().flat_map(|environment| &environment.targets);
        let watched = targets.filter(|target| target.observe == Observe::Watch);
        let namespace = self.object.metadata.namespace.as_deref().unwrap_or_default();
        watched.map(move |target| translate::cluster_of(target, namespace))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_delivery::clock;
    use sluice_testkit::Scratch;
    use tokio::sync::mpsc;

    use super::*;
    use crate::engine::Engine;
    use crate::engine::tests::engine_of;
    use crate::intake::PipelineKey;
    use crate::observe::facts::{ClusterEvent, Kind};

    fn eu() -> ClusterKey {
        ClusterKey::Remote { namespace: "apps".into(), name: "eu".into() }
    }

    #[test]
    fn a_cluster_that_flaps_is_told_once_a_minute() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let named = [eu().to_string()];
        for (before, is_lost, sent, expected, held) in [
            (&[][..], Some(true), None, &named[..], None),
            (&[], Some(false), None, &[], None),
            (&named, Some(false), None, &[], None),
            // While it is being connected nothing is known.
            (&named, None, None, &named, None),
            (&[], None, None, &[], None),
            (&[], Some(true), Some(now), &[], Some(at(60))),
            (&named, Some(false), Some(now), &named, Some(at(60))),
            (&named, Some(true), Some(now), &named, None),
        ] {
            let sent = sent.map(|at| (eu(), at)).into_iter().collect();
            let clusters = [(eu(), is_lost)].into();
            let next = lost(&clusters, before, &sent, at(1));
            assert_eq!(next, Lost { names: expected.into(), held_until: held }, "{before:?} {is_lost:?}");
            assert_eq!(lost(&clusters, before, &sent, at(60)).held_until, None);
        }
    }

    /// A hub that takes every status, and passes on the reason of each event.
    fn hub() -> (kube::Client, mpsc::UnboundedReceiver<String>) {
        let (sender, reasons) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let sender = sender.clone();
            async move {
                let (parts, body) = request.into_parts();
                let mut sent: serde_json::Value = serde_json::from_slice(&body.collect_bytes().await?)?;
                if parts.uri.path().ends_with("/events") {
                    let _ = sender.send(sent["reason"].as_str().unwrap_or_default().into());
                }
                sent["metadata"]["resourceVersion"] = "9".into();
                let answer = kube::client::Body::from(sent.to_string().into_bytes());
                http::Response::builder().status(201).body(answer).map_err(tower::BoxError::from)
            }
        });
        (kube::Client::new(service, "apps"), reasons)
    }

    /// The status that a new process writes, which finds another one and sees this of the only cluster.
    fn restarted(
        hub: &kube::Client,
        status: &serde_json::Value,
        seen: Vec<ClusterEvent>,
    ) -> serde_json::Value {
        let scratch = Scratch::new("clusters").unwrap();
        let (mut engine, _inputs): (Engine, _) = engine_of(&scratch, hub.clone());
        let target = json!({"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": "eu"}});
        let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "resourceVersion": "4"},
            "spec": {"environments": [{"name": "dev", "targets": [target]}]}, "status": status});
        engine.put_pipeline(serde_json::from_value(pipeline).unwrap());
        seen.into_iter().for_each(|event| engine.cluster_event(&eu(), event));
        let key = PipelineKey { namespace: "apps".into(), name: "podinfo".into() };
        engine.turn(&key, clock::now());
        serde_json::to_value(engine.pipelines[&key].stands()).unwrap()
    }

    #[tokio::test]
    async fn each_loss_and_return_is_told_once_whatever_happened_in_between() {
        let (hub, mut reasons) = hub();
        // The cluster answers, and the target fails all the same: no kind of Flux is there.
        let is_up = || {
            let absent = Kind::ALL.into_iter().map(ClusterEvent::Absent);
            std::iter::once(ClusterEvent::Connected).chain(absent).collect::<Vec<_>>()
        };
        let is_lost = || vec![ClusterEvent::Lost("no route to host".into())];
        let mut status = json!({});
        let mut told = Vec::new();
        for (seen, expected) in [
            (is_up(), None),
            (is_lost(), Some("ClusterLost")),
            (is_lost(), None),
            (is_up(), Some("ClusterBack")),
            (is_up(), None),
            (is_lost(), Some("ClusterLost")),
        ] {
            status = restarted(&hub, &status, seen);
            if let Some(expected) = expected {
                told.push((reasons.recv().await.unwrap(), expected));
            }
        }
        assert!(told.iter().all(|(reason, expected)| reason == expected), "{told:?}");
        assert!(reasons.try_recv().is_err());
    }
}
