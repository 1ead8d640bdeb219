//! The decision for an environment without predecessors: revisions are requested by calls of `/trigger`, and the last
//! request counts. Gates and delivery are as in every environment.

use super::own_commits_guard::refusal;
use super::resume::resume;
use super::run_by_targets::{runs, workloads};
use super::settle::{cancel, check_delivered};
use super::step::advance;
use super::supersession::supersede_earlier;
use super::wait::record_note;
use super::{Decision, Lane};
use crate::pipeline::Policy;
use crate::promotion::{Phase, Promotion};

/// Decides about the requested promotions, which are sorted by their order. The flag of each says whether this
/// decision has ended it already.
pub(super) fn decide(
    lane: Lane<'_>,
    policy: &Policy,
    promotions: &[(&Promotion, bool)],
    decision: &mut Decision,
) {
    // These were proven in predecessors that the environment does not have any more.
    for (promotion, _) in
        promotions.iter().filter(|(p, done)| p.trigger.is_none() && p.phase.is_open() && !done)
    {
        let message = format!(
            "{} has no predecessors any more: its revisions are requested by /trigger",
            lane.environment.name
        );
        cancel(lane.facts, promotion, message, decision);
    }
    let requested: Vec<(&Promotion, bool)> =
        promotions.iter().filter(|(p, _)| p.trigger.is_some()).copied().collect();
    let Some(((newest, settled), earlier)) = requested.split_last() else { return };
    supersede_earlier(earlier, newest, decision);
    if !settled {
        promote(lane, policy, newest, decision);
    }
}

/// Advances or resumes the promotion that was requested last.
fn promote(lane: Lane<'_>, policy: &Policy, newest: &Promotion, decision: &mut Decision) {
    if let Some(refused) = refusal(lane, policy, &newest.revision) {
        if newest.phase.is_open() && newest.open_request().is_none() {
            cancel(lane.facts, newest, refused.message.clone(), decision);
        }
        decision.notes.insert(lane.environment.name.clone(), refused);
    } else if newest.phase.is_open() {
        match workloads(lane, &newest.revision, decision) {
            Some(_) => advance(lane, policy, newest, decision),
            None => record_note(lane, policy, newest, decision),
        }
    } else if runs(lane, &newest.revision) {
        if newest.phase.has_ended() {
            decision.decline_retry(
                newest,
                &format!("{} runs {} already", lane.environment.name, newest.revision),
            );
        }
    } else if newest.phase != Phase::Succeeded || newest.retry.is_some() {
        check_delivered(lane, newest, decision);
        let action = resume(lane, newest, decision);
        decision.actions.extend(action);
    }
}
