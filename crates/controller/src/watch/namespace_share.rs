//! The share of each namespace in the memory for the objects of one cluster. Tenants share a cluster, and each of them may
//! create objects in its namespaces. If the objects of one namespace take too much, they are left out, and not those
//! of others.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_core::fleet::ClusterKey;

/// After how long the objects are listed again while a namespace is left out, which may have fewer objects by then.
const LEFT_OUT_FOR: Duration = Duration::from_secs(600);

/// How many namespaces are left out. If there are more, or if their objects take many times the memory of the cluster, the
/// kind counts as too large.
const MAX_LEFT_OUT: usize = 256;
const MAX_BYTES_LEFT_OUT: usize = 4;

/// The memory that the namespaces of all clusters use, in bytes.
#[derive(Debug)]
pub(super) struct NamespaceMemory {
    /// The most bytes of one cluster.
    limit: usize,
    used: Mutex<HashMap<ClusterKey, HashMap<String, usize>>>,
}

impl NamespaceMemory {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: Mutex::default() }
    }

    /// Adds bytes of a namespace. Returns false, and adds nothing, if the namespace has its share: half of the memory of
    /// the cluster; once three quarters are in use, an equal part of the rest.
    fn add(&self, cluster: &ClusterKey, namespace: &str, bytes: usize) -> bool {
        let mut all = lock(&self.used);
        let used = all.entry(cluster.clone()).or_default();
        let of_namespace = used.get(namespace).copied().unwrap_or_default() + bytes;
        let of_cluster = used.values().sum::<usize>() + bytes;
        let count = used.len() + usize::from(!used.contains_key(namespace));
        let is_scarce = of_cluster > self.limit / 4 * 3;
        let share = if is_scarce { self.limit / 4 / count } else { self.limit / 2 };
        let has_room = of_namespace <= share;
        if has_room {
            used.insert(namespace.into(), of_namespace);
        }
        has_room
    }

    fn release(&self, cluster: &ClusterKey, namespace: &str, bytes: usize) {
        let mut all = lock(&self.used);
        let Some(used) = all.get_mut(cluster) else { return };
        if let Some(of_namespace) = used.get_mut(namespace) {
            *of_namespace = of_namespace.saturating_sub(bytes);
            if *of_namespace == 0 {
                used.remove(namespace);
            }
        }
        if used.is_empty() {
            all.remove(cluster);
        }
    }
}

/// What the namespaces use by the objects of one watch.
#[derive(Debug, Default)]
pub(super) struct NamespaceShares(Mutex<Shares>);

#[derive(Debug, Default)]
struct Shares {
    /// The bytes that were added since the last list began. A changed object is counted like a new one.
    added: HashMap<String, usize>,
    /// The namespaces whose objects are left out.
    left_out: BTreeSet<String>,
    /// The bytes of the objects that are left out.
    bytes_left_out: usize,
    is_listing: bool,
    /// Whether a namespace has its share, counted with the changes since the last list.
    is_over: bool,
    last_list: Option<Instant>,
}

impl NamespaceShares {
    /// Counts an object of a namespace, and returns whether it is kept.
    pub(super) fn admit(
        &self,
        (all, cluster): (&NamespaceMemory, &ClusterKey),
        namespace: &str,
        bytes: usize,
    ) -> bool {
        let mut shares = lock(&self.0);
        if shares.left_out.contains(namespace) {
            shares.bytes_left_out += bytes;
            return false;
        }
        if all.add(cluster, namespace, bytes) {
            *shares.added.entry(namespace.into()).or_default() += bytes;
            return true;
        }
        if !shares.is_listing {
            // Only a new list shows how much the objects of the namespace take now.
            shares.is_over = true;
            return true;
        }
        let less = shares.added.remove(namespace).unwrap_or_default();
        all.release(cluster, namespace, less);
        shares.left_out.insert(namespace.into());
        false
    }

    /// Returns the namespaces whose objects are left out.
    pub(super) fn left_out(&self) -> BTreeSet<String> {
        lock(&self.0).left_out.clone()
    }

