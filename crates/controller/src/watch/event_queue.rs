//! The queue of events of one cluster, which a fast cluster must not fill without end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// The most events of one cluster that wait for the controller's loop.
const MAX_QUEUED_EVENTS: usize = 128;

/// The number of events of one cluster that wait for the controller's loop.
#[derive(Default)]
pub struct EventQueue {
    waiting: AtomicUsize,
    slot_freed: Notify,
}

impl EventQueue {
    /// Returns a slot of the queue. Dropping it frees the slot.
    pub fn slot(self: &Arc<Self>) -> QueueSlot {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        QueueSlot(self.clone())
    }

    /// Waits until fewer than [`MAX_QUEUED_EVENTS`] events wait in the queue.
    pub async fn wait_for_room(&self) {
        loop {
            let slot_freed = self.slot_freed.notified();
            if self.waiting.load(Ordering::SeqCst) < MAX_QUEUED_EVENTS {
                return;
            }
            // Several watches may wait for one slot, and only one of them is notified. The timeout covers the
            // others.
            let _ = tokio::time::timeout(Duration::from_secs(1), slot_freed).await;
        }
    }
}

/// A slot of an [`EventQueue`].
pub struct QueueSlot(Arc<EventQueue>);

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.slot_freed.notify_one();
    }
}

impl fmt::Debug for QueueSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueueSlot")
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_watch_waits_while_the_event_queue_of_its_cluster_is_full() {
        let queue = Arc::new(EventQueue::default());
        let mut slots = Vec::new();
        for _ in 0..MAX_QUEUED_EVENTS {
            assert!(queue.wait_for_room().now_or_never().is_some());
            slots.push(queue.slot());
        }
        let mut room = Box::pin(queue.wait_for_room());
        assert!((&mut room).now_or_never().is_none());
        slots.pop();
        assert!(room.now_or_never().is_some());
    }
}
