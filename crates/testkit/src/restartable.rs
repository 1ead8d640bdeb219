//! A server of a test that is killed, started again and frozen while the test runs.

use crate::ProcessGuard;
use anyhow::{Result, anyhow};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A server that runs or is stopped.
#[derive(Debug)]
pub(crate) struct Restartable {
    name: String,
    running: Mutex<Option<ProcessGuard>>,
}

impl Restartable {
    /// A server that does not run yet.
    pub(crate) fn new(name: &str) -> Restartable {
        Restartable { name: name.into(), running: Mutex::new(None) }
    }

    /// The process id; `None` while it is stopped.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running().as_ref().map(ProcessGuard::pid)
    }

    /// Kills it, if it runs.
    pub(crate) fn stop(&self) {
        drop(self.running().take());
    }

    /// Takes the server that runs now.
    pub(crate) fn put(&self, server: ProcessGuard) {
        *self.running() = Some(server);
    }

    /// Freezes it: it accepts connections and answers nothing.
    ///
    /// # Errors
    /// It does not run.
    pub(crate) fn freeze(&self) -> Result<()> {
        self.with_running(ProcessGuard::freeze)
    }

    /// Ends a freeze.
    ///
    /// # Errors
    /// It does not run.
    pub(crate) fn thaw(&self) -> Result<()> {
        self.with_running(ProcessGuard::thaw)
    }

    fn with_running(&self, act: impl Fn(&ProcessGuard) -> Result<()>) -> Result<()> {
        act(self.running().as_ref().ok_or_else(|| anyhow!("{} is stopped: start() it first", self.name))?)
    }

    fn running(&self) -> MutexGuard<'_, Option<ProcessGuard>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
