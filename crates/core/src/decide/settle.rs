//! The end of a promotion: healthy in time, failed, rejected, superseded or cancelled.

use jiff::Timestamp;

use super::gates::verdicts;
use super::given_up::has_given_up;
use super::run_by_targets::{complaint, runs};
use super::supersession::{is_candidate, supersede_delivered};
use super::unrecorded_delivery::find_delivery;
use super::{Action, Decision, Facts, Lane, Transition};
use crate::evidence::Candidate;
use crate::promotion::{CALLBACK_FAILED, Phase, Promotion, ReceiverReport, UNHEALTHY};

/// Cancels a promotion that the pipeline does not want any more, unless the pipeline is suspended.
pub(super) fn cancel(facts: Facts<'_>, promotion: &Promotion, message: String, decision: &mut Decision) {
    if !facts.pipeline.suspended {
        decision.record(promotion, Phase::Cancelled, "NotWanted", message);
    }
}

/// Ends a promotion that was seen healthy, was superseded after its delivery, or was not healthy in time. Returns
/// true if the promotion got another phase, or gets one after a look for its delivery.
pub(super) fn settle(
    lane: Lane<'_>,
    (all, proven): (&[&Promotion], Option<&Candidate>),
    promotion: &Promotion,
    decision: &mut Decision,
) -> bool {
    let late = promotion.phase == Phase::Failed && promotion.delivered.is_some();
    let rejected = promotion.rejected.as_ref().filter(|_| promotion.is_rejected());
    if let Some(why) = rejected.filter(|_| promotion.phase != Phase::Rejected) {
        if find_delivery(lane, promotion, decision) {
            return true;
        }
        // Neither a request for another try that came before the rejection nor a target that runs the revision undoes it.
        let answers = promotion.retry.clone();
        let to = Transition::of(promotion, Phase::Rejected, "Rejected", why.clone());
        decision.actions.push(Action::Move(Transition { answers, ..to }));
        return true;
    }
    if promotion.phase.has_ended() && !late {
        return false;
    }
    if runs(lane, &promotion.revision)
        && lane.facts.evidence.has_settled(lane.environment, &promotion.revision)
    {
        if !find_delivery(lane, promotion, decision) {
            let message = format!("{} runs {} and is healthy", lane.environment.name, promotion.revision);
            decision.record(promotion, Phase::Succeeded, "Succeeded", message);
        }
        return true;
    }
    let report = promotion.report.as_ref().filter(|report| counts(lane, promotion, report));
    if report.is_some_and(|report| apply_report(promotion, report, decision)) {
        return true;
    }
    decline_early_retry(promotion, decision);
    promotion.phase == Phase::Delivered
        && (supersede_delivered(all, proven, promotion, decision)
            || fail_delivered(lane, (all, proven), promotion, decision))
}

/// Fails a delivered promotion if Helm has given up on its revision, or if its timeout has passed. If the targets may
/// not run the revision because a forced push removed its commit, the branch is checked first.
fn fail_delivered(
    lane: Lane<'_>,
    (all, proven): (&[&Promotion], Option<&Candidate>),
    promotion: &Promotion,
    decision: &mut Decision,
) -> bool {
    if has_given_up(lane, promotion) {
        let message = format!("Flux will not try it again: {}", complaint(lane, promotion));
        decision.record(promotion, Phase::Failed, UNHEALTHY, message);
        return true;
    }
    match deadline(lane, promotion) {
        Some(deadline) if deadline <= lane.facts.now => {
            let may_be_made_again = !lane.facts.pipeline.suspended && is_wanted(promotion, all, proven);
            if may_be_made_again && !promotion.is_checked && may_have_lost_commit(lane, promotion) {
                decision
                    .actions
                    .push(Action::CheckDelivered { promotion: promotion.name.clone(), is_last: true });
                return false;
            }
            let message = format!("not healthy in time: {}", complaint(lane, promotion));
            decision.record(promotion, Phase::Failed, UNHEALTHY, message);
            true
        }
        Some(deadline) => {
            decision.requeue_by(deadline);
            false
        }
        None => false,
    }
}

