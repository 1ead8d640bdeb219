//! A temporary folder that is removed when the process ends in any way. `tempfile` alone leaves its folder behind when
//! a test is killed, and the folder of a control plane holds 100 MB.

use crate::process_guard::{spawn_watchdog, wait_for_end};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command};

/// Removes `$1` at the end of standard input. Tries again while servers that were killed at the same time still write
/// to it.
const WATCHDOG: &str = r#"
exec 1>/dev/null
cat >/dev/null
for pause in 0.05 0.1 0.2 0.5 1 2; do
  rm -rf "$1" 2>/dev/null && sleep 0.02 && [ ! -e "$1" ] && exit 0
  sleep "$pause"
done
"#;

/// A temporary folder. It is removed on drop, and when the process is killed.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    watchdog: Child,
    pipe: Option<ChildStdin>,
}

impl Scratch {
    /// Creates a folder whose name starts with `sluice-` and `name`.
    ///
    /// # Errors
    /// The system's folder for temporary files is not writable.
    pub fn new(name: &str) -> Result<Scratch> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("sluice-{name}-"))
            .tempdir()
            .context("cannot make a temporary folder; set TMPDIR to a writable folder")?;
        let mut sh = Command::new("sh");
        sh.args(["-c", WATCHDOG, "watchdog"]).arg(folder.path()).current_dir("/");
        let mut watchdog = spawn_watchdog(&mut sh)?;
        let pipe = watchdog.stdin.take();
        Ok(Scratch { path: folder.keep(), watchdog, pipe })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a folder in it, unless it exists, and returns its path.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.pipe.take());
        wait_for_end(&mut self.watchdog);
    }
}
