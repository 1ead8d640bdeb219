//! Fetches the newest commits of branches, and single commits by their id.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStdout;

use super::cache::AFTER_FOREIGN_PUSH;
use super::commit::Commit;
use super::error::{GitError, GitResult};
use super::known_branch::{BranchFetch, KnownBranch};
use super::repository::{LockedRepository, WantedHead};
use super::run::{Git, GitRun};
use sluice_core::hex::sha256_hex;
use sluice_core::setters::MAX_FILE_BYTES;

/// What every fetch of commits has in common: no history, and no file of more than 64 KiB.
const FETCH: [&str; 6] =
    ["fetch", "--quiet", "--depth=1", "--filter=blob:limit=64k", "--no-tags", "--no-auto-maintenance"];

/// The two commits that a delivery starts from.
#[derive(Clone, Debug)]
pub(crate) struct Tips {
    pub(crate) base: Commit,
    pub(crate) head: Option<Commit>,
    /// When the server returned the base to these credentials. Later commits of the base are those that were fetched
    /// or pushed here.
    pub(crate) asked: Instant,
}

impl LockedRepository<'_> {
    /// The newest commits of a branch and of the wanted head branch, as the server returned them to these credentials
    /// since then. One fetch serves many deliveries that wait for one branch: all changes between the fetch and the
    /// turn of each are their own, and a push that meets any other change is rejected.
    pub(crate) async fn tips(&mut self, branch: &str, since: Instant) -> GitResult<Tips> {
        if let Some(tips) = self.known_tips(branch, since) {
            (self.is_clean, self.is_new) = (false, false);
            return Ok(tips);
        }
        let heads = self.wanted.as_ref().map(WantedHead::heads).unwrap_or_default();
        self.fetch(branch, &heads).await
    }

    fn known_tips(&mut self, branch: &str, since: Instant) -> Option<Tips> {
        let fingerprint = self.access.fingerprint.clone();
        let wanted = self.wanted.as_ref().map(|wanted| wanted.name().to_string());
        let known = self.branch.as_mut()?;
        let base = known.tip.clone();
        let fetch = known.fetch_since(&fingerprint, branch, since)?;
        let head = match wanted {
            Some(head) => fetch.heads.remove(&head)?,
            None => None,
        };
        Some(Tips { base, head, asked: fetch.at })
    }

    /// Fetches the newest commits of a branch and of those head branches that exist. The first head branch is that of
    /// the caller.
    async fn fetch(&mut self, base: &str, heads: &[String]) -> GitResult<Tips> {
        self.check_branch(base)?;
        let fingerprint = self.access.fingerprint.clone();
        if let Some(known) = &mut self.branch {
            known.fetches.remove(&fingerprint);
        }
        self.open().await?;
        let base_ref = format!("refs/sluice/base/{}", &sha256_hex(base.as_bytes())[..16]);
        self.counters.fetches.fetch_add(1, Ordering::Relaxed);
        let asked = Instant::now();
        let run = self.remote(FETCH.into_iter().chain(["origin"]));
        self.git.run(run.configured(fetch_settings(base, &base_ref, heads))).await?;
        let (tip, found) = self.read_tips(&base_ref, heads, base).await?;
        self.advance_history(&tip);
        let mut found = heads.iter().cloned().zip(found);
        let head = match found.next() {
            Some((branch, Err(GitError::TooLarge { repository, says, .. }))) => {
                return Err(GitError::HeadTooLarge { repository, branch, says });
            }
            own => own.map(|(_, own)| own).transpose()?.flatten(),
        };
        // A head that cannot be read fails only the delivery that asks for it.
        let heads = found.filter_map(|(head, commit)| Some((head, commit.ok()?))).collect();
        self.remember_fetch(base, tip.clone(), fingerprint, BranchFetch { at: asked, heads });
        Ok(Tips { base: tip, head, asked })
    }

    fn remember_fetch(&mut self, branch: &str, tip: Commit, fingerprint: String, fetch: BranchFetch) {
        let known = self.branch.take().filter(|known| known.name == branch);
        let mut fetches: HashMap<_, _> = known.map(|known| known.fetches).unwrap_or_default();
        fetches.retain(|_, fetch| fetch.at.elapsed() < AFTER_FOREIGN_PUSH);
        fetches.insert(fingerprint, fetch);
        self.branch = Some(KnownBranch { name: branch.into(), tip, fetches });
    }

    /// The commits of the base and of the heads. A head that cannot be read is an error of its own.
    async fn read_tips(
        &self,
        base_ref: &str,
        heads: &[String],
        base: &str,
    ) -> GitResult<(Commit, Vec<GitResult<Option<Commit>>>)> {
        let fetched = std::fs::read_to_string(self.dir.join("FETCH_HEAD")).unwrap_or_default();
        // A ref that never exists, if the server has no such branch.
        let id = |head: &String| fetched_id(&fetched, head).unwrap_or("refs/sluice/none");
        let heads = heads.iter().map(|head| format!("{}\n", id(head)));
        let input: String = std::iter::once(format!("{base_ref}\n")).chain(heads).collect();
        let run = self.local(["cat-file", "--batch"]).with_input(input.into_bytes());
        let mut commits = Vec::new();
        read_objects(self.git, run, |object| {
            let read = object.map(|(id, bytes)| Commit::parse(self.access.name(), id, bytes));
            commits.push(read.transpose());
        })
        .await?;
        let mut commits = commits.into_iter();
        let base = commits.next().transpose()?.flatten().ok_or_else(|| self.no_branch(base))?;
        Ok((base, commits.collect()))
    }

    /// Checks the name of a branch, which people write: a name that git refuses looks like a broken cache.
    fn check_branch(&self, branch: &str) -> GitResult<()> {
        if is_branch_name(branch) { Ok(()) } else { Err(self.no_branch(branch)) }
    }

    fn no_branch(&self, branch: &str) -> GitError {
        GitError::NoBranch { repository: self.access.name().into(), branch: branch.into() }
    }

    /// Fetches a commit without its ancestors. Every server that speaks protocol 2 returns a commit that is in a
    /// branch (git-scm.com/docs/protocol-v2, "fetch": `want <oid>`).
    pub(crate) async fn fetch_commit(&mut self, id: &str) -> GitResult<()> {
        self.open().await?;
        let refspec = format!("+{id}:refs/sluice/one");
        self.counters.fetches.fetch_add(1, Ordering::Relaxed);
        let args = FETCH.into_iter().chain(["--no-write-fetch-head", "origin", &refspec]);
        self.git.run(self.remote(args)).await.map(drop)
    }

    /// Reads a commit that is in the cache.
    pub(crate) async fn read_commit(&self, id: &str) -> GitResult<Commit> {
        let raw = self.git.run(self.local(["cat-file", "commit", id])).await?;
        Commit::parse(self.access.name(), id, &raw)
    }
}

