//! Follows a change request to its end, and merges it if the strategy asks for that: only the commit that Sluice
//! pushed, and only when the forge reports that exactly this commit can be merged.

use sluice_core::pipeline::MergeMode;

use super::job::ChangeRequestJob;
use crate::commit_message;
use crate::error::{DeliveryError, DeliveryResult};
use crate::fault;
use crate::forge::{
    ChangeRequestState, ForgeChangeRequest, ForgeError, ForgeResult, ListFilter, MergeCall, Readiness, moved,
};
use crate::order::Order;
use crate::outcome::{ChangeRequest, ChangeRequestStatus, OutdatedReason};
use crate::resources::Resources;

/// The status of a change request of an order without one.
const ELSEWHERE: DeliveryResult<ChangeRequestStatus> = Ok(ChangeRequestStatus::Elsewhere);

/// Reads the status of a change request.
pub(crate) async fn follow(
    resources: &Resources,
    order: &Order,
    request: &ChangeRequest,
) -> DeliveryResult<ChangeRequestStatus> {
    let Some(job) = ChangeRequestJob::of(resources, order)? else { return ELSEWHERE };
    Ok(keep_foreign_commits(job.status(request).await?.0, request))
}

/// Commits that others pushed to the branch are not replaced because the change request cannot be merged.
fn keep_foreign_commits(status: ChangeRequestStatus, request: &ChangeRequest) -> ChangeRequestStatus {
    match status {
        ChangeRequestStatus::Open { head, stale: Some(_) } if head != request.head_commit => waits(
            "it cannot be merged as it is, and others have pushed to its branch: resolve that there, or close it",
            request.queued,
        ),
        other => other,
    }
}

fn waits(why: impl Into<String>, queued: bool) -> ChangeRequestStatus {
    ChangeRequestStatus::Waits { why: why.into(), failed: false, queued }
}

/// Reads the status of a change request, merges it once it may be merged, and then deletes its branch.
pub(crate) async fn advance(
    resources: &Resources,
    order: &Order,
    request: &ChangeRequest,
) -> DeliveryResult<ChangeRequestStatus> {
    let Some(job) = ChangeRequestJob::of(resources, order)? else { return ELSEWHERE };
    let (mut status, found) = job.status(request).await?;
    if let (ChangeRequestStatus::Open { stale: None, .. }, Some(found)) = (&status, found)
        && job.target.settings.merge != MergeMode::Never
    {
        status = job.merge(request, &found).await?;
    }
    if let ChangeRequestStatus::Merged { ours: true, head, .. } = &status
        && job.target.settings.delete_branch
    {
        job.delete_branch(head).await;
    }
    Ok(keep_foreign_commits(status, request))
}

