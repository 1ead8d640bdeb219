//! Objects as Kubernetes sends them, the events that they come in, and the questions that pipelines
//! ask about them.

use serde_json::{Map, Value, json};
use sluice_api::flux::{HelmRelease, Kustomization, Source};
use sluice_api::pipeline::{AppRef, ClusterRef, Target as TargetSpec, WorkloadRef};
use sluice_api::workload::Workload;
use sluice_controller::observe::facts::{ClusterEvent, ClusterKey, Fact, FluxFact, Kind, ObjectKey};
use sluice_controller::observe::index::{AffectedTargets, Index};
use sluice_controller::observe::target::{NotYet, Question, observe};
use sluice_controller::observe::trim;
use sluice_core::observed::ObservedTarget;
use sluice_core::tracks::Track;

/// A revision of git, as Flux prints it.
pub const SHA: &str = "6a19e380336e08b2c9535434389af69359f9b1f0";

/// What is kept of an object, as a watch of its kind would have it.
pub fn fact(object: &Value) -> (ObjectKey, Fact) {
    let name = object["kind"].as_str().unwrap();
    let kind = *Kind::ALL.iter().find(|k| k.name() == name).unwrap();
    match kind {
        Kind::Kustomization => {
            let o: Kustomization = read(object);
            (trim::key(kind, &o), trim::kustomization(&o))
        }
        Kind::HelmRelease => {
            let o: HelmRelease = read(object);
            (trim::key(kind, &o), trim::helm_release(&o))
        }
        Kind::GitRepository => {
            let o: Source = read(object);
            (trim::key(kind, &o), trim::git_repository(&o))
        }
        Kind::Namespace => {
            let name = object["metadata"]["name"].as_str().unwrap().to_string();
            (ObjectKey { kind, namespace: String::new(), name }, Fact::Namespace { allowed: None })
        }
        Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet | Kind::CronJob => {
            let o: Workload = read(object);
            (trim::key(kind, &o), trim::workload(kind, &o).expect("Flux made it"))
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap()
}

/// What is kept of a Kustomization or HelmRelease.
pub fn flux_fact(object: &Value) -> FluxFact {
    match fact(object).1 {
        Fact::Flux(flux) => *flux,
        other => panic!("{other:?} is not Flux's"),
    }
}

/// The object with one more value, at a path of names or places.
pub fn with(mut object: Value, path: &str, value: Value) -> Value {
    let mut at = &mut object;
    for step in path.split('/') {
        at = match step.parse::<usize>() {
            Ok(place) if at.is_array() => &mut at[place],
            _ => {
                if !at.is_object() {
                    *at = Value::Object(Map::new());
                }
                at.as_object_mut().unwrap().entry(step).or_insert(Value::Null)
            }
        };
    }
    *at = value;
    object
}

/// The object with a label.
pub fn labelled(object: Value, label: &str, value: &str) -> Value {
    let mut labels = object["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(label.into(), value.into());
    with(object, "metadata/labels", labels.into())
}

/// A condition that speaks of a generation.
pub fn condition(kind: &str, status: &str, reason: &str, message: &str, generation: i64) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "observedGeneration": generation, "lastTransitionTime": "2026-11-21T08:00:00Z"})
}

/// A HelmRelease that runs a chart healthily.
pub fn helm_release(namespace: &str, name: &str, chart: &str) -> Value {
    json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"namespace": namespace, "name": name, "generation": 2},
        "spec": {"chart": {"spec": {"chart": name, "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}},
        "status": {
            "observedGeneration": 2,
            "conditions": [condition("Ready", "True", "UpgradeSucceeded", "Helm upgrade succeeded", 2)],
            "history": [{"version": 4, "status": "deployed", "chartVersion": chart}],
        },
    })
}

/// A Kustomization that has applied a commit, made these workloads, and does not wait for them.
pub fn kustomization(namespace: &str, name: &str, made: &[&str]) -> Value {
    let entry = |id: &&str| json!({"id": id, "v": "v1"});
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"namespace": namespace, "name": name, "generation": 2},
        "spec": {"path": "./apps", "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        "status": {
            "observedGeneration": 2,
            "conditions": [condition("Ready", "True", "ReconciliationSucceeded", "Applied revision", 2)],
            "lastAppliedRevision": format!("main@sha1:{SHA}"),
            "lastAttemptedRevision": format!("main@sha1:{SHA}"),
            "inventory": {"entries": made.iter().map(entry).collect::<Vec<_>>()},
        },
    })
}

/// A Deployment with all of its one pod up, made by a Kustomization or HelmRelease.
pub fn deployment(namespace: &str, name: &str, by: (&str, &str, &str), image: &str) -> Value {
    let (group, maker_namespace, maker) = by;
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": name, "generation": 3},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": image}]}}},
        "status": {
            "observedGeneration": 3, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
            "conditions": [
                {"type": "Available", "status": "True"},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
            ],
        },
    });
    let object = labelled(object, &format!("{group}.toolkit.fluxcd.io/namespace"), maker_namespace);
    labelled(object, &format!("{group}.toolkit.fluxcd.io/name"), maker)
}

