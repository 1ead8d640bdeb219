//! The bare cache of one repository: made on first use, fetched into with one call a delivery,
//! thrown away and built anew when it is broken or has grown too long. Nothing in it is precious.
//!
//! All who go to one address share it, whatever their rights: so nothing in it is looked at but what belongs
//! to a commit that the server has shown to these very rights, in a fetch since the order came.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStdout;
use tokio::sync::{Mutex, MutexGuard};

use super::history::History;
use super::litter::clear_litter;
use super::own::REMEMBERED;
use super::run::Call;
use super::scan::{self, LARGEST};
use super::{Access, Commit, Git, GitError, hex_hash};
use crate::line::{Line, Place};
use crate::lru::Lru;
use crate::stats::Counters;

/// After so many fetches, with a pack and a shallow boundary each, a new cache is cheaper.
const PACKS_KEPT: usize = 200;

/// How old what is known of a branch may be.
const RECENT: Duration = Duration::from_secs(1);
/// After somebody else has pushed, a branch is asked for each time, for so long.
const PEACE: Duration = Duration::from_secs(60);

/// With so many head branches one fetch is asked for more than its own.
const HEADS_AT_ONCE: usize = 100;

/// One repository: whoever holds its cache writes to it, the others wait.
#[derive(Debug)]
pub(crate) struct Repository {
    line: Arc<Line>,
    cache: Mutex<Cache>,
    /// What those who wait or are at it will want to know.
    wanted: std::sync::Mutex<BTreeSet<Branches>>,
    dir: PathBuf,
    /// How many bytes the cache had on disk when it was last measured.
    bytes: Arc<AtomicU64>,
    /// Of how many files it remembered something then.
    files: AtomicU64,
}

/// Whose rights ask, and for which base and head branch.
type Branches = (String, String, String);

impl Repository {
    /// A cache in a folder that may be there already; it is built anew where it has more than `most` bytes.
    pub(crate) fn new(dir: PathBuf, most: u64) -> Self {
        let (wanted, bytes) = (Default::default(), Arc::<AtomicU64>::default());
        let (files, folder, measured) = (0.into(), dir.clone(), bytes.clone());
        let (scanned, history, known, raced) = Default::default();
        let own = Lru::new(REMEMBERED);
        let (trusted, fresh) = (false, false);
        let cache =
            Mutex::new(Cache { dir, most, measured, trusted, fresh, scanned, history, known, raced, own });
        Repository { line: Line::new(1), cache, wanted, dir: folder, bytes, files }
    }

    /// Measures what the cache takes on disk.
    pub(crate) fn measure(&self) {
        self.bytes.store(on_disk(&self.dir), Ordering::Relaxed);
    }

    /// How many bytes the cache had on disk when it was last used.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Of how many files it remembered something then.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Says that the head branch of a change request will be asked for, until it is dropped: whoever is
    /// first asks for all.
    pub(crate) fn want(&self, access: &Access, base: &str, head: &str) -> Want<'_> {
        let branches = (access.fingerprint().to_string(), base.to_string(), head.to_string());
        self.wanted().insert(branches.clone());
        Want { repository: self, branches }
    }

    fn wanted(&self) -> std::sync::MutexGuard<'_, BTreeSet<Branches>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn lock(&self, access: &Access) -> Held<'_> {
        let place = self.line.place(access.owner()).await;
        Held { cache: self.cache.lock().await, repository: self, _place: place }
    }
}

/// The cache, for as long as this is held; dropped in this order.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    cache: MutexGuard<'a, Cache>,
    repository: &'a Repository,
    _place: Place,
}

impl Deref for Held<'_> {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Cache {
        &mut self.cache
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let (bytes, dir) = (self.repository.bytes.clone(), self.repository.dir.clone());
        let measure = move || bytes.store(on_disk(&dir), Ordering::Relaxed);
        // With thousands of files this takes a while.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(measure)),
            Err(_) => measure(),
        }
        self.repository.files.store(self.cache.scanned.len() as u64, Ordering::Relaxed);
    }
}

/// What the smallest file takes on disk, in bytes, as most file systems have it.
const BLOCK: u64 = 4096;

/// How many bytes a folder takes on disk.
fn on_disk(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => on_disk(&entry.path()),
        Ok(about) => about.len().next_multiple_of(BLOCK),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// A delivery that wants to know its head branch. There is one at a time for each.
#[derive(Debug)]
pub(crate) struct Want<'a> {
    repository: &'a Repository,
    branches: Branches,
}

