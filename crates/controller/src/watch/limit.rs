//! Limits on what a cluster may send, and on what Sluice keeps of it. A cluster is untrusted: Sluice reads and
//! counts its answers in pieces. If a cluster sends more than clusters in real use do, the kind counts as too
//! large, and Sluice stops reading it. The limits are generous: they only bound memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Response;
use http_body_util::Limited;
use kube::client::DynBody;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::change_count::ChangeCount;
use super::event_queue::EventQueue;
use super::large_objects::{LargeObject, LargeObjects};
use super::namespace_share::{Admission, NamespaceMemory, NamespaceShares};
use super::relist::ScopeLists;
use super::too_large::{MAX_LIST_OBJECTS, MAX_LIST_TIME, TooLarge};
use sluice_core::fleet::{ClusterKey, ObjectKey};

/// The most values in one object. A parsed value may take a hundred times the memory of its text.
pub const MAX_OBJECT_VALUES: usize = 50_000;
/// Objects with more values than this are parsed one at a time.
const MANY_VALUES: usize = 5_000;
/// The most bytes of one list, after decompression.
const MAX_LIST_BYTES: usize = 1 << 30;
/// The most bytes of one list of the objects that one Flux object owns, after decompression.
const MAX_OWNED_BYTES: usize = 16 << 20;
/// The most values of a single answer.
pub const MAX_ANSWER_VALUES: usize = 100_000;
/// The most bytes of the text of an error.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// The memory that is charged to a watch is a multiple of these bytes.
const CHARGE_BYTES: usize = 4 << 10;

/// The limits of one watch.
#[derive(Clone)]
pub struct WatchLimits {
    /// The server and the kind, for the log.
    pub source: String,
    /// `None` for a trusted server, such as the hub for Pipelines. Then only the size of one object is limited.
    untrusted: Option<UntrustedLimits>,
}

#[derive(Clone)]
struct UntrustedLimits {
    memory: Arc<WatchMemory>,
    queue: Arc<EventQueue>,
    lists: ScopeLists,
    max_list_bytes: usize,
}

impl WatchLimits {
    /// Returns the limits of a watch on the hub's own objects.
    pub fn hub(kind: &str) -> Self {
        WatchLimits { source: format!("the hub: {kind}"), untrusted: None }
    }

    /// Returns the limits of a watch on a cluster, which may be hostile.
    pub fn cluster(
        source: String,
        memory: Arc<WatchMemory>,
        queue: Arc<EventQueue>,
        lists: ScopeLists,
    ) -> Self {
        WatchLimits {
            source,
            untrusted: Some(UntrustedLimits { memory, queue, lists, max_list_bytes: MAX_LIST_BYTES }),
        }
    }

    /// Returns these limits for lists of the objects that one Flux object owns.
    pub fn of_owned(mut self) -> Self {
        self.untrusted.iter_mut().for_each(|untrusted| untrusted.max_list_bytes = MAX_OWNED_BYTES);
        self
    }

    /// Returns the earlier lists of the watch, which determine when it may list again; `None` for a trusted
    /// server.
    pub fn lists(&self) -> Option<&ScopeLists> {
        self.untrusted.as_ref().map(|untrusted| &untrusted.lists)
    }

    /// Waits until the controller's loop has handled enough of the earlier events.
    pub async fn wait_for_room(&self) {
        if let Some(untrusted) = &self.untrusted {
            untrusted.queue.wait_for_room().await;
        }
    }

    /// Waits until a large object may arrive; `None` for a trusted server.
    pub(super) async fn begin_large_object(&self) -> Option<LargeObject> {
        let memory = &self.untrusted.as_ref()?.memory;
        Some(memory.observed.begin_large_object(&memory.cluster).await)
    }

    /// Records that Sluice keeps none of the watch's objects any more.
    pub fn clear(&self) {
        if let Some(untrusted) = &self.untrusted {
            untrusted.memory.clear();
        }
    }

    /// Starts counting a list.
    pub fn start_list(&self) -> ListCount<'_> {
        let memory = self.untrusted.as_ref().map(|untrusted| untrusted.memory.as_ref());
        if let Some(memory) = memory {
            memory.start_list();
        }
        let max_bytes = self.untrusted.as_ref().map_or(usize::MAX, |untrusted| untrusted.max_list_bytes);
        ListCount { memory, objects: 0, bytes: 0, max_bytes, started: Instant::now() }
    }

    /// Starts counting changes.
    pub fn start_changes(&self) -> ChangeCount {
        ChangeCount::new(self.untrusted.is_some())
    }

    /// Whether the objects exceed the memory. Only a new list shows which of them are kept.
    pub fn has_outgrown(&self) -> bool {
        self.untrusted.as_ref().is_some_and(|untrusted| {
            untrusted.memory.release_surplus();
            untrusted.memory.charge().is_err() || untrusted.memory.shares.needs_list()
        })
    }

    /// Leaves out a namespace whose objects change too often. Returns false if its changes cannot be left out.
    pub fn leave_out(&self, namespace: &str) -> bool {
        self.untrusted.as_ref().is_some_and(|untrusted| untrusted.memory.leave_out(namespace))
    }

    /// Returns the namespaces that were left out since the last list and the last call, and why.
    pub fn newly_left_out(&self) -> Vec<(String, TooLarge)> {
        self.untrusted.as_ref().map(|untrusted| untrusted.memory.newly_left_out()).unwrap_or_default()
    }

    /// Whether the server was asked to send nothing of this namespace.
    pub fn is_unwatched(&self, namespace: Option<&str>) -> bool {
        let is =
            |untrusted: &UntrustedLimits| namespace.is_some_and(|n| untrusted.memory.shares.is_unwatched(n));
        self.untrusted.as_ref().is_some_and(is)
    }

    /// Returns the namespaces of which the server must send nothing.
    pub fn unwatched(&self) -> Vec<String> {
        self.untrusted.as_ref().map(|untrusted| untrusted.memory.shares.unwatched()).unwrap_or_default()
    }

    /// Whether an object has too many values to be parsed.
    pub fn has_too_many(&self, values: usize) -> bool {
        self.untrusted.is_some() && values > MAX_OBJECT_VALUES
    }
}

