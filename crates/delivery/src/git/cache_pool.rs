//! The caches of all repositories, on disk and in memory. Every author of a Pipeline can name repositories, so the number
//! and the size of the caches are limited: the least recently used are removed first.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use sluice_core::lock::lock;

use super::repository::CachedRepository;

/// The most repositories. Each takes some KiB of memory, and a few MiB if it has hundreds of thousands of files.
const MAX_REPOSITORIES: usize = 500;
/// The most files that all repositories together remember, of 50 bytes each.
const MAX_KNOWN_FILES: usize = 2_000_000;

/// The caches, by the hash of their repository's address.
#[derive(Debug)]
pub(crate) struct CachePool {
    folder: PathBuf,
    /// In bytes.
    quota: u64,
    caches: Mutex<Caches>,
    /// Counts the folders that were renamed for removal.
    removed: AtomicU64,
}

#[derive(Debug, Default)]
struct Caches {
    by_key: HashMap<String, Kept>,
    /// Counts uses.
    uses: u64,
}

#[derive(Debug)]
struct Kept {
    repository: Arc<CachedRepository>,
    used: u64,
}

impl CachePool {
    /// The caches in a folder, with those that an earlier process left there, the oldest first.
    pub(crate) fn new(folder: PathBuf, quota: u64) -> Self {
        let mut caches = Caches::default();
        for key in left_behind(&folder) {
            let repository = CachedRepository::new(folder.join(&key), quota / 2);
            repository.measure();
            caches.add(key, repository);
        }
        let pool = CachePool { folder, quota, caches: Mutex::new(caches), removed: AtomicU64::new(0) };
        pool.prune(&mut lock(&pool.caches));
        pool
    }

    /// A repository with its cache. Other caches that are not in use may be removed for it.
    pub(crate) fn repository(&self, key: &str) -> Arc<CachedRepository> {
        let mut caches = lock(&self.caches);
        caches.uses += 1;
        let used = caches.uses;
        let repository = match caches.by_key.get_mut(key) {
            Some(kept) => {
                kept.used = used;
                kept.repository.clone()
            }
            None => caches.add(key.into(), CachedRepository::new(self.folder.join(key), self.quota / 2)),
        };
        self.prune(&mut caches);
        repository
    }

    /// Removes caches until the rest is within the limits.
    fn prune(&self, caches: &mut Caches) {
        let sum = |of: fn(&CachedRepository) -> u64| {
            caches.by_key.values().map(|kept| of(&kept.repository)).sum::<u64>()
        };
        let (mut bytes, mut files) = (sum(CachedRepository::bytes), sum(CachedRepository::files));
        while caches.by_key.len() > MAX_REPOSITORIES || bytes > self.quota || files > MAX_KNOWN_FILES as u64 {
            let idle = caches.by_key.iter().filter(|(_, kept)| Arc::strong_count(&kept.repository) == 1);
            let Some(key) = idle.min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone()) else {
                return;
            };
            let Some(kept) = caches.by_key.remove(&key) else { return };
            bytes -= kept.repository.bytes();
            files -= kept.repository.files();
            self.remove(&key);
        }
    }

    /// Renames a folder and removes it in a thread, since that can take seconds. The cache can be created again
    /// immediately.
    fn remove(&self, key: &str) {
        let count = self.removed.fetch_add(1, Ordering::Relaxed);
        let aside = self.folder.join(format!("{key}-removed-{count}"));
        if std::fs::rename(self.folder.join(key), &aside).is_ok() {
            std::thread::spawn(move || std::fs::remove_dir_all(aside));
        }
    }
}

impl Caches {
    fn add(&mut self, key: String, repository: CachedRepository) -> Arc<CachedRepository> {
        self.uses += 1;
        let repository = Arc::new(repository);
        self.by_key.insert(key, Kept { repository: repository.clone(), used: self.uses });
        repository
    }
}

/// The caches in a folder, the oldest first. Removes the remains of a killed process.
fn left_behind(folder: &Path) -> Vec<String> {
    let mut keys: Vec<(SystemTime, String)> = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_key = |name: &str| name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit());
        let is_rest =
            |(key, what): (&str, &str)| is_key(key) && (what == "history" || what.starts_with("removed-"));
        if name.split_once('-').is_some_and(is_rest) {
            let _ = std::fs::remove_dir_all(entry.path());
        } else if is_key(&name) {
            let changed = entry.metadata().and_then(|about| about.modified());
            keys.push((changed.unwrap_or(SystemTime::UNIX_EPOCH), name));
        }
    }
    keys.sort();
    keys.into_iter().map(|(_, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a block.
    const BLOCK: u64 = 4096;

    /// Makes a cache with a pack of this many blocks.
    fn fill(folder: &Path, key: &str, blocks: u64) {
        let pack = folder.join(key).join("objects/pack");
        std::fs::create_dir_all(&pack).unwrap();
        std::fs::File::create(pack.join("pack")).unwrap().set_len(blocks * BLOCK).unwrap();
    }

    #[test]
    fn every_file_of_a_cache_counts() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), &key(0), 3);
        let refs = folder.path().join(key(0)).join("refs/sluice");
        std::fs::create_dir_all(&refs).unwrap();
        (0..50).for_each(|n| std::fs::write(refs.join(n.to_string()), "0").unwrap());
        let repository = CachedRepository::new(folder.path().join(key(0)), u64::MAX);
        repository.measure();
        assert_eq!(repository.bytes(), 53 * BLOCK);
    }

    fn key(n: usize) -> String {
        format!("{n:032x}")
    }

    #[test]
    fn the_least_recently_used_caches_are_removed_and_none_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let pool = CachePool::new(folder.path().into(), 100 * BLOCK);
        let there = || (0..6).filter(|n| folder.path().join(key(*n)).exists()).collect::<Vec<_>>();
        let held = pool.repository(&key(0));
        for n in 0..4 {
            let repository = pool.repository(&key(n));
            fill(folder.path(), &key(n), 20);
            repository.measure();
        }
        pool.repository(&key(1));
        let repository = pool.repository(&key(4));
        fill(folder.path(), &key(4), 30);
        repository.measure();
        assert_eq!(there(), [0, 1, 2, 3, 4]);
        // 110 blocks: the least recently used cache is removed, unless it is in use.
        pool.repository(&key(5));
        assert_eq!(there(), [0, 1, 3, 4]);
        drop(held);
        fill(folder.path(), &key(4), 90);
        pool.repository(&key(4)).measure();
        pool.repository(&key(5));
        assert_eq!(there(), [4]);
    }

    #[test]
    fn caches_of_an_earlier_process_count_toward_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..3 {
            fill(folder.path(), &key(n), 40);
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(10 - n as u64);
            std::fs::File::open(folder.path().join(key(n))).unwrap().set_modified(at).unwrap();
        }
        fill(folder.path(), &format!("{}-history", key(0)), 1);
        fill(folder.path(), "something else", 1000);
        drop(CachePool::new(folder.path().into(), 100 * BLOCK));
        let left = || {
            let entries = std::fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while left().iter().any(|name| name.contains("-removed-")) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let left = left();
        assert_eq!(left, [key(0), key(1), "something else".into()]);
    }

    #[test]
    fn the_number_of_caches_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let pool = CachePool::new(folder.path().into(), u64::MAX);
        (0..=MAX_REPOSITORIES).for_each(|n| drop(pool.repository(&key(n))));
        assert_eq!(pool.caches.lock().unwrap().by_key.len(), MAX_REPOSITORIES);
    }
}
