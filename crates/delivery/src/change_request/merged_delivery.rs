//! Whether a merged change request has delivered this very promotion. Only facts count: commits and their parents, the
//! forge's record of what it merged, and finally the files.

use super::job::ChangeRequestJob;
use crate::edit::is_set;
use crate::error::{DeliveryError, DeliveryResult};
use crate::forge::{ChangeRequestState, Forge, ForgeChangeRequest, ForgeResult, MergedHead};
use crate::git::GitError;
use crate::read_trailers;
use crate::resources::{BoxedDelivery, is_final};

/// How many commits of others are searched for the pushed commit below them.
const MAX_FOREIGN_COMMITS: usize = 30;

/// A merge that has delivered a promotion.
pub(super) struct MergedDelivery {
    /// The end of the branch that was merged, if that is certain.
    pub(super) head: Option<String>,
}

impl ChangeRequestJob<'_> {
    /// Whether the merge of a change request has delivered this very promotion, in this round. `own` is the commit that
    /// Sluice pushed, if it is known.
    ///
    /// The first of these that is available decides:
    /// 1. the head that the forge merged, with any merge method; Gitea and Forgejo do not keep it
    /// 2. the parents of the merge
    /// 3. the recorded head, if people have added commits on top of the promotion's: nobody does so in the moment of a merge
    /// 4. the files of the merge
    ///
    /// A message alone proves nothing: a commit that names the promotion must be `own`, or hold its values.
    ///
    /// The state is on the heap: it is seldom needed, and large beside what every delivery keeps on its stack.
    pub(super) fn delivered_by<'s>(
        &'s self,
        found: &'s ForgeChangeRequest,
        own: Option<&'s str>,
    ) -> BoxedDelivery<'s, Option<MergedDelivery>> {
        Box::pin(self.find_delivery(found, own))
    }

    async fn find_delivery(
        &self,
        found: &ForgeChangeRequest,
        own: Option<&str>,
    ) -> DeliveryResult<Option<MergedDelivery>> {
        let ChangeRequestState::Merged { commit: id } = &found.state else { return Ok(None) };
        if found.base != self.target.base {
            return Ok(None);
        }
        let forge = &*self.forge;
        let head = forge.merged_head(found).await?;
        let recorded = match &head {
            Some(head) => newest_commit(forge, &head.id, None, read_trailers::names_any_promotion).await?,
            None => None,
        };
        if let (Some(MergedHead { id, is_certain: true }), Some(recorded)) = (&head, &recorded)
            && let Some(is_of_promotion) = self.is_proof(recorded, own).await?
        {
            return Ok(is_of_promotion.then(|| MergedDelivery { head: Some(id.clone()) }));
        }
        let merge = forge.commit(id).await?;
        for parent in merge.iter().flat_map(|merge| merge.parents.iter().skip(1)) {
            if let Some(below) =
                newest_commit(forge, parent, None, read_trailers::names_any_promotion).await?
                && let Some(is_of_promotion) = self.is_proof(&below, own).await?
            {
                return Ok(is_of_promotion.then(|| MergedDelivery { head: Some(parent.clone()) }));
            }
        }
        if let (Some(head), Some(recorded)) = (head, recorded)
            && recorded.0 != head.id
            && self.is_proof(&recorded, own).await? == Some(true)
        {
            return Ok(Some(MergedDelivery { head: Some(head.id) }));
        }
        let holds = merge.is_some() && self.holds_values(id).await?;
        Ok(holds.then_some(MergedDelivery { head: None }))
    }

    /// Whether a commit with its message proves a merge of this promotion: `Some(false)` if it is the commit of another
    /// promotion, `None` if it only names this promotion.
    async fn is_proof(
        &self,
        (commit, message): &(String, String),
        own: Option<&str>,
    ) -> DeliveryResult<Option<bool>> {
        if !read_trailers::carries(message, &self.order.known_by()) {
            return Ok(Some(false));
        }
        if own == Some(commit) {
            return Ok(Some(true));
        }
        match self.holds_values(commit).await {
            // A commit that the server does not return any more, as after a squash, counts as one without the values.
            Err(DeliveryError::Git(GitError::Failed { .. })) => Ok(None),
            holds => Ok(holds?.then_some(true)),
        }
    }

    /// The newest commit of a branch that names a promotion, if it names this one. Commits that others pushed on top
    /// are skipped. If a commit of another promotion is on top, there is none.
    pub(super) async fn pushed_commit(&self, head: &str) -> ForgeResult<Option<String>> {
        let newest = newest_commit(&*self.forge, head, None, read_trailers::names_any_promotion).await?;
        let known_by = self.order.known_by();
        Ok(newest.filter(|(_, message)| read_trailers::carries(message, &known_by)).map(|(id, _)| id))
    }

    /// Whether a branch has the commit of another open promotion into the same environment or target, above the parent of
    /// this promotion's commit. Other names prove nothing: everybody who may push to the branch can write that of a promotion
    /// that has ended, or that never existed.
    pub(super) async fn is_of_another_promotion(&self, (head, pushed): (&str, &str)) -> ForgeResult<bool> {
        let (forge, open) = (&*self.forge, &self.order.open_beside);
        if open.is_empty() {
            return Ok(false);
        }
        let base = forge.commit(pushed).await?.and_then(|commit| commit.parents.into_iter().next());
        let names_open =
            |message: &str| open.iter().any(|other| read_trailers::names_promotion(message, other));
        Ok(newest_commit(forge, head, base.as_deref(), names_open).await?.is_some())
    }

    /// Whether the files of a commit have every value of the promotion.
    async fn holds_values(&self, commit: &str) -> DeliveryResult<bool> {
        let (order, base) = (self.order, self.target.base);
        let mut repository = self.lock().await?;
        if repository.remembers_own(base, &order.content_key(), commit) {
            return Ok(true);
        }
        loop {
            let holds = async {
                repository.fetch_commit(commit).await?;
                is_set(order, &mut repository, (base, commit)).await
            }
            .await;
            if is_final(order, &mut repository, &holds) {
                return holds;
            }
        }
    }
}

/// The id and message of the newest commit of a branch whose message is wanted, down to the commit `base` if that is
/// known.
async fn newest_commit(
    forge: &dyn Forge,
    head: &str,
    base: Option<&str>,
    is_wanted: impl Fn(&str) -> bool,
) -> ForgeResult<Option<(String, String)>> {
    let mut id = head.to_string();
    for _ in 0..=MAX_FOREIGN_COMMITS {
        if base == Some(&id) {
            return Ok(None);
        }
        let Some(commit) = forge.commit(&id).await? else { return Ok(None) };
        if is_wanted(&commit.message) {
            return Ok(Some((id, commit.message)));
        }
        let Some(below) = commit.parents.into_iter().next() else { return Ok(None) };
        id = below;
    }
    Ok(None)
}
