//! The value of a revision that a marker or an entry of `update` asks for.

use std::fmt;

use crate::revision::Facet;

/// A choice of one value of a revision. It is empty if the revision has only one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The facet, if it is named.
    pub facet: Option<Facet>,
    /// The workload of the facet as `kind/name`, if it is named.
    pub workload: Option<String>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.facet, &self.workload) {
            (Some(facet), Some(workload)) => write!(f, "{facet} of {workload}"),
            (Some(facet), None) => facet.fmt(f),
            (None, Some(workload)) => f.write_str(workload),
            (None, None) => f.write_str("nothing"),
        }
    }
}
