//! The share of each namespace in the memory for the objects of one cluster. Tenants share a cluster, and each of them may
//! create objects in its namespaces. If memory is scarce, the objects of the largest namespaces are left out, and not
//! those of others.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use sluice_core::fleet::{ClusterKey, ObjectKey};
use sluice_core::lock::lock;

use super::too_large::TooLarge;

/// The pause before objects are listed again while a namespace is left out: it may have fewer objects then.
const LEFT_OUT_FOR: Duration = Duration::from_secs(600);
/// The most namespaces that a request excludes: their names are part of the URL.
const MAX_UNWATCHED: usize = 32;
/// The most namespaces that are left out. If there are more, the kind counts as too large.
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
    /// The sum over all namespaces. It is stored because every object of the cluster needs it, and a cluster may have
    /// tens of thousands of namespaces.
    all: usize,
    namespaces: HashMap<String, usize>,
    /// The namespaces that were the largest when memory was scarce. Each watch leaves them out with its next event.
    too_large: BTreeSet<String>,
}

impl ClusterUse {
    fn of(&self, namespace: &str) -> usize {
        self.namespaces.get(namespace).copied().unwrap_or_default()
    }

    /// Returns the bytes of the cluster after `namespace` has `bytes`, and every watch has left out the namespaces
    /// that are too large.
    fn remaining(&self, namespace: &str, bytes: usize) -> usize {
        let left_out: usize = self.too_large.iter().map(|name| self.of(name)).sum();
        self.all - self.of(namespace) + bytes - left_out
    }

    /// Returns the largest namespace that is not left out and has more than `bytes`.
    fn larger_than(&self, bytes: usize) -> Option<String> {
        let remain = |name: &str| !name.is_empty() && !self.too_large.contains(name);
        let others = self.namespaces.iter().filter(|(name, _)| remain(name));
        let (name, largest) = others.max_by_key(|(_, bytes)| **bytes)?;
        (*largest > bytes).then(|| name.clone())
    }

    /// Makes room for `bytes` of a namespace. If the cluster uses more than five eighths of the memory, marks the
    /// largest namespace as too large.
    fn make_room(&mut self, limit: usize, namespace: &str, bytes: usize) -> Room {
        if self.too_large.contains(namespace) {
            return Room::TooLarge;
        }
        if self.remaining(namespace, bytes) > limit / 8 * 5 {
            let Some(larger) = self.larger_than(bytes) else { return Room::TooLarge };
            self.too_large.insert(larger);
        }
        match self.all - self.of(namespace) + bytes <= limit {
            true => Room::Free,
            false => Room::Later,
        }
    }
}

/// The answer to a namespace that needs more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Free,
    /// Not now: watches have not left out yet the namespaces that are too large.
    Later,
    /// The namespace is the largest one, and memory is scarce.
    TooLarge,
}

impl NamespaceMemory {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: Mutex::default() }
    }

    /// Replaces `less` bytes of a namespace by `more`, if there is room. Objects without a namespace (`""`) have no
    /// limit.
    fn change(&self, (cluster, namespace): (&ClusterKey, &str), less: usize, more: usize) -> Room {
        let mut all = lock(&self.used);
        let used = all.entry(cluster.clone()).or_default();
        let before = used.of(namespace);
        let of_namespace = before.saturating_sub(less) + more;
        // An object that does not grow is kept, unless its namespace is left out.
        let is_limited = !namespace.is_empty() && (more > less || used.too_large.contains(namespace));
        let room = if is_limited { used.make_room(self.limit, namespace, of_namespace) } else { Room::Free };
        if room == Room::Free {
            used.all = used.all - before + of_namespace;
            used.namespaces.insert(namespace.into(), of_namespace);
        }
        room
    }

    /// Returns the namespaces of a cluster that its watches leave out with their next event.
    fn too_large(&self, cluster: &ClusterKey) -> BTreeSet<String> {
        lock(&self.used).get(cluster).map(|used| used.too_large.clone()).unwrap_or_default()
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
                used.too_large.remove(namespace);
            }
        }
        if used.namespaces.is_empty() {
            all.remove(cluster);
        }
    }
}

/// The sizes of objects in bytes, by namespace and a hash of the name.
type Sizes = HashMap<String, HashMap<u64, usize>>;

/// The memory that the objects of one watch use, by namespace.
#[derive(Debug)]
pub(super) struct NamespaceShares {
    is_shared: bool,
    shares: Mutex<Shares>,
}

