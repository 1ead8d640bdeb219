//! The slots for large objects that have not arrived completely. A hostile cluster can begin one on each of its watches, and
//! never end it. So only some of all clusters arrive at a time, and each must arrive soon.

use std::sync::Arc;

use sluice_core::fleet::ClusterKey;
use sluice_delivery::{FairQueue, Slot};
use tokio::time::{Instant, timeout_at};

use super::too_large::{MAX_OBJECT_TIME, TooLarge};

/// How many bytes of an object are kept without a slot.
pub(super) const SMALL_BYTES: usize = 32 << 10;
/// How many bytes are taken at a time of what a cluster has sent.
const PIECE_BYTES: usize = 16 << 10;
/// How many large objects arrive at the same time.
const SLOTS: usize = 12;

/// The slots for the large objects of all clusters. The clusters of one namespace share what others need.
#[derive(Clone, Debug)]
pub(super) struct LargeObjects(Arc<FairQueue>);

/// The permission for one large object to arrive.
#[derive(Debug)]
pub struct LargeObject {
    _slot: Slot,
    /// When it must have arrived.
    pub(super) until: Instant,
}

impl Default for LargeObjects {
    fn default() -> Self {
        LargeObjects(FairQueue::new(SLOTS))
    }
}

impl LargeObjects {
    /// Waits for a slot.
    pub(super) async fn begin(&self, cluster: &ClusterKey) -> LargeObject {
        let name = match cluster {
            ClusterKey::Local => "/".into(),
            ClusterKey::Remote { namespace, name } => format!("{namespace}/{name}"),
        };
        let slot = self.0.acquire(&name).await;
        LargeObject { _slot: slot, until: Instant::now() + MAX_OBJECT_TIME }
    }
}

/// Returns the beginning of what has arrived.
pub(super) fn piece(arrived: &[u8]) -> &[u8] {
    &arrived[..arrived.len().min(PIECE_BYTES)]
}

/// Waits for the next piece of an object until its deadline.
///
/// # Errors
/// When it has not arrived.
pub(super) async fn arrives<T>(
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
        let begun = timeout(Duration::from_secs(1), slots.begin(&cluster("fleet", 0))).await;
        let object = begun.expect("another namespace waits");
        let stalls = arrives(Some(object.until), std::future::pending::<()>()).await;
        assert_eq!(stalls, Err(TooLarge::ObjectTime));
    }
}
