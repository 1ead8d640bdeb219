//! The share of each namespace in the memory for the objects of one cluster. Tenants share a cluster, and each of them may
//! create objects in its namespaces. If the objects of one namespace take too much, they are left out, and not those
//! of others.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use sluice_core::fleet::{ClusterKey, ObjectKey};
use sluice_delivery::lock;

/// After how long the objects are listed again while a namespace is left out, which may have fewer objects by then.
const LEFT_OUT_FOR: Duration = Duration::from_secs(600);
/// How many namespaces are left out. If there are more, the kind counts as too large.
const MAX_LEFT_OUT: usize = 256;

/// The memory that the namespaces of all clusters use, in bytes.
#[derive(Debug)]
pub(super) struct NamespaceMemory {
    /// The most bytes of one cluster.
    limit: usize,
    used: Mutex<HashMap<ClusterKey, ClusterUse>>,
}

/// What the namespaces of one cluster use, in bytes.
#[derive(Debug, Default)]
struct ClusterUse {
    /// Of all together: a cluster may have tens of thousands of namespaces, and each of its objects asks for the sum.
    all: usize,
    namespaces: HashMap<String, usize>,
}

impl NamespaceMemory {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: Mutex::default() }
    }

    /// Replaces `less` bytes of a namespace by `more`. Returns false, and changes nothing, if the namespace `is_shared` and
    /// would have more than its share: half of the memory of the cluster; once three quarters are in use, an equal part of
    /// the rest.
    fn change(
        &self,
        (cluster, namespace): (&ClusterKey, &str),
        less: usize,
        more: usize,
        is_shared: bool,
    ) -> bool {
        let mut all = lock(&self.used);
        let used = all.entry(cluster.clone()).or_default();
        let known = used.namespaces.get(namespace).copied();
        let before = known.unwrap_or_default();
        let of_namespace = before.saturating_sub(less) + more;
        let of_cluster = used.all - before + of_namespace;
        let count = used.namespaces.len() + usize::from(known.is_none());
        let is_scarce = of_cluster > self.limit / 4 * 3;
        let share = if is_scarce { self.limit / 4 / count } else { self.limit / 2 };
        // An object that does not grow is kept.
        let has_room = !is_shared || of_namespace <= share || more <= less;
        if has_room {
            used.namespaces.insert(namespace.into(), of_namespace);
            used.all = of_cluster;
        }
        has_room
    }

    fn release(&self, cluster: &ClusterKey, namespace: &str, bytes: usize) {
        let mut all = lock(&self.used);
        let Some(used) = all.get_mut(cluster) else { return };
        if let Some(of_namespace) = used.namespaces.get_mut(namespace) {
            let less = bytes.min(*of_namespace);
            *of_namespace -= less;
            used.all -= less;
            if *of_namespace == 0 {
                used.namespaces.remove(namespace);
            }
        }
        if used.namespaces.is_empty() {
            all.remove(cluster);
        }
    }
}

/// The sizes of objects in bytes, by namespace and a hash of the name.
type Sizes = HashMap<String, HashMap<u64, usize>>;

/// What the namespaces use by the objects of one watch.
#[derive(Debug, Default)]
pub(super) struct NamespaceShares(Mutex<Shares>);

#[derive(Debug, Default)]
struct Shares {
    hasher: RandomState,
    kept: Sizes,
    /// The objects of the list before, until the list in progress has them or ends.
    outdated: Sizes,
    /// The namespaces whose objects are left out.
    left_out: BTreeSet<String>,
    is_listing: bool,
    /// Whether a namespace has more than its share since the last list.
    is_over: bool,
    last_list: Option<Instant>,
}

impl Shares {
    fn id(&self, key: &ObjectKey) -> u64 {
        self.hasher.hash_one(&key.name)
    }
}

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is kept, in place of an earlier state of so many bytes.
    Kept(usize),
    /// It is left out, with all objects of its namespace, which had so many bytes.
    LeftOut(usize),
}

