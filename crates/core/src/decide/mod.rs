//! The rule by which revisions are promoted. Everything that Sluice does follows from the actions that `decide`
//! returns for a pipeline, its observed targets, the proven revisions and the recorded promotions. The same inputs
//! give the same actions, in whatever order they were learned.

use std::collections::BTreeMap;

mod action;
mod decision;
mod environment;
mod facts;
mod gates;
mod given_up;
mod lane;
mod own_commits_guard;
mod readers;
mod resume;
mod run_by_targets;
mod settle;
mod start;
mod step;
mod supersession;
mod triggered;
mod unrecorded_delivery;
mod wait;
mod withdrawal;

pub use action::{Action, NewPromotion, Transition, WAITING};
pub use decision::{Decision, Note};
pub use facts::Facts;
use lane::{Lane, SharedFacts};

use crate::pipeline::Environment;
use crate::promotion::{Phase, Promotion};

/// The most bytes of the revisions of all promotions of a pipeline. Its owner chooses the size of a revision, the number of
/// lanes, and how fast revisions follow each other.
pub const MAX_BYTES_OF_PROMOTIONS: usize = 16 << 20;

/// Decides what to do for a pipeline.
pub fn decide(facts: Facts<'_>) -> Decision {
    let mut decision = Decision::default();
    if let Some((environment, problem)) = facts.pipeline.name_problem() {
        decision.note(environment, "NameNotAccepted", format!("{problem}; until then nothing is promoted"));
        return decision;
    }
    let lanes: Vec<Vec<Environment>> = facts.pipeline.environments.iter().map(Environment::lanes).collect();
    let mut bytes: usize = facts.promotions.iter().map(|promotion| promotion.revision.bytes()).sum();
    let mut of_lanes: BTreeMap<(&str, Option<&str>), Vec<&Promotion>> = BTreeMap::new();
    for promotion in facts.promotions {
        let lane = (promotion.environment.as_str(), promotion.target.as_deref());
        of_lanes.entry(lane).or_default().push(promotion);
    }
    for (environment, lanes) in facts.pipeline.environments.iter().zip(&lanes) {
        let shared = SharedFacts::of(facts, environment);
        for lane in lanes {
            let promotions = of_lanes.remove(&(lane.name.as_str(), lane.only_target.as_deref()));
            let mut own = Decision::default();
            let room = MAX_BYTES_OF_PROMOTIONS.saturating_sub(bytes);
            let about = Lane { facts, environment: lane, shared: &shared, room };
            environment::decide(about, promotions.unwrap_or_default(), &mut own);
            bytes += own.started().map(|promotion| promotion.revision.bytes()).sum::<usize>();
            decision.join(lane, own);
        }
    }
    for promotion in of_lanes.into_values().flatten() {
        if !promotion.phase.has_ended() && !facts.pipeline.suspended {
            decision.record(promotion, Phase::Cancelled, "NotWanted", no_lane(facts, promotion));
        }
    }
    withdrawal::withdraw(facts, &mut decision);
    decision
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
