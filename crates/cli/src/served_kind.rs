//! The version of a kind that the cluster serves.

use kube::api::ApiResource;
use kube::discovery::ApiGroup;
use sluice_core::fleet::Kind;

use crate::connection::Connection;
use crate::exit::Outcome;

/// Returns a kind in its most stable version that the cluster serves; `None` if it does not have the kind.
pub(crate) async fn served(connection: &Connection, kind: Kind) -> Outcome<Option<ApiResource>> {
    match kube::discovery::group(&connection.client, kind.resource().0).await {
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(error) => Err(connection.explain(error)),
        Ok(served) => Ok(most_stable(&served, kind.name())),
    }
}

/// Returns the most stable version of a kind of a group. The version that the cluster prefers for the group may not have the
/// kind: of Flux's notifications, only Receivers are in v1.
pub(crate) fn most_stable(group: &ApiGroup, kind: &str) -> Option<ApiResource> {
    let all = group.resources_by_stability().into_iter();
    all.map(|(resource, _)| resource).find(|resource| resource.kind == kind)
}