impl NamespaceShares {
    /// Counts an object, which takes the place of an earlier state of it. If the namespace then has more than its share, and
    /// `is_shared`, its objects are left out.
    pub(super) fn admit(
        &self,
        (all, cluster): (&NamespaceMemory, &ClusterKey),
        key: &ObjectKey,
        bytes: usize,
        is_shared: bool,
    ) -> Admission {
        let mut shares = lock(&self.0);
        let namespace = &key.namespace;
        if shares.left_out.contains(namespace) {
            return Admission::LeftOut(0);
        }
        let id = shares.id(key);
        let take = |sizes: &mut Sizes| sizes.get_mut(namespace).and_then(|of| of.remove(&id)).unwrap_or(0);
        let (less, outdated) = (take(&mut shares.kept), take(&mut shares.outdated));
        if all.change((cluster, namespace), less + outdated, bytes, is_shared) {
            shares.kept.entry(namespace.clone()).or_default().insert(id, bytes);
            return Admission::Kept(less);
        }
        if !shares.is_listing {
            // A new list leaves the namespace out. Until then, the earlier state counts.
            shares.is_over = true;
            shares.kept.entry(namespace.clone()).or_default().insert(id, less);
            return Admission::LeftOut(0);
        }
        let sum = |of: Option<HashMap<u64, usize>>| of.iter().flat_map(HashMap::values).sum::<usize>();
        let (kept, old) = (sum(shares.kept.remove(namespace)), sum(shares.outdated.remove(namespace)));
        all.release(cluster, namespace, less + outdated + kept + old);
        shares.left_out.insert(namespace.clone());
        Admission::LeftOut(less + kept)
    }

    /// Counts that an object is gone. Returns its bytes.
    pub(super) fn forget(&self, (all, cluster): (&NamespaceMemory, &ClusterKey), key: &ObjectKey) -> usize {
        let mut shares = lock(&self.0);
        let id = shares.id(key);
        let Some(of_namespace) = shares.kept.get_mut(&key.namespace) else { return 0 };
        let bytes = of_namespace.remove(&id).unwrap_or(0);
        if of_namespace.is_empty() {
            shares.kept.remove(&key.namespace);
        }
        all.release(cluster, &key.namespace, bytes);
        bytes
    }

    /// Returns the namespaces whose objects are left out.
    pub(super) fn left_out(&self) -> BTreeSet<String> {
        lock(&self.0).left_out.clone()
    }

    /// Whether so many namespaces are left out that the kind is too large.
    pub(super) fn are_exceeded(&self) -> bool {
        lock(&self.0).left_out.len() > MAX_LEFT_OUT
    }

    /// Whether only a new list shows which objects are kept.
    pub(super) fn needs_list(&self) -> bool {
        let shares = lock(&self.0);
        let is_old = shares.last_list.is_some_and(|at| at.elapsed() > LEFT_OUT_FOR);
        shares.is_over || (is_old && !shares.left_out.is_empty())
    }

    pub(super) fn start_list(&self, (all, cluster): (&NamespaceMemory, &ClusterKey)) {
        let mut shares = lock(&self.0);
        release_all((all, cluster), std::mem::take(&mut shares.outdated));
        shares.outdated = std::mem::take(&mut shares.kept);
        shares.left_out.clear();
        (shares.is_listing, shares.is_over) = (true, false);
    }

    pub(super) fn finish_list(&self, (all, cluster): (&NamespaceMemory, &ClusterKey)) {
        let mut shares = lock(&self.0);
        release_all((all, cluster), std::mem::take(&mut shares.outdated));
        (shares.is_listing, shares.last_list) = (false, Some(Instant::now()));
    }

    /// Releases what all namespaces use by the objects of the watch.
    pub(super) fn clear(&self, (all, cluster): (&NamespaceMemory, &ClusterKey)) {
        let shares = std::mem::take(&mut *lock(&self.0));
        release_all((all, cluster), shares.outdated);
        release_all((all, cluster), shares.kept);
    }
}

