//! The folder for credentials while they are in use. A process that is killed cannot clean up
//! after itself, so the next one does it: a folder whose lock nobody holds is nobody's.

use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "sluice-private-";
const LOCK: &str = "lock";

/// A folder that only this process uses. It goes with this value, or with the next start.
#[derive(Debug)]
pub(crate) struct Private {
    folder: TempDir,
    // Held as long as the folder is in use; the kernel lets go of it whatever the process dies of.
    _lock: File,
}

impl Private {
    /// Makes one below `parent`, and removes those that the dead have left there.
    pub(crate) fn below(parent: &Path) -> io::Result<Self> {
        clear(parent)?;
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::create(folder.path().join(LOCK))?;
        lock.lock()?;
        Ok(Private { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn clear(parent: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(parent)?.flatten() {
        // One without a lock is being made at this moment, or is not ours.
        let named_so = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let Some(lock) = named_so.then(|| File::open(entry.path().join(LOCK)).ok()).flatten() else {
            continue;
        };
        if lock.try_lock().is_ok() {
            // Another process may clear at the same time: what is gone is gone.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_is_removed_and_what_the_living_use_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("sluice-private-left");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        std::fs::write(left.join("key"), "secret").unwrap();
        let other = parent.path().join("0123.git");
        std::fs::create_dir(&other).unwrap();
        let first = Private::below(parent.path()).unwrap();
        let second = Private::below(parent.path()).unwrap();
        assert!(!left.exists() && other.exists());
        assert!(first.path().exists() && second.path().exists());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }
}
