//! The fields of Deployments, StatefulSets, DaemonSets and CronJobs that Sluice reads: their images and their health.

use kube::core::Object;
use serde::{Deserialize, Serialize};

use crate::flux::FluxCondition;

/// Deployment, StatefulSet, DaemonSet or CronJob.
pub type Workload = Object<WorkloadSpec, WorkloadState>;

/// The fields that Sluice reads of a workload's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// The number of pods; 1 if absent.
    pub replicas: Option<i64>,
    /// How pods are replaced.
    pub update_strategy: Option<UpdateStrategy>,
    /// The pods of a Deployment, StatefulSet or DaemonSet.
    pub template: Option<PodTemplate>,
    /// The jobs of a CronJob.
    pub job_template: Option<JobTemplate>,
    /// After how many seconds without progress a Deployment counts as stuck; never if absent.
    pub progress_deadline_seconds: Option<i64>,
}

/// How a StatefulSet or DaemonSet replaces its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// RollingUpdate or OnDelete.
    #[serde(rename = "type")]
    pub type_: String,
    /// The settings of a rolling update.
    pub rolling_update: Option<RollingUpdate>,
}

/// The settings of a StatefulSet's rolling update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RollingUpdate {
    /// StatefulSet: pods below this number keep the old template.
    pub partition: Option<i64>,
}

/// The job template of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobTemplate {
    /// Its spec.
    pub spec: JobSpec,
}

/// The spec of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSpec {
    /// Its pods.
    pub template: PodTemplate,
}

/// A pod template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// Its spec.
    pub spec: PodSpec,
}

/// The containers of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The containers that run before the others.
    pub init_containers: Vec<Container>,
    /// The containers of the pod.
    pub containers: Vec<Container>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Container {
    /// The image of the container.
    pub image: String,
}

/// The fields that Sluice reads of a workload's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadState {
    /// The generation that its controller has observed.
    pub observed_generation: Option<i64>,
    /// Its conditions.
    pub conditions: Vec<FluxCondition>,
    /// Pods that exist.
    pub replicas: i64,
    /// Pods of the current template.
    pub updated_replicas: i64,
    /// Pods that have been ready for long enough.
    pub available_replicas: i64,
    /// Pods that are ready.
    pub ready_replicas: i64,
    /// StatefulSet: pods of the previous revision.
    pub current_replicas: i64,
    /// StatefulSet: the revision that is running.
    pub current_revision: String,
    /// StatefulSet: the revision that is being rolled out.
    pub update_revision: String,
    /// DaemonSet: pods that should run.
    pub desired_number_scheduled: i64,
    /// DaemonSet: pods that run where they should.
    pub current_number_scheduled: i64,
    /// DaemonSet: pods of the current template.
    pub updated_number_scheduled: i64,
    /// DaemonSet: pods that have been ready for long enough.
    pub number_available: i64,
    /// DaemonSet: pods that are ready.
    pub number_ready: i64,
}

impl WorkloadSpec {
    /// The images of all containers, in the order of the pod template.
    pub fn images(&self) -> Vec<String> {
        let pod = match (&self.template, &self.job_template) {
            (Some(template), _) => &template.spec,
            (None, Some(job)) => &job.spec.template.spec,
            (None, None) => return Vec::new(),
        };
        let images = pod.init_containers.iter().chain(&pod.containers).map(|c| c.image.clone());
        images.filter(|image| !image.is_empty()).collect()
    }
}
