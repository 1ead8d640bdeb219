//! A session with a cluster, and the events that it reports.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result};
use kube::Client;
use sluice_controller::ObserveScope;
use sluice_controller::watch::cluster_session::{ClusterSession, KubeconfigSource};
use sluice_controller::watch::event_queue::{EventQueue, QueueSlot};
use sluice_controller::watch::kubeconfig_secrets::KubeconfigSecrets;
use sluice_controller::watch::observed_memory::ObservedMemory;
use sluice_controller::watch::owned_read::OwnedReads;
use sluice_core::fleet::{ClusterEvent, ClusterKey};
use sluice_testkit::WAIT_TIMEOUT;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A session that runs. Dropping it ends it.
pub struct RunningSession {
    pub events: UnboundedReceiver<(ClusterEvent, QueueSlot)>,
    pub namespaces: watch::Sender<BTreeSet<String>>,
    pub owned_reads: Arc<OwnedReads>,
    pub task: JoinHandle<()>,
}

impl RunningSession {
    /// Starts a session with the cluster `fleet/<name>`, for targets in the namespace `apps`.
    pub fn start(client: Client, name: &str, observe: ObserveScope, memory: Arc<ObservedMemory>) -> Self {
        let key = ClusterKey::Remote { namespace: "fleet".into(), name: name.into() };
        Self::start_with(client, key, observe, memory)
    }

    /// Starts a session with this cluster, for targets in the namespace `apps`.
    pub fn start_with(
        client: Client,
        key: ClusterKey,
        observe: ObserveScope,
        memory: Arc<ObservedMemory>,
    ) -> Self {
        let (namespaces, receiver) = watch::channel(BTreeSet::from(["apps".to_string()]));
        let (queue, owned_reads) = (Arc::new(EventQueue::default()), Arc::new(OwnedReads::default()));
        let session = ClusterSession {
            observe,
            key,
            hub: client,
            kubeconfig: KubeconfigSource::Local,
            secrets: KubeconfigSecrets::default(),
            allow_exec: false,
            namespaces: receiver,
            memory,
            queue: queue.clone(),
            owned_reads: owned_reads.clone(),
            lists: Arc::default(),
        };
        let (sender, events) = unbounded_channel();
        let task = tokio::spawn(session.run(move |event| sender.send((event, queue.slot())).is_ok()));
        Self { events, namespaces, owned_reads, task }
    }

    /// Returns the first event for which `pick` returns something, as what it returns.
    pub async fn first<T>(&mut self, mut pick: impl FnMut(ClusterEvent) -> Option<T>) -> Result<T> {
        let wait = async {
            loop {
                let (event, _slot) = self.events.recv().await.context("the session has ended")?;
                if let Some(picked) = pick(event) {
                    return Ok(picked);
                }
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, wait).await.context("no such event")?
    }
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        self.task.abort();
    }
}
