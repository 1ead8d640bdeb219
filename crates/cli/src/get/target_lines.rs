//! The lines of `sluice get targets`: the targets in the order of the pipeline's spec, with their observed state from the
//! status. A target that was not observed yet also has a line.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::Pipeline;
use sluice_api::pipeline::{Environment, EnvironmentStatus, Health, TargetStatus, WorkloadStatus};
use sluice_core::Time;
use sluice_view::pipeline_screen::summarized;

use super::fetch::lean_metadata;
use super::listing::NOT_OBSERVED;

/// The fields of a Pipeline that the lines of its targets show.
#[derive(Clone, Debug, Default, Deserialize, kube::Resource)]
#[resource(inherit = Pipeline)]
#[serde(default)]
pub(crate) struct ListedTargets {
    #[serde(deserialize_with = "lean_metadata")]
    pub(super) metadata: ObjectMeta,
    spec: Spec,
    status: Option<Status>,
    /// Why the object cannot be read.
    #[serde(skip)]
    error: Option<String>,
}

impl ListedTargets {
    /// Returns what its status leaves out, if it does.
    pub(super) fn summarized(&self) -> Option<&str> {
        summarized(&self.status.as_ref()?.conditions)
    }

    /// Returns an unreadable Pipeline with the error.
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
    conditions: Vec<Condition>,
    environments: BTreeMap<String, EnvironmentStatus>,
}

/// One workload of a target, or the target alone if no workload is known. `-o json` prints the same fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct TargetLine {
    /// The name of the pipeline.
    pub(super) pipeline: String,
    /// The environment.
    pub(super) environment: String,
    /// The target.
    pub(super) target: String,
    /// The name of the GitopsCluster; empty for the hub.
    pub(super) cluster: String,
    /// The namespace on the cluster.
    pub(super) namespace: String,
    /// The workload, as `Kind/name`; empty if none is known.
    pub(super) workload: String,
    /// The version of the workload; without one, that of the target.
    pub(super) version: String,
    /// The health.
    pub(super) health: Health,
    /// Since when it has this health; `null` if that is not known.
    pub(super) since: Option<Time>,
    /// When events last reported the target, if Sluice reads it by events only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reported: Option<Time>,
    /// Why the target cannot be read; empty if it can.
    pub(super) error: String,
    /// The whole revision of the target.
    pub(super) revision: String,
    /// The images of the workload.
    pub(super) images: Vec<String>,
}

/// Returns the lines of a pipeline, in the order of its spec.
pub(super) fn lines(seen: &ListedTargets) -> Vec<TargetLine> {
    if let Some(error) = &seen.error {
        return vec![TargetLine { pipeline: seen.name_any(), error: error.clone(), ..TargetLine::default() }];
    }
    let nothing = EnvironmentStatus::default();
    let observed = seen.status.as_ref().map(|s| &s.environments);
    let mut lines = Vec::new();
    for environment in &seen.spec.environments {
        let status = observed.and_then(|o| o.get(&environment.name)).unwrap_or(&nothing);
        let names = environment.target_names();
        for (n, (target, name)) in environment.targets.iter().zip(names).enumerate() {
            let base = TargetLine {
                pipeline: seen.name_any(),
                environment: environment.name.clone(),
                target: name,
                cluster: target.cluster_name(seen.metadata.namespace.as_deref().unwrap_or_default()),
                namespace: target.namespace.clone(),
                ..TargetLine::default()
            };
            match target.status_in(status, n, &base.target) {
                Some(observed) => lines.extend(of_target(&base, observed)),
                None => lines.push(TargetLine { error: NOT_OBSERVED.into(), ..base }),
            }
        }
    }
    lines
}

fn of_target(base: &TargetLine, target: &TargetStatus) -> Vec<TargetLine> {
    let base = TargetLine {
        target: if target.name.is_empty() { base.target.clone() } else { target.name.clone() },
        health: target.shown_health(),
        since: target.since,
        reported: target.reported,
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

fn of_workload(base: &TargetLine, target: &TargetStatus, workload: &WorkloadStatus) -> TargetLine {
    // The last observed health of an unreadable target may be outdated.
    let health = if target.health == Health::Unknown { Health::Unknown } else { workload.health };
    // The target's error is shown for each workload, unless a workload has its own message.
    let has_message = target.workloads.iter().any(|w| !w.message.is_empty());
    let error = match (workload.message.as_str(), has_message && health != Health::Unknown) {
        ("", true) => String::new(),
        ("", false) => target.error.clone(),
        (message, _) => message.to_owned(),
    };
    TargetLine {
        workload: format!("{}/{}", workload.kind, workload.name),
        version: workload.version.clone(),
        images: workload.images.clone(),
        health,
        error,
        ..base.clone()
    }
}
