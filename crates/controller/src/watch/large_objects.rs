//! The slots for large objects. A hostile cluster can begin to send one on each of its watches, and never end it. So at most
//! [`SLOTS`] of them are received at the same time, and each for at most [`MAX_OBJECT_TIME`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use sluice_core::fleet::ClusterKey;
use sluice_core::lock::lock;
use sluice_delivery::{FairQueue, Slot};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::too_large::{MAX_OBJECT_TIME, TooLarge};

/// An object of more bytes is large.
pub(super) const SMALL_BYTES: usize = 32 << 10;
/// The most bytes of an answer that are handled at a time.
const PIECE_BYTES: usize = 16 << 10;
/// How many large objects are received at the same time.
const SLOTS: usize = 12;
/// How many of them come from one cluster.
const SLOTS_OF_CLUSTER: usize = 2;

/// The slots for the large objects of all clusters. The namespaces of GitopsClusters share them fairly.
#[derive(Debug)]
pub(super) struct LargeObjects {
    slots: Arc<FairQueue>,
    by_cluster: Mutex<HashMap<ClusterKey, Weak<Semaphore>>>,
}

/// The permission to receive one large object.
#[derive(Debug)]
pub struct LargeObject {
    _of_cluster: Option<OwnedSemaphorePermit>,
    _slot: Slot,
    /// The end of the time for receiving it.
    pub(super) until: Instant,
}

impl Default for LargeObjects {
    fn default() -> Self {
        LargeObjects { slots: FairQueue::new(SLOTS), by_cluster: Mutex::default() }
    }
}

impl LargeObjects {
    /// Waits for a slot.
    pub(super) async fn begin(&self, cluster: &ClusterKey) -> LargeObject {
        // The semaphore is never closed.
        let of_cluster = self.of_cluster(cluster).acquire_owned().await.ok();
        let name = match cluster {
            ClusterKey::Local => "/".into(),
            ClusterKey::Remote { namespace, name } => format!("{namespace}/{name}"),
        };
        let slot = self.slots.acquire(&name).await;
        LargeObject { _of_cluster: of_cluster, _slot: slot, until: Instant::now() + MAX_OBJECT_TIME }
    }

    fn of_cluster(&self, cluster: &ClusterKey) -> Arc<Semaphore> {
        let mut known = lock(&self.by_cluster);
        if let Some(slots) = known.get(cluster).and_then(Weak::upgrade) {
            return slots;
        }
        known.retain(|_, slots| slots.strong_count() > 0);
        let slots = Arc::new(Semaphore::new(SLOTS_OF_CLUSTER));
        known.insert(cluster.clone(), Arc::downgrade(&slots));
        slots
    }
}

/// Returns the beginning of what was received.
pub(super) fn piece(received: &[u8]) -> &[u8] {
    &received[..received.len().min(PIECE_BYTES)]
}

/// Waits for the next piece of an object until its deadline, if it has one.
///
/// # Errors
/// When the deadline has passed.
pub(super) async fn before<T>(
    deadline: Option<Instant>,
    piece: impl Future<Output = T>,
) -> Result<T, TooLarge> {
    match deadline {
        Some(deadline) => timeout_at(deadline, piece).await.map_err(|_| TooLarge::ObjectTime),
        None => Ok(piece.await),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_unfinished_objects_of_one_namespace_leave_a_slot_to_another() {
        let slots = LargeObjects::default();
        let cluster = |namespace: &str, nth: usize| ClusterKey::Remote {
            namespace: namespace.into(),
            name: format!("c{nth}"),
        };
        let mut held = Vec::new();
        for nth in 0..2 * SLOTS {
            let cluster = cluster("evil", nth);
            held.extend(timeout(Duration::from_secs(1), slots.begin(&cluster)).await.ok());
        }
        assert!(!held.is_empty() && held.len() < SLOTS, "{} objects", held.len());
        held.truncate(1);
        let own = cluster("evil", 0);
        let second = timeout(Duration::from_secs(1), slots.begin(&own)).await;
        assert!(second.is_ok(), "a cluster has two slots");
        assert!(timeout(Duration::from_secs(1), slots.begin(&own)).await.is_err(), "and not three");
        let begun = timeout(Duration::from_secs(1), slots.begin(&cluster("fleet", 0))).await;
        let object = begun.expect("another namespace waits");
        let stalls = before(Some(object.until), std::future::pending::<()>()).await;
        assert_eq!(stalls, Err(TooLarge::ObjectTime));
    }
}
