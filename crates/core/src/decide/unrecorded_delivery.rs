//! The look for a delivery that was not recorded, because its process ended between the push and the record.

use super::{Action, Decision, Lane};
use crate::promotion::{Phase, Promotion};

/// Has the commit of a promotion looked for before the promotion ends, if an earlier try may have made it and have ended before
/// that was recorded. Returns false if there is nothing to look for. A closed gate does not show that nothing was tried: it
/// may have closed since.
pub(super) fn find_delivery(lane: Lane<'_>, promotion: &Promotion, decision: &mut Decision) -> bool {
    let commits = lane.environment.policy.as_ref().is_some_and(|policy| policy.commits);
    let may_be_delivered = matches!(promotion.phase, Phase::Pending | Phase::Promoting);
    let looks = commits && may_be_delivered && !promotion.is_checked;
    if looks {
        decision.actions.push(Action::FindDelivery { promotion: promotion.name.clone() });
    }
    looks
}
