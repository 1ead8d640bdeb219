//! Closes a change request that is not wanted any more, with a comment that says why.

use super::job::ChangeRequestJob;
use crate::error::DeliveryResult;
use crate::fault;
use crate::forge::ForgeResult;
use crate::markdown;
use crate::order::Order;
use crate::outcome::{ChangeRequest, ChangeRequestStatus};
use crate::resources::Resources;

/// Closes an open change request with a comment, unless it carries another promotion that has not ended.
///
/// Between the look and the close, another controller may push its promotion to the branch, and that change request is
/// closed then. No forge closes at a given head, so a chance of about a second remains.
pub(crate) async fn withdraw(
    resources: &Resources,
    order: &Order,
    request: &ChangeRequest,
    comment: &str,
) -> DeliveryResult<ChangeRequestStatus> {
    let Some(job) = ChangeRequestJob::of(resources, order)? else {
        return Ok(ChangeRequestStatus::Elsewhere);
    };
    let (status, found) = job.status(request).await?;
    let (ChangeRequestStatus::Open { head, .. }, Some(_)) = (&status, &found) else { return Ok(status) };
    let pushed = &request.head_commit;
    if head != pushed && job.is_of_another_promotion((head, pushed)).await? {
        return Ok(ChangeRequestStatus::HandedOver);
    }
    order.fencing_token.check()?;
    job.close(request.number, &markdown::plain(comment)).await?;
    Ok(ChangeRequestStatus::Closed)
}

impl ChangeRequestJob<'_> {
    /// Closes a change request and comments why. It is closed first: after a crash in between, the next try finds it
    /// closed and does not comment twice. The Promotion says why in any case, so a rejected comment is no failure.
    pub(super) async fn close(&self, number: u64, reason: &str) -> ForgeResult<()> {
        self.forge.close(number).await?;
        fault::point("after-close");
        if let Err(error) = self.forge.comment(number, reason).await {
            let (promotion, repository) = (&self.order.promotion, self.order.repository());
            tracing::warn!(
                promotion,
                repository,
                number,
                %error,
                "a change request was closed, and the forge rejected the comment that says why"
            );
        }
        Ok(())
    }
}
