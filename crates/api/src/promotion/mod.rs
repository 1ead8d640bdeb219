//! The `Promotion`: the durable record of the promotion of one revision into one environment. It is written before the
//! first side effect, and records everything that follows.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::Time;
pub use sluice_core::promotion::Phase;

use crate::default_field::is_default;
use crate::pipeline::PullRequestStrategy;

mod request_state;
pub mod spec_rules;
pub mod user_policy;

pub use request_state::RecordedRequestState;

/// The promotion of one revision into one environment.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "pipelines.weave.works",
    version = "v1alpha1",
    kind = "Promotion",
    namespaced,
    status = "PromotionStatus",
    shortname = "promo",
    category = "all",
    category = "fluxcd",
    derive = "PartialEq",
    derive = "Default",
    doc = "Promotion records one revision going into one environment of a Pipeline. Sluice creates it; people approve, reject and retry it. Everything else in its spec is immutable.",
    printcolumn(name = "Pipeline", type_ = "string", json_path = ".spec.pipeline"),
    printcolumn(name = "Environment", type_ = "string", json_path = ".spec.environment"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.target", priority = 1),
    printcolumn(name = "Revision", type_ = "string", json_path = ".spec.revision"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Attempts", type_ = "integer", json_path = ".status.attempts", priority = 1),
    printcolumn(name = "Approved By", type_ = "string", json_path = ".spec.approval.by", priority = 1),
    printcolumn(
        name = "Approval Key",
        type_ = "string",
        json_path = ".status.keyApproval.key",
        priority = 1
    ),
    printcolumn(
        name = "Approval Secret",
        type_ = "string",
        json_path = ".status.keyApproval.secret",
        priority = 1
    ),
    printcolumn(name = "Rejected By", type_ = "string", json_path = ".spec.rejection.by", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Link", type_ = "string", json_path = ".status.changeRequest.url", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PromotionSpec {
    /// The name of the Pipeline, in the same namespace.
    pub pipeline: String,
    /// The environment that the revision goes into.
    pub environment: String,
    /// The one target that the revision goes into, if each target is promoted into separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The revision, as people read it.
    pub revision: String,
    /// The revision by its facets: `HelmRelease/podinfo:chart` to `6.1.8`.
    pub facets: BTreeMap<String, String>,
    /// How many times this revision was promoted into this environment before.
    #[serde(default)]
    pub run: u32,
    /// The place of the revision in the order in which revisions of the pipeline became candidates.
    #[serde(default)]
    pub arrival: u64,
    /// The number of the promotion among those into the same environment.
    #[serde(default)]
    pub sequence: u64,
    /// The revision that the environment ran when the promotion was started, as people read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replaces: String,
    /// The targets that have proven the revision: the reason for this promotion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// The call of `/trigger` that requested the promotion, if predecessors have not proven the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// The approval by a person, in their own name: opens the gates for this revision, once. It cannot be changed or
    /// removed. After a retry the promotion needs a new approval, with `retries` as in the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The rejection by a person, in their own name: ends the promotion and closes its change request. It cannot be
    /// changed or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<Rejection>,
    /// The request of a person to retry the promotion: the time of the request, such as `2026-11-21T10:00:00Z`. Each request
    /// has a later time than the previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub retry: Option<String>,
}

impl Promotion {
    /// Returns the order of promotions into one environment (or target). The name decides between two promotions
    /// that were requested at the same time, so no two are equal.
    pub fn order(&self) -> (u64, &str) {
        (self.spec.sequence, self.metadata.name.as_deref().unwrap_or_default())
    }

    /// Returns the phase: Pending before the controller has written a status.
    pub fn phase(&self) -> Phase {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default()
    }
}

impl PromotionSpec {
    /// Returns true if the promotion goes into an environment, or into this `environment/target`.
    pub fn is_into(&self, wanted: &str) -> bool {
        self.environment == wanted || self.place() == wanted
    }

    /// Returns the environment, or `environment/target`, as people read it.
    pub fn place(&self) -> String {
        place(&self.environment, self.target.as_deref())
    }

    /// Returns the approval, if it counts for the current try.
    pub fn approval_now(&self, status: &PromotionStatus) -> Option<&Approval> {
        let is_this = |a: &&Approval| a.revision.is_empty() || a.revision == self.revision;
        let counts =
            |a: &&Approval| a.retries == status.retries && Some(*a) != status.spent_approval.as_ref();
        self.approval.as_ref().filter(is_this).filter(counts)
    }

    /// Returns the rejection, if it counts for the current try.
    pub fn rejection_now(&self, status: &PromotionStatus) -> Option<&Rejection> {
        let counts = |r: &&Rejection| r.revision == self.revision && r.retries == status.retries;
        self.rejection.as_ref().filter(counts)
    }
}

/// Returns an environment, or one target of it, as people read it.
pub fn place(environment: &str, target: Option<&str>) -> String {
    match target {
        Some(target) => format!("{environment}/{target}"),
        None => environment.into(),
    }
}

/// One target that has run the revision healthily.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The target's environment.
    pub environment: String,
    /// The target's name.
    pub target: String,
    /// When the target was first seen healthy at the revision.
    pub at: Time,
}

/// A call of `/trigger` that requested a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// The key of the call. A call with the same key is the same promotion.
    #[schemars(length(min = 1, max = 128))]
    pub key: String,
    /// When the call was received.
    pub at: Time,
}

/// An approval of one revision by one person. The controller records its time in `status.approval`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The user who approves, by the name at the API server (`kubectl auth whoami`).
    pub by: String,
    /// The approved revision: `spec.revision`. Only approvals that an earlier version of Sluice
    /// stored have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The approved try: `status.retries` at the time of the approval.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
    /// The time that the approver stated. Only approvals that an earlier version of Sluice stored have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// A rejection of one revision by one person. The controller records its time in `status.times.Rejected`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// The user who rejects, by the name at the API server (`kubectl auth whoami`).
    pub by: String,
    /// The reason. It is shown in the status, and in a comment of the closed change request.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// The rejected revision: `spec.revision`.
    pub revision: String,
    /// The rejected try: `status.retries` at the time of the rejection.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
}

/// An approval that counted, with the time at which the controller saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GivenApproval {
    /// The user who approved.
    pub by: String,
    /// When the controller saw the approval.
    pub at: Time,
    /// The approved try.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: u32,
}

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
    /// The commit that sets the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
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

    /// Whether the token or the report of a webhook's receiver is about the current try, by the round and the try that it
    /// names. Those of earlier versions name no try, and are about the current one if the promotion was delivered in it.
    pub fn is_of_this_try(&self, round: u32, retries: Option<u32>) -> bool {
        let is_delivered = || self.entered(Phase::Delivered).is_some();
        round == self.round && retries.map_or_else(is_delivered, |retries| retries == self.retries)
    }
}

/// An approval by the holder of a key. It names no person, because everybody with the key can give it. All fields are
/// always written, so that a merge leaves nothing of an earlier approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyApproval {
    /// The Secret with the key, in the Promotion's namespace.
    pub secret: String,
    /// Six hexadecimal digits that identify the key, for example after a rotation.
    pub key: String,
    /// The time in the signed body. It identifies the approval.
    pub signed_at: Time,
    /// When the approval was recorded.
    pub at: Time,
}

impl KeyApproval {
    /// Returns the text for people that says which key approved. A key has no person's name.
    pub fn by(&self) -> String {
        format!("key {} of Secret {}", self.key, self.secret)
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
    /// The strategy that opened the change request. Sluice uses it to close the change request, even if the pipeline has another
    /// strategy then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PullRequestStrategy>,
}
