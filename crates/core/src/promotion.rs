//! A recorded promotion: its phase, gates, change request and the report of a webhook's receiver.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::revision::Revision;

/// The phase of a promotion.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Phase {
    /// The promotion waits for a gate, an approval, or the delivery of another one.
    #[default]
    Pending,
    /// The promotion is being delivered, or the delivery will be retried.
    Promoting,
    /// The change request is open.
    Proposed,
    /// The revision is merged, committed, or accepted by the receiver; the targets do not run it yet.
    Delivered,
    /// The targets run the revision and are healthy.
    Succeeded,
    /// The delivery failed for good, or the targets did not become healthy in time.
    Failed,
    /// A person rejected the promotion, or its change request was closed without a merge.
    Rejected,
    /// A newer revision replaced the promotion.
    Superseded,
    /// The pipeline does not want the promotion any more.
    Cancelled,
}

impl fmt::Display for Phase {
    /// Writes the word as in the status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Phase {
    /// Returns true if the promotion is neither delivered nor ended. An environment has at most one open promotion.
    pub fn is_open(self) -> bool {
        matches!(self, Phase::Pending | Phase::Promoting | Phase::Proposed)
    }

    /// Returns true if the promotion does not change any more without a person's request.
    pub fn has_ended(self) -> bool {
        !self.is_open() && self != Phase::Delivered
    }
}

/// A promotion as it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Promotion {
    /// The name of the record, unique in the pipeline's namespace.
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
    /// The number of the promotion among those into the same environment (or target). Two promotions that were
    /// requested at the same time may have the same number: see [`Promotion::order`].
    pub sequence: u64,
    /// The key of the `/trigger` call that requested the promotion; `None` if predecessors have proven the revision.
    pub trigger: Option<String>,
    /// The current phase.
    pub phase: Phase,
    /// True if a person has approved this try, and the promotion has not used the approval yet.
    pub approved: bool,
    /// How many times the promotion was started again after it had ended or passed its gates. Each try needs a new
    /// approval.
    pub retries: u32,
    /// Who rejected this try and why, or that its change request was closed, as a sentence.
    pub rejected: Option<String>,
    /// The gates as last recorded.
    pub gates: Vec<Gate>,
    /// The token of a retry request that is not answered yet.
    pub retry: Option<String>,
    /// The earliest time of the next attempt to deliver.
    pub next_attempt: Option<Timestamp>,
    /// True if it has failed and starts again on its own. Otherwise only a person starts it again.
    pub resumes: bool,
    /// When the promotion was delivered, if it was.
    pub delivered: Option<Timestamp>,
    /// The change request with the revision, as last recorded.
    pub request: Option<RecordedRequest>,
    /// True if the last look at its branch before it ends is over, or took too long: for its commit since its timeout passed,
    /// or for a delivery that was not recorded. It becomes false again when the promotion is delivered.
    pub is_checked: bool,
    /// What the receiver of the webhook has reported about this try.
    pub report: Option<ReceiverReport>,
    /// Why the promotion is in its phase, as one word.
    pub reason: String,
    /// Why the promotion is in its phase.
    pub message: String,
}

/// What the receiver of a webhook reports about a promotion, with its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverReport {
    /// The receiver has accepted the promotion.
    Accepted(String),
    /// The receiver has carried the promotion out.
    Done(String),
    /// The receiver has not carried the promotion out and will not.
    Failed(String),
    /// The receiver has carried the promotion out after it had reported a failure.
    Fixed(String),
}

/// The reason of a promotion that is Failed because the receiver of the webhook reported a failure.
pub const CALLBACK_FAILED: &str = "CallbackFailed";
/// The reason of a promotion that is Failed because its targets did not become healthy.
pub const UNHEALTHY: &str = "Unhealthy";

/// A promotion's change request, as last recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The number on the forge.
    pub number: u64,
    /// True if the change request is neither merged nor closed.
    pub open: bool,
    /// True if the pipeline does not propose changes to the repository or branch of the change request any more. No
    /// other promotion can take it over.
    pub outdated: bool,
}

impl Promotion {
    /// The order of promotions into one environment (or target). No two promotions are equal in it.
    pub fn order(&self) -> (u64, &str) {
        (self.sequence, &self.name)
    }

    /// Returns true if the promotion was delivered and has not failed since.
    pub fn was_delivered(&self) -> bool {
        matches!(self.phase, Phase::Delivered | Phase::Succeeded)
    }

    /// Returns true if a person has rejected the promotion, whether that is recorded already or not. A rejection that comes while
    /// the promotion is superseded keeps it from coming back; one after its delivery does not count.
    pub fn is_rejected(&self) -> bool {
        let may_be = !matches!(self.phase, Phase::Delivered | Phase::Succeeded);
        self.phase == Phase::Rejected || (may_be && self.rejected.is_some())
    }

    /// Returns the number of the change request, if it is open.
    pub fn open_request(&self) -> Option<u64> {
        self.request.filter(|r| r.open).map(|r| r.number)
    }

    /// Returns true if the change request is open and the pipeline does not propose changes there any more.
    pub fn is_outdated(&self) -> bool {
        self.request.is_some_and(|r| r.open && r.outdated)
    }
}

/// The kinds of gates. A person's approval opens each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateKind {
    /// A person must approve every revision.
    Approval,
    /// The revision is older than the one that runs.
    Downgrade,
    /// Nobody has reported what the target runs, so it may run something newer.
    Unreported,
}

impl GateKind {
    /// All kinds, in the order in which they are recorded.
    pub const ALL: [GateKind; 3] = [GateKind::Approval, GateKind::Downgrade, GateKind::Unreported];

    /// Returns the name of the gate in the status.
    pub const fn name(self) -> &'static str {
        match self {
            GateKind::Approval => "Approval",
            GateKind::Downgrade => "Downgrade",
            GateKind::Unreported => "Unreported",
        }
    }

    /// Returns the kind of the gate with this name in the status.
    pub fn named(name: &str) -> Option<GateKind> {
        GateKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A condition that must be met before a promotion is delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// What the gate waits for.
    pub kind: GateKind,
    /// True if the gate is open.
    pub open: bool,
    /// Why the gate is closed and what opens it; empty if it is open.
    pub message: String,
    /// Of [`GateKind::Downgrade`], the revisions that the promotion is older than, without those that are older than another one.
    pub newer: Vec<Revision>,
    /// Of [`GateKind::Unreported`], the targets of which it is unknown what they run.
    pub unreported: Vec<String>,
}

impl Gate {
    /// Returns a gate that is closed, with the message.
    pub fn closed(kind: GateKind, message: String) -> Gate {
        Gate { kind, open: false, message, newer: Vec::new(), unreported: Vec::new() }
    }
}
