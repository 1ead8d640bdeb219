//! The memory for what Sluice keeps of the objects of clusters. Each watch charges its objects to it, so that neither a
//! cluster nor a user with many clusters takes the memory of others.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::large_objects::{LargeObject, LargeObjects};
use super::namespace_share::{Admission, NamespaceMemory, NamespaceShares};
use super::too_large::TooLarge;
use sluice_core::fleet::{ClusterKey, ObjectKey};
use sluice_core::lock::lock;

/// The memory that is charged to a watch is a multiple of these bytes.
const CHARGE_BYTES: usize = 4 << 10;

/// The memory for the observed objects of all clusters, in bytes. No cluster may have more than a third of it. Once all
/// of it is in use, the clusters of one namespace get more memory only up to an equal share. So a user with many
/// clusters takes no memory from the clusters of other users.
#[derive(Debug)]
pub struct ObservedMemory {
    limit: usize,
    used: Mutex<HashMap<ClusterKey, ClusterCharge>>,
    namespaces: NamespaceMemory,
    large_objects: LargeObjects,
}

/// The bytes that are charged for the objects of a cluster.
#[derive(Clone, Copy, Debug, Default)]
struct ClusterCharge {
    all: usize,
    /// Those of the objects that lists in progress replace.
    outdated: usize,
}

impl ClusterCharge {
    fn current(self) -> usize {
        self.all.saturating_sub(self.outdated)
    }
}

impl ObservedMemory {
    /// Returns an empty memory with this limit in bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        // A little less than a cluster may have, because charges are rounded up.
        let namespaces = NamespaceMemory::new(limit / 3 / 16 * 15);
        Arc::new(Self { limit, used: Mutex::default(), namespaces, large_objects: LargeObjects::default() })
    }

    /// Waits until a large object or answer of a cluster may arrive.
    pub(super) async fn begin_large_object(&self, cluster: &ClusterKey) -> LargeObject {
        self.large_objects.begin(cluster).await
    }

    fn charge(&self, cluster: &ClusterKey, more: usize) -> Result<(), TooLarge> {
        let mut used = lock(&self.used);
        let of_cluster = used.get(cluster).copied().unwrap_or_default().all + more;
        if of_cluster > self.limit / 3 {
            return Err(TooLarge::Cluster((self.limit / 3) >> 20));
        }
        if used.values().map(|charge| charge.all).sum::<usize>() + more > self.limit {
            let (of_group, share) = used_and_share(&used, cluster, self.limit, |charge| charge.all);
            if of_group + more > share {
                return Err(TooLarge::All(self.limit >> 20));
            }
        }
        used.entry(cluster.clone()).or_default().all = of_cluster;
        Ok(())
    }

    /// Whether there is memory for objects that only views show. A third of the memory is reserved for objects that
    /// decisions need. Once the rest is in use, the clusters of one namespace get more memory only up to an equal
    /// share. The objects that lists in progress replace do not count, so that a new list shows the same objects.
    fn has_room_to_show(&self, cluster: &ClusterKey) -> bool {
        let used = lock(&self.used);
        let of_cluster = used.get(cluster).copied().unwrap_or_default().current();
        let all = used.values().map(|charge| charge.current()).sum::<usize>();
        let room = self.limit / 3 * 2;
        let has_share = || {
            let (of_group, share) = used_and_share(&used, cluster, room, ClusterCharge::current);
            of_group < share
        };
        of_cluster < room / 3 && (all < room || has_share())
    }

    /// Replaces the outdated bytes of one watch of a cluster.
    fn change_outdated(&self, cluster: &ClusterKey, less: usize, more: usize) {
        let mut used = lock(&self.used);
        if let Some(of_cluster) = used.get_mut(cluster) {
            of_cluster.outdated = (of_cluster.outdated + more).saturating_sub(less);
        }
    }

    fn release(&self, cluster: &ClusterKey, less: usize) {
        let mut used = lock(&self.used);
        if let Some(of_cluster) = used.get_mut(cluster) {
            of_cluster.all = of_cluster.all.saturating_sub(less);
            if of_cluster.all == 0 {
                used.remove(cluster);
            }
        }
    }

    /// Returns the bytes that are charged for all clusters.
    pub fn used(&self) -> usize {
        lock(&self.used).values().map(|charge| charge.all).sum()
    }
}

