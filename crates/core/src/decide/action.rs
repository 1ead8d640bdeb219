//! The actions that a decision consists of, as values that the controller carries out.

use jiff::Timestamp;

use crate::promotion::{Gate, Phase, Promotion};
use crate::revision::Revision;

/// The reason of a promotion that waits for a gate, or for something that its message names.
pub const WAITING: &str = "WaitingForGate";

/// One side effect to cause, or one change to record.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Record a new promotion. A later decision, which sees the record, delivers it.
    Start(NewPromotion),
    /// Deliver a promotion, or try again: a side effect on git and the forge.
    Deliver {
        /// The promotion's name.
        promotion: String,
    },
    /// Read the state of a promotion's change request from the forge.
    Follow {
        /// The promotion's name.
        promotion: String,
        /// True if every gate is open and nothing holds the promotion: Sluice may merge the change request, if the
        /// strategy tells it to merge.
        may_merge: bool,
    },
    /// Close the change request of a promotion that does not need it any more: a side effect.
    Withdraw {
        /// The promotion's name.
        promotion: String,
    },
    /// Check that the commit of a delivered promotion is still on its branch, because the targets do not run its
    /// revision.
    CheckDelivered {
        /// The promotion's name.
        promotion: String,
        /// True if the timeout of the promotion has passed: the promotion fails after the check, unless its commit is gone.
        is_last: bool,
    },
    /// Look for the commit of an earlier try whose result may not be recorded, before the promotion ends: its targets run the
    /// revision, or a person has rejected it.
    FindDelivery {
        /// The promotion's name.
        promotion: String,
    },
    /// Record a promotion's next phase.
    Move(Transition),
    /// Record that all gates of a promotion are open, before it is delivered.
    Pass {
        /// The promotion's name.
        promotion: String,
        /// All gates of the promotion.
        gates: Vec<Gate>,
    },
    /// Record the gates of a promotion that has to wait, with the reason [`WAITING`].
    Wait {
        /// The promotion's name.
        promotion: String,
        /// All gates of the promotion.
        gates: Vec<Gate>,
        /// What the promotion waits for.
        message: String,
    },
}

/// A promotion to record.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPromotion {
    /// The name of the record: see [`promotion_name`](crate::promotion_name::promotion_name).
    pub name: String,
    /// The environment that the revision goes into.
    pub environment: String,
    /// The one target that the revision goes into, if each target is promoted into separately.
    pub target: Option<String>,
    /// The promoted revision.
    pub revision: Revision,
    /// How many times the revision had come back before it became the candidate.
    pub run: u32,
    /// When the revision became the candidate, in the order of arrivals.
    pub arrival: u64,
    /// The number of this promotion among those into the same environment (or target).
    pub sequence: u64,
    /// The revision that the environment runs now, as people read it; empty if it is not known.
    pub replaces: String,
    /// The targets that have proven the revision: environment, target and time.
    pub proven_by: Vec<(String, String, Timestamp)>,
}

/// A change of a promotion's phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// The promotion's name.
    pub promotion: String,
    /// The new phase.
    pub to: Phase,
    /// The reason as one PascalCase word, for conditions, events and metrics.
    pub reason: &'static str,
    /// The reason as a sentence.
    pub message: String,
    /// The token of the retry request that this transition answers.
    pub answers: Option<String>,
    /// True if the promotion's approval does not count any more: it was given for an earlier try.
    pub spends_approval: bool,
    /// True if the promotion has to be delivered again: another revision was delivered in the meantime, its commit is gone, or
    /// the pipeline names another place.
    pub is_undone: bool,
}

impl Transition {
    pub(super) fn of(promotion: &Promotion, to: Phase, reason: &'static str, message: String) -> Self {
        Transition {
            promotion: promotion.name.clone(),
            to,
            reason,
            message,
            answers: None,
            spends_approval: false,
            is_undone: false,
        }
    }

    /// Starts a promotion again whose commit was removed from its branch by a forced push. Its approval still
    /// counts, because the revision is the same.
    pub fn of_lost(promotion: String, commit: &str) -> Self {
        let message =
            format!("a forced push removed commit {commit} from its branch; the commit is made again");
        let (to, reason) = (Phase::Pending, "CommitLost");
        Transition { promotion, to, reason, message, answers: None, spends_approval: false, is_undone: true }
    }
}
