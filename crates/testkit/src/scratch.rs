//! A temporary folder that goes away with us, however we go. `tempfile` alone leaves its folder
//! behind when a test is killed, and a control plane leaves 100 MB.

use crate::leash::{await_end, spawn_keeper};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command};

/// Removes `$1` at the end of standard input; again while servers that were killed at the same
/// moment still write to it.
const KEEPER: &str = r#"
exec 1>/dev/null
cat >/dev/null
for pause in 0.05 0.1 0.2 0.5 1 2; do
  rm -rf "$1" 2>/dev/null && sleep 0.02 && [ ! -e "$1" ] && exit 0
  sleep "$pause"
done
"#;

/// A temporary folder, removed when dropped and also when the process is killed.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keeper: Child,
    pipe: Option<ChildStdin>,
}

impl Scratch {
    /// Makes a folder whose name starts with `sluice-` and `name`.
    ///
    /// # Errors
    /// When the system's folder for temporary files cannot be written to.
    pub fn new(name: &str) -> Result<Scratch> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("sluice-{name}-"))
            .tempdir()
            .context("cannot make a temporary folder: set TMPDIR to one that can be written to")?;
        let mut sh = Command::new("sh");
        sh.args(["-c", KEEPER, "keeper"]).arg(folder.path()).current_dir("/");
        let mut keeper = spawn_keeper(&mut sh)?;
        let pipe = keeper.stdin.take();
        Ok(Scratch { path: folder.keep(), keeper, pipe })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new folder in it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.pipe.take());
        await_end(&mut self.keeper);
    }
}