/// Returns the bytes that the namespace of a cluster uses, and its equal share of `limit`. `bytes` says what counts.
fn used_and_share(
    used: &HashMap<ClusterKey, ClusterCharge>,
    cluster: &ClusterKey,
    limit: usize,
    bytes: impl Fn(ClusterCharge) -> usize,
) -> (usize, usize) {
    let mut groups: HashSet<_> = used.keys().map(group).collect();
    groups.insert(group(cluster));
    let of_group = used.iter().filter(|(key, _)| group(key) == group(cluster));
    (of_group.map(|(_, charge)| bytes(*charge)).sum(), limit / groups.len())
}

/// The clusters that share memory: those of one namespace, or the hub.
fn group(key: &ClusterKey) -> Option<&str> {
    match key {
        ClusterKey::Local => None,
        ClusterKey::Remote { namespace, .. } => Some(namespace),
    }
}

/// The memory for the objects of one watch, in bytes.
#[derive(Debug)]
pub struct WatchMemory {
    cluster: ClusterKey,
    observed: Arc<ObservedMemory>,
    /// The bytes of the objects that are kept; during a list, of those that have arrived.
    added: AtomicUsize,
    /// During a list, the bytes of the objects that it replaces. They are kept until the list is reported.
    outdated: AtomicUsize,
    /// Whether a list was started and is not reported yet.
    is_listing: AtomicBool,
    charged: AtomicUsize,
    /// Whether objects that only views show are left out.
    leaves_out: AtomicBool,
    shares: NamespaceShares,
}

impl WatchMemory {
    /// Returns a memory without objects. Tenants share a cluster that is watched as a whole (`is_shared`), so its namespaces
    /// have shares.
    pub fn new(cluster: ClusterKey, observed: Arc<ObservedMemory>, is_shared: bool) -> Arc<Self> {
        let (added, outdated, charged, is_listing, leaves_out) = Default::default();
        let shares = NamespaceShares::new(is_shared);
        Arc::new(Self { cluster, observed, added, outdated, is_listing, charged, leaves_out, shares })
    }

    /// Counts an object, in place of an earlier state of it. Returns false if it is left out, because its namespace has more
    /// than its share.
    pub fn admits(&self, key: &ObjectKey, bytes: usize) -> bool {
        let (admission, more) = match self.shares.admit(self.all(), key, bytes) {
            kept @ Admission::Kept(_) => (kept, bytes),
            left_out @ Admission::LeftOut(_) => (left_out, 0),
        };
        let (Admission::Kept(less) | Admission::LeftOut(less)) = admission;
        self.added.fetch_add(more, Ordering::Relaxed);
        self.added.fetch_sub(less, Ordering::Relaxed);
        matches!(admission, Admission::Kept(_))
    }

