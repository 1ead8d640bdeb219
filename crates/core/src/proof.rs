//! A proof: a revision that a target has run healthily.

use jiff::Timestamp;

use crate::revision::Revision;

/// A revision that a target has run healthily.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// The proven revision.
    pub revision: Revision,
    /// The number of its arrival, counted over the whole pipeline.
    pub arrival: u64,
    /// How many times the target had come back to the revision before.
    pub run: u32,
    /// When the revision was first seen healthy, for people.
    pub at: Timestamp,
}
