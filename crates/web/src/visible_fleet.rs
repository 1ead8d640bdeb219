//! What a caller may see of the fleet: the objects of a cluster if the caller may get its GitopsCluster, and the objects
//! of the hub that the caller may get there.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt};
use sluice_core::access::{AccessError, Caller, Right};
use sluice_core::fleet::index::Fleet;
use sluice_core::fleet::{ClusterKey, Kind, ObjectKey};

use crate::hub::Hub;

/// How many questions about rights are asked at a time for one request, a quarter of what is asked for all callers.
const CONCURRENT: usize = 4;

/// The most objects that are asked about one by one for one request, for callers who may not get all of a kind and
/// namespace. A caller who sees fewer than that learns nothing from which ones are missing.
const MAX_NAMED: usize = 200;

/// The right to get a GitopsCluster, and with it the objects of the cluster.
pub(crate) fn cluster_right() -> Right {
    Right::all("gitops.weave.works", "gitopsclusters")
}

/// The right to get the objects of a kind on the hub.
pub(crate) fn kind_right(kind: Kind) -> Right {
    let (group, plural) = kind.resource();
    Right::all(group, plural)
}

/// What a caller may see of the kinds of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Visible {
    /// The clusters that the caller may see, without the hub.
    pub clusters: BTreeSet<ClusterKey>,
    /// Of each kind on the hub, the namespaces that the caller may see; `None` for all.
    pub hub: BTreeMap<Kind, Option<BTreeSet<String>>>,
}

impl Visible {
    /// Asks what a caller may see of these kinds.
    pub(crate) async fn to<H: Hub>(
        access: &H,
        caller: &Caller,
        fleet: &Fleet,
        kinds: &[Kind],
    ) -> Result<Visible, AccessError> {
        let clusters = visible_clusters(access, caller, fleet).await?;
        let mut hub = BTreeMap::new();
        for kind in kinds {
            hub.insert(*kind, visible_namespaces(access, caller, fleet, *kind).await?);
        }
        Ok(Visible { clusters, hub })
    }

    /// Whether something on a cluster may be visible.
    pub(crate) fn shows_some_of(&self, cluster: &ClusterKey) -> bool {
        let any =
            |namespaces: &Option<BTreeSet<String>>| namespaces.as_ref().is_none_or(|all| !all.is_empty());
        match cluster {
            ClusterKey::Local => self.hub.values().any(any),
            remote => self.clusters.contains(remote),
        }
    }

    /// Whether an object is visible.
    pub(crate) fn shows(&self, cluster: &ClusterKey, kind: Kind, namespace: &str) -> bool {
        match cluster {
            ClusterKey::Local => match self.hub.get(&kind) {
                Some(Some(namespaces)) => namespaces.contains(namespace),
                Some(None) => true,
                None => false,
            },
            remote => self.clusters.contains(remote),
        }
    }
}

/// Returns the clusters that a caller may see, without the hub.
pub(crate) async fn visible_clusters<H: Hub>(
    access: &H,
    caller: &Caller,
    fleet: &Fleet,
) -> Result<BTreeSet<ClusterKey>, AccessError> {
    visible_among(access, caller, fleet, fleet.clusters().into_iter().collect()).await
}

/// Returns those of these clusters that a caller may see, without the hub.
pub(crate) async fn visible_among<H: Hub>(
    access: &H,
    caller: &Caller,
    fleet: &Fleet,
    mut all: BTreeSet<ClusterKey>,
) -> Result<BTreeSet<ClusterKey>, AccessError> {
    all.remove(&ClusterKey::Local);
    if all.is_empty() || access.allows(caller, &cluster_right()).await? {
        return Ok(all);
    }
    let asked = all.into_iter().map(async |key| {
        let allowed = allows_cluster(access, caller, fleet, &key).await?;
        Ok(allowed.then_some(key))
    });
    let visible: Vec<Option<ClusterKey>> =
        futures::stream::iter(asked).buffer_unordered(CONCURRENT).try_collect().await?;
    Ok(visible.into_iter().flatten().collect())
}

