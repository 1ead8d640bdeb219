//! The result of a decision: actions, notes for people, and the time of the next decision.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::action::{Action, NewPromotion, Transition};
use crate::pipeline::Environment;
use crate::promotion::{Phase, Promotion};
use crate::value_check::cut;

/// The most bytes of a note, and the most after which the notes of further targets of an environment are left out. A note has
/// the texts of revisions, and a hundred targets may have one each.
const MAX_NOTE_BYTES: usize = 4096;

/// Why nothing is promoted into an environment, for the people who own it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The reason as one PascalCase word.
    pub reason: &'static str,
    /// What the environment waits for, and what to do.
    pub message: String,
}

/// What to do for a pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The actions, in the order in which to carry them out.
    pub actions: Vec<Action>,
    /// By environment: why nothing is promoted into it although something could be.
    pub notes: BTreeMap<String, Note>,
    /// When to decide again although nothing has changed.
    pub requeue_at: Option<Timestamp>,
}

impl Decision {
    /// Adds the decision for one environment, or for one target of it.
    pub(super) fn join(&mut self, lane: &Environment, own: Decision) {
        self.actions.extend(own.actions);
        if let Some(time) = own.requeue_at {
            self.requeue_by(time);
        }
        for (environment, mut note) in own.notes {
            if let Some(target) = &lane.only_target {
                note.message = format!("{target}: {}", note.message);
            }
            match self.notes.get_mut(&environment) {
                Some(earlier) if earlier.message.len() >= MAX_NOTE_BYTES => {}
                Some(earlier) => {
                    earlier.message.push_str("; ");
                    earlier.message.push_str(&note.message);
                }
                None => drop(self.notes.insert(environment, note)),
            }
        }
    }

    /// Returns the promotions that are started.
    pub(super) fn started(&self) -> impl Iterator<Item = &NewPromotion> {
        self.actions.iter().filter_map(|action| match action {
            Action::Start(promotion) => Some(promotion),
            _ => None,
        })
    }

    /// Sets the time of the next decision, unless an earlier time is set.
    pub(super) fn requeue_by(&mut self, time: Timestamp) {
        self.requeue_at = Some(self.requeue_at.map_or(time, |earlier| earlier.min(time)));
    }

    /// Sets the note of an environment. It replaces a note that was set before.
    pub(super) fn note(&mut self, environment: &Environment, reason: &'static str, mut message: String) {
        cut(&mut message, MAX_NOTE_BYTES);
        self.notes.insert(environment.name.clone(), Note { reason, message });
    }

    /// Allows the merge of a promotion's change request, if the decision follows it.
    pub(super) fn allow_merge(&mut self, of: &Promotion) {
        for action in &mut self.actions {
            if let Action::Follow { promotion, may_merge } = action
                && *promotion == of.name
            {
                *may_merge = true;
            }
        }
    }

    /// Adds the transition of a promotion to another phase.
    pub(super) fn record(&mut self, promotion: &Promotion, to: Phase, reason: &'static str, message: String) {
        self.actions.push(Action::Move(Transition::of(promotion, to, reason, message)));
    }

    /// Adds the answer to a retry request, if there is one: the reason why the promotion is not retried.
    pub(super) fn decline_retry(&mut self, promotion: &Promotion, why: &str) {
        let Some(token) = &promotion.retry else { return };
        let message = format!("not retried: {why}");
        let answer = Transition::of(promotion, promotion.phase, "NotRetried", message);
        self.actions.push(Action::Move(Transition { answers: Some(token.clone()), ..answer }));
    }
}
