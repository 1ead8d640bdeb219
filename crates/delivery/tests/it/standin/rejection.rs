//! Why a stand-in rejects a call.

use serde_json::Value;

use super::checks::Obstacle;
use super::pull::Pull;

/// Why a call is rejected.
pub(super) enum CallRejection<'a> {
    Unauthorized,
    NoPath,
    NoPull,
    NoCommit,
    Exists(&'a Pull),
    NoBranch,
    OutOfDate,
    NotOpen,
    HeadMoved,
    /// The status has this state already.
    NoTransition,
    NotMergeable(Obstacle),
    /// The errors of a GraphQL query.
    Query(Value),
    Bad(&'static str),
    Internal,
}