/// Runs `parse`. For objects with many values, only one call runs at a time in the whole process, and the other tasks of its
/// thread, and of those that wait for it, go on.
pub fn one_at_a_time<T>(values: usize, parse: impl FnOnce() -> T) -> T {
    static LARGE_OBJECT: Mutex<()> = Mutex::new(());
    if values <= MANY_VALUES {
        return parse();
    }
    let alone = || {
        let _lock = LARGE_OBJECT.lock().unwrap_or_else(PoisonError::into_inner);
        parse()
    };
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    if flavor.is_ok_and(|flavor| flavor == RuntimeFlavor::MultiThread) {
        return tokio::task::block_in_place(alone);
    }
    alone()
}

/// Returns an upper bound of the number of values in a JSON text.
pub fn count_values(text: &[u8]) -> usize {
    text.iter().filter(|b| matches!(b, b',' | b'{' | b'[')).count()
}

/// Counts the objects and bytes of a list while it arrives.
pub struct ListCount<'a> {
    memory: Option<&'a WatchMemory>,
    objects: usize,
    bytes: usize,
    max_bytes: usize,
    started: Instant,
}

impl ListCount<'_> {
    /// Returns the time that is left for the list.
    pub fn time_left(&self) -> Duration {
        match self.memory {
            Some(_) => MAX_LIST_TIME.saturating_sub(self.started.elapsed()),
            None => Duration::MAX,
        }
    }

    /// Does not count a time in which Sluice did not read.
    pub fn leave_out(&mut self, waited: Duration) {
        self.started += waited;
    }

    /// Counts bytes that have arrived.
    ///
    /// # Errors
    /// When the list has more bytes than the limits allow.
    pub fn add_bytes(&mut self, more: usize) -> Result<(), TooLarge> {
        self.bytes += more;
        if self.bytes > self.max_bytes {
            return Err(TooLarge::ListBytes(self.max_bytes >> 20));
        }
        Ok(())
    }

    /// Counts an object that has arrived, whether Sluice keeps it or not.
    ///
    /// # Errors
    /// When the list has more than [`MAX_LIST_OBJECTS`], or the objects that Sluice keeps exceed the memory.
    pub fn add_object(&mut self) -> Result<(), TooLarge> {
        self.objects += 1;
        let Some(memory) = self.memory else { return Ok(()) };
        if self.objects > MAX_LIST_OBJECTS {
            return Err(TooLarge::ListObjects);
        }
        memory.charge()
    }

    /// Ends the count of a complete list.
    pub fn finish(self) {
        if let Some(memory) = self.memory {
            memory.finish_list();
        }
    }
}

