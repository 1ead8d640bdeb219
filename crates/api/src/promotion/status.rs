//! The status of a Promotion: its progress, which the controller writes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::Time;
use sluice_core::promotion::Phase;

use super::approval_and_rejection::{Approval, GivenApproval, KeyApproval};
use super::checks::RecordedChecks;
use super::request_state::RecordedRequestState;
use crate::default_field::is_default;
use crate::pipeline::PullRequestStrategy;

/// The reason of a promotion whose gates are open.
pub const GATES_OPEN: &str = "GatesOpen";

/// The progress of a promotion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionStatus {
    /// The current phase.
    #[serde(default)]
    pub phase: Phase,
    /// The reason for the phase as one word, the same in events and metrics.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the promotion waits for, or what failed and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The gates that must be open before the delivery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateStatus>,
    /// How many times the delivery failed.
    #[serde(default)]
    pub attempts: u32,
    /// How many times the promotion was delivered and started again. Notifications and webhooks are then sent again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub round: u32,
    /// When the delivery is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Time>,
    /// When the promotion got into each phase, by the phase's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub times: BTreeMap<String, Time>,
    /// The change request with the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_request: Option<RecordedChangeRequest>,
    /// The addresses of the closed change requests of the current round that are not rejections, the newest last: those that Sluice
    /// itself closes or has closed, and those that people had closed before a retry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withdrawn_requests: Vec<String>,
    /// The commit that sets the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Where the current delivery went: the strategy, and the repository and branch, or a digest of the address of the webhook. If
    /// the promotion has failed since, and the pipeline names another repository or branch than the one that Sluice has written
    /// to, Sluice delivers it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_to: Option<String>,
    /// The value of `spec.retry` that was answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried: Option<String>,
    /// The last report of the webhook's receiver. The replica that received the report writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// An approval that the holder of an `approval-key` gave by a call of the hook server. The replica that received the
    /// call writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_approval: Option<Box<KeyApproval>>,
    /// When the approval by key that an earlier try has used was signed. That approval does not count any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_key_approval: Option<Time>,
    /// The SHA-256 of the immutable fields of the spec, as the controller first read them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub spec_digest: String,
    /// How many times the promotion was started again after it had ended or passed its gates. Approvals and
    /// rejections of earlier tries do not count any more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
    /// The last approval that counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<GivenApproval>,
    /// The approval that an earlier try has used. It does not count any more. Only earlier versions of Sluice write it;
    /// `retries` has replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_approval: Option<Approval>,
}

impl PromotionStatus {
    /// Returns when the promotion got into a phase; `None` if it has not been in it.
    pub fn entered(&self, phase: Phase) -> Option<Time> {
        self.times.get(&phase.to_string()).copied()
    }

    /// Returns the change request, if the record has it as open.
    pub fn open_request(&self) -> Option<&RecordedChangeRequest> {
        self.change_request.as_ref().filter(|request| request.state == RecordedRequestState::Open)
    }

    /// Whether the record says that Sluice is about to close its open change request.
    pub fn withdraws_request(&self) -> bool {
        self.open_request().is_some_and(|request| self.withdrawn_requests.contains(&request.url))
    }

    /// Whether the token or the report of a webhook's receiver is about the current try, by the round and the try that it
    /// names. Those of earlier versions name no try, and are about the current one if the promotion was delivered in it.
    pub fn is_of_this_try(&self, round: u32, retries: Option<u32>) -> bool {
        let is_delivered = || self.entered(Phase::Delivered).is_some();
        round == self.round && retries.map_or_else(is_delivered, |retries| retries == self.retries)
    }
}

/// A report of a webhook's receiver about a promotion. All fields are always written, so that a merge leaves nothing of an
/// earlier report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Callback {
    /// The round that the report is about.
    pub round: u32,
    /// The try that the report is about. Only reports that an earlier version of Sluice stored have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// The reported state.
    pub state: CallbackState,
    /// The message of the receiver.
    #[serde(default)]
    pub message: String,
    /// When the report was received.
    pub at: Time,
}

/// The state of a promotion at the receiver of a webhook, in the order in which the states follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CallbackState {
    /// The receiver has accepted the promotion and carries it out.
    #[default]
    Accepted,
    /// The receiver has carried the promotion out. It succeeds when the targets run the revision.
    Done,
    /// The receiver has not carried the promotion out.
    Failed,
}

/// A gate of a promotion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateStatus {
    /// The name of the gate.
    pub name: String,
    /// True if the gate is open.
    pub open: bool,
    /// Why the gate is closed, and what opens it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Of the gate `Downgrade`, the revisions that are newer than the promotion's, each by its facets. An approval allows to go
    /// back from these revisions, and not from others, unless they are older than one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub newer: Vec<BTreeMap<String, String>>,
    /// Of the gate `Unreported`, the targets of which it is unknown what they run. An approval counts for these targets, and not
    /// for others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreported: Vec<String>,
}

/// A pull or merge request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedChangeRequest {
    /// The number on the forge.
    pub number: u64,
    /// The address of the change request, for people.
    pub url: String,
    /// `open`, `merged`, `closed` by a person, `withdrawn` by Sluice, `handed over` to a later
    /// promotion, or `left` open if Sluice cannot close it.
    #[schemars(with = "String")]
    pub state: RecordedRequestState,
    /// The source branch.
    pub branch: String,
    /// The last commit that Sluice pushed to that branch.
    pub head_commit: String,
    /// Settings that the forge refused, such as an unknown reviewer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// True if Sluice added this head commit to the forge's merge queue. It is not added twice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
    /// The checks of the change request, as Sluice has read them last. Absent if no check has reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<RecordedChecks>,
    /// The strategy that opened the change request. Sluice uses it to close the change request, even if the pipeline has another
    /// strategy then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PullRequestStrategy>,
}
