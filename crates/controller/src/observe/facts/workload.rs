//! The facts of a Deployment, StatefulSet, DaemonSet or CronJob.

use sluice_api::workload::Workload;

use super::flux_status::sanitized;
use super::metadata::{owner, release};
use crate::observe::health;
use sluice_core::fleet::{Fact, Kind, WorkloadFact};

/// Returns the facts of a Deployment, StatefulSet, DaemonSet or CronJob.
pub fn facts(kind: Kind, object: &Workload) -> Fact {
    let state = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let terminating = object.metadata.deletion_timestamp.is_some();
    Fact::Workload(WorkloadFact {
        owner: owner(kind, object),
        release: release(object),
        status: sanitized(health::workload(kind.name(), generation, terminating, &object.spec, &state)),
        images: object.spec.images(),
    })
}