#[derive(Debug, Default)]
struct Shares {
    hasher: RandomState,
    kept: Sizes,
    /// The objects of the previous list that the list in progress has not read yet.
    outdated: Sizes,
    /// The namespaces whose objects are left out, and why.
    left_out: BTreeMap<String, TooLarge>,
    /// The namespaces that were left out between lists, and are not reported yet.
    news: Vec<(String, TooLarge)>,
    /// The namespaces that requests exclude, and since when.
    unwatched: BTreeMap<String, Instant>,
    is_listing: bool,
    /// Whether an object was left out only because other namespaces had not released their memory yet.
    is_incomplete: bool,
    /// When namespaces were left out last.
    left_out_at: Option<Instant>,
}

impl Shares {
    fn id(&self, key: &ObjectKey) -> u64 {
        self.hasher.hash_one(&key.name)
    }

    /// Leaves out the objects of a namespace. Returns the bytes of its kept objects; during a list, of those that the
    /// list has read.
    fn leave_out(
        &mut self,
        (all, cluster): (&NamespaceMemory, &ClusterKey),
        namespace: &str,
        why: TooLarge,
    ) -> usize {
        let sum = |of: Option<HashMap<u64, usize>>| of.iter().flat_map(HashMap::values).sum::<usize>();
        let (kept, outdated) = (sum(self.kept.remove(namespace)), sum(self.outdated.remove(namespace)));
        all.release(cluster, namespace, kept + outdated);
        self.left_out.insert(namespace.into(), why);
        if !self.is_listing {
            self.news.push((namespace.into(), why));
            self.left_out_at = Some(Instant::now());
        }
        kept
    }

    /// Leaves out the objects of the namespaces that are too large. Returns the bytes as [`Shares::leave_out`] does.
    fn leave_out_too_large(&mut self, all: (&NamespaceMemory, &ClusterKey)) -> usize {
        let mut too_large = all.0.too_large(all.1);
        too_large.retain(|name| self.kept.contains_key(name) || self.outdated.contains_key(name));
        too_large.iter().map(|name| self.leave_out(all, name, TooLarge::Namespace)).sum()
    }
}

/// Whether an object is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The object is kept. This many bytes are released: those of its earlier state, and those of namespaces that are
    /// left out to make room.
    Kept(usize),
    /// The object is left out, because its list has another one of its name, or with all objects of its namespace, which had
    /// this many bytes.
    LeftOut(usize),
}

impl NamespaceShares {
    /// Returns empty shares. `is_shared` is true for a watch of a whole cluster. A watch of one namespace has no limit.
    pub(super) fn new(is_shared: bool) -> Self {
        Self { is_shared, shares: Mutex::default() }
    }