    /// Counts that an object is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.added.fetch_sub(self.shares.forget(self.all(), key), Ordering::Relaxed);
    }

    fn all(&self) -> (&NamespaceMemory, &ClusterKey) {
        (&self.observed.namespaces, &self.cluster)
    }

    /// Waits until a large object may arrive.
    pub(super) async fn begin_large_object(&self) -> LargeObject {
        self.observed.begin_large_object(&self.cluster).await
    }

    /// Whether the objects exceed the memory. Only a new list shows which of them are kept.
    pub(super) fn has_outgrown(&self) -> bool {
        self.release_surplus();
        self.charge().is_err() || self.shares.needs_list()
    }

    /// Returns the namespaces of which the server must send nothing.
    pub(super) fn unwatched(&self) -> Vec<String> {
        self.shares.unwatched()
    }

    /// Whether the server must send nothing of this namespace.
    pub(super) fn is_unwatched(&self, namespace: &str) -> bool {
        self.shares.is_unwatched(namespace)
    }

    /// Returns the namespaces whose objects are left out, and why.
    pub fn namespaces_left_out(&self) -> BTreeMap<String, TooLarge> {
        self.shares.left_out()
    }

    /// Leaves out a namespace whose objects change too often. Returns false if its changes cannot be left out.
    pub(super) fn leave_out(&self, namespace: &str) -> bool {
        let forgotten = self.shares.leave_out_changing(self.all(), namespace);
        self.added.fetch_sub(forgotten.unwrap_or(0), Ordering::Relaxed);
        forgotten.is_some()
    }

    /// Whether there is memory for an object that only views show. Logs when the memory is used up.
    pub fn has_room_to_show(&self) -> bool {
        let has_room = self.observed.has_room_to_show(&self.cluster);
        if self.leaves_out.swap(!has_room, Ordering::Relaxed) == has_room && !has_room {
            tracing::warn!(cluster = %self.cluster, "objects that only views show are left out: raise --observed-memory, or set --observe=targets");
        }
        has_room
    }

    pub(super) fn newly_left_out(&self) -> Vec<(String, TooLarge)> {
        let (forgotten, namespaces) = self.shares.newly_left_out(self.all());
        self.added.fetch_sub(forgotten, Ordering::Relaxed);
        namespaces
    }

    pub(super) fn start_list(&self) {
        let added = self.added.swap(0, Ordering::Relaxed);
        // The objects of a list that was not reported are gone.
        if !self.is_listing.swap(true, Ordering::Relaxed) {
            self.set_outdated(added);
        }
        self.release_surplus();
        self.shares.start_list(self.all());
    }

    /// Returns the bytes before.
    fn set_outdated(&self, bytes: usize) -> usize {
        let before = self.outdated.swap(bytes, Ordering::Relaxed);
        self.observed.change_outdated(&self.cluster, before, bytes);
        before
    }

    /// Returns the bytes of all objects that are kept, in units of [`CHARGE_BYTES`].
    fn needed(&self) -> usize {
        let all = self.added.load(Ordering::Relaxed) + self.outdated.load(Ordering::Relaxed);
        all.next_multiple_of(CHARGE_BYTES)
    }

    /// Charges an object of a list, as [`WatchLimits::charge_listed`](super::limit::WatchLimits::charge_listed) does.
    pub(super) fn charge_listed(&self) -> Result<bool, TooLarge> {
        match self.charge() {
            Err(_) if self.set_outdated(0) > 0 => {
                self.release_surplus();
                self.charge().map(|()| true)
            }
            charged => charged.map(|()| false),
        }
    }

    /// Charges the bytes that were added and are not charged yet.
    fn charge(&self) -> Result<(), TooLarge> {
        if self.shares.are_exceeded() {
            return Err(TooLarge::Cluster((self.observed.limit / 3) >> 20));
        }
        let (needed, charged) = (self.needed(), self.charged.load(Ordering::Relaxed));
        if needed <= charged {
            return Ok(());
        }
        let more = needed - charged;
        self.observed.charge(&self.cluster, more)?;
        self.charged.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    /// Releases the charge for the objects that the new list has replaced.
    pub(super) fn finish_list(&self) {
        self.shares.finish_list(self.all());
        self.is_listing.store(false, Ordering::Relaxed);
        self.set_outdated(0);
        self.release_surplus();
    }

    /// Releases the charge for objects that are gone.
    fn release_surplus(&self) {
        let (needed, charged) = (self.needed(), self.charged.load(Ordering::Relaxed));
        if charged > needed {
            self.charged.store(needed, Ordering::Relaxed);
            self.observed.release(&self.cluster, charged - needed);
        }
    }

    /// Releases the whole charge: Sluice keeps none of the objects any more.
    pub fn clear(&self) {
        self.added.store(0, Ordering::Relaxed);
        self.is_listing.store(false, Ordering::Relaxed);
        self.set_outdated(0);
        self.shares.clear(self.all());
        let charged = self.charged.swap(0, Ordering::Relaxed);
        self.observed.release(&self.cluster, charged);
    }
}

impl Drop for WatchMemory {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::fleet::Kind;

    use super::*;

