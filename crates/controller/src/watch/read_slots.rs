//! The slots for reads of what Flux objects own. A hostile cluster can have a large answer read for each of thousands of
//! objects, again and again. So a slot pauses after a read, and large reads pause in slots of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::lock::lock;
use sluice_delivery::{FairQueue, Slot};
use tokio::time::Instant;

/// How many small reads of a cluster run at the same time. The last one is for a namespace of which none runs.
const SMALL_READS: usize = 5;
/// How many reads run at the same time of namespaces with large ones.
const LARGE_READS: usize = 2;
/// A read with more bytes is large. An object has a few thousand.
const LARGE_BYTES: usize = 1 << 20;
/// How long the reads of a namespace count as large after a large one.
const LARGE_FOR: Duration = Duration::from_secs(3600);
/// How many bytes one slot may read in a second on average.
const BYTES_PER_SECOND: f64 = 1_048_576.0;

/// The slots for reads of one cluster.
#[derive(Debug)]
pub(super) struct ReadSlots {
    small: Arc<FairQueue>,
    large: Arc<FairQueue>,
    /// Until when the reads of a namespace count as large.
    large_until: Mutex<BTreeMap<String, Instant>>,
}

impl Default for ReadSlots {
    fn default() -> Self {
        let (small, large) = (FairQueue::new(SMALL_READS), FairQueue::new(LARGE_READS));
        ReadSlots { small, large, large_until: Mutex::default() }
    }
}

impl ReadSlots {
    /// Waits for a slot for a read of an object in this namespace. Its `name` begins with the namespace.
    pub(super) async fn acquire(&self, namespace: &str, name: &str) -> Slot {
        if !self.has_large(namespace) {
            let slot = self.small.acquire(name).await;
            // Another read of the namespace may have been large meanwhile.
            if !self.has_large(namespace) {
                return slot;
            }
        }
        self.large.acquire(name).await
    }

    /// Holds a slot after a read of this many bytes. If the read was large, the slot is free for others immediately.
    pub(super) async fn pause(&self, slot: Slot, (namespace, name): (&str, &str), bytes: usize) {
        let mut held = slot;
        if bytes > LARGE_BYTES {
            self.note_large(namespace);
            drop(held);
            held = self.large.acquire(name).await;
        }
        tokio::time::sleep(Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND)).await;
        drop(held);
    }

    fn note_large(&self, namespace: &str) {
        let now = Instant::now();
        let mut until = lock(&self.large_until);
        until.retain(|_, until| *until > now);
        until.insert(namespace.into(), now + LARGE_FOR);
    }

    fn has_large(&self, namespace: &str) -> bool {
        let until = lock(&self.large_until);
        until.get(namespace).is_some_and(|until| *until > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock of the test moves only while all wait.
    #[tokio::test(start_paused = true)]
    async fn large_reads_of_many_namespaces_delay_no_small_read() {
        let slots = Arc::new(ReadSlots::default());
        for n in 0..50 {
            let slots = slots.clone();
            tokio::spawn(async move {
                let namespace = format!("n{n}");
                for _ in 0..3 {
                    let name = format!("{namespace}/app");
                    let slot = slots.acquire(&namespace, &name).await;
                    slots.pause(slot, (&namespace, &name), 16 << 20).await;
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        for _ in 0..20 {
            let asked = Instant::now();
            let slot = slots.acquire("apps", "apps/web").await;
            assert_eq!(asked.elapsed(), Duration::ZERO);
            slots.pause(slot, ("apps", "apps/web"), 1 << 20).await;
        }
    }
}
