//! The lines about why a revision may be promoted, in commit messages, change requests and payloads.

use std::fmt::Display;

/// The line about a target that has run the revision healthily.
pub fn healthy(environment: &str, target: &str, since: impl Display) -> String {
    format!("{environment}/{target} healthy since {since}")
}

/// The line about a call of `/trigger` that requested the revision.
pub fn triggered(key: &str, at: impl Display) -> String {
    format!("triggered by key {key} at {at}")
}
