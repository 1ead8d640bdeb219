//! A queue for calls of the hook server that write to the API server. One call at a time writes for a pipeline, and a few
//! for a namespace. So many signed calls for one pipeline do not delay other calls, nor the writes of the controller's
//! loop.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_core::lock::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::hmac_keys::Unavailable;
use crate::pipeline_key::PipelineKey;

/// How many calls for a pipeline may wait or write.
pub const MAX_CALLS_PER_PIPELINE: usize = 128;
/// How long a call waits for its turn. Its other requests take at most 6 s, and Flux gives a call 15 s.
const MAX_WAIT: Duration = Duration::from_secs(8);
/// How many calls for the pipelines of a namespace may write at a time, in the order in which they arrive.
pub const MAX_WRITES_PER_NAMESPACE: usize = 4;

/// The calls that write or wait to write, by pipeline and by namespace.
#[derive(Debug, Default)]
pub struct WriteQueue {
    pipelines: KeyedSemaphores<PipelineKey>,
    namespaces: KeyedSemaphores<String>,
}

/// Permits a call to write until it is dropped.
#[derive(Debug)]
pub struct WritePermit {
    _namespace: OwnedSemaphorePermit,
    _pipeline: OwnedSemaphorePermit,
}

impl WriteQueue {
    /// Waits until a call for a pipeline may write.
    ///
    /// # Errors
    /// When too many calls for the pipeline are waiting, or the wait takes too long.
    pub async fn acquire(&self, key: &PipelineKey) -> Result<WritePermit, Unavailable> {
        let pipeline = self.pipelines.semaphore(key.clone(), 1);
        // One reference is in the map; each other belongs to a call that waits or writes.
        if Arc::strong_count(&pipeline) > MAX_CALLS_PER_PIPELINE + 1 {
            return Err(Unavailable::RetryLater);
        }
        let waits = async {
            // The semaphores are never closed.
            let pipeline = pipeline.acquire_owned().await.map_err(|_| Unavailable::RetryLater)?;
            let namespace = self.namespaces.semaphore(key.namespace.clone(), MAX_WRITES_PER_NAMESPACE);
            let namespace = namespace.acquire_owned().await.map_err(|_| Unavailable::RetryLater)?;
            Ok(WritePermit { _namespace: namespace, _pipeline: pipeline })
        };
        tokio::time::timeout(MAX_WAIT, waits).await.unwrap_or(Err(Unavailable::RetryLater))
    }
}

/// A semaphore for each key.
#[derive(Debug)]
struct KeyedSemaphores<K>(Mutex<HashMap<K, Arc<Semaphore>>>);

impl<K> Default for KeyedSemaphores<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// At this number of semaphores, those that no call uses are dropped.
const PRUNE_AT: usize = 1000;

impl<K: Eq + Hash> KeyedSemaphores<K> {
    /// Returns the semaphore of a key. Makes one with this number of permits if there is none.
    fn semaphore(&self, key: K, permits: usize) -> Arc<Semaphore> {
        let mut all = lock(&self.0);
        if all.len() >= PRUNE_AT {
            all.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        all.entry(key).or_insert_with(|| Arc::new(Semaphore::new(permits))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> PipelineKey {
        PipelineKey { namespace: namespace.into(), name: name.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_calls_for_one_pipeline_does_not_delay_other_pipelines() {
        let queue = Arc::new(WriteQueue::default());
        let (greedy, neighbour, other) = (key("a", "greedy"), key("a", "neighbour"), key("b", "other"));
        let held = queue.acquire(&greedy).await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..1000 {
            let (queue, greedy) = (queue.clone(), greedy.clone());
            waiting.push(tokio::spawn(async move { queue.acquire(&greedy).await.map(drop) }));
        }
        // After all calls have started, those over the limit have failed.
        let refused = || waiting.iter().filter(|call| call.is_finished()).count();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(refused(), 1000 - (MAX_CALLS_PER_PIPELINE - 1));
        // Calls for other pipelines, of this namespace and of others, get a permit immediately.
        for key in [&neighbour, &other] {
            let permit = tokio::time::timeout(Duration::from_millis(1), queue.acquire(key)).await;
            assert!(permit.is_ok_and(|permit| permit.is_ok()), "{key} waits");
        }
        drop(held);
        let mut permitted = 0;
        for call in waiting {
            permitted += usize::from(call.await.unwrap().is_ok());
        }
        assert_eq!(permitted, MAX_CALLS_PER_PIPELINE - 1, "a waiting call did not get a permit");
        assert!(queue.acquire(&greedy).await.is_ok(), "the queue is empty, but a call gets no permit");
    }

    /// Such as ten calls of `/trigger`, each of which lists many promotions.
    #[tokio::test(start_paused = true)]
    async fn ten_calls_at_the_same_time_get_their_turn() {
        let queue = WriteQueue::default();
        let calls = (0..10).map(async |_| {
            let permit = queue.acquire(&key("a", "one")).await?;
            tokio::time::sleep(Duration::from_millis(750)).await;
            drop(permit);
            Ok::<_, Unavailable>(())
        });
        let ended = futures::future::join_all(calls).await;
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn writes_for_a_namespace_are_limited_and_a_waiting_call_times_out() {
        let queue = WriteQueue::default();
        let mut held = Vec::new();
        for nth in 0..MAX_WRITES_PER_NAMESPACE {
            held.push(queue.acquire(&key("a", &nth.to_string())).await.unwrap());
        }
        assert_eq!(queue.acquire(&key("a", "late")).await.err(), Some(Unavailable::RetryLater));
        assert!(queue.acquire(&key("b", "late")).await.is_ok());
        held.pop();
        assert!(queue.acquire(&key("a", "late")).await.is_ok());
    }
}
