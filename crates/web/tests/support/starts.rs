//! A pipeline that begins on the hub and on two clusters, and what starts it there.

use std::sync::Arc;

use serde_json::json;
use sluice_core::fleet::index::Index;
use sluice_core::fleet::trigger_fact::{NamedObjects, TriggerFact};
use sluice_core::fleet::{ClusterEvent, ClusterKey, Fact, Kind};

use crate::fleet::{key, observe, release, remote};
use crate::world::{World, environment, pipeline, snapshot};

/// A hub and two clusters that all run podinfo, and Receivers of its charts in these namespaces of the hub.
pub fn podinfo_everywhere(receivers: impl Iterator<Item = (&'static str, String)>) -> Index {
    let mut index = Index::default();
    for cluster in [ClusterKey::Local, remote("eu"), remote("us")] {
        observe(&mut index, &cluster, &release("apps", "podinfo", "6.7.1"));
    }
    for kind in Kind::SHOWN_ON_HUB {
        index.apply(&ClusterKey::Local, ClusterEvent::Listed(kind, None, Vec::new()));
    }
    for (namespace, name) in receivers {
        let charts = NamedObjects {
            kind: Kind::HelmRepository,
            namespace: "flux-system".into(),
            name: Some("charts".into()),
        };
        let fact =
            TriggerFact::Receiver { sender: "github".into(), objects: vec![charts], problem: String::new() };
        let event =
            ClusterEvent::Applied(key(Kind::Receiver, namespace, &name), Fact::Trigger(Box::new(fact)));
        index.apply(&ClusterKey::Local, event);
    }
    index
}

/// Its pipeline begins on the hub and on both clusters.
pub fn begins_everywhere() -> World {
    let mut podinfo = pipeline("apps", "podinfo", [(); 3].map(|()| environment("6.7.1", "Ready", "")));
    let on = |name: &str| json!({"namespace": "apps", "clusterRef": {"kind": "GitopsCluster", "namespace": "fleet", "name": name}});
    let targets = json!([{"namespace": "apps"}, on("eu"), on("us")]);
    let object = Arc::make_mut(&mut podinfo.object);
    object.spec.environments[0].targets = serde_json::from_value(targets).unwrap();
    World::new(snapshot(vec![podinfo], vec![]))
}
