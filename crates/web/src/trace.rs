//! Where something on a cluster comes from, as far as the caller may see it.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use sluice_core::access::Caller;
use sluice_core::fleet::index::Fleet;
use sluice_core::fleet::observed_cluster::{KindState, ObservedCluster};
use sluice_core::fleet::{ClusterKey, ObjectKey};
use sluice_view::fleet::trace::{Trace, TraceStep, not_observed, trace, visible};

use crate::fleet_versions::readable;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::visible_fleet::{allows_cluster, allows_object};

/// Returns the trace of an object.
pub(crate) async fn traced<H: Hub>(
    access: &H,
    caller: &Caller,
    fleet: &Fleet,
    (cluster, object): (&ClusterKey, &ObjectKey),
) -> Result<Trace, Problem> {
    // Whether something exists is not told to those who may not see it.
    let not_found = || {
        Problem::not_found(format!(
            "there is no {}/{} in namespace {} of that cluster, or you may not get it: on the hub that needs get on {}, \
             on other clusters get on the GitopsCluster",
            object.kind.name(),
            object.name,
            object.namespace,
            object.kind.resource().1
        ))
    };
    let is_visible = match cluster {
        ClusterKey::Local => allows_object(access, caller, object).await?,
        remote => allows_cluster(access, caller, fleet, remote).await?,
    };
    if !is_visible {
        return Err(not_found());
    }
    let read = fleet.read(cluster, |observed| steps(observed, object));
    let steps = read.ok_or_else(not_found)??.ok_or_else(not_found)?;
    let mut hidden = BTreeSet::new();
    if *cluster == ClusterKey::Local {
        for step in &steps {
            if !allows_object(access, caller, &step.key).await? {
                hidden.insert(step.key.clone());
            }
        }
    }
    Ok(Trace { links: visible(steps, |key| !hidden.contains(key)) })
}

/// Returns the way from an object; `None` if there is no such object.
///
/// # Errors
/// When it is not known whether there is such an object.
fn steps(cluster: &ObservedCluster, object: &ObjectKey) -> Result<Option<Vec<TraceStep>>, Problem> {
    let unavailable = |why: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, why);
    readable(cluster).map_err(unavailable)?;
    match (trace(cluster, object), cluster.kind_state(object.kind, &object.namespace)) {
        (None, Some(KindState::Unreadable(_) | KindState::ByNamespace) | None) => {
            Err(unavailable(not_observed(cluster, object)))
        }
        (steps, _) => Ok(steps),
    }
}
