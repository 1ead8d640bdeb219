//! One repository and its cache, which one delivery at a time uses.
//!
//! All pipelines with the same address share a cache, whatever their credentials. So a delivery reads only from
//! commits that the server has returned to its own credentials, in a fetch since the delivery began.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_core::lock::lock;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::access::RepositoryAccess;
use super::cache::{Cache, bytes_on_disk};
use super::error::{GitError, GitResult};
use super::run::{Git, GitRun};
use super::stale_locks::remove_stale_locks;
use crate::edit_slots::EditSize;
use crate::fair_queue::{FairQueue, Slot};
use crate::stats::Counters;

/// How many head branches one fetch asks for.
const MAX_HEADS_OF_FETCH: usize = 100;

/// One repository. One delivery at a time holds its cache, the others wait.
#[derive(Debug)]
pub(crate) struct CachedRepository {
    queue: Arc<FairQueue>,
    cache: Arc<Mutex<Cache>>,
    /// The head branches of the deliveries that wait for the cache or hold it.
    wanted: std::sync::Mutex<BTreeSet<HeadBranch>>,
    dir: PathBuf,
    /// The bytes of the cache on disk at the last measurement.
    bytes: Arc<AtomicU64>,
    /// The number of files that the cache remembered after its last use.
    files: AtomicU64,
}

/// A head branch, by the fingerprint of the credentials, the base branch and its own name.
type HeadBranch = (String, String, String);

impl CachedRepository {
    /// A repository with its cache in a folder, which may exist. A cache of more than `max_bytes` is built again.
    pub(crate) fn new(dir: PathBuf, max_bytes: u64) -> Self {
        let bytes = Arc::<AtomicU64>::default();
        let cache = Arc::new(Mutex::new(Cache::new(dir.clone(), max_bytes, bytes.clone())));
        CachedRepository {
            queue: FairQueue::new(1),
            cache,
            wanted: Default::default(),
            dir,
            bytes,
            files: 0.into(),
        }
    }

    /// Measures the cache on disk.
    pub(crate) fn measure(&self) {
        self.bytes.store(bytes_on_disk(&self.dir), Ordering::Relaxed);
    }

    /// The bytes of the cache on disk after its last use.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The number of files that the cache remembered after its last use.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Waits for the cache. `head` is the head branch that the caller needs, with its base branch: the first caller in
    /// the queue fetches the head branches of all that wait.
    pub(crate) async fn lock<'a>(
        self: Arc<Self>,
        (git, counters): (&'a Git, &'a Counters),
        access: RepositoryAccess,
        head: Option<(&str, &str)>,
    ) -> LockedRepository<'a> {
        let wanted = head.map(|(base, head)| self.want(&access, base, head));
        let slot = self.queue.acquire(&access.pipeline).await;
        let cache = self.cache.clone().lock_owned().await;
        let (repository, rebuilt) = (self, false);
        LockedRepository {
            git,
            counters,
            access,
            cache,
            repository,
            rebuilt,
            _slot: slot,
            wanted,
            large: None,
        }
    }

    fn want(self: &Arc<Self>, access: &RepositoryAccess, base: &str, head: &str) -> WantedHead {
        let branch = (access.fingerprint.clone(), base.to_string(), head.to_string());
        self.wanted().insert(branch.clone());
        WantedHead { repository: self.clone(), branch }
    }

    fn wanted(&self) -> std::sync::MutexGuard<'_, BTreeSet<HeadBranch>> {
        lock(&self.wanted)
    }
}

/// The head branch of a delivery, for as long as this is held. There is one delivery at a time for each.
#[derive(Debug)]
pub(super) struct WantedHead {
    repository: Arc<CachedRepository>,
    branch: HeadBranch,
}

impl WantedHead {
    pub(super) fn name(&self) -> &str {
        &self.branch.2
    }

    /// The head branches to fetch together with these credentials, its own first.
    pub(super) fn heads(&self) -> Vec<String> {
        let (by, base, own) = &self.branch;
        let wanted = self.repository.wanted();
        let others = wanted.iter().filter(|(a, b, head)| (a, b) == (by, base) && head != own);
        let others = others.map(|(_, _, head)| head);
        std::iter::once(own).chain(others).take(MAX_HEADS_OF_FETCH).cloned().collect()
    }
}

impl Drop for WantedHead {
    fn drop(&mut self) {
        self.repository.wanted().remove(&self.branch);
    }
}