impl ChangeRequestJob<'_> {
    /// The status of a change request as its forge shows it.
    pub(super) async fn status(
        &self,
        request: &ChangeRequest,
    ) -> DeliveryResult<(ChangeRequestStatus, Option<ForgeChangeRequest>)> {
        let found = match self.forge.get(request.number).await? {
            Some(found) => Some(found),
            // A missing change request ends a promotion, so the list must agree with the single answer.
            None => {
                let since = ListFilter::Since(self.order.created);
                let list = self.forge.list(&self.branch, self.target.base, since).await?;
                let found = list.found.into_iter().find(|found| found.request.number == request.number);
                if let (None, Some(error)) = (&found, list.unread) {
                    return Err(error.into());
                }
                found
            }
        };
        let Some(found) = found else { return Ok((ChangeRequestStatus::Gone, None)) };
        // If the pipeline names another repository now, this is another change request with the same number.
        if found.request.url != request.url || found.request.branch != self.branch {
            return Ok((ChangeRequestStatus::Elsewhere, None));
        }
        let found = self.forge.confirmed(found).await?;
        let head = found.request.head_commit.clone();
        let status = match &found.state {
            ChangeRequestState::Open => {
                let stale = found.conflicts.then_some(OutdatedReason::Conflicts);
                ChangeRequestStatus::Open { head, stale }
            }
            ChangeRequestState::Merged { commit } => {
                let (head, ours) = match self.delivered_by(&found, Some(&request.head_commit)).await? {
                    // Gitea changes the head that it shows together with the branch.
                    Some(merged) => (merged.head.unwrap_or_else(|| request.head_commit.clone()), true),
                    None => (head, false),
                };
                ChangeRequestStatus::Merged { commit: commit.clone(), head, ours }
            }
            ChangeRequestState::ClosedByForge if head == request.head_commit => {
                ChangeRequestStatus::Open { head, stale: Some(OutdatedReason::ClosedByForge) }
            }
            ChangeRequestState::Closed | ChangeRequestState::ClosedByForge => ChangeRequestStatus::Closed,
        };
        Ok((status, Some(found)))
    }

    /// Merges an open change request, if it may be merged.
    async fn merge(
        &self,
        request: &ChangeRequest,
        found: &ForgeChangeRequest,
    ) -> DeliveryResult<ChangeRequestStatus> {
        let settings = self.target.settings;
        if let Some(status) = self.retargeted(request, found) {
            return Ok(status);
        }
        if found.is_draft {
            return Ok(waits("it is a draft: a person must mark it as ready", false));
        }
        let readiness = self.forge.readiness(found, settings.merge).await?;
        if let Some(status) = self.blocked(request, &readiness) {
            return Ok(status);
        }
        if !self.is_own_and_on_base(&request.head_commit).await? {
            // Made again, it is the commit of Sluice alone.
            let (promotion, repository) = (&self.order.promotion, self.order.repository());
            tracing::warn!(
                promotion,
                repository,
                number = request.number,
                "the head is not the commit that Sluice would make now for the base branch: it is not merged"
            );
            let stale = Some(OutdatedReason::NotOwn);
            return Ok(ChangeRequestStatus::Open { head: readiness.head.clone(), stale });
        }
        // No forge merges only into a given base branch, and the checks above take a while.
        let Some(now) = self.forge.get(request.number).await? else {
            return Ok(waits("its forge does not show it at the moment", request.queued));
        };
        if let Some(status) = self.retargeted(request, &now) {
            return Ok(status);
        }
        // Bitbucket Cloud does not merge only a given head either.
        if now.request.head_commit != request.head_commit {
            return Ok(waits(moved(&now.request.head_commit, &request.head_commit), request.queued));
        }
        self.order.fencing_token.check()?;
        fault::point("before-merge");
        let message = &commit_message::merge_message(self.order);
        let call = MergeCall { found, readiness: &readiness, mode: settings.merge, message };
        let merged = self.forge.merge(&call).await;
        fault::point("after-merge");
        self.after_merge(request, &readiness, merged).await
    }

    /// The status of a change request that goes to another base branch than the order's.
    fn retargeted(&self, request: &ChangeRequest, found: &ForgeChangeRequest) -> Option<ChangeRequestStatus> {
        let base = self.target.base;
        let why = format!("it goes to {} now, and not to {base}: change that back, or close it", found.base);
        (found.base != base).then(|| waits(why, request.queued))
    }

    /// The status of a change request that cannot be merged now.
    fn blocked(&self, request: &ChangeRequest, readiness: &Readiness) -> Option<ChangeRequestStatus> {
        if readiness.queued {
            return Some(waits("it is in the merge queue", true));
        }
        if let Some(why) = readiness.obstacle(&request.head_commit) {
            let (failed, queued) = (readiness.has_failed(), request.queued);
            return Some(ChangeRequestStatus::Waits { why, failed, queued });
        }
        if readiness.behind {
            return Some(behind(readiness));
        }
        if readiness.checks.is_empty() && !self.order.checks_settled {
            return Some(waits("waits for checks: none has reported yet", false));
        }
        let why = "the merge queue has put it out: look there why, and put it in again by hand";
        request.queued.then(|| waits(why, true))
    }

    /// The status after a merge. Whatever the forge answered: what counts is what it shows now.
    async fn after_merge(
        &self,
        request: &ChangeRequest,
        readiness: &Readiness,
        merged: ForgeResult<()>,
    ) -> DeliveryResult<ChangeRequestStatus> {
        let refused = match merged {
            Ok(()) => None,
            Err(error) if error.may_have_happened() => Some(Err(error)),
            Err(ForgeError::Behind { .. }) => return Ok(behind(readiness)),
            Err(ForgeError::Refused { says, .. }) => Some(Ok(says)),
            Err(error) => return Err(error.into()),
        };
        let status = self.status(request).await?.0;
        if !matches!(status, ChangeRequestStatus::Open { .. }) {
            return Ok(status);
        }
        match refused {
            None if self.target.settings.merge == MergeMode::Queue => {
                Ok(waits("it is in the merge queue", true))
            }
            None => Ok(waits("its forge merges it", false)),
            Some(Ok(says)) => Ok(waits(format!("its forge does not merge it: {says}"), false)),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Deletes the branch of a merged change request, if the branch is at the commit that was merged. If that fails,
    /// the delivery does not: the forge may have deleted the branch, and the next revision uses it again.
    async fn delete_branch(&self, head: &str) {
        let deleted = async {
            self.lock().await?.delete(&self.branch, head, &self.order.fencing_token).await?;
            Ok::<_, DeliveryError>(())
        };
        if let Err(error) = deleted.await {
            let (promotion, repository, branch) = (&self.order.promotion, self.target.url, &self.branch);
            tracing::warn!(
                promotion,
                repository,
                branch,
                %error,
                "the branch of a merged change request was not deleted"
            );
        }
    }
}

fn behind(readiness: &Readiness) -> ChangeRequestStatus {
    ChangeRequestStatus::Open { head: readiness.head.clone(), stale: Some(OutdatedReason::Behind) }
}
