//! What passes between a repository and its clients: counted, and broken on demand.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// Requests that were answered, by kind; those of the user for Flux are not among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// References were listed: `GET info/refs`, which every fetch and push begins with.
    pub ls: usize,
    /// Objects were fetched: `POST git-upload-pack`. Protocol 2 lists references this way too.
    pub fetch: usize,
    /// Something was pushed: `POST git-receive-pack`.
    pub push: usize,
    /// The password was wrong, or a reader tried to push.
    pub refused: usize,
}

/// The kinds that [`Requests`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ls,
    Fetch,
    Push,
    Refused,
}

/// Counts requests, and makes them fail, hang, or lose their answer.
#[derive(Debug)]
pub struct Tap {
    counts: [AtomicUsize; 4],
    failing: AtomicUsize,
    losing: AtomicUsize,
    hanging: watch::Sender<bool>,
}

impl Default for Tap {
    fn default() -> Self {
        let zero = || AtomicUsize::new(0);
        let counts = [zero(), zero(), zero(), zero()];
        Tap { counts, failing: zero(), losing: zero(), hanging: watch::Sender::new(false) }
    }
}

impl Tap {
    /// What was asked so far.
    pub fn requests(&self) -> Requests {
        let [ls, fetch, push, refused] = self.counts.each_ref().map(|c| c.load(Ordering::SeqCst));
        Requests { ls, fetch, push, refused }
    }

    /// The next `n` requests are answered 503 and nothing else happens.
    pub fn fail_next(&self, n: usize) {
        self.failing.store(n, Ordering::SeqCst);
    }

    /// The next `n` pushes take effect, and the client is told 502: the answer got lost.
    pub fn lose_next_pushes(&self, n: usize) {
        self.losing.store(n, Ordering::SeqCst);
    }

    /// While on, requests wait; they go on when it is switched off.
    pub fn hang(&self, on: bool) {
        self.hanging.send_replace(on);
    }

    pub(crate) fn count(&self, kind: Kind) {
        self.counts[kind as usize].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn takes_failure(&self) -> bool {
        take(&self.failing)
    }

    pub(crate) fn takes_loss(&self) -> bool {
        take(&self.losing)
    }

    pub(crate) async fn pass(&self) {
        // The sender lives as long as we do, so there is no error to handle.
        let _ = self.hanging.subscribe().wait_for(|on| !on).await;
    }
}

fn take(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}
