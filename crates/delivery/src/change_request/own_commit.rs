//! Whether a commit is the one that Sluice itself would make for a promotion. Its message alone proves nothing: everybody
//! who may push branches can write it.

use std::time::Instant;

use super::job::ChangeRequestJob;
use crate::edit::edit;
use crate::error::{DeliveryError, DeliveryResult};
use crate::git::{Commit, LockedRepository, NewCommit};
use crate::resources::is_final;

impl ChangeRequestJob<'_> {
    /// Returns true if a commit is Sluice's own for the order. `tip` is the newest commit of the base branch, as it was
    /// fetched. All of this must hold:
    /// - The commit is the one that Sluice makes on top of the commit's parent.
    /// - The parent is part of the base branch. Another parent would add its own files to the merge.
    /// - A merge of the commit gives the files that Sluice would commit to the base branch now. With an old parent, the
    ///   promoted values may be in other files, or this file may be of another application.
    pub(super) async fn is_own(
        &self,
        repository: &mut LockedRepository<'_>,
        tip: &str,
        commit: &Commit,
    ) -> DeliveryResult<bool> {
        if !self.is_made_on_base(repository, tip, commit).await? {
            return Ok(false);
        }
        if commit.parents == [tip] {
            return Ok(true);
        }
        let Some(new) = self.commit_on(repository, tip).await? else { return Ok(false) };
        Ok(repository.merges_to(tip, commit, &new).await?)
    }

    /// Whether a commit is the one that Sluice makes for the order on top of the commit's own parent, and that parent is part
    /// of the base branch.
    async fn is_made_on_base(
        &self,
        repository: &mut LockedRepository<'_>,
        tip: &str,
        commit: &Commit,
    ) -> DeliveryResult<bool> {
        let (base, content) = (self.target.base, self.order.content_key());
        let [parent] = &commit.parents[..] else { return Ok(false) };
        let is_requested = self.order.requested().is_some();
        if !is_requested && !commit.carries(&self.order.known_by()) {
            return Ok(false);
        }
        // The content of the commit does not change. That of the base branch does.
        if parent != tip {
            if !repository.is_in_branch(base, parent).await? {
                return Ok(false);
            }
            repository.fetch_commit(parent).await?;
        }
        if repository.remembers_own(base, &content, &commit.id) {
            return Ok(true);
        }
        let Some(mut new) = self.commit_on(repository, parent).await? else { return Ok(false) };
        // No record has the time of an order for files.
        if is_requested && let Some(date) = commit.date() {
            new.date = date;
        }
        let is_made = repository.is_made_of(commit, parent, &new).await?;
        if is_made {
            repository.remember_own(base, &content, &commit.id);
        }
        Ok(is_made)
    }

    /// The commit that Sluice makes for the order on top of another commit; `None` if there is nothing to set.
    async fn commit_on(
        &self,
        repository: &mut LockedRepository<'_>,
        onto: &str,
    ) -> DeliveryResult<Option<NewCommit>> {
        match edit(self.order, repository, (self.target.base, onto)).await {
            Err(DeliveryError::Edit(_)) => Ok(None),
            edit => {
                Ok(Some(self.resources.new_commit(self.order, edit?)).filter(|new| !new.files.is_empty()))
            }
        }
    }

    /// Whether a commit of the head branch is Sluice's own. A commit that this process has made or compared is not compared again,
    /// wherever the base branch is now.
    pub(super) async fn is_own_head(&self, id: &str) -> DeliveryResult<bool> {
        self.compare(id, Comparison { trusts_memory: true, merges: true }).await
    }

    /// The same before a merge: the base branch is fetched, even if this process has made or compared the commit. A merge would bring
    /// back commits that were removed from the base branch, or set values in files that have another meaning now.
    pub(super) async fn is_own_and_on_base(&self, id: &str) -> DeliveryResult<bool> {
        self.compare(id, Comparison { trusts_memory: false, merges: true }).await
    }

    /// Whether Sluice has made a commit of the head branch, also if the base branch has changed the same lines since.
    pub(super) async fn is_made_by_sluice(&self, id: &str) -> DeliveryResult<bool> {
        self.compare(id, Comparison { trusts_memory: true, merges: false }).await
    }

    async fn compare(&self, id: &str, how: Comparison) -> DeliveryResult<bool> {
        let mut repository = self.lock_with_head().await?;
        let content = self.order.content_key();
        if how.trusts_memory && repository.remembers_own(self.target.base, &content, id) {
            return Ok(true);
        }
        loop {
            let is_own = self.fetch_and_compare(&mut repository, id, how).await;
            if is_final(self.order, &mut repository, &is_own) {
                return is_own;
            }
        }
    }

    async fn fetch_and_compare(
        &self,
        repository: &mut LockedRepository<'_>,
        id: &str,
        how: Comparison,
    ) -> DeliveryResult<bool> {
        let tips = repository.tips(self.target.base, Instant::now()).await?;
        let commit = match tips.head {
            Some(head) if head.id == id => head,
            // People have pushed commits on top of it.
            _ => {
                repository.fetch_commit(id).await?;
                repository.read_commit(id).await?
            }
        };
        match how.merges {
            true => self.is_own(repository, &tips.base.id, &commit).await,
            false => self.is_made_on_base(repository, &tips.base.id, &commit).await,
        }
    }
}

/// How a commit of the head branch is compared with that of Sluice.
#[derive(Clone, Copy)]
struct Comparison {
    /// A commit that this process has made or compared is not compared again.
    trusts_memory: bool,
    /// A merge of the commit must give the files that Sluice would commit now.
    merges: bool,
}
