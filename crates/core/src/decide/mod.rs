//! The rule by which revisions are promoted. Everything that Sluice does follows from the actions that `decide`
//! returns for a pipeline, its observed targets, the proven revisions and the recorded promotions. The same inputs
//! give the same actions, in whatever order they were learned.

mod action;
mod decision;
mod environment;
mod facts;
mod gates;
mod lifecycle;
mod own_commits_guard;
mod resume;
mod running;
mod start;
mod step;
mod triggered;
mod withdrawal;

pub use action::{Action, NewPromotion, Transition};
pub use decision::{Decision, Note};
pub use facts::Facts;
use facts::Lane;

use crate::evidence::Proven;
use crate::pipeline::Environment;
use crate::promotion::{Phase, Promotion};

/// Decides what to do for a pipeline.
pub fn decide(facts: Facts<'_>) -> Decision {
    let mut decision = Decision::default();
    if let Some((environment, problem)) = facts.pipeline.name_problem() {
        decision.note(environment, "NameNotAccepted", format!("{problem}; until then nothing is promoted"));
        return decision;
    }
    let mut lanes: Vec<Environment> = Vec::new();
    for environment in &facts.pipeline.environments {
        let proven = proven_before(facts, environment);
        for lane in environment.lanes() {
            let mut own = Decision::default();
            environment::decide(Lane { facts, environment: &lane, proven: &proven }, &mut own);
            decision.join(&lane, own);
            lanes.push(lane);
        }
    }
    for promotion in facts.promotions {
        let known = lanes.iter().any(|lane| lane.is_of(promotion));
        if !known && !promotion.phase.has_ended() && !facts.pipeline.suspended {
            decision.record(promotion, Phase::Cancelled, "NotWanted", no_lane(facts, promotion));
        }
    }
    withdrawal::withdraw(facts, &mut decision);
    decision
}

/// Returns what the predecessors of an environment have proven, for all its lanes.
fn proven_before(facts: Facts<'_>, environment: &Environment) -> Proven {
    match &environment.policy {
        Some(policy) if !environment.depends_on.is_empty() => {
            facts.evidence.proven(facts.pipeline, environment, policy.min_ready)
        }
        _ => Proven::default(),
    }
}

/// Returns why the pipeline does not have the environment or target of a promotion any more.
fn no_lane(facts: Facts<'_>, promotion: &Promotion) -> String {
    let name = &promotion.environment;
    let Some(environment) = facts.pipeline.environments.iter().find(|e| e.name == *name) else {
        return format!("the pipeline has no environment {name} any more");
    };
    match &promotion.target {
        None => format!("each target of {name} is promoted into separately now"),
        Some(target) if environment.targets.contains(target) => {
            format!("all targets of {name} are promoted into together now")
        }
        Some(target) => format!("{name} has no target {target} any more"),
    }
}
