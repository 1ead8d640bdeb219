//! The sessions with all clusters that pipelines refer to: begun when the first one does, ended
//! when the last one no longer does, begun anew when a cluster's kubeconfig is to be found
//! elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::limit::{Budget, Queue};
use super::relist::Lists;
use super::session::{KubeconfigSource, Session};
use crate::observe::facts::ClusterKey;
use crate::state::Input;

/// All sessions.
pub struct Fleet {
    hub: Client,
    allow_exec: bool,
    tell: mpsc::UnboundedSender<Input>,
    running: BTreeMap<ClusterKey, Running>,
    begun: u64,
    budget: Arc<Budget>,
    /// Counts the lists that are made again.
    listed_again: Counter,
}

struct Running {
    number: u64,
    access: KubeconfigSource,
    namespaces: watch::Sender<BTreeSet<String>>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fleet {
    /// No session yet.
    pub fn new(
        hub: Client,
        allow_exec: bool,
        observed_memory: usize,
        tell: mpsc::UnboundedSender<Input>,
        listed_again: Counter,
    ) -> Self {
        let budget = Budget::new(observed_memory);
        Self { hub, allow_exec, tell, running: BTreeMap::new(), begun: 0, budget, listed_again }
    }

    /// Has a session with a cluster, by these means, for targets in these namespaces.
    pub fn keep(&mut self, key: &ClusterKey, access: KubeconfigSource, namespaces: BTreeSet<String>) {
        if let Some(running) = self.running.get(key).filter(|r| r.access == access) {
            running.namespaces.send_if_modified(|known| {
                let changed = *known != namespaces;
                *known = namespaces;
                changed
            });
            return;
        }
        self.begun += 1;
        let number = self.begun;
        let (sender, receiver) = watch::channel(namespaces);
        let queue = Arc::new(EventQueue::default());
        let session = Session {
            key: key.clone(),
            hub: self.hub.clone(),
            access: access.clone(),
            allow_exec: self.allow_exec,
            namespaces: receiver,
            budget: self.budget.clone(),
            queue: queue.clone(),
            lists: Lists::new(self.listed_again.clone()),
        };
        let (tell, of) = (self.tell.clone(), key.clone());
        let task =
            tokio::spawn(session.run(move |event| {
                tell.send(Input::Cluster(of.clone(), number, event, queue.slot())).is_ok()
            }));
        let running = Running { number, access, namespaces: sender, task: task.abort_handle() };
        self.running.insert(key.clone(), running);
    }

    /// Ends the session with a cluster.
    pub fn end(&mut self, key: &ClusterKey) {
        self.running.remove(key);
    }

    /// Whether this is the number of the session that is on with the cluster. Others have been
    /// ended, and what they still say is old.
    pub fn is_current(&self, key: &ClusterKey, number: u64) -> bool {
        self.running.get(key).is_some_and(|r| r.number == number)
    }
}
