//! The rule by which revisions move on. Everything that Sluice does follows from the list of
//! actions that `decide` returns for a pipeline, what was observed, what was proven and what was
//! started before. The same inputs give the same actions, in whatever order they were learned.

mod environment;
mod gates;
mod triggered;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::evidence::Evidence;
use crate::model::{Gate, Phase, Pipeline, Promotion};
use crate::revision::Revision;
use crate::world::World;

/// All that a decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What the owner asked for.
    pub pipeline: &'a Pipeline,
    /// What the targets show.
    pub world: &'a World,
    /// What they have proven, now included.
    pub evidence: &'a Evidence,
    /// What was started for this pipeline.
    pub promotions: &'a [Promotion],
    /// The time; only deadlines and retries depend on it.
    pub now: Timestamp,
}

/// One thing to do or to record.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Record a new promotion. Its delivery follows from a later decision, that sees the record.
    Start(Intent),
    /// Deliver a promotion, or try again: a side effect on git and forge.
    Deliver {
        /// Which promotion.
        promotion: String,
    },
    /// Ask the forge how a promotion's change request is.
    Follow {
        /// Which promotion.
        promotion: String,
    },
    /// Close the change request of a promotion that needs it no more: a side effect.
    Withdraw {
        /// Which promotion.
        promotion: String,
    },
    /// Record that a promotion is somewhere else now.
    Move(Move),
    /// Record the verdicts of a promotion's gates.
    Wait {
        /// Which promotion.
        promotion: String,
        /// Every gate.
        gates: Vec<Gate>,
        /// What it waits for.
        message: String,
    },
}

/// A promotion to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// Its name.
    pub name: String,
    /// The environment it goes into.
    pub environment: String,
    /// What it carries.
    pub revision: Revision,
    /// Which return of this revision it is about.
    pub run: u32,
    /// When the revision came to be a candidate, in the order of arrivals.
    pub arrival: u64,
    /// Its place in the order of promotions into the environment.
    pub sequence: u64,
    /// What the environment runs now; empty when that is not known.
    pub replaces: String,
    /// The targets that have proven it, by environment and target, with the time.
    pub proven_by: Vec<(String, String, Timestamp)>,
}

/// A promotion's next place.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Which promotion.
    pub promotion: String,
    /// Where to.
    pub to: Phase,
    /// One word for why.
    pub reason: &'static str,
    /// A sentence for why.
    pub message: String,
    /// The request for another try that this answers.
    pub answers: Option<String>,
    /// The approval that it had counts no more: it let one try pass, and this is another.
    pub spends_approval: bool,
}

impl Move {
    fn of(promotion: &Promotion, to: Phase, reason: &'static str, message: String) -> Self {
        Move { promotion: promotion.name.clone(), to, reason, message, answers: None, spends_approval: false }
    }
}

/// Something about an environment that its people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// One word.
    pub reason: &'static str,
    /// What is the matter and what to do.
    pub message: String,
}

/// What follows from the facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// By environment: why nothing moves into it, when something could.
    pub notes: BTreeMap<String, Note>,
    /// When to look again though nothing has changed.
    pub wake: Option<Timestamp>,
}

impl Decision {
    fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |w| w.min(time)));
    }

    fn record(&mut self, promotion: &Promotion, to: Phase, reason: &'static str, message: String) {
        self.actions.push(Action::Move(Move::of(promotion, to, reason, message)));
    }
}

/// What to do about a pipeline.
pub fn decide(facts: Facts<'_>) -> Decision {
    let mut decision = Decision::default();
    for environment in &facts.pipeline.environments {
        environment::decide(facts, environment, &mut decision);
    }
    for promotion in facts.promotions {
        let known = facts.pipeline.environments.iter().any(|e| e.name == promotion.environment);
        if !known && !promotion.phase.has_ended() && !facts.pipeline.suspended {
            let message = format!("the pipeline has no environment {} any more", promotion.environment);
            decision.record(promotion, Phase::Cancelled, "NotWanted", message);
        }
    }
    withdraw(facts, &mut decision);
    decision
}

/// Takes back the open change requests of promotions that have ended, unless another promotion has
/// taken them over or is about to; and those that are where nobody can take them over.
fn withdraw(facts: Facts<'_>, decision: &mut Decision) {
    if facts.pipeline.suspended {
        return;
    }
    for promotion in facts.promotions.iter().filter(|p| p.phase.has_ended() || p.has_strayed()) {
        let Some(number) = promotion.open_request() else { continue };
        let heir = facts.promotions.iter().filter(|p| p.environment == promotion.environment).any(|p| {
            let carries = p.request.is_some_and(|r| r.number == number);
            p.phase.is_open() || (p.sequence > promotion.sequence && carries)
        });
        let comes = decision.actions.iter().any(|action| match action {
            Action::Start(intent) => intent.environment == promotion.environment,
            Action::Move(to) => to.to == Phase::Pending && to.promotion == promotion.name,
            _ => false,
        });
        if promotion.has_strayed() || (!heir && !comes) {
            decision.actions.push(Action::Withdraw { promotion: promotion.name.clone() });
        }
    }
}
