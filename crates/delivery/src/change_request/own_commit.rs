//! Whether a commit is the one that Sluice itself would make for a promotion. Its message alone proves nothing: everybody
//! who may push branches can write it.

use std::time::Instant;

use super::job::ChangeRequestJob;
use crate::edit::edit;
use crate::error::{DeliveryError, DeliveryResult};
use crate::git::{Commit, LockedRepository, NewCommit};
use crate::resources::is_final;

impl ChangeRequestJob<'_> {
    /// Whether a commit is the one that Sluice makes for the order on top of the commit's own parent, that parent is
    /// part of the base branch, and a merge of the commit gives the files that Sluice would commit to the base branch
    /// now. `tip` is the newest commit of the base branch, as it was fetched.
    ///
    /// A parent from elsewhere would add files of its own to the merge. An old parent may have the promoted values in
    /// other files, or another application in this one.
    pub(super) async fn is_own(
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
        if !repository.remembers_own(base, &content, &commit.id) {
            let Some(mut new) = self.commit_on(repository, parent).await? else { return Ok(false) };
            // No record has the time of an order for files.
            if is_requested && let Some(date) = commit.date() {
                new.date = date;
            }
            if !repository.is_made_of(commit, parent, &new).await? {
                return Ok(false);
            }
            repository.remember_own(base, &content, &commit.id);
        }
        if parent == tip {
            return Ok(true);
        }
        let Some(new) = self.commit_on(repository, tip).await? else { return Ok(false) };
        Ok(repository.merges_to(tip, commit, &new).await?)
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

    /// Whether a commit of the head branch is Sluice's own. A commit that this process knows is not compared again,
    /// wherever the base branch is now.
    pub(super) async fn is_own_head(&self, id: &str) -> DeliveryResult<bool> {
        self.is_own_commit(id, true).await
    }

    /// The same before a merge: the base branch is fetched, even if this process knows the commit. A merge would bring
    /// back commits that were removed from the base branch, or set values in files that have another meaning now.
    pub(super) async fn is_own_and_on_base(&self, id: &str) -> DeliveryResult<bool> {
        self.is_own_commit(id, false).await
    }

    async fn is_own_commit(&self, id: &str, known_is_enough: bool) -> DeliveryResult<bool> {
        let mut repository = self.lock_with_head().await?;
        let content = self.order.content_key();
        if known_is_enough && repository.remembers_own(self.target.base, &content, id) {
            return Ok(true);
        }
        loop {
            let is_own = self.fetch_and_compare(&mut repository, id).await;
            if is_final(self.order, &mut repository, &is_own) {
                return is_own;
            }
        }
    }

    async fn fetch_and_compare(
        &self,
        repository: &mut LockedRepository<'_>,
        id: &str,
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
        self.is_own(repository, &tips.base.id, &commit).await
    }
}