    /// Adds an object.
    fn add(memory: &WatchMemory, bytes: usize) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        memory.admits(&ObjectKey { kind: Kind::Namespace, namespace: String::new(), name }, bytes);
    }

    #[test]
    fn a_third_of_the_memory_is_reserved_for_objects_that_decisions_need() {
        let observed = ObservedMemory::new(9 << 20);
        let cluster = |name: &str| ClusterKey::Remote { namespace: "fleet".into(), name: name.into() };
        let memories =
            ["a", "b", "c", "d"].map(|name| WatchMemory::new(cluster(name), observed.clone(), true));
        for memory in &memories {
            while memory.has_room_to_show() {
                add(memory, 64 << 10);
                memory.charge().unwrap();
            }
        }
        assert!(observed.used() <= (6 << 20) + (256 << 10), "{}", observed.used());
        // On each cluster there is memory for objects that decisions need.
        for memory in &memories[..3] {
            add(memory, 512 << 10);
            memory.charge().unwrap();
            assert!(!memory.has_room_to_show());
        }
    }

    #[test]
    fn a_new_list_shows_the_same_objects_as_the_one_before() {
        let observed = ObservedMemory::new(9 << 20);
        let memory = WatchMemory::new(ClusterKey::Local, observed, true);
        let listed = || {
            let mut shown = 0;
            memory.start_list();
            while shown < 100 && memory.has_room_to_show() {
                add(&memory, 64 << 10);
                memory.charge_listed().unwrap();
                shown += 1;
            }
            memory.finish_list();
            shown
        };
        let first = listed();
        assert_eq!((listed(), listed()), (first, first));
    }

    /// Reads a list of objects of 64 KiB, and returns how often the objects of the list before had to be dropped.
    fn read_list(memory: &WatchMemory, objects: usize) -> usize {
        memory.start_list();
        let charge = |_| {
            add(memory, 64 << 10);
            memory.charge_listed().unwrap()
        };
        (0..objects).map(charge).filter(|has_dropped| *has_dropped).count()
    }

    #[test]
    fn the_objects_of_a_list_and_of_the_one_before_are_charged_until_it_is_reported() {
        let observed = ObservedMemory::new(9 << 20);
        let memory = WatchMemory::new(ClusterKey::Local, observed.clone(), false);
        assert_eq!(read_list(&memory, 16), 0);
        memory.finish_list();
        for _ in 0..3 {
            // A list that is not reported, such as one that breaks off, is gone when the next one starts.
            assert_eq!((read_list(&memory, 8), observed.used()), (0, 3 << 19));
        }
        assert_eq!((read_list(&memory, 16), observed.used()), (0, 2 << 20));
        memory.finish_list();
        assert_eq!(observed.used(), 1 << 20);
        memory.start_list();
        memory.clear();
        assert_eq!((read_list(&memory, 16), observed.used()), (0, 1 << 20));
    }

    #[test]
    fn a_cluster_that_needs_almost_its_share_can_be_listed_again_and_again() {
        let observed = ObservedMemory::new(9 << 20);
        let memory = WatchMemory::new(ClusterKey::Local, observed.clone(), false);
        for expected in [0, 1, 1, 1] {
            assert_eq!(read_list(&memory, 47), expected);
            memory.finish_list();
            assert_eq!(observed.used(), 47 << 16);
        }
    }

    #[test]
    fn objects_that_are_gone_are_not_charged() {
        let observed = ObservedMemory::new(9 << 20);
        let memory = WatchMemory::new(ClusterKey::Local, observed.clone(), true);
        let key =
            |n: usize| ObjectKey { kind: Kind::Deployment, namespace: "apps".into(), name: n.to_string() };
        for n in 0..16 {
            assert!(memory.admits(&key(n), 64 << 10));
        }
        memory.charge().unwrap();
        assert_eq!(observed.used(), 1 << 20);
        (0..8).for_each(|n| memory.forget(&key(n)));
        memory.release_surplus();
        assert_eq!(observed.used(), 512 << 10);
    }

    #[test]
    fn clusters_of_one_namespace_take_no_memory_from_those_of_others() {
        let observed = ObservedMemory::new(9 << 20);
        let cluster = |namespace: &str, name: &str| ClusterKey::Remote {
            namespace: namespace.into(),
            name: name.into(),
        };
        let hostile =
            ["a", "b", "c"].map(|name| WatchMemory::new(cluster("eve", name), observed.clone(), true));
        for memory in &hostile {
            add(memory, 2 << 20);
            memory.charge().unwrap();
        }
        assert!(hostile.iter().all(|memory| !memory.has_room_to_show()));
        let other = WatchMemory::new(cluster("jane", "eu"), observed, true);
        assert!(other.has_room_to_show());
    }
}
