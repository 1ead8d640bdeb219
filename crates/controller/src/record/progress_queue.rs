//! A queue of progress events and commit statuses to be sent: fair by namespace, with a few tries each and a bounded
//! number for each namespace. Those that cannot be sent are dropped: they delay, fail and repeat no promotion.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::slots::Slots;
use sluice_delivery::{FairQueue, Retry, clock};

/// The pause after each try. After the last try the event is dropped.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15), Duration::ZERO];
/// The longest pause that a receiver may ask for.
const MAX_PAUSE: Duration = Duration::from_secs(3600);
/// How many are sent at the same time. Kubernetes events go to the hub, and progress events to one address, so no namespace
/// is slower than another. Commit statuses go to the forge that the pipeline names: since namespaces get slots in
/// turn, a slow forge delays another namespace by one try at most.
pub(super) const MAX_SENDERS: usize = 4;
/// How many of one namespace may wait. More are dropped.
const MAX_WAITING: usize = 100;

/// A queue of progress events or commit statuses.
#[derive(Clone)]
pub struct ProgressQueue {
    slots: Arc<FairQueue>,
    /// By namespace.
    waiting: Slots<String>,
}

impl Default for ProgressQueue {
    fn default() -> Self {
        ProgressQueue { slots: FairQueue::new(MAX_SENDERS), waiting: Slots::for_each(MAX_WAITING) }
    }
}

impl ProgressQueue {
    /// Sends something about an object, named `namespace/name`, in a task of its own, as [`send_with_retries`] does.
    /// Returns `false` and sends nothing if too many of the namespace wait.
    pub fn send<F>(&self, object: String, attempt: impl FnMut(bool) -> F + Send + 'static) -> bool
    where
        F: Future<Output = Result<(), Retry>> + Send + 'static,
    {
        let namespace = object.split('/').next().unwrap_or_default().to_string();
        let Some(waiting) = self.waiting.take_for(namespace) else { return false };
        let slots = self.slots.clone();
        tokio::spawn(async move {
            send_with_retries(&slots, &object, attempt).await;
            drop(waiting);
        });
        true
    }
}

/// Calls `attempt` until it succeeds, a retry makes no sense, or it was called often enough. Each call waits for a
/// slot in the queue of an object named `namespace/name`. The argument of `attempt` is true in the last call.
pub(super) async fn send_with_retries<F>(
    slots: &Arc<FairQueue>,
    object: &str,
    mut attempt: impl FnMut(bool) -> F,
) where
    F: Future<Output = Result<(), Retry>>,
{
    for (number, pause) in (1..).zip(PAUSES) {
        let is_last = number == PAUSES.len();
        let slot = slots.acquire(object).await;
        let sent = attempt(is_last).await;
        drop(slot);
        let pause = match sent {
            Ok(()) | Err(Retry::OnChange) => return,
            Err(_) if is_last => return,
            Err(Retry::Soon) => pause,
            Err(Retry::At(at)) => {
                let until = Duration::try_from(at.duration_since(clock::now())).unwrap_or_default();
                until.clamp(pause, MAX_PAUSE)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn news_are_retried_only_if_a_retry_makes_sense_and_a_few_times() {
        for (answers, expected) in [
            (vec![Ok(())], vec![false]),
            (vec![Err(Retry::OnChange)], vec![false]),
            (vec![Err(Retry::Soon), Ok(())], vec![false, false]),
            (vec![Err(Retry::Soon); 9], vec![false, false, false, true]),
            (vec![Err(Retry::At(clock::now())); 9], vec![false, false, false, true]),
        ] {
            let (mut answers, mut tried) = (answers.into_iter(), Vec::new());
            send_with_retries(&FairQueue::new(1), "apps/podinfo", |is_last| {
                tried.push(is_last);
                std::future::ready(answers.next().unwrap_or(Ok(())))
            })
            .await;
            assert_eq!(tried, expected);
        }
    }
}
