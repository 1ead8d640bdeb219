//! Counts the requests of a repository, and injects faults into them.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// The number of answered requests by kind, without those of the user for Flux.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// `GET info/refs`: lists references. Every fetch and push begins with it.
    pub ls: usize,
    /// `POST git-upload-pack`: fetches objects. Protocol 2 also lists references with it.
    pub fetch: usize,
    /// `POST git-receive-pack`: pushes.
    pub push: usize,
    /// Requests with a wrong password, and pushes of a user who may only read.
    pub refused: usize,
}

/// The kinds of requests, as in [`Requests`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Ls,
    Fetch,
    Push,
    Refused,
}

/// Counts requests, and makes them fail, hang or lose their answer.
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
    /// Returns the number of requests so far.
    pub fn requests(&self) -> Requests {
        let [ls, fetch, push, refused] = self.counts.each_ref().map(|c| c.load(Ordering::SeqCst));
        Requests { ls, fetch, push, refused }
    }

    /// The next `n` requests are answered with 503 and have no effect.
    pub fn fail_next(&self, n: usize) {
        self.failing.store(n, Ordering::SeqCst);
    }

    /// The next `n` pushes have their effect and are answered with 502, as if their answer got lost.
    pub fn lose_next_pushes(&self, n: usize) {
        self.losing.store(n, Ordering::SeqCst);
    }

    /// While on, requests wait. They continue when it is switched off.
    pub fn hang(&self, on: bool) {
        self.hanging.send_replace(on);
    }

    pub(crate) fn count(&self, kind: RequestKind) {
        self.counts[kind as usize].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn take_failure(&self) -> bool {
        take(&self.failing)
    }

    pub(crate) fn take_loss(&self) -> bool {
        take(&self.losing)
    }

    /// Waits while requests hang.
    pub(crate) async fn wait_while_hanging(&self) {
        // The sender lives as long as `self`, so there is no error.
        let _ = self.hanging.subscribe().wait_for(|on| !on).await;
    }
}

fn take(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}
