//! Reads the status of a change request: open, waiting, merged or closed.

use super::job::ChangeRequestJob;
use crate::error::DeliveryResult;
use crate::forge::{ChangeRequestState, ForgeChangeRequest, ListFilter};
use crate::order::Order;
use crate::outcome::{ChangeRequest, ChangeRequestStatus, OutdatedReason};
use crate::resources::Resources;

/// The status of a change request of an order without one.
pub(super) const ELSEWHERE: DeliveryResult<ChangeRequestStatus> = Ok(ChangeRequestStatus::Elsewhere);

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
pub(super) fn keep_foreign_commits(
    status: ChangeRequestStatus,
    request: &ChangeRequest,
) -> ChangeRequestStatus {
    match status {
        ChangeRequestStatus::Open { stale: Some(OutdatedReason::Unrecorded), .. } => status,
        ChangeRequestStatus::Open { head, stale: Some(_) } if head != request.head_commit => waits(
            "it cannot be merged as it is, and others have pushed to its branch: resolve that there, or close it",
            request.queued,
        ),
        other => other,
    }
}

pub(super) fn waits(why: impl Into<String>, queued: bool) -> ChangeRequestStatus {
    ChangeRequestStatus::Waits { why: why.into(), failed: false, queued }
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
            // A person who has closed it has rejected the promotion that it carried then.
            ChangeRequestState::Closed | ChangeRequestState::ClosedByForge => {
                let pushed = &request.head_commit;
                match head != *pushed && self.is_of_another_promotion((&head, pushed)).await? {
                    true => ChangeRequestStatus::HandedOver,
                    false => ChangeRequestStatus::Closed,
                }
            }
        };
        Ok((status, Some(found)))
    }
}