/// Returns whether a caller may see a cluster that is not the hub.
pub(crate) async fn allows_cluster<H: Hub>(
    access: &H,
    caller: &Caller,
    fleet: &Fleet,
    key: &ClusterKey,
) -> Result<bool, AccessError> {
    let ClusterKey::Remote { namespace, name } = key else { return Ok(false) };
    // Nothing is asked about clusters that do not exist: a caller can name any number of them.
    if fleet.read(key, |_| ()).is_none() {
        return Ok(false);
    }
    let within = cluster_right().within(namespace);
    Ok(access.allows(caller, &within).await? || access.allows(caller, &within.clone().named(name)).await?)
}

/// Returns those of these objects on the hub that a caller may get.
pub(crate) async fn visible_objects<H: Hub>(
    access: &H,
    caller: &Caller,
    all: BTreeSet<ObjectKey>,
) -> Result<BTreeSet<ObjectKey>, AccessError> {
    let mut by_place: BTreeMap<(Kind, String), Vec<ObjectKey>> = BTreeMap::new();
    for key in all {
        by_place.entry((key.kind, key.namespace.clone())).or_default().push(key);
    }
    let asked = by_place.into_iter().map(async |((kind, namespace), keys)| {
        let right = kind_right(kind);
        let within = right.clone().within(&namespace);
        let all = access.allows(caller, &right).await? || access.allows(caller, &within).await?;
        Ok::<_, AccessError>(if all { (keys, Vec::new()) } else { (Vec::new(), keys) })
    });
    let places: Vec<(Vec<ObjectKey>, Vec<ObjectKey>)> =
        futures::stream::iter(asked).buffer_unordered(CONCURRENT).try_collect().await?;
    let (visible, named): (Vec<_>, Vec<_>) = places.into_iter().unzip();
    let asked = in_turn(named).into_iter().take(MAX_NAMED).map(async |key| {
        let allowed = allows_object(access, caller, &key).await?;
        Ok::<_, AccessError>(allowed.then_some(key))
    });
    let named: Vec<Option<ObjectKey>> =
        futures::stream::iter(asked).buffer_unordered(CONCURRENT).try_collect().await?;
    Ok(visible.into_iter().flatten().chain(named.into_iter().flatten()).collect())
}

/// The first object of each list, then the second of each: one namespace with many does not displace those of others.
fn in_turn(lists: Vec<Vec<ObjectKey>>) -> Vec<ObjectKey> {
    let mut ranked: Vec<(usize, ObjectKey)> =
        lists.into_iter().flat_map(|list| list.into_iter().enumerate()).collect();
    ranked.sort();
    ranked.into_iter().map(|(_, key)| key).collect()
}

/// Returns whether a caller may get an object on the hub.
pub(crate) async fn allows_object<H: Hub>(
    access: &H,
    caller: &Caller,
    key: &ObjectKey,
) -> Result<bool, AccessError> {
    access.allows(caller, &kind_right(key.kind).within(&key.namespace).named(&key.name)).await
}

/// Returns the namespaces of the hub with objects of a kind that a caller may get; `None` for all.
async fn visible_namespaces<H: Hub>(
    access: &H,
    caller: &Caller,
    fleet: &Fleet,
    kind: Kind,
) -> Result<Option<BTreeSet<String>>, AccessError> {
    if access.allows(caller, &kind_right(kind)).await? {
        return Ok(None);
    }
    let namespaces = fleet.read(&ClusterKey::Local, |hub| {
        hub.objects_of(kind).map(|(key, _)| key.namespace.clone()).collect::<BTreeSet<_>>()
    });
    let asked = namespaces.into_iter().flatten().map(async |namespace| {
        let allowed = access.allows(caller, &kind_right(kind).within(&namespace)).await?;
        Ok(allowed.then_some(namespace))
    });
    let visible: Vec<Option<String>> =
        futures::stream::iter(asked).buffer_unordered(CONCURRENT).try_collect().await?;
    Ok(Some(visible.into_iter().flatten().collect()))
}
