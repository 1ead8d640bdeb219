//! The folder for credentials while they are in use. A process that is killed cannot remove its folder, so the next
//! process removes each folder whose lock nobody holds.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

const PREFIX: &str = "sluice-private-";
const LOCK: &str = "lock";
/// The age from which a lock that nobody holds counts as abandoned. A new one may not be locked yet.
const MIN_ABANDONED_AGE: Duration = Duration::from_secs(60);

/// A folder that only this process uses. It is removed with this value, or at a later start.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    folder: TempDir,
    // Held while the folder is in use. The kernel releases it when the process ends in any way.
    _lock: File,
}

impl PrivateFolder {
    /// Makes a folder below `parent`, and removes those that killed processes left there.
    pub(crate) fn below(parent: &Path) -> io::Result<Self> {
        remove_abandoned(parent)?;
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

    /// An empty folder in the private folder.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Makes the folders again if they are gone: a clean-up of temporary files by age removes them.
    pub(crate) fn restore(&self) -> io::Result<()> {
        if !self.home().exists() {
            std::fs::create_dir_all(self.home())?;
            std::fs::set_permissions(self.path(), Permissions::from_mode(0o700))?;
        }
        Ok(())
    }
}

fn remove_abandoned(parent: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(parent)?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // A folder without a lock, or with a new one, may be in the making.
        let path = entry.path().join(LOCK);
        let is_abandoned = |metadata: &Metadata| {
            let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
            metadata.is_file() && age.is_some_and(|age| age > MIN_ABANDONED_AGE)
        };
        let lock = path.symlink_metadata().ok().filter(is_abandoned).and_then(|_| File::open(&path).ok());
        if lock.is_some_and(|lock| lock.try_lock().is_ok()) {
            // Another process may remove it at the same time.
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
    fn abandoned_folders_are_removed_and_folders_in_use_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let with_lock = |name: &str| {
            let folder = parent.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            (File::create(folder.join(LOCK)).unwrap(), folder)
        };
        let (lock, left) = with_lock("sluice-private-left");
        lock.set_modified(SystemTime::now() - 2 * MIN_ABANDONED_AGE).unwrap();
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
