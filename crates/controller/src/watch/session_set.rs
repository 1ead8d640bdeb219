//! The sessions with all observed clusters. A session starts when its cluster is first observed, ends when it is not
//! observed any more, and is replaced when the kubeconfig has another source.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use kube::Client;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::cluster_session::{ClusterSession, KubeconfigSource, RETRY_AFTER, SendEvent};
use super::event_queue::EventQueue;
use super::kubeconfig_secrets::KubeconfigSecrets;
use super::observed_memory::ObservedMemory;
use super::owned_read::OwnedReads;
use super::relist::Lists;
use crate::observe::ObserveScope;
use crate::state::Input;
use sluice_core::fleet::owned_read::OwnedRead;
use sluice_core::fleet::{ClusterEvent, ClusterKey};

/// All sessions.
pub struct SessionSet {
    hub: Client,
    allow_exec: bool,
    sender: mpsc::UnboundedSender<Input>,
    running: BTreeMap<ClusterKey, RunningSession>,
    /// The number of the newest session.
    last_number: u64,
    memory: Arc<ObservedMemory>,
    /// Counts repeated lists.
    relists: Counter,
}

struct RunningSession {
    number: u64,
    kubeconfig: KubeconfigSource,
    observe: ObserveScope,
    namespaces: watch::Sender<BTreeSet<String>>,
    owned_reads: Arc<OwnedReads>,
    task: AbortHandle,
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs a session until `send` returns false, and starts it again after a panic: what a library cannot handle of one
/// cluster must not end its observation for good.
async fn run(session: ClusterSession, send: impl SendEvent) {
    while AssertUnwindSafe(session.clone().run(send.clone())).catch_unwind().await.is_err() {
        let why =
            format!("{}: Sluice has failed to connect: the log of the controller has the error", session.key);
        tracing::error!(cluster = %session.key, "the session has panicked, and starts again");
        if !send(ClusterEvent::Lost(why)) {
            return;
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

impl SessionSet {
    /// Returns a set of no sessions. `observed_memory` limits the memory for observed objects of all clusters, in
    /// bytes.
    pub fn new(
        hub: Client,
        allow_exec: bool,
        observed_memory: usize,
        sender: mpsc::UnboundedSender<Input>,
        relists: Counter,
    ) -> Self {
        let memory = ObservedMemory::new(observed_memory);
        Self { hub, allow_exec, sender, running: BTreeMap::new(), last_number: 0, memory, relists }
    }

    /// Starts a session with a cluster for targets in these namespaces, or updates the namespaces of the session
    /// that runs with the same source of the kubeconfig and the same scope.
    pub fn start_or_update(
        &mut self,
        key: &ClusterKey,
        kubeconfig: KubeconfigSource,
        namespaces: BTreeSet<String>,
        observe: ObserveScope,
    ) {
        let is_same =
            |running: &&RunningSession| running.kubeconfig == kubeconfig && running.observe == observe;
        if let Some(running) = self.running.get(key).filter(is_same) {
            running.namespaces.send_if_modified(|known| {
                let changed = *known != namespaces;
                *known = namespaces;
                changed
            });
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        let (namespaces, receiver) = watch::channel(namespaces);
        let (queue, owned_reads) = (Arc::new(EventQueue::default()), Arc::new(OwnedReads::default()));
        let session = ClusterSession {
            key: key.clone(),
            hub: self.hub.clone(),
            kubeconfig: kubeconfig.clone(),
            secrets: KubeconfigSecrets::default(),
            allow_exec: self.allow_exec,
            observe,
            namespaces: receiver,
            memory: self.memory.clone(),
            queue: queue.clone(),
            owned_reads: owned_reads.clone(),
            lists: Lists::new(self.relists.clone()),
        };
        let (sender, cluster) = (self.sender.clone(), key.clone());
        let send =
            move |event| sender.send(Input::Cluster(cluster.clone(), number, event, queue.slot())).is_ok();
        let task = tokio::spawn(run(session, send)).abort_handle();
        let running = RunningSession { number, kubeconfig, observe, namespaces, owned_reads, task };
        self.running.insert(key.clone(), running);
    }

    /// Asks the session with a cluster to read what a Flux object owns. Without a session nothing is read: the first lists
    /// of the next one are newer than the request.
    pub fn read_owned(&self, key: &ClusterKey, read: OwnedRead) {
        if let Some(running) = self.running.get(key) {
            running.owned_reads.add(read);
        }
    }

    /// Ends the session with a cluster.
    pub fn end(&mut self, key: &ClusterKey) {
        self.running.remove(key);
    }

    /// Whether the running session with a cluster has this number. Events of earlier sessions are outdated.
    pub fn is_current(&self, key: &ClusterKey, number: u64) -> bool {
        self.running.get(key).is_some_and(|r| r.number == number)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_that_panics_reports_it_and_starts_again() {
        let broken = service_fn(async |_: http::Request<Body>| -> Result<http::Response<Body>, Infallible> {
            panic!("as the client did for a header that cannot be")
        });
        let (sender, mut inputs) = mpsc::unbounded_channel();
        let mut sessions =
            SessionSet::new(Client::new(broken, "default"), false, 1 << 20, sender, Counter::default());
        sessions.start_or_update(
            &ClusterKey::Local,
            KubeconfigSource::Local,
            BTreeSet::new(),
            ObserveScope::All,
        );
        for _ in 0..2 {
            let input = inputs.recv().await.unwrap();
            let Input::Cluster(_, _, ClusterEvent::Lost(why), _) = input else { panic!("{input:?}") };
            assert!(why.contains("the log of the controller has the error"), "{why}");
        }
    }
}
