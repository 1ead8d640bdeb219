//! The rule by which revisions move on. Everything that Sluice does follows from the list of
//! actions that `decide` returns for a pipeline, what was observed, what was proven and what was
//! started before. The same inputs give the same actions, in whatever order they were learned.

mod environment;
mod gates;
mod guard;
mod triggered;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::evidence::Evidence;
use crate::model::{Environment, Gate, Phase, Pipeline, Promotion};
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
    /// Why the API server does not check who approves, if it does not.
    pub unguarded: Option<&'a str>,
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
        /// Nothing that has to come before it speaks against a merge: where Sluice is to merge, it may.
        may_merge: bool,
    },
    /// Close the change request of a promotion that needs it no more: a side effect.
    Withdraw {
        /// Which promotion.
        promotion: String,
    },
    /// Look whether what a promotion has delivered to a branch is still there: its revision does not come.
    CheckDelivered {
        /// Which promotion.
        promotion: String,
    },
    /// Record that a promotion is somewhere else now.
    Move(Move),
    /// Record that a promotion's gates are open, before it is delivered.
    Pass {
        /// Which promotion.
        promotion: String,
        /// Every gate.
        gates: Vec<Gate>,
    },
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
    /// The one target of it, where each is promoted into by itself.
    pub target: Option<String>,
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
    /// Something else has come in its place since: whatever it has done before is to be done again.
    pub is_undone: bool,
}

impl Move {
    fn of(promotion: &Promotion, to: Phase, reason: &'static str, message: String) -> Self {
        Move {
            promotion: promotion.name.clone(),
            to,
            reason,
            message,
            answers: None,
            spends_approval: false,
            is_undone: false,
        }
    }

    /// Begins a promotion again whose commit was removed from its branch by a forced push. What was approved
    /// is still approved: it is the same revision.
    pub fn of_lost(promotion: String, commit: &str) -> Self {
        let message =
            format!("commit {commit} is gone from its branch, which a forced push did; it is made again");
        let (to, reason) = (Phase::Pending, "CommitLost");
        Move { promotion, to, reason, message, answers: None, spends_approval: false, is_undone: true }
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
    /// Adds what was decided for one environment, or for one target of it.
    fn join(&mut self, lane: &Environment, own: Decision) {
        self.actions.extend(own.actions);
        if let Some(wake) = own.wake {
            self.wake_at(wake);
        }
        for (environment, mut note) in own.notes {
            if let Some(target) = &lane.alone {
                note.message = format!("{target}: {}", note.message);
            }
            match self.notes.get_mut(&environment) {
                Some(earlier) => earlier.message = format!("{}; {}", earlier.message, note.message),
                None => drop(self.notes.insert(environment, note)),
            }
        }
    }

    fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |w| w.min(time)));
    }

    /// Lets the change request of a promotion be merged, where it is followed.
    fn let_merge(&mut self, of: &Promotion) {
        for action in &mut self.actions {
            if let Action::Follow { promotion, may_merge } = action
                && *promotion == of.name
            {
                *may_merge = true;
            }
        }
    }

    fn record(&mut self, promotion: &Promotion, to: Phase, reason: &'static str, message: String) {
        self.actions.push(Action::Move(Move::of(promotion, to, reason, message)));
    }
}

/// What to do about a pipeline.
pub fn decide(facts: Facts<'_>) -> Decision {
    let mut decision = Decision::default();
    let lanes: Vec<Environment> = facts.pipeline.environments.iter().flat_map(Environment::lanes).collect();
    for lane in &lanes {
        let mut own = Decision::default();
        environment::decide(facts, lane, &mut own);
        decision.join(lane, own);
    }
    for promotion in facts.promotions {
        let known = lanes.iter().any(|lane| lane.is_of(promotion));
        if !known && !promotion.phase.has_ended() && !facts.pipeline.suspended {
            decision.record(promotion, Phase::Cancelled, "NotWanted", unknown(facts, promotion));
        }
    }
    withdraw(facts, &mut decision);
    decision
}

/// Why there is no place in the pipeline any more that a promotion goes into.
fn unknown(facts: Facts<'_>, promotion: &Promotion) -> String {
    let name = &promotion.environment;
    let Some(environment) = facts.pipeline.environments.iter().find(|e| e.name == *name) else {
        return format!("the pipeline has no environment {name} any more");
    };
    match &promotion.target {
        None => format!("each target of {name} is promoted into by itself now"),
        Some(target) if environment.targets.contains(target) => {
            format!("all targets of {name} are promoted into together now")
        }
        Some(target) => format!("{name} has no target {target} any more"),
    }
}

/// Takes back the open change requests of promotions that have ended, unless another promotion has
/// taken them over or is about to; and those that are where nobody can take them over.
fn withdraw(facts: Facts<'_>, decision: &mut Decision) {
    if facts.pipeline.suspended {
        return;
    }
    for promotion in facts.promotions.iter().filter(|p| p.phase.has_ended() || p.has_strayed()) {
        let Some(number) = promotion.open_request() else { continue };
        let place = (&promotion.environment, &promotion.target);
        let heir = facts.promotions.iter().filter(|p| (&p.environment, &p.target) == place).any(|p| {
            let carries = p.request.is_some_and(|r| r.number == number);
            p.phase.is_open() || (p.line() > promotion.line() && carries)
        });
        let comes = decision.actions.iter().any(|action| match action {
            Action::Start(intent) => (&intent.environment, &intent.target) == place,
            Action::Move(to) => to.to == Phase::Pending && to.promotion == promotion.name,
            _ => false,
        });
        if promotion.has_strayed() || (!heir && !comes) {
            decision.actions.push(Action::Withdraw { promotion: promotion.name.clone() });
        }
    }
}
