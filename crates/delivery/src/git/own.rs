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

    /// Whether a merge of a commit into `tip` gives the tree that Sluice commits on top of `tip` with these files. The
    /// commit's parent is the base of the merge. A file that was renamed since counts as a conflict.
    pub(crate) async fn merges_to(
        &self,
        git: &Git,
        access: &Access,
        (tip, commit): (&str, &Commit),
        (files, text): (&[ChangedFile], &CommitText),
    ) -> Result<bool, GitError> {
        let [parent] = &commit.parents[..] else { return Ok(false) };
        let wanted = self.commit_unsigned(git, access, tip, files, text).await?;
        let [base, ours, theirs, wanted] =
            [parent, tip, &commit.id, &wanted].map(|id| self.tree_of(git, access, id));
        let base = self.commit_of_tree(git, access, &base.await?, None).await?;
        let ours = self.commit_of_tree(git, access, &ours.await?, Some(&base)).await?;
        let theirs = self.commit_of_tree(git, access, &theirs.await?, Some(&base)).await?;
        let args =
            ["-c", "merge.renames=false", "merge-tree", "--write-tree", "--no-messages", &ours, &theirs];
        let merged = git.try_run(Call::local(self.dir(), access, args)).await?;
        Ok(merged.success && String::from_utf8_lossy(&merged.stdout).trim() == wanted.await?)
    }

    async fn tree_of(&self, git: &Git, access: &Access, commit: &str) -> Result<String, GitError> {
        let tree = format!("{commit}^{{tree}}");
        let out = git.run(Call::local(self.dir(), access, ["rev-parse", "--verify", &tree])).await?;
        Ok(String::from_utf8_lossy(&out).trim().to_string())
    }

    /// Makes a commit of a tree that goes nowhere: the cache has no history that a merge could start from, and
    /// `merge-tree` of git 2.39 takes commits only.
    async fn commit_of_tree(
        &self,
        git: &Git,
        access: &Access,
        tree: &str,
        parent: Option<&str>,
    ) -> Result<String, GitError> {
        let parent = parent.map(|id| format!("parent {id}\n")).unwrap_or_default();
        let who = "Sluice <> 0 +0000";
        let raw = format!("tree {tree}\n{parent}author {who}\ncommitter {who}\n\n");
        self.write_commit(git, access, raw.into_bytes()).await
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