impl Want<'_> {
    fn head(&self) -> &str {
        &self.branches.2
    }

    /// The head branches that are worth asking for together with these rights, its own among them.
    fn heads(&self) -> Vec<String> {
        let (by, base, own) = &self.branches;
        let wanted = self.repository.wanted();
        let others = wanted.iter().filter(|(a, b, head)| (a, b) == (by, base) && head != own);
        let others = others.map(|(_, _, head)| head);
        std::iter::once(own).chain(others).take(HEADS_AT_ONCE).cloned().collect()
    }
}

impl Drop for Want<'_> {
    fn drop(&mut self) {
        self.repository.wanted().remove(&self.branches);
    }
}

/// The cache of one repository.
#[derive(Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
    /// With more bytes than this it is built anew.
    most: u64,
    /// How many bytes it had on disk when it was last measured.
    measured: Arc<AtomicU64>,
    trusted: bool,
    /// Built since the last delivery began: then a failure is not its fault.
    fresh: bool,
    /// What is known of YAML files by the hash of their content.
    pub(super) scanned: HashMap<u128, scan::Known>,
    /// Of the branch where an earlier try was last looked for.
    pub(super) history: Option<History>,
    /// The branch that was last asked for, and what was pushed to it since.
    known: Option<Known>,
    /// When somebody else was last seen to push to a branch that was thought to be known.
    raced: Option<Instant>,
    /// The commits that Sluice itself has made.
    pub(super) own: Lru<()>,
}

/// What is known of a branch without asking again.
#[derive(Debug)]
pub(crate) struct Known {
    branch: String,
    tip: Commit,
    /// To whom the server has shown it: to all others it is as if it were not known.
    shown: HashMap<String, Shown>,
}

/// What the server has shown to one who asked, by the fingerprint of the rights.
#[derive(Debug)]
struct Shown {
    at: Instant,
    /// What the head branches held that were asked for together, until each is taken.
    heads: HashMap<String, Option<Commit>>,
}

impl Known {
    /// What was shown to these rights of this branch since then.
    fn shown(&mut self, access: &Access, branch: &str, since: Instant) -> Option<&mut Shown> {
        self.shown.get_mut(access.fingerprint()).filter(|shown| self.branch == branch && shown.at >= since)
    }

    /// The branch is at a commit of ours now.
    fn at(mut self, tip: Commit) -> Self {
        // Who wants to know a head branch asks anew.
        self.shown.values_mut().for_each(|shown| shown.heads.clear());
        self.tip = tip;
        self
    }
}

/// The two commits that a delivery starts from.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    pub(crate) base: Commit,
    pub(crate) head: Option<Commit>,
    /// The base is what the server said to somebody with the same rights who asked then, and what was seen
    /// or pushed here since.
    pub(crate) asked: Instant,
}

impl Cache {
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether a failure may go away with a new cache.
    pub(crate) fn is_suspect(&self, error: &GitError) -> bool {
        error.may_be_the_cache() && !self.fresh
    }

    /// Throws everything away.
    pub(crate) fn wipe(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
        self.trusted = false;
        self.scanned.clear();
        self.known = None;
    }

