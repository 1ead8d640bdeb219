//! The bare cache of one repository on disk, and what Sluice remembers about it. The cache can be removed at any time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::branch_history::BranchHistory;
use super::commit::Commit;
use super::files::KnownFile;
use super::known_branch::KnownBranch;
use crate::lru::Lru;

/// How many fetches a cache may hold, each with a pack and a shallow boundary. Beyond, a new cache is cheaper.
const MAX_FETCHES: usize = 200;
/// How many own commits are remembered for each repository. A forgotten commit is compared again.
pub(super) const MAX_OWN_COMMITS: usize = 1000;
/// How old the known tip of a branch may be for a delivery that does not need a newer one.
const RECENT_TIP: Duration = Duration::from_secs(1);
/// How long a branch is fetched for each delivery after somebody else has pushed to it, and how long a fetch is kept
/// for its credentials.
pub(super) const AFTER_FOREIGN_PUSH: Duration = Duration::from_secs(60);
/// What the smallest file takes on disk, in bytes, on most file systems.
const BLOCK: u64 = 4096;

/// The cache of one repository.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(super) dir: PathBuf,
    /// A larger cache is built again.
    max_bytes: u64,
    /// The bytes on disk at the last measurement.
    bytes: Arc<AtomicU64>,
    /// Whether the last use went well to its end, so that no git left locks behind.
    pub(super) is_clean: bool,
    /// Whether the cache was built in the current delivery, so that a failure has another cause.
    pub(super) is_new: bool,
    /// YAML files by the hash of their content.
    pub(super) files: HashMap<u128, KnownFile>,
    /// Whether the last list of its YAML files was long.
    pub(super) has_long_list: bool,
    /// The branch in which an earlier try was last looked for.
    pub(super) history: Option<BranchHistory>,
    /// The branch that was last fetched.
    pub(super) branch: Option<KnownBranch>,
    /// When somebody else last pushed to a branch that was known.
    pub(super) foreign_push: Option<Instant>,
    /// The commits that Sluice itself has made.
    pub(super) own_commits: Lru<(), MAX_OWN_COMMITS>,
}

impl Cache {
    pub(super) fn new(dir: PathBuf, max_bytes: u64, bytes: Arc<AtomicU64>) -> Self {
        Cache {
            dir,
            max_bytes,
            bytes,
            is_clean: false,
            is_new: false,
            files: HashMap::new(),
            has_long_list: false,
            history: None,
            branch: None,
            foreign_push: None,
            own_commits: Lru::default(),
        }
    }

    /// Removes the whole cache.
    pub(super) fn wipe(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
        self.is_clean = false;
        self.files.clear();
        self.history = None;
        self.branch = None;
    }

    /// Whether the cache is so large that a new one is cheaper.
    pub(super) fn is_too_large(&self) -> bool {
        let packs = std::fs::read_dir(self.dir.join("objects/pack"));
        packs.is_ok_and(|packs| packs.count() > MAX_FETCHES * 3)
            || self.bytes.load(Ordering::Relaxed) > self.max_bytes
    }

    pub(super) fn exists(&self) -> bool {
        self.dir.join("HEAD").is_file() && self.dir.join("objects").is_dir()
    }

    /// The oldest time of a fetch that is good enough for a delivery that began at `began`: a moment before that,
    /// unless others push to the repository, too.
    pub(crate) fn recent(&self, began: Instant) -> Instant {
        let alone = self.foreign_push.is_none_or(|push| push.elapsed() > AFTER_FOREIGN_PUSH);
        began.checked_sub(RECENT_TIP).filter(|_| alone).unwrap_or(began)
    }

    /// Records that somebody else pushed first.
    pub(crate) fn record_foreign_push(&mut self) {
        self.foreign_push = Some(Instant::now());
    }

    /// Takes what is known of a branch before a push to it, until [`Cache::record_push`].
    pub(crate) fn begin_push(&mut self, branch: &str) -> Option<KnownBranch> {
        self.branch.take_if(|known| known.name == branch)
    }

    /// Records that a branch is at a commit that Sluice pushed.
    pub(crate) fn record_push(&mut self, before: KnownBranch, tip: Commit) {
        self.advance_history(&tip);
        self.branch = Some(before.at(tip));
    }

    pub(super) fn advance_history(&mut self, tip: &Commit) {
        self.history = self.history.take().and_then(|history| history.advanced_to(tip));
    }
}

/// How many bytes a folder takes on disk.
pub(super) fn bytes_on_disk(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_on_disk(&entry.path()),
        Ok(metadata) => metadata.len().next_multiple_of(BLOCK),
        Err(_) => 0,
    };
    entries.map(size).sum()
}
