//! The handle of a stand-in: it runs on a thread of its own, so that it serves a test of any
//! runtime and a demo alike, and ends when it is dropped.

use super::checkout::Checkouts;
use super::controllers;
use super::fault::{Failure, Faults};
use super::options::Options;
use super::world::World;
use anyhow::{Context, Result};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A stand-in for Flux on one cluster, running until it is dropped.
pub struct StandIn {
    faults: Arc<Faults>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    /// Starts it on the cluster of a kubeconfig. One a cluster, or one a namespace of it: two would
    /// write over each other.
    ///
    /// # Errors
    /// When the kubeconfig is none, or no thread or folder can be made. A cluster that does not
    /// answer is tried again until it does.
    pub fn start(kubeconfig: &str, options: Options) -> Result<StandIn> {
        let faults = Arc::new(Faults::default());
        let checkouts = Checkouts::shared()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (told, outcome) = mpsc::channel();
        let (kubeconfig, asked) = (kubeconfig.to_owned(), Arc::clone(&faults));
        let thread = std::thread::Builder::new().name("flux-stand-in".into()).spawn(move || {
            runtime.block_on(async {
                // Here, since a client belongs to the runtime that makes it.
                let world = crate::connect(&kubeconfig).await;
                match world.and_then(|client| World::new(client, options, asked, checkouts)) {
                    Err(e) => drop(told.send(Err(e))),
                    Ok(world) => {
                        drop(told.send(Ok(())));
                        tokio::select! {
                            () = controllers::run(Arc::new(world)) => {}
                            _ = stopped => {}
                        }
                    }
                }
            });
        })?;
        outcome.recv().context("the stand-in for Flux died when it started")??;
        Ok(StandIn { faults, stop: Some(stop), thread: Some(thread) })
    }

    /// Lets an object fail in a certain way, from the next time that it has something to do: at
    /// each revision, version or image that contains `matching` (the empty text matches all).
    /// `kind` is `Kustomization` or `HelmRelease`.
    pub fn fail(&self, kind: &str, namespace: &str, name: &str, matching: &str, how: Failure) {
        self.faults.add(kind, namespace, name, matching, how);
    }

    /// Takes back every failure of an object; it then tries again by itself.
    pub fn heal(&self, kind: &str, namespace: &str, name: &str) {
        self.faults.heal(kind, namespace, name);
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there has been reported already.
            let _ = thread.join();
        }
    }
}