    /// The newest commits of a branch and, where one is wanted, of a head branch, by what was asked since
    /// then; they are asked for only if nobody has with the same rights. Many that wait for their turn at one branch are served
    /// by one fetch: what comes between it and the turn of each is their own, and a push that meets
    /// anything else comes back as `Moved`.
    pub(crate) async fn tips(
        &mut self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        (branch, head): (&str, Option<&Want<'_>>),
        since: Instant,
    ) -> Result<Fetched, GitError> {
        if let Some(known) = &mut self.known
            && let Some(shown) = known.shown(access, branch, since)
        {
            let seen = match head {
                Some(want) => shown.heads.remove(want.head()),
                None => Some(None),
            };
            let asked = shown.at;
            if let Some(head) = seen {
                (self.trusted, self.fresh) = (false, false);
                return Ok(Fetched { base: known.tip.clone(), head, asked });
            }
        }
        let heads = head.map(Want::heads).unwrap_or_default();
        self.fetch(git, access, counters, branch, &heads).await
    }

    /// Since when what is known of a branch will do for who came then, and cannot have come before: a
    /// moment longer, unless others push there, too.
    pub(crate) fn recent(&self, came: Instant) -> Instant {
        let alone = self.raced.is_none_or(|raced| raced.elapsed() > PEACE);
        came.checked_sub(RECENT).filter(|_| alone).unwrap_or(came)
    }

    /// Somebody else was faster.
    pub(crate) fn lost_race(&mut self) {
        self.raced = Some(Instant::now());
    }

    /// What is known of a branch that is about to be pushed to, until that has gone well.
    pub(crate) fn begin_push(&mut self, branch: &str) -> Option<Known> {
        self.known.take_if(|known| known.branch == branch)
    }

    /// A branch that was known is at a commit of ours now.
    pub(crate) fn pushed(&mut self, before: Known, tip: Commit) {
        self.history = self.history.take().and_then(|history| history.onto(&tip));
        self.known = Some(before.at(tip));
    }

    /// Brings the newest commits of a branch and of those head branches that exist. The first of them
    /// is whose turn it is.
    async fn fetch(
        &mut self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        base: &str,
        heads: &[String],
    ) -> Result<Fetched, GitError> {
        check_branch(access, base)?;
        if let Some(known) = &mut self.known {
            known.shown.remove(access.fingerprint());
        }
        self.open(git, access, counters).await?;
        let base_ref = format!("refs/sluice/base/{}", &hex_hash(base.as_bytes())[..16]);
        let args = [
            "fetch",
            "--quiet",
            "--depth=1",
            "--filter=blob:limit=64k",
            "--no-tags",
            "--no-auto-maintenance",
            "origin",
        ]
        .map(String::from);
        counters.fetches.fetch_add(1, Ordering::Relaxed);
        let asked = Instant::now();
        let call = Call::remote(&self.dir, access, args);
        git.run(call.configured(wanted_branches(base, &base_ref, heads))).await?;
        let (tip, seen) = self.read_tips(git, access, &base_ref, heads, base).await?;
        self.history = self.history.take().and_then(|history| history.onto(&tip));
        let mut seen = heads.iter().cloned().zip(seen);
        let head = seen.next().map(|(_, own)| own).transpose()?.flatten();
        // A head that cannot be read fails only the delivery that asks for it.
        let heads = seen.filter_map(|(head, commit)| Some((head, commit.ok()?))).collect();
        let shown = Shown { at: asked, heads };
        // To others it was shown a while ago: that it has moved on since costs them no race.
        let mut all = self.known.take().filter(|k| k.branch == base).map(|k| k.shown).unwrap_or_default();
        all.retain(|_, shown| shown.at.elapsed() < PEACE);
        all.insert(access.fingerprint().into(), shown);
        self.known = Some(Known { branch: base.into(), tip: tip.clone(), shown: all });
        Ok(Fetched { base: tip, head, asked })
    }

    /// The commits that the base and the heads are at. A head that cannot be read is an error of its own.
    async fn read_tips(
        &self,
        git: &Git,
        access: &Access,
        base_ref: &str,
        heads: &[String],
        base: &str,
    ) -> Result<(Commit, Vec<Result<Option<Commit>, GitError>>), GitError> {
        let fetched = std::fs::read_to_string(self.dir.join("FETCH_HEAD")).unwrap_or_default();
        // An object that is never there, where the server has no such branch.
        let id = |head: &String| fetched_at(&fetched, head).unwrap_or("refs/sluice/none");
        let heads = heads.iter().map(|head| format!("{}\n", id(head)));
        let input: String = std::iter::once(format!("{base_ref}\n")).chain(heads).collect();
        let call = Call::local(&self.dir, access, ["cat-file", "--batch"]).with_input(input.into_bytes());
        let mut commits = Vec::new();
        read_objects(git, call, |object| {
            commits.push(object.map(|(id, bytes)| Commit::parse(access, id, bytes)).transpose());
        })
        .await?;
        let mut commits = commits.into_iter();
        let missing = || GitError::NoBranch { repository: access.name().into(), branch: base.to_string() };
        let base = commits.next().transpose()?.flatten().ok_or_else(missing)?;
        Ok((base, commits.collect()))
    }

    /// Makes the cache if there is none, and clears away what a killed git left behind.
    pub(super) async fn open(
        &mut self,
        git: &Git,
        access: &Access,
        counters: &Counters,
    ) -> Result<(), GitError> {
        let broken =
            |e: std::io::Error| GitError::Cache { repository: access.name().into(), says: e.to_string() };
        self.fresh = false;
        if std::fs::read_dir(self.dir.join("objects/pack")).is_ok_and(|d| d.count() > PACKS_KEPT * 3)
            || self.measured.load(Ordering::Relaxed) > self.most
        {
            self.wipe();
        }
        if self.dir.join("HEAD").is_file() && self.dir.join("objects").is_dir() {
            // Only one delivery at a time gets here, so every lock is one that nobody holds.
            if !self.trusted {
                clear_litter(&self.dir, 0).map_err(broken)?;
            }
        } else {
            if self.trusted {
                counters.rebuilds.fetch_add(1, Ordering::Relaxed);
            }
            self.wipe();
            std::fs::create_dir_all(&self.dir).map_err(broken)?;
            git.run(Call::local(&self.dir, access, ["init", "--quiet", "--bare", "--template="])).await?;
            self.fresh = true;
        }
        self.trusted = false;
        Ok(())
    }

    /// A delivery has gone well to its end: no git was cut off that could have left locks behind.
    pub(crate) fn trust(&mut self) {
        self.trusted = true;
    }
}

/// The configuration by which a fetch brings exactly these branches: the base to a ref of its own, and those of the
/// heads that exist to `FETCH_HEAD`, as branches that are to be merged (git-scm.com/docs/git-config, `branch.<name>.merge`:
/// "multiple values to get an octopus merge"). A head that is named as an argument must exist, and a pattern could
/// bring any number of others. The cache's own branch is `main`.
fn wanted_branches(base: &str, base_ref: &str, heads: &[String]) -> Vec<(String, OsString)> {
    let setting = |key: &str, value: String| (key.to_string(), OsString::from(value));
    let mut settings = vec![
        setting("remote.origin.fetch", format!("+refs/heads/{base}:{base_ref}")),
        setting("branch.main.remote", "origin".into()),
    ];
    settings.extend(heads.iter().map(|head| setting("branch.main.merge", format!("refs/heads/{head}"))));
    settings
}

/// The commit that a branch was fetched at, by the lines of `FETCH_HEAD`: `<id> TAB <note> TAB branch '<name>' of <url>`.
fn fetched_at<'a>(fetched: &'a str, branch: &str) -> Option<&'a str> {
    let named = format!("branch '{branch}' of ");
    let of_branch = |line: &'a str| {
        let (id, rest) = line.split_once('\t')?;
        let (_, about) = rest.split_once('\t')?;
        about.starts_with(&named).then_some(id)
    };
    fetched.lines().find_map(of_branch)
}

