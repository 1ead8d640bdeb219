//! Starts and stops a stand-in. It runs on its own thread, so that it serves tests of any runtime.

use super::checkout::Checkouts;
use super::context::StandInContext;
use super::controllers;
use super::options::FluxOptions;
use super::requested_failures::{FluxFailure, RequestedFailures};
use anyhow::{Context, Result};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A stand-in for Flux on one cluster. It runs until it is dropped.
pub struct FluxStandIn {
    failures: Arc<RequestedFailures>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FluxStandIn {
    /// Starts a stand-in on the cluster of a kubeconfig: one for a cluster, or one for a namespace. Two for the same
    /// objects would overwrite each other's statuses.
    ///
    /// # Errors
    /// The kubeconfig is invalid, or no thread or folder can be made. A cluster that does not answer is no error: the
    /// stand-in tries again.
    pub fn start(kubeconfig: &str, options: FluxOptions) -> Result<FluxStandIn> {
        let failures = Arc::new(RequestedFailures::default());
        let checkouts = Checkouts::shared()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (report, outcome) = mpsc::channel();
        let (kubeconfig, shared_failures) = (kubeconfig.to_owned(), Arc::clone(&failures));
        let thread = std::thread::Builder::new().name("flux-stand-in".into()).spawn(move || {
            runtime.block_on(async {
                // On this thread, because a client belongs to the runtime that makes it.
                let client = crate::connect(&kubeconfig).await;
                match client
                    .and_then(|client| StandInContext::new(client, options, shared_failures, checkouts))
                {
                    Err(e) => drop(report.send(Err(e))),
                    Ok(context) => {
                        drop(report.send(Ok(())));
                        tokio::select! {
                            () = controllers::run(Arc::new(context)) => {}
                            _ = stopped => {}
                        }
                    }
                }
            });
        })?;
        outcome.recv().context("the stand-in for Flux panicked when it started")??;
        Ok(FluxStandIn { failures, stop: Some(stop), thread: Some(thread) })
    }

    /// Makes an object fail at each revision, version or image that contains `matching`; the empty text matches all.
    /// `kind` is `Kustomization` or `HelmRelease`. The object fails from its next reconciliation on.
    pub fn fail(&self, kind: &str, namespace: &str, name: &str, matching: &str, failure: FluxFailure) {
        self.failures.add(kind, namespace, name, matching, failure);
    }

    /// Removes all failures of an object. The stand-in then tries again.
    pub fn heal(&self, kind: &str, namespace: &str, name: &str) {
        self.failures.heal(kind, namespace, name);
    }
}

impl Drop for FluxStandIn {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // An error is a panic of the thread, which was printed already.
            let _ = thread.join();
        }
    }
}
