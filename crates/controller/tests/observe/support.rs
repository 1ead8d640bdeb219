//! Objects in the form of Kubernetes, watch events, and queries of targets.

use serde_json::{Map, Value, json};
use sluice_api::flux::{HelmRelease, Kustomization, Source};
use sluice_api::pipeline::{AppRef, ClusterRef, Target, WorkloadRef};
use sluice_api::workload::Workload;
use sluice_controller::observe::facts::{helm_release, kustomization, metadata, source, trigger, workload};
use sluice_controller::observe::target::{NoAnswerYet, ObservedMembers, TargetQuery, observe};
use sluice_core::fleet::index::Index;
use sluice_core::fleet::observed_cluster::AffectedTargets;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Fact, FluxFact, Kind, ObjectKey};
use sluice_core::observed::ObservedTarget;
use sluice_core::tracks::Track;

/// The SHA-1 of a git commit.
pub const SHA: &str = "6a19e380336e08b2c9535434389af69359f9b1f0";

/// Returns the key and the facts of an object.
pub fn fact(object: &Value) -> (ObjectKey, Fact) {
    let name = object["kind"].as_str().unwrap();
    let shown = Kind::SHOWN.into_iter().chain(Kind::SHOWN_ON_HUB);
    let kind = Kind::DECIDING.into_iter().chain(shown).find(|k| k.name() == name).unwrap();
    match kind {
        Kind::Kustomization => {
            let o: Kustomization = read(object);
            (metadata::key(kind, &o), kustomization::facts(&o))
        }
        Kind::HelmRelease => {
            let o: HelmRelease = read(object);
            (metadata::key(kind, &o), helm_release::facts(&o))
        }
        Kind::GitRepository
        | Kind::OciRepository
        | Kind::HelmRepository
        | Kind::HelmChart
        | Kind::Bucket
        | Kind::ExternalArtifact => {
            let o: Source = read(object);
            (metadata::key(kind, &o), source::facts(kind, &o))
        }
        Kind::Namespace => {
            let name = object["metadata"]["name"].as_str().unwrap().to_string();
            (ObjectKey { kind, namespace: String::new(), name }, Fact::Namespace { allowed: None })
        }
        Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet | Kind::CronJob => {
            let o: Workload = read(object);
            (metadata::key(kind, &o), workload::facts(kind, &o))
        }
        Kind::ImagePolicy => keyed(kind, object, trigger::image_policy),
        Kind::ImageUpdateAutomation => keyed(kind, object, trigger::image_update_automation),
        Kind::Receiver => keyed(kind, object, trigger::receiver),
        Kind::Alert => keyed(kind, object, trigger::alert),
        Kind::Provider => keyed(kind, object, trigger::provider),
    }
}

fn keyed<K>(kind: Kind, object: &Value, facts: impl Fn(&K) -> Fact) -> (ObjectKey, Fact)
where
    K: kube::ResourceExt + serde::de::DeserializeOwned,
{
    let object: K = read(object);
    (metadata::key(kind, &object), facts(&object))
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap()
}

/// Returns the facts of a Kustomization or HelmRelease.
pub fn flux_fact(object: &Value) -> FluxFact {
    match fact(object).1 {
        Fact::Flux(flux) => *flux,
        other => panic!("{other:?} is not a Flux object"),
    }
}