/// Branch names come from people and go into refspecs, where some characters mean something.
fn check_branch(access: &Access, branch: &str) -> Result<(), GitError> {
    let special = |c: char| c.is_control() || c.is_whitespace() || ":*?[\\^~".contains(c);
    let bad =
        branch.is_empty() || branch.starts_with('-') || branch.contains("..") || branch.contains(special);
    if bad {
        return Err(GitError::NoBranch { repository: access.name().into(), branch: branch.into() });
    }
    Ok(())
}

/// Runs a `cat-file --batch` and hands over each object with its id, or `None` for one that is not there.
/// Content that is too large comes as nothing.
pub(super) async fn read_objects(
    git: &Git,
    call: Call<'_>,
    mut each: impl FnMut(Option<(&str, &[u8])>),
) -> Result<(), GitError> {
    let read = |stdout: ChildStdout| async move {
        let mut reader = BufReader::with_capacity(128 * 1024, stdout);
        let (mut header, mut content) = (String::new(), Vec::new());
        loop {
            header.clear();
            if reader.read_line(&mut header).await? == 0 {
                return Ok(());
            }
            let mut words = header.trim_end().splitn(3, ' ');
            let (id, size) =
                (words.next().unwrap_or_default(), words.nth(1).and_then(|s| s.parse::<u64>().ok()));
            let Some(size) = size else {
                each(None);
                continue;
            };
            content.clear();
            if size <= LARGEST {
                (&mut reader).take(size).read_to_end(&mut content).await?;
            } else {
                tokio::io::copy(&mut (&mut reader).take(size), &mut tokio::io::sink()).await?;
            }
            reader.read_u8().await?;
            each(Some((id, &content)));
        }
    };
    git.read_once(call, read).await
}