    /// Whether so much is left out that the kind is too large.
    pub(super) fn are_exceeded(&self, all: &NamespaceMemory) -> bool {
        let shares = lock(&self.0);
        shares.left_out.len() > MAX_LEFT_OUT || shares.bytes_left_out / MAX_BYTES_LEFT_OUT > all.limit
    }

    /// Whether only a new list shows which objects are kept.
    pub(super) fn needs_list(&self) -> bool {
        let shares = lock(&self.0);
        let is_old = shares.last_list.is_some_and(|at| at.elapsed() > LEFT_OUT_FOR);
        shares.is_over || (is_old && !shares.left_out.is_empty())
    }

    pub(super) fn start_list(&self, all: &NamespaceMemory, cluster: &ClusterKey) {
        self.clear(all, cluster);
        lock(&self.0).is_listing = true;
    }

    pub(super) fn finish_list(&self) {
        let mut shares = lock(&self.0);
        (shares.is_listing, shares.last_list) = (false, Some(Instant::now()));
    }

    /// Releases what all namespaces use by the objects of the watch.
    pub(super) fn clear(&self, all: &NamespaceMemory, cluster: &ClusterKey) {
        let shares = std::mem::take(&mut *lock(&self.0));
        for (namespace, bytes) in &shares.added {
            all.release(cluster, namespace, *bytes);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: ClusterKey = ClusterKey::Local;

    /// Lists objects of 1 KiB: this many of each namespace.
    fn list(shares: &NamespaceShares, all: &NamespaceMemory, objects: &[(&str, usize)]) {
        shares.start_list(all, &HUB);
        for (namespace, count) in objects {
            for _ in 0..*count {
                shares.admit((all, &HUB), namespace, 1 << 10);
            }
        }
        shares.finish_list();
    }

    fn left_out(shares: &NamespaceShares) -> Vec<String> {
        shares.left_out().into_iter().collect()
    }

    #[test]
    fn namespaces_with_many_objects_are_left_out_and_no_others() {
        let all = NamespaceMemory::new(1 << 20);
        let [deployments, releases] = [NamespaceShares::default(), NamespaceShares::default()];
        list(&deployments, &all, &[("eve-1", 10_000), ("eve-2", 10_000), ("eve-3", 500), ("apps", 40)]);
        assert_eq!(left_out(&deployments), ["eve-1", "eve-2"]);
        // Another kind is counted with it.
        list(&releases, &all, &[("apps", 40), ("eve-3", 10_000), ("shop", 40)]);
        assert_eq!(left_out(&releases), ["eve-3"]);
        list(&deployments, &all, &[("eve-1", 300), ("apps", 40)]);
        assert!(left_out(&deployments).is_empty(), "it has fewer objects now");
    }

    #[test]
    fn the_kind_is_too_large_if_very_much_is_left_out() {
        let all = NamespaceMemory::new(1 << 20);
        let shares = NamespaceShares::default();
        list(&shares, &all, &[("eve", 4000)]);
        assert!(!shares.are_exceeded(&all));
        list(&shares, &all, &[("eve", 5000)]);
        assert!(shares.are_exceeded(&all));
        let names: Vec<String> = (0..2000).map(|n| format!("n{n}")).collect();
        let objects: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        list(&shares, &all, &objects);
        assert!(shares.are_exceeded(&all));
    }

    #[test]
    fn changes_of_objects_start_a_new_list_and_leave_nothing_out() {
        let all = NamespaceMemory::new(1 << 20);
        let shares = NamespaceShares::default();
        list(&shares, &all, &[("apps", 100)]);
        assert!(!shares.needs_list());
        for _ in 0..1000 {
            assert!(shares.admit((&all, &HUB), "apps", 1 << 10));
        }
        assert!(shares.needs_list() && left_out(&shares).is_empty());
        list(&shares, &all, &[("apps", 100)]);
        assert!(!shares.needs_list() && left_out(&shares).is_empty());
        shares.clear(&all, &HUB);
        assert!(lock(&all.used).is_empty());
    }
}
