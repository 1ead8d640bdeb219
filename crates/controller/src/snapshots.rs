//! Snapshots of the loop's Pipelines and Promotions, for those that show them. The loop answers between two rounds, so a
//! snapshot shows no half of a change, and copies no object.

use std::sync::Arc;

use sluice_api::snapshot::Snapshot;
use sluice_core::fleet::index::Fleet;
use tokio::sync::{mpsc, oneshot, watch};

/// Where the controller publishes its state.
#[derive(Debug)]
pub struct Shown {
    /// The observed clusters.
    pub fleet: Fleet,
    /// The Pipelines and Promotions.
    pub snapshots: SnapshotRequests,
}

/// Reads snapshots. Copies read from the same loop.
#[derive(Clone, Debug)]
pub struct SnapshotReader {
    requests: mpsc::UnboundedSender<oneshot::Sender<Snapshot>>,
    rounds: watch::Receiver<u64>,
}

/// The loop's end of a [`SnapshotReader`].
#[derive(Debug)]
pub struct SnapshotRequests {
    requests: mpsc::UnboundedReceiver<oneshot::Sender<Snapshot>>,
    rounds: watch::Sender<u64>,
}

/// Returns a reader, and the end that the loop serves.
pub fn snapshot_channel() -> (SnapshotReader, SnapshotRequests) {
    let (tx, requests) = mpsc::unbounded_channel();
    let (rounds, seen) = watch::channel(0);
    (SnapshotReader { requests: tx, rounds: seen }, SnapshotRequests { requests, rounds })
}

impl SnapshotReader {
    /// Returns the Pipelines and Promotions as they are now; `None` if the loop has ended.
    pub async fn read(&self) -> Option<Arc<Snapshot>> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(reply).ok()?;
        answer.await.ok().map(Arc::new)
    }

    /// Returns a number that is higher after something may have changed.
    pub fn version(&self) -> u64 {
        *self.rounds.borrow()
    }

    /// Waits until the version is higher than this one. Never ends if the loop has ended.
    pub async fn changed_since(&self, version: u64) {
        if self.rounds.clone().wait_for(|now| *now > version).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl SnapshotRequests {
    /// Waits for a request for a snapshot. Never ends if there are no readers.
    pub(crate) async fn next(&mut self) -> oneshot::Sender<Snapshot> {
        match self.requests.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }

    /// Notes that something may have changed.
    pub(crate) fn note_change(&self) {
        self.rounds.send_modify(|rounds| *rounds += 1);
    }
}
