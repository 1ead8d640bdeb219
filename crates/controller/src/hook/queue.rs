//! The queue of calls that write to the API server. One call of a pipeline writes at a time, and a few of a namespace,
//! so that a flood of signed calls for one pipeline delays neither the calls for others nor the loop's own writes.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::hmac_keys::{DEADLINE, Unavailable};
use crate::key::PipelineKey;

/// How many calls of a pipeline may wait or write.
pub const OF_PIPELINE: usize = 128;
/// How many calls of a namespace may write at a time: one of each pipeline, in the order in which they come.
pub const OF_NAMESPACE: usize = 4;

/// Calls that write, by namespace and by pipeline.
#[derive(Debug, Default)]
pub struct Queue {
    pipelines: Lanes<PipelineKey>,
    namespaces: Lanes<String>,
}

/// The right to write, as long as it is held.
#[derive(Debug)]
pub struct Place {
    _namespace: OwnedSemaphorePermit,
    _pipeline: OwnedSemaphorePermit,
}

impl Queue {
    /// Waits until a call of a pipeline may write.
    ///
    /// # Errors
    /// When too many calls of the pipeline wait already, or the wait takes too long: the caller is to come again.
    pub async fn enter(&self, key: &PipelineKey) -> Result<Place, Unavailable> {
        let lane = self.pipelines.lane(key.clone(), 1);
        // The map has it too.
        if Arc::strong_count(&lane) > OF_PIPELINE + 1 {
            return Err(Unavailable::NotNow);
        }
        let waits = async {
            // The semaphores are never closed.
            let pipeline = lane.acquire_owned().await.map_err(|_| Unavailable::NotNow)?;
            let namespace = self.namespaces.lane(key.namespace.clone(), OF_NAMESPACE);
            let namespace = namespace.acquire_owned().await.map_err(|_| Unavailable::NotNow)?;
            Ok(Place { _namespace: namespace, _pipeline: pipeline })
        };
        tokio::time::timeout(DEADLINE, waits).await.unwrap_or(Err(Unavailable::NotNow))
    }
}

/// A semaphore for each key that is in use.
#[derive(Debug)]
struct Lanes<K>(Mutex<HashMap<K, Arc<Semaphore>>>);

impl<K> Default for Lanes<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// From so many lanes on, those that nobody uses are dropped.
const MANY: usize = 1000;

impl<K: Eq + Hash> Lanes<K> {
    fn lane(&self, key: K, fencing_tokens: usize) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MANY {
            all.retain(|_, lane| Arc::strong_count(lane) > 1);
        }
        all.entry(key).or_insert_with(|| Arc::new(Semaphore::new(fencing_tokens))).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(namespace: &str, name: &str) -> PipelineKey {
        PipelineKey { namespace: namespace.into(), name: name.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_for_one_pipeline_delays_no_other() {
        let queue = Arc::new(Queue::default());
        let (greedy, neighbour, other) = (key("a", "greedy"), key("a", "neighbour"), key("b", "other"));
        let held = queue.enter(&greedy).await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..1000 {
            let (queue, greedy) = (queue.clone(), greedy.clone());
            waiting.push(tokio::spawn(async move { queue.enter(&greedy).await.map(drop) }));
        }
        // All of them have come, and those that are too many were told to come again.
        let refused = || waiting.iter().filter(|call| call.is_finished()).count();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(refused(), 1000 - (OF_PIPELINE - 1));
        // Others of the namespace and of other namespaces go on at once.
        for key in [&neighbour, &other] {
            let place = tokio::time::timeout(Duration::from_millis(1), queue.enter(key)).await;
            assert!(place.is_ok_and(|place| place.is_ok()), "{key} waits");
        }
        drop(held);
        let mut taken = 0;
        for call in waiting {
            taken += usize::from(call.await.unwrap().is_ok());
        }
        assert_eq!(taken, OF_PIPELINE - 1, "the others wait until it is their turn");
        assert!(queue.enter(&greedy).await.is_ok(), "there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_has_its_share_and_no_call_waits_for_ever() {
        let queue = Queue::default();
        let mut held = Vec::new();
        for nth in 0..OF_NAMESPACE {
            held.push(queue.enter(&key("a", &nth.to_string())).await.unwrap());
        }
        assert_eq!(queue.enter(&key("a", "late")).await.err(), Some(Unavailable::NotNow));
        assert!(queue.enter(&key("b", "late")).await.is_ok());
        held.pop();
        assert!(queue.enter(&key("a", "late")).await.is_ok());
    }
}