/// Whether a branch can have this name (git-scm.com/docs/git-check-ref-format). In refspecs, some characters have a
/// meaning.
fn is_branch_name(name: &str) -> bool {
    let special = |c: char| c.is_control() || c.is_whitespace() || ":*?[\\^~".contains(c);
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let has_special = name.contains(special) || name.contains("..") || name.contains("@{");
    !has_special && !name.starts_with('-') && !name.ends_with('.') && name.split('/').all(is_part)
}

/// The configuration by which a fetch brings exactly these branches: the base to a ref of its own, and those of the
/// heads that exist to `FETCH_HEAD`, as branches that are to be merged (git-scm.com/docs/git-config, `branch.<name>.merge`:
/// "multiple values to get an octopus merge"). A head that is named as an argument must exist, and a pattern could
/// bring any number of others. The cache's own branch is `main`.
fn fetch_settings(base: &str, base_ref: &str, heads: &[String]) -> Vec<(String, OsString)> {
    let setting = |key: &str, value: String| (key.to_string(), OsString::from(value));
    let mut settings = vec![
        setting("remote.origin.fetch", format!("+refs/heads/{base}:{base_ref}")),
        setting("branch.main.remote", "origin".into()),
    ];
    settings.extend(heads.iter().map(|head| setting("branch.main.merge", format!("refs/heads/{head}"))));
    settings
}

/// The commit at which a branch was fetched, by the lines of `FETCH_HEAD`: `<id> TAB <note> TAB branch '<name>' of <url>`.
fn fetched_id<'a>(fetched: &'a str, branch: &str) -> Option<&'a str> {
    let named = format!("branch '{branch}' of ");
    let of_branch = |line: &'a str| {
        let (id, rest) = line.split_once('\t')?;
        let (_, source) = rest.split_once('\t')?;
        source.starts_with(&named).then_some(id)
    };
    fetched.lines().find_map(of_branch)
}

/// Runs a `cat-file --batch` and passes each object with its id to `each`; `None` for an object that does not exist.
/// Content that is too large comes as nothing.
pub(super) async fn read_objects(
    git: &Git,
    run: GitRun<'_>,
    mut each: impl FnMut(Option<(&str, &[u8])>),
) -> GitResult<()> {
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
            if size <= MAX_FILE_BYTES {
                (&mut reader).take(size).read_to_end(&mut content).await?;
            } else {
                tokio::io::copy(&mut (&mut reader).take(size), &mut tokio::io::sink()).await?;
            }
            reader.read_u8().await?;
            each(Some((id, &content)));
        }
    };
    git.read_once(run, read).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What git says about each name.
    #[test]
    fn a_branch_has_the_names_that_git_allows() {
        let names = "main release/1.x a.b @a a@ {a} é sluice/apps/podinfo/prod -a a..b @{-1} a@{b @ a//b /a a/ .a a/.b a. \
                     a.lock a.lock/b a:b a*b a?b a[b a\\b a^b a~b";
        for name in names.split(' ').filter(|name| !name.is_empty()).chain(["a b", "a\tb", "a\u{1b}b"]) {
            let full = format!("refs/heads/{name}");
            let checked =
                std::process::Command::new("git").args(["check-ref-format", &full]).status().unwrap();
            assert_eq!(is_branch_name(name), checked.success() && !name.starts_with('-'), "{name:?}");
        }
        assert!(!is_branch_name(""));
    }
}
