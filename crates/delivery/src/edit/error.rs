//! Reasons why the files of a repository cannot be set.

use sluice_core::setters::{MAX_FILE_BYTES, SetError, UpdateError};

/// Why the files cannot be set.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum EditError {
    #[error(
        "no file in {repository} at {branch} has the marker {marker}: add # {marker} behind the value to set, \
         in a .yaml or .yml file, or correct the repository or branch in the pipeline{}",
        similar.as_ref().map(|similar| format!("; the most similar marker is {similar}")).unwrap_or_default()
    )]
    NoMarker { repository: String, branch: String, marker: String, similar: Option<String> },

    #[error(
        "no file that was read in {repository} at {branch} has {wanted}, and not every file was read: {unread}; \
         keep what is to be set in a plain file of at most {} MiB", MAX_FILE_BYTES >> 20
    )]
    NotRead { repository: String, branch: String, wanted: String, unread: String },

    #[error("the file {path} in {repository} at {branch} cannot be written: {problem}")]
    File { repository: String, branch: String, path: String, problem: String },

    #[error("the file {path} in {repository} at {branch} has changed since you looked: look again")]
    FileChanged { repository: String, branch: String, path: String },

    #[error(transparent)]
    Set(#[from] SetError),

    #[error("{repository} at {branch}: {error}")]
    Update { repository: String, branch: String, error: Box<UpdateError> },
}

impl EditError {
    /// Returns one word for the condition, the event and the metric.
    pub fn reason(&self) -> &'static str {
        match self {
            EditError::NoMarker { .. } => "NoMarker",
            EditError::NotRead { .. } => "FileNotRead",
            EditError::File { .. } => "FileNotWritable",
            EditError::FileChanged { .. } => "FileChanged",
            EditError::Set(e) => e.reason(),
            EditError::Update { error, .. } => error.reason(),
        }
    }
}
