//! The `Promotion`: the durable record of one revision going into one environment. It is written
//! before the first side effect, and tells the whole story of what came of it.

use std::collections::BTreeMap;
use std::fmt;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pipeline::PullRequestStrategy;
use crate::schema::{date_time, is_zero};

/// One revision into one environment.
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
    printcolumn(name = "Rejected By", type_ = "string", json_path = ".spec.rejection.by", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Link", type_ = "string", json_path = ".status.changeRequest.url", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PromotionSpec {
    /// The Pipeline's name; it is in the same namespace.
    pub pipeline: String,
    /// The environment that is promoted into.
    pub environment: String,
    /// The one target of it that is promoted into, where each target is promoted into by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The revision, as people read it.
    pub revision: String,
    /// The revision by its facets: `HelmRelease/podinfo:chart` to `6.1.8`.
    pub facets: BTreeMap<String, String>,
    /// How many times this revision was promoted into this environment before.
    #[serde(default)]
    pub run: u32,
    /// When the revision came to be a candidate, in the order of arrivals over the whole pipeline.
    #[serde(default)]
    pub arrival: u64,
    /// Its place in the order in which promotions into the environment were started.
    #[serde(default)]
    pub sequence: u64,
    /// What the environment ran when the promotion was started, as people read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replaces: String,
    /// Where the revision was proven: the reason this promotion was started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Who asked for it, where nothing before the environment has proven the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Set by a person, in their own name: lets this revision pass its gates, once. It cannot be changed or
    /// removed. After a retry the promotion needs a new approval, with `retries` as in the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Set by a person, in their own name: ends the promotion and closes its change request. It cannot be
    /// changed or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<Rejection>,
    /// Set by a person: the time of the request to try again a promotion that had ended, such as
    /// `2026-11-21T10:00:00Z`. Each request has a later time than the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<String>,
}

impl Promotion {
    /// Returns the order of promotions into one environment (or target). No two promotions are equal in it: the name
    /// decides between two that were requested at the same time.
    pub fn order(&self) -> (u64, &str) {
        (self.spec.sequence, self.metadata.name.as_deref().unwrap_or_default())
    }

    // until all crates use the new name
    #[doc(hidden)]
    pub fn line(&self) -> (u64, &str) {
        self.order()
    }
}

impl PromotionSpec {
    /// Whether it goes into an environment, or into this `environment/target`.
    pub fn is_into(&self, wanted: &str) -> bool {
        self.environment == wanted || self.place() == wanted
    }

    /// Where it goes, as people read it: the environment, or `environment/target`.
    pub fn place(&self) -> String {
        place(&self.environment, self.target.as_deref())
    }

    /// The approval, if it counts for the try that the status is at.
    pub fn approval_now(&self, status: &PromotionStatus) -> Option<&Approval> {
        let is_this = |a: &&Approval| a.revision.is_empty() || a.revision == self.revision;
        let counts =
            |a: &&Approval| a.retries == status.retries && Some(*a) != status.spent_approval.as_ref();
        self.approval.as_ref().filter(is_this).filter(counts)
    }

    /// The rejection, if it counts for the try that the status is at.
    pub fn rejection_now(&self, status: &PromotionStatus) -> Option<&Rejection> {
        let counts = |r: &&Rejection| r.revision == self.revision && r.retries == status.retries;
        self.rejection.as_ref().filter(counts)
    }
}

/// An environment, or one target of it, as people read it.
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
    /// The environment it belongs to.
    pub environment: String,
    /// The target's name.
    pub target: String,
    /// When it was first seen healthy at the revision.
    #[schemars(schema_with = "date_time")]
    pub at: String,
}

/// A call from outside that asked for a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// The key that the caller gave it: the same again is the same promotion.
    #[schemars(length(min = 1, max = 128))]
    pub key: String,
    /// When it was asked for.
    #[schemars(schema_with = "date_time")]
    pub at: String,
}

/// An approval of one revision by one person. The controller records its time in `status.approval`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The user who approves, as the API server knows them (`kubectl auth whoami`).
    pub by: String,
    /// The revision that is approved: `spec.revision`. Only approvals that an earlier version of Sluice
    /// stored have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Which try is approved: `status.retries` at the time of the approval.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// The time that the approver stated. Only approvals that an earlier version of Sluice stored have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "date_time")]
    pub at: Option<String>,
}

/// A rejection of one revision by one person. The controller records its time in `status.times.Rejected`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// The user who rejects, as the API server knows them (`kubectl auth whoami`).
    pub by: String,
    /// Why. It is shown in the status, and below the change request that is closed.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// The revision that is rejected: `spec.revision`.
    pub revision: String,
    /// Which try is rejected: `status.retries` at the time of the rejection.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
}

