//! The start of another try of a promotion that has ended.

use super::gates::rejected_otherwise;
use super::{Action, Decision, Lane, Transition};
use crate::promotion::{Phase, Promotion};

/// Returns how an ended promotion of the wanted revision starts again: on request of a person, or automatically if
/// only circumstances had ended it. Otherwise notes why it does not start again.
pub(super) fn resume(lane: Lane<'_>, earlier: &Promotion, decision: &mut Decision) -> Option<Action> {
    let retry = format!("sluice retry -n {} {}", lane.facts.pipeline.namespace, earlier.name);
    let again = |reason, message: &str, spends_approval| {
        let to = Transition::of(earlier, Phase::Pending, reason, message.into());
        Transition { answers: earlier.retry.clone(), spends_approval, ..to }
    };
    // A later promotion that was delivered has to be replaced, even if this one was delivered before it.
    let later = |p: &&Promotion| lane.environment.is_of(p) && p.order() > earlier.order();
    let was_replaced =
        || lane.facts.promotions.iter().filter(later).any(|p| p.was_delivered() || p.delivered.is_some());
    // An approval from before the rejection of another record of the revision does not count.
    let was_rejected = || rejected_otherwise(lane, earlier).is_some();
    if earlier.phase == Phase::Failed && earlier.retry.is_none() && earlier.resumes {
        let is_undone = was_replaced();
        let again = again("Resumed", "it is tried again after it has failed", is_undone || was_rejected());
        return Some(Action::Move(Transition { is_undone, ..again }));
    }
    match (earlier.phase, &earlier.retry) {
        (Phase::Superseded | Phase::Cancelled, _) => {
            let is_undone = was_replaced();
            // A promotion that was proposed or delivered has used its approval. An approval from before a later delivery
            // does not allow to go back.
            let is_used = earlier.request.is_some() || earlier.delivered.is_some();
            let spends_approval = is_used || is_undone || was_rejected();
            let again = again("Resumed", "it is the newest revision again", spends_approval);
            Some(Action::Move(Transition { is_undone, ..again }))
        }
        (phase, Some(_)) if phase.has_ended() => {
            Some(Action::Move(again("Retried", "a person requested another try", true)))
        }
        _ => {
            if let Some(message) = why_ended(earlier, &retry) {
                decision.note(lane.environment, "Ended", message);
            }
            None
        }
    }
}

/// Returns why a promotion does not start again automatically, and which command starts it, if it has ended.
fn why_ended(earlier: &Promotion, retry: &str) -> Option<String> {
    let (revision, why) = (&earlier.revision, &earlier.message);
    let ended = match earlier.phase {
        Phase::Failed => "failed",
        Phase::Rejected => "was rejected",
        Phase::Succeeded => {
            return Some(format!(
                "{revision} was promoted before, and something else runs here now; {retry} promotes it again"
            ));
        }
        _ => return None,
    };
    Some(format!("{revision} {ended} and will not be retried automatically: {why}; {retry} tries again"))
}
