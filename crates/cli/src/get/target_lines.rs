//! What runs where, as lines: a pipeline's spec says which targets there are and in which order, its
//! status says what was seen there. A target nobody has seen yet has its line all the same.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use sluice_api::Pipeline;
use sluice_api::pipeline::{Environment, EnvironmentStatus, Health, Target, TargetStatus, WorkloadStatus};

use super::{NOT_SEEN, lean_metadata};

/// The fields of a Pipeline that the lines of its targets show.
#[derive(Clone, Debug, Default, Deserialize, kube::Resource)]
#[resource(inherit = Pipeline)]
#[serde(default)]
pub(crate) struct Seen {
    #[serde(deserialize_with = "lean_metadata")]
    pub(super) metadata: ObjectMeta,
    spec: Spec,
    status: Option<Status>,
    /// Why the object cannot be read.
    #[serde(skip)]
    error: Option<String>,
}

impl Seen {
    /// A Pipeline of which nothing can be read but its metadata.
    pub(super) fn unreadable(metadata: ObjectMeta, error: String) -> Self {
        Self { metadata, error: Some(error), ..Self::default() }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    environments: Vec<Environment>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    environments: BTreeMap<String, EnvironmentStatus>,
}

/// One workload on one target; or the target alone where no workload is known. This is also what
/// `-o json` prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) pipeline: String,
    pub(super) environment: String,
    pub(super) target: String,
    pub(super) cluster: String,
    pub(super) namespace: String,
    pub(super) workload: String,
    pub(super) version: String,
    pub(super) health: Health,
    pub(super) since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reported: Option<String>,
    pub(super) error: String,
    pub(super) revision: String,
    pub(super) images: Vec<String>,
}

/// The lines of one pipeline, in the order of its spec.
pub(super) fn lines(seen: &Seen) -> Vec<Line> {
    if let Some(error) = &seen.error {
        return vec![Line { pipeline: seen.name_any(), error: error.clone(), ..Line::default() }];
    }
    let nothing = EnvironmentStatus::default();
    let observed = seen.status.as_ref().map(|s| &s.environments);
    let mut lines = Vec::new();
    for environment in &seen.spec.environments {
        let status = observed.and_then(|o| o.get(&environment.name)).unwrap_or(&nothing);
        for (n, target) in environment.targets.iter().enumerate() {
            let base = Line {
                pipeline: seen.name_any(),
                environment: environment.name.clone(),
                target: name(target),
                cluster: cluster(target, seen.metadata.namespace.as_deref()),
                namespace: target.namespace.clone(),
                ..Line::default()
            };
            match observation(target, n, &status.targets) {
                Some(observed) => lines.extend(of_target(&base, observed)),
                None => lines.push(Line { error: NOT_SEEN.into(), ..base }),
            }
        }
    }
    lines
}

/// What was seen of the target that is the `n`th in the spec: by its name, or where it was given none
/// by its place, as long as that is still about the same namespace. The predecessor recorded targets by their
/// place only.
fn observation<'a>(target: &Target, n: usize, seen: &'a [TargetStatus]) -> Option<&'a TargetStatus> {
    let by_name = seen.iter().find(|s| s.name == name(target));
    let is_same = |s: &&TargetStatus| target.name.is_none() && s.namespace == target.namespace;
    by_name.or_else(|| seen.get(n).filter(|s| is_same(s) || is_of_predecessor(s)))
}

/// Whether the predecessor wrote this: it named neither target nor namespace.
fn is_of_predecessor(status: &TargetStatus) -> bool {
    status.name.is_empty() && status.namespace.is_empty()
}

/// The name that a target has until the controller has seen it: its own, or cluster and namespace.
fn name(target: &Target) -> String {
    match (&target.name, &target.cluster_ref) {
        (Some(name), _) => name.clone(),
        (None, Some(cluster)) => format!("{}-{}", cluster.name, target.namespace),
        (None, None) => target.namespace.clone(),
    }
}

fn cluster(target: &Target, home: Option<&str>) -> String {
    let Some(cluster) = &target.cluster_ref else { return String::new() };
    match cluster.namespace.as_deref() {
        Some(namespace) if Some(namespace) != home => format!("{namespace}/{}", cluster.name),
        _ => cluster.name.clone(),
    }
}

fn of_target(base: &Line, target: &TargetStatus) -> Vec<Line> {
    // The predecessor said only whether a target is ready.
    let was_ready = is_of_predecessor(target) && target.ready;
    let base = Line {
        target: if target.name.is_empty() { base.target.clone() } else { target.name.clone() },
        health: if was_ready { Health::Ready } else { target.health },
        since: target.since.clone(),
        reported: target.reported.clone(),
        error: target.error.clone(),
        revision: target.revision.clone().unwrap_or_default(),
        version: target.revision.clone().unwrap_or_default(),
        ..base.clone()
    };
    if target.workloads.is_empty() {
        return vec![base];
    }
    target.workloads.iter().map(|w| of_workload(&base, target, w)).collect()
}

fn of_workload(base: &Line, target: &TargetStatus, workload: &WorkloadStatus) -> Line {
    // What a target that cannot be read was last seen to do is not what it does.
    let health = if target.health == Health::Unknown { Health::Unknown } else { workload.health };
    // The target's error is each workload's, unless one of them says it itself.
    let told = target.workloads.iter().any(|w| !w.message.is_empty());
    let error = match (workload.message.as_str(), told && health != Health::Unknown) {
        ("", true) => String::new(),
        ("", false) => target.error.clone(),
        (message, _) => message.to_owned(),
    };
    Line {
        workload: format!("{}/{}", workload.kind, workload.name),
        version: workload.version.clone(),
        images: workload.images.clone(),
        health,
        error,
        ..base.clone()
    }
}
