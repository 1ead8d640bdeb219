//! Recognizes commits that Sluice itself made, or would make: byte by byte, never by their message.

use super::commit::Commit;
use super::create_commit::NewCommit;
use super::error::{GitError, GitResult};
use super::repository::LockedRepository;
use super::sign::{self, Signer};
use crate::fingerprint::fingerprint;

impl LockedRepository<'_> {
    /// The key of a commit with this content that goes to this branch, made with the signing key of the Secret. `content`
    /// is the key of what Sluice writes for a promotion.
    fn own_commit_key(&self, branch: &str, content: &str, id: &str) -> String {
        let key = self.access.signing_key().map(|key| key.key).unwrap_or_default();
        fingerprint([branch.as_bytes(), content.as_bytes(), id.as_bytes(), key])
    }

    /// Remembers that Sluice makes this commit with this content for a branch.
    pub(crate) fn remember_own(&mut self, branch: &str, content: &str, id: &str) {
        let key = self.own_commit_key(branch, content, id);
        self.own_commits.insert(key, (), 1);
    }

    /// Whether this process has found that Sluice makes this commit with this content for a branch.
    pub(crate) fn remembers_own(&mut self, branch: &str, content: &str, id: &str) -> bool {
        let key = self.own_commit_key(branch, content, id);
        self.own_commits.get(&key).is_some()
    }

    /// Whether a commit is this new one on top of `parent`: the same tree, author,
    /// date and message, and a signature by the signing key of the Secret if there is such a key.
    pub(crate) async fn is_made_of(&self, commit: &Commit, parent: &str, new: &NewCommit) -> GitResult<bool> {
        let id = self.commit_unsigned(parent, new).await?;
        if self.access.signing_key().is_none() {
            return Ok(commit.id == id);
        }
        let unsigned = self.git.run(self.local(["cat-file", "commit", &id])).await?;
        let header = sign::header(&id);
        let Some(signature) = sign::signature(&commit.raw, header) else { return Ok(false) };
        if sign::put_in(&unsigned, header, &signature) != commit.raw {
            return Ok(false);
        }
        match Signer::new(self.git, &self.access)? {
            Some(signer) => signer.is_signed(&unsigned, &signature).await,
            None => Ok(false),
        }
    }

    /// Whether a merge of a commit into `tip` gives the tree of this new commit on top of `tip`. The
    /// commit's parent is the base of the merge. A file that was renamed since counts as a conflict.
    pub(crate) async fn merges_to(&self, tip: &str, commit: &Commit, new: &NewCommit) -> GitResult<bool> {
        let [parent] = &commit.parents[..] else { return Ok(false) };
        let wanted = self.commit_unsigned(tip, new).await?;
        let [base, ours, theirs, wanted] = self.trees_of([parent, tip, &commit.id, &wanted]).await?;
        let base = self.commit_of_tree(&base, None).await?;
        let ours = self.commit_of_tree(&ours, Some(&base)).await?;
        let theirs = self.commit_of_tree(&theirs, Some(&base)).await?;
        let args =
            ["-c", "merge.renames=false", "merge-tree", "--write-tree", "--no-messages", &ours, &theirs];
        let merged = self.git.try_run(self.local(args)).await?;
        Ok(merged.success && String::from_utf8_lossy(&merged.stdout).trim() == wanted)
    }

    /// The ids of the trees of commits, in the same order.
    async fn trees_of<const N: usize>(&self, commits: [&str; N]) -> GitResult<[String; N]> {
        let trees = commits.map(|commit| format!("{commit}^{{tree}}"));
        let out = self.git.run(self.local(["rev-parse".to_string()].into_iter().chain(trees))).await?;
        let ids: Vec<String> = String::from_utf8_lossy(&out).lines().map(String::from).collect();
        ids.try_into().map_err(|_| GitError::Failed {
            repository: self.access.name().into(),
            doing: "rev-parse".into(),
            says: "it did not print one tree for each commit".into(),
        })
    }

    /// Makes a commit of a tree that no branch gets: the cache has no history that a merge could start from, and
    /// `merge-tree` of git 2.39 takes commits only.
    async fn commit_of_tree(&self, tree: &str, parent: Option<&str>) -> GitResult<String> {
        let parent = parent.map(|id| format!("parent {id}\n")).unwrap_or_default();
        let who = "Sluice <> 0 +0000";
        let raw = format!("tree {tree}\n{parent}author {who}\ncommitter {who}\n\n");
        self.write_commit(raw.into_bytes()).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::access::RepositoryAccess;
    use super::super::cache::MAX_OWN_COMMITS;
    use super::super::repository::CachedRepository;
    use super::super::run::Git;
    use crate::address::RepositoryAddress;
    use crate::credentials::Credentials;
    use crate::stats::Counters;

    #[tokio::test]
    async fn the_oldest_of_many_own_commits_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, counters) = (folder.path(), Counters::default());
        let git = Git::new(dir.into(), 1, Duration::from_secs(60), 1 << 20, false);
        let address = RepositoryAddress::parse("https://git.example.com/a/b.git", false).unwrap();
        let access =
            RepositoryAccess::new(address, None, &Credentials::default(), "apps/podinfo", dir).unwrap();
        let repository = Arc::new(CachedRepository::new(dir.join("cache"), u64::MAX));
        let mut repository = repository.lock((&git, &counters), access, None).await;
        for n in 0..MAX_OWN_COMMITS + 10 {
            repository.remember_own("main", "content", &n.to_string());
        }
        assert_eq!(repository.own_commits.iter().count(), MAX_OWN_COMMITS);
        let is_kept = [0, 9, 10, MAX_OWN_COMMITS + 9]
            .map(|n| repository.remembers_own("main", "content", &n.to_string()));
        assert_eq!(is_kept, [false, false, true, true]);
    }
}