/// A repository whose cache one delivery holds, with all that git needs to use it. Fields are dropped in this order.
pub(crate) struct LockedRepository<'a> {
    pub(super) git: &'a Git,
    pub(super) counters: &'a Counters,
    pub(crate) access: RepositoryAccess,
    cache: OwnedMutexGuard<Cache>,
    repository: Arc<CachedRepository>,
    /// Whether the cache was removed because of a failure.
    rebuilt: bool,
    _slot: Slot,
    pub(super) wanted: Option<WantedHead>,
    /// The slot of large work, while a long list of files is in memory.
    large: Option<Arc<Slot>>,
}

impl Deref for LockedRepository<'_> {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

impl DerefMut for LockedRepository<'_> {
    fn deref_mut(&mut self) -> &mut Cache {
        &mut self.cache
    }
}

impl Drop for LockedRepository<'_> {
    fn drop(&mut self) {
        let (bytes, dir) = (self.repository.bytes.clone(), self.repository.dir.clone());
        let measure = move || bytes.store(bytes_on_disk(&dir), Ordering::Relaxed);
        // With thousands of files this takes a while.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(measure)),
            Err(_) => measure(),
        }
        self.repository.files.store(self.cache.files.len() as u64, Ordering::Relaxed);
    }
}

impl LockedRepository<'_> {
    /// Waits for a slot for work on the files of this repository. Large work shares the slot of a long list of files.
    pub(crate) async fn edit_slot(&self, size: EditSize) -> Arc<Slot> {
        match &self.large {
            Some(slot) if size == EditSize::Large => slot.clone(),
            _ => Arc::new(self.git.edits.acquire(&self.access.pipeline, size).await),
        }
    }

    /// Whether this repository has the slot of a long list of files.
    pub(super) fn has_large_slot(&self) -> bool {
        self.large.is_some()
    }

    /// Waits for the slot of a long list of files.
    pub(super) async fn take_large_slot(&mut self) {
        let slot = self.edit_slot(EditSize::Large).await;
        self.large = Some(slot);
    }

    /// Releases the slot of a long list of files, which is in memory no more.
    pub(crate) fn release_large_slot(&mut self) {
        self.large = None;
    }

    /// A run of git that stays on this machine.
    pub(super) fn local<S: Into<OsString>>(&self, args: impl IntoIterator<Item = S>) -> GitRun<'_> {
        GitRun::local(&self.cache.dir, &self.access, args)
    }

    /// A run of git that connects to the host of the repository.
    pub(super) fn remote<S: Into<OsString>>(&self, args: impl IntoIterator<Item = S>) -> GitRun<'_> {
        GitRun::remote(&self.cache.dir, &self.access, args)
    }

    /// Makes the cache if there is none, and removes the locks that a killed git left behind.
    pub(super) async fn open(&mut self) -> GitResult<()> {
        self.is_new = false;
        if self.is_too_large() {
            self.wipe();
        }
        if self.exists() {
            // Only one delivery at a time is here, so nobody holds any of the locks.
            if !self.is_clean {
                remove_stale_locks(&self.dir, 0).map_err(|e| self.unusable(&e))?;
            }
        } else {
            if self.is_clean {
                self.counters.rebuilds.fetch_add(1, Ordering::Relaxed);
            }
            self.wipe();
            std::fs::create_dir_all(&self.dir).map_err(|e| self.unusable(&e))?;
            self.git.run(self.local(["init", "--quiet", "--bare", "--template="])).await?;
            self.is_new = true;
        }
        self.is_clean = false;
        Ok(())
    }

    fn unusable(&self, error: &std::io::Error) -> GitError {
        GitError::Cache { repository: self.access.name().into(), says: error.to_string() }
    }

    /// Removes the cache if it may be the cause of a failure, once for each delivery. Returns whether it did.
    pub(crate) fn discard(&mut self, error: &GitError) -> bool {
        if self.rebuilt || self.is_new || !error.may_be_the_cache() {
            return false;
        }
        self.rebuilt = true;
        self.counters.rebuilds.fetch_add(1, Ordering::Relaxed);
        self.wipe();
        true
    }

    /// Records that a delivery went well to its end: no git was stopped that could have left locks behind.
    pub(crate) fn mark_clean(&mut self) {
        self.is_clean = true;
    }
}
