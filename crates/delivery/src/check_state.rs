//! The state of a check of a commit, which the adapters of all forges translate into.

/// The state of a check, in the order in which people see checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckState {
    /// It has failed, or was cancelled.
    Failed,
    /// It has not reported a result yet.
    Pending,
    /// It has passed, or was skipped.
    Green,
}
