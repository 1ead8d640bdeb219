//! The checks of a change request, as its Promotion records them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::Time;

/// The checks of a change request, such as status checks, builds and the jobs of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedChecks {
    /// The commit that the checks are about.
    pub commit: String,
    /// Since when Sluice has read the checks as they are here.
    pub since: Time,
    /// How many checks have failed.
    #[serde(default)]
    pub failed: u32,
    /// How many checks have not reported a result.
    #[serde(default)]
    pub pending: u32,
    /// How many checks have passed.
    #[serde(default)]
    pub passed: u32,
    /// At most 20 of the checks: those that have failed first, then those that are pending, and of these the required ones
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<RecordedCheck>,
}

/// A check of a change request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedCheck {
    /// The name of the check, shortened to 100 characters.
    pub name: String,
    /// The result of the check.
    pub result: CheckResult,
    /// True if the forge does not merge without the check.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// The page with the details of the check, as the forge returned its address. Only an address with https is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CheckResult {
    /// The check has failed or was cancelled.
    Failed,
    /// The check has not reported a result yet.
    #[default]
    Pending,
    /// The check has passed or was skipped.
    Passed,
}