/// Returns when the timeout of a delivered promotion passes.
fn deadline(lane: Lane<'_>, promotion: &Promotion) -> Option<Timestamp> {
    let timeout = lane.environment.policy.as_ref()?.timeout;
    promotion.delivered?.checked_add(timeout).ok()
}

/// Returns true if a promotion is of the revision that goes into the environment now: the candidate, or in an environment
/// without predecessors the revision that was requested last.
fn is_wanted(promotion: &Promotion, all: &[&Promotion], proven: Option<&Candidate>) -> bool {
    match &promotion.trigger {
        Some(_) => {
            let last = all.iter().rev().find(|p| p.trigger.is_some());
            last.is_some_and(|last| last.name == promotion.name)
        }
        None => is_candidate(promotion, proven),
    }
}

/// Declines a request for another try of a promotion that has not failed. An unanswered request would count later,
/// when the promotion has ended for another reason.
fn decline_early_retry(promotion: &Promotion, decision: &mut Decision) {
    match promotion.phase {
        Phase::Proposed => decision.decline_retry(promotion, "its change request is open"),
        Phase::Delivered => {
            decision.decline_retry(promotion, "it was delivered, and waits for its targets");
        }
        _ => {}
    }
}

/// Has the branch of a delivered promotion checked from time to time until its timeout passes.
pub(super) fn check_delivered(lane: Lane<'_>, promotion: &Promotion, decision: &mut Decision) {
    let is_overdue = deadline(lane, promotion).is_some_and(|deadline| deadline <= lane.facts.now);
    if !is_overdue && may_have_lost_commit(lane, promotion) {
        decision.actions.push(Action::CheckDelivered { promotion: promotion.name.clone(), is_last: false });
    }
}

/// Returns true if a forced push may have removed the commit of a delivered promotion: the targets do not run its
/// revision. After the promotion has ended, a person may have taken back the revision in this way.
fn may_have_lost_commit(lane: Lane<'_>, promotion: &Promotion) -> bool {
    promotion.phase == Phase::Delivered && lane.writes_to_branch() && !runs(lane, &promotion.revision)
}

/// Returns true if a report counts. A report stands in for the answer to a call, if that was lost, and never for an
/// approval: before the call, and while a gate is closed, it does not count.
fn counts(lane: Lane<'_>, promotion: &Promotion, report: &ReceiverReport) -> bool {
    match promotion.phase {
        Phase::Delivered => true,
        Phase::Failed => matches!(report, ReceiverReport::Fixed(_)),
        Phase::Promoting => lane
            .environment
            .policy
            .as_ref()
            .is_some_and(|policy| verdicts(lane, policy, promotion).iter().all(|gate| gate.open)),
        _ => false,
    }
}

/// Applies what the receiver of a webhook has reported: an accepted promotion was delivered, and a failed one has
/// failed. A promotion that the receiver calls done still has to be seen healthy. Returns true if the promotion got
/// another phase.
fn apply_report(promotion: &Promotion, report: &ReceiverReport, decision: &mut Decision) -> bool {
    use ReceiverReport::{Accepted, Done, Failed, Fixed};
    let (reason, own, theirs) = match report {
        Accepted(theirs) => ("Accepted", "the receiver has accepted it", theirs),
        Done(theirs) | Fixed(theirs) => ("Done", "the receiver reports that it is done", theirs),
        Failed(theirs) => (CALLBACK_FAILED, "the receiver reports that it has failed", theirs),
    };
    let words = if theirs.is_empty() { own.into() } else { format!("{own}: {theirs}") };
    let is_resumed = promotion.phase == Phase::Failed && matches!(report, Fixed(_));
    let message = format!("{words}; waits for the targets to run it");
    if promotion.phase.is_open() || is_resumed {
        // The receiver got the call, whatever came of its answer.
        decision.record(promotion, Phase::Delivered, reason, message);
        return true;
    }
    if let (Failed(_), Phase::Delivered) = (report, promotion.phase) {
        decision.record(promotion, Phase::Failed, reason, words);
        return true;
    }
    if promotion.phase == Phase::Delivered && promotion.message != message {
        decision.record(promotion, Phase::Delivered, reason, message);
    }
    false
}
