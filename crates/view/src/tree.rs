//! What a pipeline consists of: environments, targets, Flux objects, the workloads that they made, and images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::Pipeline;
use sluice_api::pipeline::WorkloadStatus;
use sluice_core::fleet::Kind;
use sluice_core::observed::Health;
use sluice_core::{Revision, Time};

use crate::running::RunningTarget;

/// One environment of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentNode {
    /// The environment.
    pub name: String,
    /// The environments before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The targets, in the order of the spec.
    pub targets: Vec<TargetNode>,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetNode {
    /// The target.
    pub name: String,
    /// The cluster; empty for the hub.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The namespace on the cluster.
    pub namespace: String,
    /// The revision that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
    /// What it ran healthily last, if it cannot be read now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_known: Option<LastKnown>,
    /// Its health.
    pub health: Health,
    /// Since when it has this health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why it is not healthy; empty if it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The Flux objects of the application.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<WorkloadNode>,
}

/// What a target that cannot be read ran healthily last, as far as the status has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastKnown {
    /// The revision.
    pub revision: String,
    /// When the target was first healthy with the revision. It may run another one since then.
    pub at: Time,
}

/// A Flux object, or a workload that it made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadNode {
    /// `Kind/name`.
    pub name: String,
    /// Its version, if it is a Flux object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Its health.
    pub health: Health,
    /// Why it is not healthy; empty if it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The images of its containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// The workloads that it made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<WorkloadNode>,
}

/// Returns the tree of a pipeline.
pub fn tree(pipeline: &Pipeline) -> Vec<EnvironmentNode> {
    let targets = RunningTarget::all(pipeline);
    let environments =
        pipeline.spec.environments.iter().enumerate().map(|(at, environment)| EnvironmentNode {
            name: environment.name.clone(),
            after: pipeline.spec.after(at).into_iter().map(String::from).collect(),
            targets: targets
                .iter()
                .filter(|t| t.environment == environment.name)
                .map(|of| target(of, pipeline))
                .collect(),
        });
    environments.collect()
}

/// Keeps an environment, or only this `environment/target`. Nothing is left if there is none.
pub fn retain_nodes(environments: &mut Vec<EnvironmentNode>, wanted: &str) {
    let (whole, target) = wanted.split_once('/').unwrap_or((wanted, ""));
    environments.retain_mut(|node| {
        node.targets.retain(|of| target.is_empty() || of.name == target);
        node.name == whole && !node.targets.is_empty()
    });
}

fn target(target: &RunningTarget<'_>, pipeline: &Pipeline) -> TargetNode {
    let mut members: Vec<WorkloadNode> = Vec::new();
    for workload in target.workloads() {
        let node = node(workload);
        // The status lists each Flux object before the workloads that it made.
        match members.last_mut() {
            Some(member) if !is_flux(workload) => member.made.push(node),
            _ => members.push(node),
        }
    }
    TargetNode {
        name: target.name.clone(),
        cluster: target.cluster.clone(),
        namespace: target.namespace.into(),
        runs: target.status.and_then(|status| status.revision.clone()),
        last_known: last_known(target, pipeline),
        health: target.health(),
        since: target.status.and_then(|status| status.since),
        error: target.status.map(|status| status.error.clone()).unwrap_or_default(),
        members,
    }
}

/// Returns what a target ran healthily last, if it is not known what it runs now.
fn last_known(target: &RunningTarget<'_>, pipeline: &Pipeline) -> Option<LastKnown> {
    let of = target.status.filter(|status| status.health == Health::Unknown && status.revision.is_none())?;
    let last = pipeline.status.as_ref()?.verified_by(of).pop()?;
    Some(LastKnown { revision: Revision::from_strings(&last.facets)?.to_string(), at: last.at })
}

fn is_flux(workload: &WorkloadStatus) -> bool {
    Kind::of_flux(&workload.kind).is_some()
}

fn node(workload: &WorkloadStatus) -> WorkloadNode {
    WorkloadNode {
        name: format!("{}/{}", workload.kind, workload.name),
        version: if is_flux(workload) { workload.version.clone() } else { String::new() },
        health: workload.health,
        message: if workload.health == Health::Ready { String::new() } else { workload.message.clone() },
        images: workload.images.clone(),
        made: Vec::new(),
    }
}
