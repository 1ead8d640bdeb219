//! The input of a decision.

use jiff::Timestamp;

use crate::evidence::Evidence;
use crate::observed::ObservedTargets;
use crate::pipeline::Pipeline;
use crate::promotion::Promotion;

/// Everything that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The pipeline as its owner wrote it.
    pub pipeline: &'a Pipeline,
    /// The observed state of the targets.
    pub observed: &'a ObservedTargets,
    /// The revisions that the targets have proven, those of this observation included.
    pub evidence: &'a Evidence,
    /// The recorded promotions of this pipeline, in any order.
    pub promotions: &'a [Promotion],
    /// Why the API server does not check who approves; `None` if it does.
    pub unguarded: Option<&'a str>,
    /// The current time. Only deadlines and retries depend on it.
    pub now: Timestamp,
}