/// The memory for the observed objects of all clusters, in bytes. No cluster may have more than a third of it. Once all
/// of it is in use, the clusters of one namespace get more memory only up to an equal share. So a user with many
/// clusters takes no memory from the clusters of other users.
#[derive(Debug)]
pub struct ObservedMemory {
    limit: usize,
    used: Mutex<HashMap<ClusterKey, usize>>,
    namespaces: NamespaceMemory,
    large_objects: LargeObjects,
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
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let of_cluster = used.get(cluster).copied().unwrap_or_default() + more;
        if of_cluster > self.limit / 3 {
            return Err(TooLarge::Cluster((self.limit / 3) >> 20));
        }
        if used.values().sum::<usize>() + more > self.limit {
            let (of_group, share) = used_and_share(&used, cluster, self.limit);
            if of_group + more > share {
                return Err(TooLarge::All(self.limit >> 20));
            }
        }
        used.insert(cluster.clone(), of_cluster);
        Ok(())
    }

    /// Whether there is memory for objects that only views show. A third of the memory is reserved for objects that
    /// decisions need. Once the rest is in use, the clusters of one namespace get more memory only up to an equal
    /// share. `outdated` is the cluster's charge for objects that the list in progress replaces.
    fn has_room_to_show(&self, cluster: &ClusterKey, outdated: usize) -> bool {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let of_cluster = used.get(cluster).copied().unwrap_or_default().saturating_sub(outdated);
        let all = used.values().sum::<usize>().saturating_sub(outdated);
        let room = self.limit / 3 * 2;
        let has_share = || {
            let (of_group, share) = used_and_share(&used, cluster, room);
            of_group.saturating_sub(outdated) < share
        };
        of_cluster < room / 3 && (all < room || has_share())
    }

    fn release(&self, cluster: &ClusterKey, less: usize) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_cluster) = used.get_mut(cluster) {
            *of_cluster = of_cluster.saturating_sub(less);
            if *of_cluster == 0 {
                used.remove(cluster);
            }
        }
    }

    /// Returns the bytes that are charged for all clusters.
    pub fn used(&self) -> usize {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

/// Returns the bytes that the namespace of a cluster uses, and its equal share of `limit`.
fn used_and_share(used: &HashMap<ClusterKey, usize>, cluster: &ClusterKey, limit: usize) -> (usize, usize) {
    let mut groups: HashSet<_> = used.keys().map(group).collect();
    groups.insert(group(cluster));
    let of_group = used.iter().filter(|(key, _)| group(key) == group(cluster));
    (of_group.map(|(_, bytes)| bytes).sum(), limit / groups.len())
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
    charged: AtomicUsize,
    /// Whether objects that only views show are left out.
    leaves_out: AtomicBool,
    shares: NamespaceShares,
}

impl WatchMemory {
    /// Returns a memory without objects. Tenants share a cluster that is watched as a whole (`is_shared`), so its namespaces
    /// have shares.
    pub fn new(cluster: ClusterKey, observed: Arc<ObservedMemory>, is_shared: bool) -> Arc<Self> {
        let (added, charged, leaves_out) = Default::default();
        let shares = NamespaceShares::new(is_shared);
        Arc::new(Self { cluster, observed, added, charged, leaves_out, shares })
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

    /// Returns the namespaces whose objects are left out, and why.
    pub fn namespaces_left_out(&self) -> BTreeMap<String, TooLarge> {
        self.shares.left_out()
    }

    /// Leaves out a namespace whose objects change too often. Returns false if its changes cannot be left out.
    fn leave_out(&self, namespace: &str) -> bool {
        let forgotten = self.shares.leave_out_changing(self.all(), namespace);
        self.added.fetch_sub(forgotten.unwrap_or(0), Ordering::Relaxed);
        forgotten.is_some()
    }

    /// Whether there is memory for an object that only views show. Logs when the memory is used up.
    pub fn has_room_to_show(&self) -> bool {
        let added = self.added.load(Ordering::Relaxed);
        let outdated = self.charged.load(Ordering::Relaxed).saturating_sub(added);
        let has_room = self.observed.has_room_to_show(&self.cluster, outdated);
        if self.leaves_out.swap(!has_room, Ordering::Relaxed) == has_room && !has_room {
            tracing::warn!(cluster = %self.cluster, "objects that only views show are left out: raise --observed-memory, or set --observe=targets");
        }
        has_room
    }

    fn newly_left_out(&self) -> Vec<(String, TooLarge)> {
        let (forgotten, namespaces) = self.shares.newly_left_out(self.all());
        self.added.fetch_sub(forgotten, Ordering::Relaxed);
        namespaces
    }

    fn start_list(&self) {
        self.added.store(0, Ordering::Relaxed);
        self.shares.start_list(self.all());
    }

    /// Charges the bytes that were added and are not charged yet.
    fn charge(&self) -> Result<(), TooLarge> {
        if self.shares.are_exceeded() {
            return Err(TooLarge::Cluster((self.observed.limit / 3) >> 20));
        }
        let added = self.added.load(Ordering::Relaxed);
        let charged = self.charged.load(Ordering::Relaxed);
        if added <= charged {
            return Ok(());
        }
        let more = (added - charged).next_multiple_of(CHARGE_BYTES);
        self.observed.charge(&self.cluster, more)?;
        self.charged.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    /// Releases the charge for objects that are not in the new list.
    fn finish_list(&self) {
        self.shares.finish_list(self.all());
        self.release_surplus();
    }

    /// Releases the charge for objects that are gone.
    fn release_surplus(&self) {
        let needed = self.added.load(Ordering::Relaxed).next_multiple_of(CHARGE_BYTES);
        let charged = self.charged.load(Ordering::Relaxed);
        if charged > needed {
            self.charged.store(needed, Ordering::Relaxed);
            self.observed.release(&self.cluster, charged - needed);
        }
    }

    /// Releases the whole charge: Sluice keeps none of the objects any more.
    pub fn clear(&self) {
        self.added.store(0, Ordering::Relaxed);
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

/// Limits the bodies of error responses, which the client reads whole.
pub fn limit_errors(response: Response<Box<DynBody>>) -> Response<Box<DynBody>> {
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    if !is_error {
        return response;
    }
    response.map(|body| Box::new(Limited::new(body, MAX_ERROR_BYTES)) as Box<DynBody>)
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
                memory.charge().unwrap();
                shown += 1;
            }
            memory.finish_list();
            shown
        };
        let first = listed();
        assert_eq!((listed(), listed()), (first, first));
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
