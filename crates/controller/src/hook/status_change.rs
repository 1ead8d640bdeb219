//! What a hook call changes in a status.

use serde_json::Value;

/// The longest text of others that is kept, in bytes.
pub(super) const MAX_TEXT: usize = 1000;

/// What is to be changed in a status.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// This is merged into it.
    Write(Value),
    /// Nothing.
    Nothing,
    /// It is none of the caller's: as if it were not there.
    NotTheirs,
    /// It may not be changed so: why.
    Refused(String),
    /// A part of it that decides cannot be read: which, and why.
    Unreadable(String),
}
