//! The decision for one environment, or for one target that is promoted into separately: the next phase of its
//! promotions, and whether to start another one.

use super::run_by_targets::{ADD_WORKLOAD, note_not_applied, runs, workloads};
use super::settle::{cancel, check_delivered, settle};
use super::step::advance;
use super::supersession::{is_candidate, replace, supersede_replaced, take_current, wait_for_any_proof};
use super::wait::record_note;
use super::{Action, Decision, Facts, Lane, triggered};
use crate::evidence::{Candidate, Shortfall};
use crate::observed::ObservedTarget;
use crate::pipeline::Policy;
use crate::promotion::Promotion;

/// The most targets that a note names.
const MAX_NAMED: usize = 10;

/// Decides what to do for an environment, as returned by [`Environment::lanes`], with its promotions in any order.
pub(super) fn decide(lane: Lane<'_>, mut promotions: Vec<&Promotion>, decision: &mut Decision) {
    promotions.sort_by_key(|p| p.order());
    let proven =
        lane.shared.proven.candidate.clone().map(|candidate| in_rejected_run(candidate, &promotions));
    let mut settle = |p| settle(lane, (&promotions, proven.as_ref()), p, decision);
    let settled: Vec<bool> = promotions.iter().map(|p| settle(p)).collect();
    let mut all_open: Vec<&Promotion> = promotions
        .iter()
        .zip(&settled)
        .filter(|(p, done)| p.phase.is_open() && !**done)
        .map(|(p, _)| *p)
        .collect();
    let open = take_current(&mut all_open, proven.as_ref());
    let Some(policy) = &lane.environment.policy else {
        if let Some(open) = open {
            cancel(lane.facts, open, "the environment has no promotion any more".into(), decision);
        }
        return;
    };
    follow(lane.facts, open, decision);
    if let Some(refused) = policy.refused.as_ref().filter(|_| !lane.environment.depends_on.is_empty()) {
        decision.note(lane.environment, "StrategyRefused", refused.clone());
    }
    if lane.facts.pipeline.suspended {
        return;
    }
    if lane.environment.depends_on.is_empty() {
        note_not_applied(lane, &promotions, decision);
        let all: Vec<(&Promotion, bool)> = promotions.into_iter().zip(settled).collect();
        return triggered::decide(lane, policy, &all, decision);
    }
    note_upcoming(lane, decision);
    note_not_applied(lane, &promotions, decision);
    supersede_replaced(lane, &all_open, open, decision);
    match (proven, open) {
        (Some(proven), open) => {
            let of_proven = open.filter(|open| is_candidate(open, Some(&proven)));
            match (fit(lane, proven, decision), of_proven) {
                (Some(candidate), _) => promote(lane, policy, (open, &promotions), &candidate, decision),
                (None, Some(open)) => record_note(lane, policy, open, decision),
                (None, None) => {}
            }
        }
        (None, Some(open)) => wait_for_any_proof(lane, policy, open, decision),
        (None, None) => {}
    }
}

/// Follows the change request of the open promotion. An outdated one is withdrawn, which also reads it, unless the
/// pipeline is suspended.
fn follow(facts: Facts<'_>, open: Option<&Promotion>, decision: &mut Decision) {
    let followed =
        |p: &&Promotion| p.open_request().is_some() && (facts.pipeline.suspended || !p.is_outdated());
    if let Some(open) = open.filter(followed) {
        decision.actions.push(Action::Follow { promotion: open.name.clone(), may_merge: false });
    }
}

/// Promotes the candidate: advances its open promotion, or starts one.
fn promote(
    lane: Lane<'_>,
    policy: &Policy,
    (open, promotions): (Option<&Promotion>, &[&Promotion]),
    candidate: &Candidate,
    decision: &mut Decision,
) {
    promotions.iter().for_each(|p| decline_unwanted_retry(lane, p, candidate, decision));
    let current = promotions.iter().filter(|p| p.revision == candidate.revision && p.run == candidate.run);
    current.for_each(|p| check_delivered(lane, p, decision));
    match open {
        Some(open) if open.revision == candidate.revision => {
            advance(lane, policy, open, decision);
        }
        _ => replace(lane, policy, (open, promotions), candidate, decision),
    }
}

/// Returns the part of a candidate that this environment has workloads for.
fn fit(lane: Lane<'_>, candidate: Candidate, decision: &mut Decision) -> Option<Candidate> {
    let workloads = workloads(lane, &candidate.revision, decision)?;
    let revision = candidate.revision.restricted_to(&workloads);
    if revision.is_none() {
        let message = format!(
            "{} waits: no workload here has the same kind and name as a workload in {}: Sluice matches workloads by kind \
             and name; {ADD_WORKLOAD}",
            candidate.revision,
            lane.environment.depends_on.join(", ")
        );
        decision.note(lane.environment, "NoWorkloads", message);
    }
    Some(Candidate { revision: revision?, ..candidate })
}

/// Returns the candidate with the run of its newest promotion, if that was rejected: a rejected revision stays
/// rejected when it comes back.
fn in_rejected_run(candidate: Candidate, promotions: &[&Promotion]) -> Candidate {
    let newest = promotions.iter().rev().find(|p| p.revision.is_run_by(&candidate.revision));
    let run = newest.filter(|p| p.is_rejected()).map_or(candidate.run, |p| p.run);
    Candidate { run, ..candidate }
}

/// Declines another try of a promotion that has ended and whose revision is not wanted here.
fn decline_unwanted_retry(lane: Lane<'_>, ended: &Promotion, candidate: &Candidate, decision: &mut Decision) {
    let why = if runs(lane, &ended.revision) {
        format!("{} runs {} already", lane.environment.name, ended.revision)
    } else if ended.revision != candidate.revision || ended.run != candidate.run {
        format!("{} goes into {} now", candidate.revision, lane.environment.name)
    } else {
        return;
    };
    if ended.phase.has_ended() {
        decision.decline_retry(ended, &why);
    }
}

/// Notes which targets a newer revision than the candidate waits for.
fn note_upcoming(lane: Lane<'_>, decision: &mut Decision) {
    if let Some(short) = &lane.shared.proven.upcoming {
        decision.note(lane.environment, "WaitingForTargets", waiting_for(lane.facts, short));
    }
}

fn waiting_for(facts: Facts<'_>, short: &Shortfall) -> String {
    let further = short.missing.len().saturating_sub(MAX_NAMED);
    let further = if further > 0 { format!("; and {further} more") } else { String::new() };
    let missing: Vec<String> = short
        .missing
        .iter()
        .take(MAX_NAMED)
        .map(|(environment, target)| {
            let shown = facts.observed.target(environment, target);
            let words = match shown.map(ObservedTarget::complaint) {
                Some(words) if !words.is_empty() => words,
                _ => "it does not run it yet".into(),
            };
            format!("{environment}/{target}: {words}")
        })
        .collect();
    format!(
        "{} is healthy on {} of {} targets that are needed: {}{further}",
        short.revision,
        short.has,
        short.needed,
        missing.join("; ")
    )
}
