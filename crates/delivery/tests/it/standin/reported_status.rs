//! A commit status that was reported to a stand-in.

use super::check_outcome::CheckOutcome;

/// A status of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedStatus {
    pub commit: String,
    /// The name of the status.
    pub context: String,
    pub is: CheckOutcome,
    pub description: String,
    pub url: Option<String>,
    /// The pipeline of the status, at GitLab.
    pub pipeline: Option<u64>,
}
