//! The start of another try of a promotion that has ended.

use super::gates::rejected_otherwise;
use super::given_up::has_given_up;
use super::run_by_targets::unread;
use super::{Action, Decision, Lane, Transition};
use crate::promotion::{NOT_ARRIVED, Phase, Promotion};
use crate::time::Time;

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
    let resumes_at = earlier.resumes_at.filter(|_| !is_useless(lane, earlier));
    if let (Phase::Failed, None, Some(time)) = (earlier.phase, &earlier.retry, resumes_at) {
        if time <= lane.facts.now {
            if waits_for_target(lane, earlier, &retry, decision) {
                return None;
            }
            let was_replaced = was_replaced();
            let spends_approval = was_replaced || was_rejected();
            let again = again("Resumed", "it is tried again after it has failed", spends_approval);
            // Another receiver has not got the key of the earlier call, and the earlier receiver must not report about this one.
            let is_undone = was_replaced || earlier.has_moved;
            return Some(Action::Move(Transition { is_undone, ..again }));
        }
        let message = format!(
            "{} failed: {}; next try at {}; to try now: {retry}; to end it: sluice reject -n {} {} --reason ...",
            earlier.revision,
            earlier.message,
            Time::to_second(time),
            lane.facts.pipeline.namespace,
            earlier.name
        );
        decision.note(lane.environment, "Retrying", message);
        decision.requeue_by(time);
        return None;
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

/// Notes that a receiver is called again when a target can be read: that may run the revision. Returns true if there is one.
fn waits_for_target(lane: Lane<'_>, earlier: &Promotion, retry: &str, decision: &mut Decision) -> bool {
    let unread = unread(lane).filter(|_| earlier.reason == NOT_ARRIVED && !earlier.has_moved);
    let Some(target) = unread else { return false };
    let message = format!(
        "{} failed: {}; its receiver is called again when {target} can be read; to call it now: {retry}",
        earlier.revision, earlier.message
    );
    decision.note(lane.environment, "Retrying", message);
    true
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

/// Whether another call would change nothing: its receiver has set the revision, and Helm has given up on that.
fn is_useless(lane: Lane<'_>, earlier: &Promotion) -> bool {
    !lane.writes_to_branch() && has_given_up(lane, earlier)
}
