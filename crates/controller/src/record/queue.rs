//! News wait here to be sent: fair by namespace, with a few tries each and a bounded number of each namespace. What
//! cannot be sent is dropped: news delay, fail and repeat no promotion.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluice_delivery::{FairQueue, Retry, clock};

/// After each try; what is sent is given up after the last.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15), Duration::ZERO];
/// The longest pause, where a receiver says when to try again.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// How many are sent at the same time. Kubernetes events go to the hub, and news to one address, whatever namespace they
/// are of: none of them is slower than another. A commit status goes to the forge that its pipeline names: one of
/// another namespace waits for one try at most, since the slots are given to namespaces in turn.
pub(super) const SENDERS: usize = 4;
/// How many of one namespace may wait to be sent; what comes then is dropped.
const MOST_WAITING: usize = 100;

/// A queue of news.
#[derive(Clone)]
pub struct NewsQueue {
    slots: Arc<FairQueue>,
    waiting: Arc<Waiting>,
}

impl Default for NewsQueue {
    fn default() -> Self {
        NewsQueue { slots: FairQueue::new(SENDERS), waiting: Arc::default() }
    }
}

impl NewsQueue {
    /// Has news of an object, named `namespace/name`, sent in a task of their own, as [`tries`] does. Returns `false`
    /// if too many of the namespace wait already: then nothing is sent.
    pub fn send<F>(&self, object: String, attempt: impl FnMut(bool) -> F + Send + 'static) -> bool
    where
        F: Future<Output = Result<(), Retry>> + Send + 'static,
    {
        let namespace = object.split('/').next().unwrap_or_default().to_string();
        if !self.waiting.begin(&namespace) {
            return false;
        }
        let Self { slots, waiting } = self.clone();
        tokio::spawn(async move {
            tries(&slots, &object, attempt).await;
            waiting.end(&namespace);
        });
        true
    }
}

/// Tries to send something about an object, named `namespace/name`, until it is sent, cannot be, or was tried often
/// enough: each try in its turn. `attempt` is told whether it is the last.
pub(super) async fn tries<F>(slots: &Arc<FairQueue>, object: &str, mut attempt: impl FnMut(bool) -> F)
where
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
                until.clamp(pause, LONGEST_PAUSE)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// How many news wait, by namespace.
#[derive(Debug, Default)]
struct Waiting(Mutex<HashMap<String, usize>>);

impl Waiting {
    /// Counts one more of a namespace; `false` if too many wait already.
    fn begin(&self, namespace: &str) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(namespace.into()).or_default();
        let has_room = *count < MOST_WAITING;
        *count += usize::from(has_room);
        has_room
    }

    /// Counts one less of a namespace.
    fn end(&self, namespace: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(namespace) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_one_namespace_take_no_room_from_another() {
        let waiting = Waiting::default();
        let taken = (0..1000).filter(|_| waiting.begin("busy")).count();
        assert_eq!((taken, waiting.begin("quiet")), (MOST_WAITING, true));
        waiting.end("busy");
        assert!(waiting.begin("busy") && !waiting.begin("busy"));
        waiting.end("quiet");
        assert_eq!(waiting.0.lock().unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_sent_is_tried_no_more() {
        for (answers, expected) in [
            (vec![Ok(())], vec![false]),
            (vec![Err(Retry::OnChange)], vec![false]),
            (vec![Err(Retry::Soon), Ok(())], vec![false, false]),
            (vec![Err(Retry::Soon); 9], vec![false, false, false, true]),
            (vec![Err(Retry::At(clock::now())); 9], vec![false, false, false, true]),
        ] {
            let (mut answers, mut tried) = (answers.into_iter(), Vec::new());
            tries(&FairQueue::new(1), "apps/podinfo", |is_last| {
                tried.push(is_last);
                std::future::ready(answers.next().unwrap_or(Ok(())))
            })
            .await;
            assert_eq!(tried, expected);
        }
    }
}
