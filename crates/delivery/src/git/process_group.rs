//! A process with all that it has started, which never outlives its use. As the first process of a container,
//! Sluice inherits what a killed git has started, and has to wait for it: else it stays as a zombie.

use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tokio::process::Child;

/// How long an ended group is waited for. A killed process that sits in the kernel for longer is left there.
const WAITS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);
/// How long git may take to clean up when it is asked to end.
const GRACE: Duration = Duration::from_secs(1);

/// A child that leads a process group of its own.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    pid: Option<Pid>,
    /// `None` once it was waited for, and nothing is left of its group.
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

    /// Asks all processes to end. What does not is killed when this is dropped.
    pub(super) async fn end(&mut self) {
        self.signal(Signal::TERM);
        if let Some(child) = &mut self.child {
            let _ = tokio::time::timeout(GRACE, child.wait()).await;
        }
    }

    /// The child was waited for. One that has failed may have left others behind.
    pub(super) fn has_ended(&mut self, well: bool) {
        if well {
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
        // Without a runtime the process ends, and somebody else inherits the rest.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            // The child first, by whom it was started: nobody else must take its status.
            let _ = child.wait().await;
            reap(pid).await;
        });
    }
}

/// Waits for those of a group that this process has inherited. The group's number is not given to others while
/// there is one of them.
async fn reap(group: Pid) {
    for _ in 0..WAITS {
        match waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => tokio::time::sleep(PAUSE).await,
            // There is none.
            Err(_) => return,
        }
    }
}
