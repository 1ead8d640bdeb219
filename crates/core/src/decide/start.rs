//! The start of a promotion of the candidate, in place of an older one that is still open.

use super::guard::held;
use super::lifecycle::resume;
use super::running::{runs, unsettled};
use super::{Action, Decision, Facts, NewPromotion};
use crate::evidence::Candidate;
use crate::pipeline::{Environment, Policy};
use crate::promotion::{Phase, Promotion};
use crate::promotion_name::promotion_name;

/// Supersedes the open promotion by one of the candidate, if the environment wants the candidate.
pub(super) fn replace(
    facts: Facts<'_>,
    environment: &Environment,
    policy: &Policy,
    (open, promotions): (Option<&Promotion>, &[&Promotion]),
    candidate: &Candidate,
    decision: &mut Decision,
) {
    let next = start(facts, environment, policy, promotions, candidate, decision);
    if let Some(open) = open {
        let message = format!("{} replaced it", candidate.revision);
        decision.record(open, Phase::Superseded, "Superseded", message);
    }
    decision.actions.extend(next);
}

/// Returns the action that promotes the candidate: a new promotion, or an ended one resumed. `None` if nothing is to
/// be started.
fn start(
    facts: Facts<'_>,
    environment: &Environment,
    policy: &Policy,
    promotions: &[&Promotion],
    candidate: &Candidate,
    decision: &mut Decision,
) -> Option<Action> {
    let revision = &candidate.revision;
    if runs(facts, environment, revision) {
        return None;
    }
    // Before a promotion is resumed: a refused one would be cancelled and resumed again, without end.
    if let Some(held) = held(facts, environment, policy, revision) {
        decision.notes.insert(environment.name.clone(), held);
        return None;
    }
    let earlier = promotions.iter().rev().find(|p| p.revision == *revision && p.run == candidate.run);
    if let Some(earlier) = earlier {
        return resume(facts, environment, earlier, decision);
    }
    if let Some(message) = unsettled(facts, environment, revision) {
        decision.note(environment, "TargetNotSettled", message);
        return None;
    }
    let sequence = promotions.last().map_or(1, |p| p.sequence + 1);
    Some(Action::Start(new_promotion(facts, environment, candidate, sequence)))
}

fn new_promotion(
    facts: Facts<'_>,
    environment: &Environment,
    candidate: &Candidate,
    sequence: u64,
) -> NewPromotion {
    let running = environment.targets.iter().find_map(|t| {
        facts.observed.target(&environment.name, t).and_then(|t| t.revision(&facts.pipeline.tracks))
    });
    NewPromotion {
        name: promotion_name(facts.pipeline, environment, &candidate.revision, candidate.run),
        environment: environment.name.clone(),
        target: environment.only_target.clone(),
        revision: candidate.revision.clone(),
        run: candidate.run,
        arrival: candidate.arrival,
        sequence,
        replaces: running.map(|r| r.to_string()).unwrap_or_default(),
        proven_by: candidate.proven_by.clone(),
    }
}
