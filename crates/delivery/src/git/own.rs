//! Recognizes commits that Sluice itself has made, or would make: byte by byte, never by their message.

use std::collections::VecDeque;

use super::history::NEWEST;
use super::run::Call;
use super::{Access, Cache, ChangedFile, Commit, CommitText, Git, GitError, hex_hash, sign};
use crate::stats::Counters;

/// How many commits are remembered for each repository. A forgotten commit is compared again.
const REMEMBERED: usize = 1000;

/// The commits of a repository that this process has made, or has compared with what it would make.
#[derive(Debug, Default)]
pub(super) struct OwnCommits(VecDeque<String>);

impl OwnCommits {
    /// A commit of a promotion that goes to this branch, made with this signing key.
    fn key(access: &Access, branch: &str, known_by: &str, id: &str) -> String {
        let key = access.signing_key().map(|key| hex_hash(key.key)).unwrap_or_default();
        hex_hash(format!("{branch}\0{known_by}\0{id}\0{key}").as_bytes())
    }

    fn add(&mut self, key: String) {
        if self.0.contains(&key) {
            return;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(key);
    }
}

impl Cache {
    /// Remembers that Sluice makes this commit for a branch and what is known by this.
    pub(crate) fn remember_own(&mut self, access: &Access, branch: &str, known_by: &str, id: &str) {
        self.own.add(OwnCommits::key(access, branch, known_by, id));
    }

    /// Whether this process knows that Sluice makes this commit for a branch and what is known by this.
    pub(crate) fn remembers_own(&self, access: &Access, branch: &str, known_by: &str, id: &str) -> bool {
        self.own.0.contains(&OwnCommits::key(access, branch, known_by, id))
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
        Ok(Commit::parse(id, &raw))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_commit_is_forgotten_first() {
        let mut own = OwnCommits::default();
        (0..=REMEMBERED).for_each(|n| own.add(n.to_string()));
        own.add("1".into());
        assert_eq!((own.0.len(), own.0[0].as_str(), own.0[REMEMBERED - 1].as_str()), (1000, "1", "1000"));
    }
}
