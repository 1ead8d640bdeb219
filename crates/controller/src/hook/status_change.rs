//! What a hook call changes in a status.

use serde_json::Value;

/// The longest text of a caller that is stored, in bytes.
pub(super) const MAX_TEXT: usize = 1000;

/// A change of the status of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusChange {
    /// Merge this value into the status.
    Write(Value),
    /// The status stays as it is.
    Unchanged,
    /// The object is not the caller's. The caller gets the same answer as if the object did not exist.
    Foreign,
    /// The change is not allowed: the reason, for the caller.
    Rejected(String),
    /// A part of the status that decides cannot be read: which part, and why.
    Unreadable(String),
}
