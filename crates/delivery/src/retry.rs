//! When a failed delivery is worth another try.

use jiff::Timestamp;

/// When a failed delivery is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Soon, with growing pauses. Also for failures that only a person can fix, if Sluice does not notice the fix:
    /// the content of a Secret, rights at a forge, a missing branch.
    Soon,
    /// Not before this time.
    At(Timestamp),
    /// When the pipeline or the marked files change.
    OnChange,
}
