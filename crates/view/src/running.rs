//! What runs where: the targets of pipelines, each with its last status.

use sluice_api::Pipeline;
use sluice_api::pipeline::{TargetStatus, WorkloadStatus};
use sluice_core::observed::Health;

/// One target of a pipeline.
pub(crate) struct RunningTarget<'a> {
    /// The pipeline, as `namespace/name`.
    pub pipeline: String,
    /// The environment.
    pub environment: &'a str,
    /// The target's name.
    pub name: String,
    /// The cluster as people read it; empty for the hub.
    pub cluster: String,
    /// The namespace on the cluster.
    pub namespace: &'a str,
    /// The last status; `None` if the controller has not observed the target yet.
    pub status: Option<&'a TargetStatus>,
}

impl<'a> RunningTarget<'a> {
    /// Returns all targets of a pipeline, in the order of its spec.
    pub(crate) fn all(pipeline: &'a Pipeline) -> Vec<RunningTarget<'a>> {
        let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
        let name = pipeline.metadata.name.as_deref().unwrap_or_default();
        let mut all = Vec::new();
        for environment in &pipeline.spec.environments {
            let status =
                pipeline.status.as_ref().and_then(|status| status.environments.get(&environment.name));
            let names = environment.target_names();
            for (n, (target, target_name)) in environment.targets.iter().zip(names).enumerate() {
                all.push(RunningTarget {
                    pipeline: format!("{home}/{name}"),
                    environment: &environment.name,
                    cluster: target.cluster_name(home),
                    namespace: &target.namespace,
                    status: status.and_then(|status| target.status_in(status, n, &target_name)),
                    name: target_name,
                });
            }
        }
        all
    }

    /// Returns the members and the workloads that they made.
    pub(crate) fn workloads(&self) -> &'a [WorkloadStatus] {
        self.status.map_or(&[], |status| &status.workloads)
    }

    /// Returns the health; Unknown before the first observation.
    pub(crate) fn health(&self) -> Health {
        self.status.map_or(Health::Unknown, TargetStatus::shown_health)
    }
}
