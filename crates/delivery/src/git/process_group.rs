//! A process with all processes that it has started, which end with its use. As the first process of a container, Sluice
//! inherits the children of a killed git and must wait for them: otherwise they stay as zombies.

use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tokio::process::Child;

/// How often an ended group is waited for. A killed process that stays in the kernel for longer is ignored.
const MAX_WAITS: u32 = 500;
/// The pause between two of these waits.
const WAIT_PAUSE: Duration = Duration::from_millis(10);
/// How long git may take to clean up after SIGTERM.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(1);

/// A child that leads a process group of its own.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    pid: Option<Pid>,
    /// `None` once the child has ended and nothing is left of its group.
    child: Option<Child>,
}

impl ProcessGroup {
    pub(super) fn new(child: Child) -> Self {
        ProcessGroup {
            pid: child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)),
            child: Some(child),
        }
    }

    /// The number of the group.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    pub(super) fn child(&mut self) -> Option<&mut Child> {
        self.child.as_mut()
    }

    /// Asks all processes to end. Those that do not are killed when this is dropped.
    pub(super) async fn end(&mut self) {
        self.signal(Signal::TERM);
        if let Some(child) = &mut self.child {
            let _ = tokio::time::timeout(TERMINATION_TIMEOUT, child.wait()).await;
        }
    }

    /// Records the end of the child. A child that failed may have left others behind.
    pub(super) fn record_end(&mut self, is_success: bool) {
        if is_success {
            self.child = None;
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        self.signal(Signal::KILL);
        let Some(pid) = self.pid else { return };
        // Without a runtime, this process ends, and another one inherits the rest.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            // First the child, by tokio, which needs its status.
            let _ = child.wait().await;
            reap(pid).await;
        });
    }
}

/// Waits for the processes of a group that this process has inherited. The kernel does not reuse the number of the group
/// while one of them exists.
async fn reap(group: Pid) {
    for _ in 0..MAX_WAITS {
        match waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => tokio::time::sleep(WAIT_PAUSE).await,
            // There is no such process.
            Err(_) => return,
        }
    }
}
