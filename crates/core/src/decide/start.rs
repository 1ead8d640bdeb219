//! The start of a promotion of the candidate.

use super::own_commits_guard::held;
use super::resume::resume;
use super::run_by_targets::{runs, unsettled};
use super::{Action, Decision, Lane, MAX_BYTES_OF_PROMOTIONS, NewPromotion};
use crate::evidence::Candidate;
use crate::pipeline::Policy;
use crate::promotion::Promotion;
use crate::promotion_name::promotion_name;

/// Returns the action that promotes the candidate: a new promotion, or an ended one resumed. `None` if nothing is to
/// be started.
pub(super) fn start(
    lane: Lane<'_>,
    policy: &Policy,
    promotions: &[&Promotion],
    candidate: &Candidate,
    decision: &mut Decision,
) -> Option<Action> {
    let revision = &candidate.revision;
    if runs(lane, revision) {
        return None;
    }
    // Before a promotion is resumed: a refused one would be cancelled and resumed again, without end.
    if let Some(held) = held(lane, policy, revision) {
        decision.notes.insert(lane.environment.name.clone(), held);
        return None;
    }
    let earlier = promotions.iter().rev().find(|p| p.revision == *revision && p.run == candidate.run);
    if let Some(earlier) = earlier {
        // A rejection that ends it now also answers an earlier request for another try.
        let ends_now =
            decision.actions.iter().any(|a| matches!(a, Action::Move(to) if to.promotion == earlier.name));
        return if ends_now { None } else { resume(lane, earlier, decision) };
    }
    if let Some(message) = unsettled(lane, revision) {
        decision.note(lane.environment, "TargetNotSettled", message);
        return None;
    }
    // A promotion in place of an open one takes no more than that one.
    if revision.bytes() > lane.room && promotions.iter().all(|p| p.phase.has_ended()) {
        let message = format!(
            "the next revision waits: with it, the revisions of this pipeline's promotions would have more than {} MiB \
             together; let open promotions end, name fewer objects or facets, or split the pipeline",
            MAX_BYTES_OF_PROMOTIONS >> 20
        );
        decision.note(lane.environment, "TooManyPromotions", message);
        return None;
    }
    let sequence = promotions.last().map_or(1, |p| p.sequence + 1);
    Some(Action::Start(new_promotion(lane, candidate, sequence)))
}

fn new_promotion(lane: Lane<'_>, candidate: &Candidate, sequence: u64) -> NewPromotion {
    let running = lane.environment.targets.iter().find_map(|target| lane.running(target));
    NewPromotion {
        name: promotion_name(lane.facts.pipeline, lane.environment, &candidate.revision, candidate.run),
        environment: lane.environment.name.clone(),
        target: lane.environment.only_target.clone(),
        revision: candidate.revision.clone(),
        run: candidate.run,
        arrival: candidate.arrival,
        sequence,
        replaces: running.map(|r| r.to_string()).unwrap_or_default(),
        proven_by: candidate.proven_by.to_vec(),
    }
}
