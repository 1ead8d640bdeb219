//! The `Promotion`: the durable record of the promotion of one revision into one environment. It is written before the
//! first side effect, and records everything that follows.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::Time;
pub use sluice_core::promotion::Phase;

mod approval_and_rejection;
mod checks;
mod request_state;
pub mod spec_rules;
mod status;
pub mod user_policy;

pub use approval_and_rejection::{Approval, GivenApproval, KeyApproval, Rejection};
pub use checks::{CheckResult, RecordedCheck, RecordedChecks};
pub use request_state::RecordedRequestState;
pub use status::{Callback, CallbackState, GATES_OPEN, GateStatus, PromotionStatus, RecordedChangeRequest};

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
    /// How many times the revision had come back before: the targets that prove it ran it again after another one.
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

    /// Returns the order in which the last promotion into an environment (or target) is the current one: the one that has
    /// not ended, or else the newest one. An earlier promotion may have started again after a newer one had ended.
    pub fn current_order(&self) -> (bool, (u64, &str)) {
        (!self.phase().has_ended(), self.order())
    }

    /// Returns the phase: Pending before the controller has written a status.
    pub fn phase(&self) -> Phase {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default()
    }
}

impl PromotionSpec {
    /// Returns true if the promotion changes an environment, or this `environment/target`.
    pub fn changes(&self, wanted: &str) -> bool {
        changes((&self.environment, self.target.as_deref()), wanted)
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

/// Returns true if a promotion into an environment, or into one target of it, changes an environment or `environment/target`. A
/// promotion into a whole environment changes all of its targets.
pub fn changes((environment, target): (&str, Option<&str>), wanted: &str) -> bool {
    environment == wanted
        || place(environment, target) == wanted
        || target.is_none() && wanted.strip_prefix(environment).is_some_and(|target| target.starts_with('/'))
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
