//! What a Kustomization or a source that is not Ready keeps from new states: the Flux objects in its inventory, and those
//! in theirs.

use std::collections::BTreeSet;

use super::fact::Fact;
use super::object_key::ObjectKey;
use super::watched_kind::Kind;

/// Returns the namespaces of the Flux objects that get no new state while these objects are not Ready. `depth` is the
/// number of Flux objects that are nested in each other: a hostile cluster may have owners in a circle.
pub(super) fn applied_namespaces<'a>(
    mut level: Vec<&'a ObjectKey>,
    depth: usize,
    object: impl Fn(&ObjectKey) -> Option<&'a Fact>,
) -> BTreeSet<String> {
    let mut found: BTreeSet<&ObjectKey> = BTreeSet::new();
    for _ in 0..depth {
        let inventories = level.iter().filter_map(|key| match object(key) {
            Some(Fact::Flux(flux)) => Some(flux.owned.inventory()),
            _ => None,
        });
        let owned =
            inventories.flatten().filter(|key| matches!(key.kind, Kind::Kustomization | Kind::HelmRelease));
        level = owned.filter(|key| found.insert(*key)).collect();
    }
    found.into_iter().map(|key| key.namespace.clone()).collect()
}