fn release_all((all, cluster): (&NamespaceMemory, &ClusterKey), sizes: Sizes) {
    for (namespace, of) in &sizes {
        all.release(cluster, namespace, of.values().sum());
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::fleet::Kind;

    use super::*;

    const HUB: ClusterKey = ClusterKey::Local;

    fn key(namespace: &str, n: usize) -> ObjectKey {
        ObjectKey { kind: Kind::Deployment, namespace: namespace.into(), name: format!("web-{n}") }
    }

    /// Lists objects of 1 KiB: this many of each namespace.
    fn list(shares: &NamespaceShares, all: &NamespaceMemory, objects: &[(&str, usize)]) {
        shares.start_list((all, &HUB));
        for (namespace, count) in objects {
            for n in 0..*count {
                shares.admit((all, &HUB), &key(namespace, n), 1 << 10, true);
            }
        }
        shares.finish_list((all, &HUB));
    }

    fn left_out(shares: &NamespaceShares) -> Vec<String> {
        shares.left_out().into_iter().collect()
    }

    fn used(all: &NamespaceMemory) -> usize {
        let all = lock(&all.used);
        let sum = all.values().flat_map(|cluster| cluster.namespaces.values()).sum();
        assert_eq!(sum, all.values().map(|cluster| cluster.all).sum::<usize>());
        sum
    }

    #[test]
    fn namespaces_with_many_objects_are_left_out_and_no_others() {
        let all = NamespaceMemory::new(1 << 20);
        let [deployments, releases] = [NamespaceShares::default(), NamespaceShares::default()];
        list(&deployments, &all, &[("eve-1", 10_000), ("eve-2", 10_000), ("eve-3", 500), ("apps", 40)]);
        assert_eq!(left_out(&deployments), ["eve-1", "eve-2"]);
        assert_eq!(used(&all), 540 << 10);
        // Another kind is counted with it.
        list(&releases, &all, &[("apps", 40), ("eve-3", 10_000), ("shop", 40)]);
        assert_eq!(left_out(&releases), ["eve-3"]);
        // The objects of a list count until the next list has ended.
        list(&deployments, &all, &[("eve-1", 300), ("apps", 40)]);
        assert_eq!(left_out(&deployments), ["eve-1"]);
        list(&deployments, &all, &[("eve-1", 300), ("apps", 40)]);
        assert!(left_out(&deployments).is_empty(), "it has fewer objects now");
        [deployments, releases].iter().for_each(|shares| shares.clear((&all, &HUB)));
        assert_eq!(used(&all), 0);
    }

    #[test]
    fn the_kind_is_too_large_if_very_many_namespaces_are_left_out() {
        let all = NamespaceMemory::new(1 << 20);
        let shares = NamespaceShares::default();
        list(&shares, &all, &[("eve", 100_000)]);
        assert!(!shares.are_exceeded(), "one namespace does not count, whatever it has");
        let names: Vec<String> = (0..2000).map(|n| format!("n{n}")).collect();
        let objects: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        list(&shares, &all, &objects);
        assert!(shares.are_exceeded());
    }

    #[test]
    fn changes_of_objects_start_no_list_and_more_objects_do() {
        let all = NamespaceMemory::new(1 << 20);
        let shares = NamespaceShares::default();
        list(&shares, &all, &[("apps", 100)]);
        for n in 0..10_000 {
            let change = shares.admit((&all, &HUB), &key("apps", n % 100), 1 << 10, true);
            assert_eq!(change, Admission::Kept(1 << 10));
        }
        assert!(!shares.needs_list());
        assert_eq!(shares.forget((&all, &HUB), &key("apps", 0)), 1 << 10);
        assert_eq!(used(&all), 99 << 10);
        for n in 0..1000 {
            shares.admit((&all, &HUB), &key("apps", n), 1 << 10, true);
        }
        assert!(shares.needs_list() && left_out(&shares).is_empty());
        list(&shares, &all, &[("apps", 1000)]);
        assert!(!shares.needs_list());
        assert_eq!(left_out(&shares), ["apps"]);
    }
}
