//! How often the objects of one watch change. Tenants share a cluster, and each of them may change the objects of its
//! namespaces without end. So the changes are counted by namespace.

use std::collections::HashMap;
use std::time::Instant;

use super::too_large::{MAX_CHANGES_PER_SECOND, TooLarge};

/// The most changes that may arrive in a burst.
const MAX_BURST: f64 = 20_000.0;
/// A change of this many bytes counts as two changes.
const BYTES_PER_CHANGE: f64 = 16_384.0;
/// The most namespaces that are counted. With more, the count starts again.
const MAX_COUNTED: usize = 10_000;
/// The longest name of a namespace in Kubernetes.
const MAX_NAMESPACE_BYTES: usize = 63;

/// Counts changes with a token bucket, which refills with time.
pub struct ChangeCount {
    is_limited: bool,
    /// How many changes may still arrive.
    left: f64,
    updated: Instant,
    /// The changes of each namespace since the bucket was full.
    namespaces: HashMap<String, f64>,
}

/// More changes arrive than the limits allow.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyChanges {
    /// The namespace with the most changes; `None` if the objects have no namespace.
    pub namespace: Option<String>,
}

impl From<TooManyChanges> for kube::Error {
    fn from(_: TooManyChanges) -> Self {
        TooLarge::Changes.into()
    }
}

impl ChangeCount {
    /// Starts counting. Without a limit, nothing is counted.
    pub(super) fn new(is_limited: bool) -> Self {
        Self { is_limited, left: MAX_BURST, updated: Instant::now(), namespaces: HashMap::new() }
    }

    /// Counts a change of this many bytes in a namespace, or of an object without one.
    ///
    /// # Errors
    /// When more changes arrive than the limits allow. The changes of the namespace that the error names are then not counted
    /// any more.
    pub fn add(&mut self, namespace: Option<&str>, bytes: usize) -> Result<(), TooManyChanges> {
        if !self.is_limited {
            return Ok(());
        }
        let now = Instant::now();
        let refill = now.duration_since(self.updated).as_secs_f64() * MAX_CHANGES_PER_SECOND;
        self.updated = now;
        self.left = (self.left + refill).min(MAX_BURST);
        if self.left >= MAX_BURST || self.namespaces.len() >= MAX_COUNTED {
            self.namespaces.clear();
        }
        let cost = 1.0 + bytes as f64 / BYTES_PER_CHANGE;
        self.left -= cost;
        if let Some(namespace) = namespace.filter(|name| name.len() <= MAX_NAMESPACE_BYTES) {
            match self.namespaces.get_mut(namespace) {
                Some(sum) => *sum += cost,
                None => drop(self.namespaces.insert(namespace.into(), cost)),
            }
        }
        if self.left >= 0.0 {
            return Ok(());
        }
        let most = self.namespaces.iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        let namespace = most.map(|(name, _)| name.clone());
        let sum = namespace.as_ref().and_then(|name| self.namespaces.remove(name));
        self.left += sum.unwrap_or(0.0);
        Err(TooManyChanges { namespace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds changes until there are too many.
    fn flood(count: &mut ChangeCount, namespace: Option<&str>, bytes: usize) -> (usize, TooManyChanges) {
        let mut changes = 0;
        loop {
            if let Err(error) = count.add(namespace, bytes) {
                return (changes, error);
            }
            changes += 1;
        }
    }

    #[test]
    fn the_namespace_with_the_most_changes_is_named_and_no_longer_counted() {
        let mut count = ChangeCount::new(true);
        for n in 0..5_000 {
            count.add(Some(&format!("team-{}", n % 100)), 1 << 10).unwrap();
        }
        for namespace in ["eve", "eve-2"] {
            let (changes, error) = flood(&mut count, Some(namespace), 1 << 10);
            assert_eq!(error.namespace.as_deref(), Some(namespace));
            assert!((10_000..20_000).contains(&changes), "{changes}");
        }
        // Others go on.
        for n in 0..5_000 {
            count.add(Some(&format!("team-{}", n % 100)), 1 << 10).unwrap();
        }
        let (changes, _) = flood(&mut count, Some("eve"), 1_400 << 10);
        assert!((100..300).contains(&changes), "the size of a change counts: {changes}");
    }

    #[test]
    fn no_namespace_is_named_if_objects_have_none_and_a_trusted_server_has_no_limit() {
        let (_, error) = flood(&mut ChangeCount::new(true), None, 0);
        assert_eq!(error.namespace, None);
        let mut trusted = ChangeCount::new(false);
        assert!((0..50_000).all(|_| trusted.add(Some("apps"), 1 << 20).is_ok()));
    }
}