/// An approval that counted, with the time at which the controller saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GivenApproval {
    /// The user who approved.
    pub by: String,
    /// When the controller saw the approval.
    #[schemars(schema_with = "date_time")]
    pub at: String,
    /// Which try was approved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
}

/// Where a promotion is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Phase {
    /// Waits for a gate or an approval, or for its turn.
    #[default]
    Pending,
    /// Is being delivered, or will be tried again.
    Promoting,
    /// Its change request is open.
    Proposed,
    /// Merged, committed, or accepted by the other side; the targets do not run it yet.
    Delivered,
    /// The targets run it, healthily.
    Succeeded,
    /// Ended without effect, or the targets did not become healthy in time.
    Failed,
    /// A person rejected it, or its change request was closed unmerged.
    Rejected,
    /// A newer revision took its place.
    Superseded,
    /// What it was for is no longer wanted.
    Cancelled,
}

impl fmt::Display for Phase {
    /// Writes the word as in the status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What came of a promotion so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionStatus {
    /// Where it is.
    #[serde(default)]
    pub phase: Phase,
    /// One word for why it is there, the same in events and metrics.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it waits for, or what went wrong and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What must be open before it is delivered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateStatus>,
    /// How many times delivery was tried and failed.
    #[serde(default)]
    pub attempts: u32,
    /// How many times it was delivered and then begun anew: what is told to others is told again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub round: u32,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "date_time")]
    pub next_attempt: Option<String>,
    /// When it came into each phase, by the phase's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub times: BTreeMap<String, String>,
    /// The change request that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_request: Option<ChangeRequest>,
    /// The commit that sets the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The value of `spec.retry` that was acted on last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried: Option<String>,
    /// What the other side of a webhook has said. Whichever replica was told wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// An approval that the holder of an `approval-key` gave by a call of the hook server. The replica that took the
    /// call wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_approval: Option<Box<KeyApproval>>,
    /// When the approval by key was signed that let it pass before it was tried again: it counts no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_key_approval: Option<String>,
    /// The SHA-256 of the fields of the spec that never change, as the controller first saw them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub spec_digest: String,
    /// How many times the promotion was started again after it had ended or passed its gates. Approvals and
    /// rejections of earlier tries do not count any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// The last approval that counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<GivenApproval>,
    /// The approval that let an earlier try pass: it does not count any more. Only earlier versions of Sluice
    /// wrote this; `retries` has its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_approval: Option<Approval>,
}

/// An approval by the holder of a key. No person is named: whoever holds the key can give it. Every field is always
/// written, so that a merge leaves nothing of an earlier approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyApproval {
    /// The Secret with the key, in the Promotion's namespace.
    pub secret: String,
    /// Six hexadecimal digits that tell the key from others, as before and after it was rotated.
    pub key: String,
    /// When the approval was signed, as its body says. It tells one approval from another.
    #[schemars(schema_with = "date_time")]
    pub signed_at: String,
    /// When the approval was recorded.
    #[schemars(schema_with = "date_time")]
    pub at: String,
}

/// What the other side of a webhook said of a promotion. Every field is always written, so that a merge
/// leaves nothing of what it said before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Callback {
    /// The round that it speaks of.
    pub round: u32,
    /// What has become of it there.
    pub state: CallbackState,
    /// In its own words.
    #[serde(default)]
    pub message: String,
    /// When it said so.
    #[schemars(schema_with = "date_time")]
    pub at: String,
}

/// What has become of a promotion at the other side of a webhook; the order is that of its course.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CallbackState {
    /// It was taken, and is being carried out.
    #[default]
    Accepted,
    /// It was carried out; what counts is still what the targets run.
    Done,
    /// It was not carried out.
    Failed,
}

/// One gate and its verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateStatus {
    /// Which gate.
    pub name: String,
    /// Whether the promotion may pass.
    pub open: bool,
    /// Why, and what opens it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A pull or merge request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeRequest {
    /// Its number on the forge.
    pub number: u64,
    /// Where to look at it.
    pub url: String,
    /// `open`, `merged`, `closed` by a person, `withdrawn` by Sluice, `handed over` to a later
    /// promotion, or `left` open where Sluice cannot close it.
    pub state: String,
    /// The branch it comes from.
    pub branch: String,
    /// The commit at the top of that branch that Sluice pushed.
    pub head_commit: String,
    /// What was asked for and its forge did not take, such as a reviewer that it does not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// It was put into its forge's queue with this head; it is not put there twice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
    /// The strategy that opened it: there it is closed, whatever the pipeline names by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PullRequestStrategy>,
}
