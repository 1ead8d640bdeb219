//! The look for a delivery that was not recorded, because its process ended between the push and the record.

use super::gates::verdicts;
use super::{Action, Decision, Lane};
use crate::pipeline::Policy;
use crate::promotion::{Gate, GateKind, Phase, Promotion};

/// Has the commit of a promotion looked for before the promotion ends, if an earlier try may have made it and have ended before
/// that was recorded. Returns false if there is nothing to look for.
pub(super) fn find_delivery(lane: Lane<'_>, promotion: &Promotion, decision: &mut Decision) -> bool {
    let Some(policy) = lane.environment.policy.as_ref().filter(|policy| policy.commits) else { return false };
    let is_tried = match promotion.phase {
        Phase::Pending => !has_never_been_approved(lane, policy, promotion),
        phase => phase == Phase::Promoting,
    };
    let looks = is_tried && !promotion.is_checked;
    if looks {
        decision.actions.push(Action::FindDelivery { promotion: promotion.name.clone() });
    }
    looks
}

/// Returns true if a promotion waits for an approval and its record says so: nobody has approved it since, and so nothing
/// was tried. If only one of both is so, it may have been tried before its owner asked for approvals, or since it was approved.
fn has_never_been_approved(lane: Lane<'_>, policy: &Policy, promotion: &Promotion) -> bool {
    let waits = |gates: &[Gate]| gates.iter().any(|gate| gate.kind == GateKind::Approval && !gate.open);
    waits(&promotion.gates) && waits(&verdicts(lane, policy, promotion))
}