/// Returns an object with a value set at a path of field names and array indexes.
pub fn with(mut object: Value, path: &str, value: Value) -> Value {
    let mut at = &mut object;
    for step in path.split('/') {
        at = match step.parse::<usize>() {
            Ok(index) if at.is_array() => &mut at[index],
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

/// Returns an object with a label.
pub fn labelled(object: Value, label: &str, value: &str) -> Value {
    let mut labels = object["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(label.into(), value.into());
    with(object, "metadata/labels", labels.into())
}

/// Returns a condition with an observed generation.
pub fn condition(kind: &str, status: &str, reason: &str, message: &str, generation: i64) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "observedGeneration": generation, "lastTransitionTime": "2026-11-21T08:00:00Z"})
}

/// Returns a Ready HelmRelease of a chart version.
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

/// Returns a Ready Kustomization with an inventory of these objects, for which it does not wait.
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

/// Returns a healthy Deployment with one pod, whose labels name a Kustomization or HelmRelease as owner.
pub fn deployment(namespace: &str, name: &str, by: (&str, &str, &str), image: &str) -> Value {
    let (group, owner_namespace, owner) = by;
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
    let object = labelled(object, &format!("{group}.toolkit.fluxcd.io/namespace"), owner_namespace);
    labelled(object, &format!("{group}.toolkit.fluxcd.io/name"), owner)
}

/// Returns a Namespace.
pub fn namespace(name: &str) -> Value {
    json!({"kind": "Namespace", "metadata": {"name": name}})
}

/// Returns a cluster other than the hub.
pub fn remote(name: &str) -> ClusterKey {
    ClusterKey::Remote { namespace: "fleet".into(), name: name.into() }
}

/// Returns the event of a list of all objects of a kind on the whole cluster.
pub fn listed(kind: Kind, objects: &[Value]) -> ClusterEvent {
    let of_kind = objects.iter().filter(|o| o["kind"] == kind.name());
    ClusterEvent::Listed(kind, None, of_kind.map(fact).collect())
}

/// Connects a cluster, and lists these objects and no others.
pub fn list_all(index: &mut Index, cluster: &ClusterKey, objects: &[Value]) {
    index.apply(cluster, ClusterEvent::Connected);
    for kind in Kind::DECIDING {
        index.apply(cluster, listed(kind, objects));
    }
}

/// Connects a cluster that has exactly these objects, and that no change has followed.
pub fn connect(index: &mut Index, cluster: &ClusterKey, objects: &[Value]) {
    list_all(index, cluster, objects);
    answer_reads(index, cluster);
}

/// Returns an index in which the hub has exactly these objects.
pub fn local(objects: &[Value]) -> Index {
    let mut index = Index::default();
    connect(&mut index, &ClusterKey::Local, objects);
    index
}

/// Answers the reads of what Flux objects of a cluster own: there is no change that no watch has reported.
pub fn answer_reads(index: &mut Index, cluster: &ClusterKey) {
    for read in index.take_reads(cluster) {
        index.apply(cluster, ClusterEvent::OwnedWasRead(read.owner, read.number, Ok(Vec::new())));
    }
}

/// Applies an object to the hub, and answers the read that may follow.
pub fn applied(index: &mut Index, object: &Value) -> AffectedTargets {
    let (key, fact) = fact(object);
    let affected = index.apply(&ClusterKey::Local, ClusterEvent::Applied(key, fact));
    answer_reads(index, &ClusterKey::Local);
    affected
}

/// Builds a [`TargetQuery`].
pub struct QueryBuilder {
    pipeline: String,
    app: Option<AppRef>,
    target: Target,
    cluster: ClusterKey,
    tracks: Vec<Track>,
}

/// Queries the members that have the label of the pipeline `podinfo`.
pub fn by_label(namespace: &str) -> QueryBuilder {
    let target = Target { namespace: namespace.into(), ..Target::default() };
    QueryBuilder {
        pipeline: "podinfo".into(),
        app: None,
        target,
        cluster: ClusterKey::Local,
        tracks: Vec::new(),
    }
}

/// Queries the application `podinfo` of a kind.
pub fn by_app(kind: &str, namespace: &str) -> QueryBuilder {
    let group = if kind == "HelmRelease" { "helm" } else { "kustomize" };
    by_app_ref(&format!("{group}.toolkit.fluxcd.io/v1"), kind, namespace)
}

/// Queries the application `podinfo` of any API version and kind.
pub fn by_app_ref(api_version: &str, kind: &str, namespace: &str) -> QueryBuilder {
    let app = AppRef { api_version: api_version.into(), kind: kind.into(), name: "podinfo".into() };
    QueryBuilder { app: Some(app), ..by_label(namespace) }
}

impl QueryBuilder {
    /// Sets the pipeline.
    pub fn for_pipeline(self, pipeline: &str) -> Self {
        QueryBuilder { pipeline: pipeline.into(), ..self }
    }

    /// Adds a member by name.
    pub fn with_member(mut self, kind: &str, name: &str) -> Self {
        self.target.workloads.push(WorkloadRef { kind: kind.into(), name: name.into() });
        self
    }

    /// Makes the pipeline track images.
    pub fn with_images(self) -> Self {
        QueryBuilder { tracks: vec![Track::Images], ..self }
    }

    /// Makes the pipeline track these facets.
    pub fn tracking(&self, tracks: &[&str]) -> Self {
        let tracks = tracks.iter().map(|track| track.parse().unwrap()).collect();
        QueryBuilder { app: self.app.clone(), tracks, ..by_label(&self.target.namespace) }
    }

    /// Sets the cluster.
    pub fn on(mut self, cluster: ClusterKey) -> Self {
        if let ClusterKey::Remote { namespace, name } = &cluster {
            let namespace = Some(namespace.clone());
            let kind = "GitopsCluster".into();
            self.target.cluster_ref =
                Some(ClusterRef { api_version: None, kind, name: name.clone(), namespace });
        }
        QueryBuilder { cluster, ..self }
    }

    /// Observes the target; an error while the cluster has not answered.
    pub fn try_observe(&self, index: &Index) -> Result<ObservedTarget, NoAnswerYet> {
        let QueryBuilder { pipeline, app, target, cluster, tracks } = self;
        let query = TargetQuery { pipeline, app: app.as_ref(), target, cluster, tracks };
        observe(&query, index.cluster(cluster).as_deref(), &mut ObservedMembers::default())
    }

    /// Observes the target.
    pub fn observe(&self, index: &Index) -> ObservedTarget {
        self.try_observe(index).expect("the cluster has answered")
    }

    /// Returns the error of the target.
    pub fn error(&self, index: &Index) -> String {
        self.observe(index).error.unwrap_or_default()
    }

    /// Returns the target's members as `kind/name`.
    pub fn members(&self, index: &Index) -> Vec<String> {
        self.observe(index).members.iter().map(|m| format!("{}/{}", m.kind, m.name)).collect()
    }
}