/// A namespace.
pub fn namespace(name: &str) -> Value {
    json!({"kind": "Namespace", "metadata": {"name": name}})
}

/// A cluster that is not the hub's own.
pub fn remote(name: &str) -> ClusterKey {
    ClusterKey::Remote { namespace: "fleet".into(), name: name.into() }
}

/// A list of all objects of a kind, on the whole cluster.
pub fn listed(kind: Kind, objects: &[Value]) -> ClusterEvent {
    let of_kind = objects.iter().filter(|o| o["kind"] == kind.name());
    ClusterEvent::Listed(kind, None, of_kind.map(fact).collect())
}

/// Connects a cluster that lists these objects and no others.
pub fn connect(index: &mut Index, cluster: &ClusterKey, objects: &[Value]) {
    index.apply(cluster, ClusterEvent::Connected);
    for kind in Kind::ALL {
        index.apply(cluster, listed(kind, objects));
    }
}

/// An index with the hub's own cluster, which lists these objects.
pub fn local(objects: &[Value]) -> Index {
    let mut index = Index::default();
    connect(&mut index, &ClusterKey::Local, objects);
    index
}

/// An object is there, or has changed.
pub fn applied(index: &mut Index, object: &Value) -> AffectedTargets {
    let (key, fact) = fact(object);
    index.apply(&ClusterKey::Local, ClusterEvent::Applied(key, fact))
}

/// What a pipeline asks about one of its targets.
pub struct Ask {
    pipeline: String,
    app: Option<AppRef>,
    target: TargetSpec,
    cluster: ClusterKey,
    tracks: Vec<Track>,
}

/// Asks for what belongs to the pipeline `podinfo` by label.
pub fn by_label(namespace: &str) -> Ask {
    let target = TargetSpec { namespace: namespace.into(), ..TargetSpec::default() };
    Ask { pipeline: "podinfo".into(), app: None, target, cluster: ClusterKey::Local, tracks: Vec::new() }
}

/// Asks for an application of this kind named `podinfo`.
pub fn by_app(kind: &str, namespace: &str) -> Ask {
    let group = if kind == "HelmRelease" { "helm" } else { "kustomize" };
    by_app_of(&format!("{group}.toolkit.fluxcd.io/v1"), kind, namespace)
}

/// Asks for an application of any kind.
pub fn by_app_of(api_version: &str, kind: &str, namespace: &str) -> Ask {
    let app = AppRef { api_version: api_version.into(), kind: kind.into(), name: "podinfo".into() };
    Ask { app: Some(app), ..by_label(namespace) }
}

impl Ask {
    /// For another pipeline.
    pub fn of(self, pipeline: &str) -> Self {
        Ask { pipeline: pipeline.into(), ..self }
    }

    /// With a member by name.
    pub fn and(mut self, kind: &str, name: &str) -> Self {
        self.target.workloads.push(WorkloadRef { kind: kind.into(), name: name.into() });
        self
    }

    /// For a pipeline that tracks images.
    pub fn with_images(self) -> Self {
        Ask { tracks: vec![Track::Images], ..self }
    }

    /// For a pipeline that tracks these.
    pub fn tracking(&self, tracks: &[&str]) -> Self {
        let tracks = tracks.iter().map(|track| track.parse().unwrap()).collect();
        Ask { app: self.app.clone(), tracks, ..by_label(&self.target.namespace) }
    }

    /// On another cluster.
    pub fn on(mut self, cluster: ClusterKey) -> Self {
        if let ClusterKey::Remote { namespace, name } = &cluster {
            let namespace = Some(namespace.clone());
            let kind = "GitopsCluster".into();
            self.target.cluster_ref =
                Some(ClusterRef { api_version: None, kind, name: name.clone(), namespace });
        }
        Ask { cluster, ..self }
    }

    /// The answer, or that there is none yet.
    pub fn ask(&self, index: &Index) -> Result<ObservedTarget, NotYet> {
        let Ask { pipeline, app, target, cluster, tracks } = self;
        let question = Question { pipeline, app: app.as_ref(), target, cluster, tracks };
        observe(&question, index.cluster(cluster))
    }

    /// The answer.
    pub fn see(&self, index: &Index) -> ObservedTarget {
        self.ask(index).expect("the cluster has answered")
    }

    /// Why the target cannot be read.
    pub fn error(&self, index: &Index) -> String {
        self.see(index).error.unwrap_or_default()
    }

    /// The kinds and names of the target's members.
    pub fn members(&self, index: &Index) -> Vec<String> {
        self.see(index).members.iter().map(|m| format!("{}/{}", m.kind, m.name)).collect()
    }
}