    /// The namespace to which an object is charged. Namespaces themselves have no namespace.
    fn charged<'a>(&self, key: &'a ObjectKey) -> &'a str {
        if self.is_shared { &key.namespace } else { "" }
    }

    /// Counts an object, which takes the place of an earlier state of it.
    pub(super) fn admit(
        &self,
        (all, cluster): (&NamespaceMemory, &ClusterKey),
        key: &ObjectKey,
        bytes: usize,
    ) -> Admission {
        let mut shares = lock(&self.shares);
        let namespace = self.charged(key);
        if shares.left_out.contains_key(namespace) {
            return Admission::LeftOut(0);
        }
        let id = shares.id(key);
        // No API server lists two objects of one name. The list holds each, and only one would be charged.
        if shares.is_listing && shares.kept.get(namespace).is_some_and(|kept| kept.contains_key(&id)) {
            return Admission::LeftOut(0);
        }
        let take = |sizes: &mut Sizes| sizes.get_mut(namespace).and_then(|of| of.remove(&id)).unwrap_or(0);
        let (less, outdated) = (take(&mut shares.kept), take(&mut shares.outdated));
        let room = all.change((cluster, namespace), less + outdated, bytes);
        if room != Room::Free {
            shares.is_incomplete |= room == Room::Later;
            all.release(cluster, namespace, less + outdated);
            return Admission::LeftOut(
                less + shares.leave_out((all, cluster), namespace, TooLarge::Namespace),
            );
        }
        shares.kept.entry(namespace.into()).or_default().insert(id, bytes);
        let gone = if shares.is_listing { shares.leave_out_too_large((all, cluster)) } else { 0 };
        Admission::Kept(less + gone)
    }

    /// Counts that an object is gone. Returns its bytes.
    pub(super) fn forget(&self, (all, cluster): (&NamespaceMemory, &ClusterKey), key: &ObjectKey) -> usize {
        let mut shares = lock(&self.shares);
        let (id, namespace) = (shares.id(key), self.charged(key));
        let Some(of_namespace) = shares.kept.get_mut(namespace) else { return 0 };
        let bytes = of_namespace.remove(&id).unwrap_or(0);
        if of_namespace.is_empty() {
            shares.kept.remove(namespace);
        }
        all.release(cluster, namespace, bytes);
        bytes
    }

    /// Returns the namespaces whose objects are left out, and why.
    pub(super) fn left_out(&self) -> BTreeMap<String, TooLarge> {
        lock(&self.shares).left_out.clone()
    }

    /// Leaves out a namespace whose objects change too often, and returns the bytes of its objects. Requests exclude
    /// the namespace from now on. Returns `None` if they exclude it already, or exclude too many namespaces.
    pub(super) fn leave_out_changing(
        &self,
        (all, cluster): (&NamespaceMemory, &ClusterKey),
        namespace: &str,
    ) -> Option<usize> {
        let mut shares = lock(&self.shares);
        let is_new = !shares.unwatched.contains_key(namespace) && shares.unwatched.len() < MAX_UNWATCHED;
        if !is_new || !self.is_shared {
            return None;
        }
        shares.unwatched.insert(namespace.into(), Instant::now());
        Some(shares.leave_out((all, cluster), namespace, TooLarge::NamespaceChanges))
    }

    /// Leaves out the namespaces that other watches have found too large. Returns the bytes of their objects, and all
    /// namespaces that were left out since the last list and the last call.
    pub(super) fn newly_left_out(
        &self,
        all: (&NamespaceMemory, &ClusterKey),
    ) -> (usize, Vec<(String, TooLarge)>) {
        let mut shares = lock(&self.shares);
        (shares.leave_out_too_large(all), std::mem::take(&mut shares.news))
    }

    /// Whether requests exclude this namespace.
    pub(super) fn is_unwatched(&self, namespace: &str) -> bool {
        lock(&self.shares).unwatched.contains_key(namespace)
    }

    /// Returns the namespaces that requests exclude.
    pub(super) fn unwatched(&self) -> Vec<String> {
        lock(&self.shares).unwatched.keys().cloned().collect()
    }

    /// Whether more than [`MAX_LEFT_OUT`] namespaces are left out, so that the kind counts as too large.
    pub(super) fn are_exceeded(&self) -> bool {
        lock(&self.shares).left_out.len() > MAX_LEFT_OUT
    }

    /// Whether a new list is needed: left-out namespaces may have room again.
    pub(super) fn needs_list(&self) -> bool {
        let shares = lock(&self.shares);
        let is_old = shares.left_out_at.is_some_and(|at| at.elapsed() > LEFT_OUT_FOR);
        shares.is_incomplete || (is_old && !shares.left_out.is_empty())
    }

    pub(super) fn start_list(&self, (all, cluster): (&NamespaceMemory, &ClusterKey)) {
        let mut shares = lock(&self.shares);
        release_all((all, cluster), std::mem::take(&mut shares.outdated));
        shares.outdated = std::mem::take(&mut shares.kept);
        shares.unwatched.retain(|_, since| since.elapsed() <= LEFT_OUT_FOR);
        let unwatched = shares.unwatched.keys().map(|name| (name.clone(), TooLarge::NamespaceChanges));
        shares.left_out = unwatched.collect();
        shares.news.clear();
        (shares.is_listing, shares.is_incomplete) = (true, false);
    }

    pub(super) fn finish_list(&self, (all, cluster): (&NamespaceMemory, &ClusterKey)) {
        let mut shares = lock(&self.shares);
        release_all((all, cluster), std::mem::take(&mut shares.outdated));
        (shares.is_listing, shares.left_out_at) = (false, Some(Instant::now()));
    }

    /// Releases the memory of all objects of the watch.
    pub(super) fn clear(&self, (all, cluster): (&NamespaceMemory, &ClusterKey)) {
        let mut all_shares = lock(&self.shares);
        let unwatched = std::mem::take(&mut all_shares.unwatched);
        let shares = std::mem::replace(&mut *all_shares, Shares { unwatched, ..Shares::default() });
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
                shares.admit((all, &HUB), &key(namespace, n), 1 << 10);
            }
        }
        shares.finish_list((all, &HUB));
    }

    #[test]
    fn an_object_counts_once_in_a_list() {
        let (shares, all) = (NamespaceShares::new(true), NamespaceMemory::new(1 << 20));
        for _ in 0..2 {
            shares.start_list((&all, &HUB));
            let mut admit = |n| shares.admit((&all, &HUB), &key("apps", n), 1 << 10);
            let admitted = [0, 0, 1, 0].map(&mut admit);
            let is_kept = admitted.map(|admission| matches!(admission, Admission::Kept(_)));
            assert_eq!(is_kept, [true, false, true, false]);
            shares.finish_list((&all, &HUB));
            assert_eq!((used(&all), left_out(&shares).len()), (2 << 10, 0));
        }
        // A watch reports an object again.
        assert!(matches!(shares.admit((&all, &HUB), &key("apps", 0), 1), Admission::Kept(_)));
    }

    fn left_out(shares: &NamespaceShares) -> Vec<String> {
        shares.left_out().into_keys().collect()
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
        let [deployments, releases] = [NamespaceShares::new(true), NamespaceShares::new(true)];
        list(&deployments, &all, &[("eve-1", 10_000), ("eve-2", 10_000), ("eve-3", 500), ("apps", 40)]);
        assert_eq!(left_out(&deployments), ["eve-1", "eve-2"]);
        assert_eq!(used(&all), 540 << 10);
        // Another kind is counted with it.
        list(&releases, &all, &[("apps", 40), ("eve-3", 10_000), ("shop", 40)]);
        assert_eq!(left_out(&releases), ["eve-3"]);
        // The objects of the list before count until the next list has ended.
        list(&deployments, &all, &[("eve-1", 300), ("apps", 40)]);
        assert_eq!(left_out(&deployments), ["eve-3"]);
        list(&deployments, &all, &[("eve-1", 300), ("apps", 40)]);
        assert!(left_out(&deployments).is_empty(), "it has fewer objects now");
        [deployments, releases].iter().for_each(|shares| shares.clear((&all, &HUB)));
        assert_eq!(used(&all), 0);
    }

    #[test]
    fn the_largest_namespaces_are_left_out_whichever_kind_they_have_and_whoever_came_first() {
        let all = NamespaceMemory::new(1 << 20);
        let [deployments, releases] = [NamespaceShares::new(true), NamespaceShares::new(true)];
        let others: Vec<String> = (0..80).map(|n| format!("team-{n}")).collect();
        let of_others = |count| others.iter().map(move |name| (name.as_str(), count));
        // Before others have objects, two namespaces fill half of the memory.
        let first: Vec<_> = [("eve-1", 300), ("eve-2", 230)].into_iter().chain(of_others(1)).collect();
        list(&deployments, &all, &first);
        assert!(left_out(&deployments).is_empty());
        list(&releases, &all, &of_others(3).collect::<Vec<_>>());
        assert!(left_out(&releases).is_empty(), "{:?}", left_out(&releases));
        let news = deployments.newly_left_out((&all, &HUB));
        assert_eq!(news, (300 << 10, vec![("eve-1".to_string(), TooLarge::Namespace)]));
        assert!(!deployments.needs_list());
        assert_eq!(used(&all), (230 + 80 + 240) << 10);
        // A change of a small namespace has room too.
        let grown = deployments.admit((&all, &HUB), &key("team-7", 0), 40 << 10);
        assert_eq!(grown, Admission::Kept(1 << 10));
    }

    #[test]
    fn a_list_leaves_out_the_largest_namespace_that_it_has_already_read() {
        let all = NamespaceMemory::new(1 << 20);
        let shares = NamespaceShares::new(true);
        list(&shares, &all, &[("eve", 600), ("apps", 100), ("shop", 100)]);
        assert_eq!(left_out(&shares), ["eve"]);
        assert_eq!(used(&all), 200 << 10);
    }

    #[test]
    fn what_has_no_room_because_others_are_not_left_out_yet_is_listed_again() {
        let all = NamespaceMemory::new(1 << 20);
        let [deployments, releases] = [NamespaceShares::new(true), NamespaceShares::new(true)];
        list(&deployments, &all, &[("eve-1", 600)]);
        list(&releases, &all, &[("eve-2", 200), ("shop", 300)]);
        assert_eq!(left_out(&releases), ["shop"]);
        assert!(releases.needs_list() && !deployments.needs_list());
        assert_eq!(deployments.newly_left_out((&all, &HUB)).1.len(), 1);
        list(&releases, &all, &[("eve-2", 200), ("shop", 300)]);
        assert_eq!((left_out(&deployments), left_out(&releases)), (vec!["eve-1".to_string()], vec![]));
        assert!(!releases.needs_list());
    }

    #[test]
    fn a_watch_of_one_namespace_has_no_limit_but_counts() {
        let all = NamespaceMemory::new(1 << 20);
        let [one, whole] = [NamespaceShares::new(false), NamespaceShares::new(true)];
        list(&one, &all, &[("apps", 1000)]);
        assert!(left_out(&one).is_empty());
        assert_eq!(used(&all), 1000 << 10);
        list(&whole, &all, &[("eve", 100)]);
        assert_eq!(left_out(&whole), ["eve"]);
        one.clear((&all, &HUB));
        assert_eq!(used(&all), 0);
    }

    #[test]
    fn the_kind_is_too_large_if_very_many_namespaces_are_left_out() {
        let all = NamespaceMemory::new(1 << 20);
        let shares = NamespaceShares::new(true);
        list(&shares, &all, &[("eve", 100_000)]);
        assert!(!shares.are_exceeded(), "one namespace does not count, whatever it has");
        let names: Vec<String> = (0..2000).map(|n| format!("n{n}")).collect();
        let objects: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        list(&shares, &all, &objects);
        assert!(shares.are_exceeded());
    }

    #[test]
    fn changes_of_objects_leave_nothing_out_and_more_objects_do_without_a_new_list() {
        let all = NamespaceMemory::new(1 << 20);
        let shares = NamespaceShares::new(true);
        list(&shares, &all, &[("apps", 100), ("eve", 10)]);
        for n in 0..10_000 {
            let change = shares.admit((&all, &HUB), &key("apps", n % 100), 1 << 10);
            assert_eq!(change, Admission::Kept(1 << 10));
        }
        assert!(!shares.needs_list());
        assert_eq!(shares.forget((&all, &HUB), &key("apps", 0)), 1 << 10);
        assert_eq!(used(&all), 109 << 10);
        let left_out_bytes =
            (10..1000).find_map(|n| match shares.admit((&all, &HUB), &key("eve", n), 1 << 10) {
                Admission::LeftOut(bytes) => Some(bytes >> 10),
                Admission::Kept(_) => None,
            });
        assert_eq!(left_out_bytes, Some(540 + 1));
        assert_eq!(used(&all), 99 << 10);
        assert!(!shares.needs_list());
        let news = || shares.newly_left_out((&all, &HUB));
        assert_eq!(news(), (0, vec![("eve".to_string(), TooLarge::Namespace)]));
        assert_eq!(news(), (0, Vec::new()));
        assert_eq!(shares.admit((&all, &HUB), &key("eve", 0), 1), Admission::LeftOut(0));
    }

    #[test]
    fn a_namespace_that_changes_too_often_is_left_out_until_a_list_after_ten_minutes() {
        let all = NamespaceMemory::new(1 << 20);
        let shares = NamespaceShares::new(true);
        list(&shares, &all, &[("apps", 10), ("eve", 10)]);
        assert_eq!(shares.leave_out_changing((&all, &HUB), "eve"), Some(10 << 10));
        assert_eq!(shares.leave_out_changing((&all, &HUB), "eve"), None, "the server sends it all the same");
        let news = shares.newly_left_out((&all, &HUB)).1;
        assert_eq!(news, [("eve".to_string(), TooLarge::NamespaceChanges)]);
        assert_eq!((shares.unwatched(), used(&all)), (vec!["eve".to_string()], 10 << 10));
        list(&shares, &all, &[("apps", 10)]);
        assert_eq!(left_out(&shares), ["eve"]);
        // After a failure too.
        shares.clear((&all, &HUB));
        assert_eq!(shares.unwatched(), ["eve"]);
        for n in 0..MAX_UNWATCHED - 1 {
            assert!(shares.leave_out_changing((&all, &HUB), &n.to_string()).is_some());
        }
        assert_eq!(shares.leave_out_changing((&all, &HUB), "one-more"), None);
    }
}
