//! The next step of an environment's open promotion: refused, held at a gate, retried or delivered.

use super::own_commits_guard::{held, refusal, unseen_source};
use super::settle::cancel;
use super::wait::record_note;
use super::{Action, Decision, Lane, Transition, WAITING, gates};
use crate::pipeline::{Environment, Policy};
use crate::promotion::{GateKind, Phase, Promotion};

/// Takes the open promotion of the wanted revision one step further.
pub(super) fn advance(lane: Lane<'_>, policy: &Policy, open: &Promotion, decision: &mut Decision) {
    if open.phase == Phase::Proposed && open.open_request().is_some() && !open.is_outdated() {
        // A gate that has closed since the proposal keeps the change request unmerged.
        let gates = gates::verdicts(lane, policy, open);
        if let Some(shut) = gates.iter().find(|gate| !gate.open) {
            let otherwise = match shut.kind {
                GateKind::Approval => "",
                _ => "; merge its change request by hand, or close it",
            };
            let message = format!("{} {}{otherwise}", open.revision, shut.message);
            decision.note(lane.environment, WAITING, message);
        } else if held(lane, policy, &open.revision).is_none() {
            decision.allow_merge(open);
        }
        return;
    }
    if let Some(refused) = refusal(lane, policy, &open.revision) {
        cancel(lane.facts, open, refused.message.clone(), decision);
        decision.notes.insert(lane.environment.name.clone(), refused);
        return;
    }
    if let Some(unseen) = unseen_source(lane, policy, &open.revision) {
        decision.notes.insert(lane.environment.name.clone(), unseen);
        return record_note(lane, policy, open, decision);
    }
    if let Some(outdated) = lane.facts.promotions.iter().find(|p| is_in_the_way(lane.environment, p)) {
        let message = format!(
            "{} waits until Sluice has closed the change request of {}, which is in a repository or branch that \
             the pipeline no longer uses; its promotion says: {}",
            open.revision, outdated.revision, outdated.message,
        );
        decision.note(lane.environment, "WaitingForWithdrawal", message);
        return record_note(lane, policy, open, decision);
    }
    if pass_gates(lane, policy, open, decision) {
        try_delivery(lane, open, decision);
    }
}

/// Returns true if all gates of a promotion are open. Otherwise notes what it waits for.
fn pass_gates(lane: Lane<'_>, policy: &Policy, open: &Promotion, decision: &mut Decision) -> bool {
    let gates = gates::verdicts(lane, policy, open);
    let shut: Vec<&str> = gates.iter().filter(|g| !g.open).map(|g| g.message.as_str()).collect();
    if !shut.is_empty() {
        let message = shut.join("; ");
        if open.approved {
            // The next decision records the gates that a new approval opens.
            let to = Transition::of(open, Phase::Pending, "ApprovalOutdated", message);
            decision.actions.push(Action::Move(Transition { spends_approval: true, ..to }));
            return false;
        }
        decision.note(lane.environment, WAITING, format!("{} {message}", open.revision));
        if (&open.gates, &open.message) != (&gates, &message) {
            decision.actions.push(Action::Wait { promotion: open.name.clone(), gates, message });
        }
        return false;
    }
    if open.gates.iter().any(|gate| !gate.open) && open.gates != gates {
        decision.actions.push(Action::Pass { promotion: open.name.clone(), gates });
    }
    true
}

/// Answers a retry request, waits for the time of the next attempt, or delivers.
fn try_delivery(lane: Lane<'_>, open: &Promotion, decision: &mut Decision) {
    if let Some(token) = &open.retry {
        let message = "a person requested another try".into();
        let to = Transition::of(open, Phase::Pending, "Retried", message);
        decision.actions.push(Action::Move(Transition { answers: Some(token.clone()), ..to }));
        return;
    }
    match open.next_attempt {
        Some(time) if time > lane.facts.now => {
            decision.note(lane.environment, "Retrying", open.message.clone());
            decision.requeue_by(time);
        }
        _ => decision.actions.push(Action::Deliver { promotion: open.name.clone() }),
    }
}

/// Returns true if a promotion has an open change request that must be closed before another one is opened for the
/// environment: an outdated one, or one from before the pipeline changed between promoting all targets together and
/// each target separately.
fn is_in_the_way(environment: &Environment, other: &Promotion) -> bool {
    if other.environment != environment.name {
        return false;
    }
    let regrouped = other.target.is_some() != environment.only_target.is_some();
    other.open_request().is_some() && (regrouped || environment.is_of(other) && other.is_outdated())
}
