//! Recognizes commits that Sluice itself has made, or would make: byte by byte, never by their message.

use super::history::NEWEST;
use super::run::Call;
use super::{Access, Cache, ChangedFile, Commit, CommitText, Git, GitError, sign};
use crate::fingerprint::fingerprint;
use crate::stats::Counters;

/// How many commits are remembered for each repository. A forgotten commit is compared again.
pub(super) const REMEMBERED: usize = 1000;

/// A commit of a promotion that goes to this branch, made with this signing key.
fn key(access: &Access, branch: &str, known_by: &str, id: &str) -> String {
    let key = access.signing_key().map(|key| key.key).unwrap_or_default();
    fingerprint([branch.as_bytes(), known_by.as_bytes(), id.as_bytes(), key])
}

impl Cache {
    /// Remembers that Sluice makes this commit for a branch and what is known by this.
    pub(crate) fn remember_own(&mut self, access: &Access, branch: &str, known_by: &str, id: &str) {
        self.own.insert(key(access, branch, known_by, id), (), 1);
    }

    /// Whether this process knows that Sluice makes this commit for a branch and what is known by this.
    pub(crate) fn remembers_own(&mut self, access: &Access, branch: &str, known_by: &str, id: &str) -> bool {
        self.own.get(&key(access, branch, known_by, id)).is_some()
    }

    /// Whether a commit is the one that Sluice makes of these files on top of `parent`: the same tree, author,
    /// date and message, and a signature that the Secret's key has made if there is such a key.
    pub(crate) async fn is_made_of(
        &self,
        git: &Git,
        access: &Access,
        commit: &Commit,
        (parent, files, text): (&str, &[ChangedFile], &CommitText),
    ) -> Result<bool, GitError> {
        let id = self.commit_unsigned(git, access, parent, files, text).await?;
        if !access.signs() {
            return Ok(commit.id == id);
        }
        let unsigned = git.run(Call::local(self.dir(), access, ["cat-file", "commit", &id])).await?;
        let header = sign::header(&id);
        let Some(signature) = sign::signature(&commit.raw, header) else { return Ok(false) };
        if sign::put_in(&unsigned, header, &signature) != commit.raw {
            return Ok(false);
        }
        sign::is_signed(git, access, &unsigned, &signature).await
    }

    /// A commit that is in the cache.
    pub(crate) async fn read_commit(&self, git: &Git, access: &Access, id: &str) -> Result<Commit, GitError> {
        let raw = git.run(Call::local(self.dir(), access, ["cat-file", "commit", id])).await?;
        Commit::parse(access, id, &raw)
    }

    /// Whether a branch has a commit among its newest ones. A commit from further back counts as absent.
    pub(crate) async fn is_in_branch(
        &self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        (branch, commit): (&str, &str),
    ) -> Result<bool, GitError> {
        let newest = self.with_history(git, access, counters, branch, &["rev-list", NEWEST]).await?;
        Ok(newest.split(|byte| *byte == b'\n').any(|id| id == commit.as_bytes()))
    }
}
