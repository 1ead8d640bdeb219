//! The facts of a Deployment, StatefulSet, DaemonSet or CronJob.

use sluice_api::workload::Workload;

use super::flux_status::sanitized;
use super::metadata::{owner, release};
use super::{Fact, Kind, WorkloadFact};
use crate::observe::health;

/// Returns the facts of a Deployment, StatefulSet, DaemonSet or CronJob; `None` if its labels name no owner.
pub fn facts(kind: Kind, object: &Workload) -> Option<Fact> {
    let owner = owner(kind, object)?;
    let state = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let terminating = object.metadata.deletion_timestamp.is_some();
    Some(Fact::Workload(WorkloadFact {
        owner,
        release: release(object),
        status: sanitized(health::workload(kind.name(), generation, terminating, &object.spec, &state)),
        images: object.spec.images(),
    }))
}
