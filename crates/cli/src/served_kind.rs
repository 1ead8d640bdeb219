//! The version of a kind that the cluster serves.

use std::collections::BTreeSet;

use kube::api::ApiResource;
use kube::discovery::{ApiGroup, Discovery};
use sluice_core::fleet::Kind;

use crate::connection::Connection;
use crate::exit::Outcome;

/// The kinds that a cluster serves.
pub(crate) struct ServedKinds(Discovery);

impl ServedKinds {
    /// Asks the cluster once which groups it has, and about each group of these kinds.
    pub(crate) async fn of(connection: &Connection, kinds: &[Kind]) -> Outcome<ServedKinds> {
        let groups: BTreeSet<&str> = kinds.iter().map(|kind| kind.resource().0).collect();
        let groups: Vec<&str> = groups.into_iter().collect();
        let found = Discovery::new(connection.client.clone()).filter(&groups).run().await;
        found.map(ServedKinds).map_err(|error| connection.explain(error))
    }

    /// Returns a kind in its most stable version that the cluster serves; `None` if it does not have the kind.
    pub(crate) fn get(&self, kind: Kind) -> Option<ApiResource> {
        most_stable(self.0.get(kind.resource().0)?, kind.name())
    }
}

/// Returns the most stable version of a kind of a group. The version that the cluster prefers for the group may not have the
/// kind: of Flux's notifications, only Receivers are in v1.
pub(crate) fn most_stable(group: &ApiGroup, kind: &str) -> Option<ApiResource> {
    let all = group.resources_by_stability().into_iter();
    all.map(|(resource, _)| resource).find(|resource| resource.kind == kind)
}
