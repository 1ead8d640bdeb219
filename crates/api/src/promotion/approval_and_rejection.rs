//! Who has approved or rejected a revision, and which try.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::Time;

use crate::default_field::is_default;

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
    /// When the bodies of earlier approvals of this promotion were signed, the last one first. They are not accepted again.
    #[serde(default)]
    pub earlier: Vec<Time>,
}

impl KeyApproval {
    /// Returns the text for people that says which key approved. A key has no person's name.
    pub fn by(&self) -> String {
        format!("key {} of Secret {}", self.key, self.secret)
    }
}
