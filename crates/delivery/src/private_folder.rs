//! The folder for credentials while they are in use. A process that is killed cannot clean up
//! after itself, so the next one does it: a folder whose lock nobody holds is nobody's.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

const PREFIX: &str = "sluice-private-";
const LOCK: &str = "lock";
/// Between the making of a lock and the holding of it, a moment passes.
const SETTLED: Duration = Duration::from_secs(60);

/// A folder that only this process uses. It goes with this value, or with a later start.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    folder: TempDir,
    // Held as long as the folder is in use; the kernel lets go of it whatever the process dies of.
    _lock: File,
}

impl PrivateFolder {
    /// Makes one below `parent`, and removes those that the dead have left there.
    pub(crate) fn below(parent: &Path) -> io::Result<Self> {
        clear(parent)?;
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::create(folder.path().join(LOCK))?;
        lock.lock()?;
        let private = PrivateFolder { folder, _lock: lock };
        private.restore()?;
        Ok(private)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// An empty folder in it.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Sees to it that it is there: those who clean up `/tmp` by age take it away.
    pub(crate) fn restore(&self) -> io::Result<()> {
        if !self.home().exists() {
            std::fs::create_dir_all(self.home())?;
            std::fs::set_permissions(self.path(), Permissions::from_mode(0o700))?;
        }
        Ok(())
    }
}

fn clear(parent: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(parent)?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // One without a lock, or with a new one, may be being made at this moment.
        let path = entry.path().join(LOCK);
        let settled = |about: &Metadata| {
            let age = about.modified().ok().and_then(|at| at.elapsed().ok());
            about.is_file() && age.is_some_and(|age| age > SETTLED)
        };
        let lock = path.symlink_metadata().ok().filter(settled).and_then(|_| File::open(&path).ok());
        if lock.is_some_and(|lock| lock.try_lock().is_ok()) {
            // Another process may clear at the same time: what is gone is gone.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_the_dead_left_is_removed_and_what_the_living_use_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let with_lock = |name: &str| {
            let folder = parent.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            (File::create(folder.join(LOCK)).unwrap(), folder)
        };
        let (lock, left) = with_lock("sluice-private-left");
        lock.set_modified(SystemTime::now() - 2 * SETTLED).unwrap();
        std::fs::write(left.join("key"), "secret").unwrap();
        let (_, being_made) = with_lock("sluice-private-new");
        let (_, other) = with_lock("0123.git");
        let first = PrivateFolder::below(parent.path()).unwrap();
        let second = PrivateFolder::below(parent.path()).unwrap();
        assert!(!left.exists() && other.exists() && being_made.exists());
        assert!(first.home().exists() && second.home().exists());
        std::fs::remove_dir_all(first.path()).unwrap();
        first.restore().unwrap();
        assert!(first.home().exists());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }
}
