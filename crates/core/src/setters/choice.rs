//! Which value of a revision is asked for, by a marker or by an entry of `update`.

use std::collections::BTreeSet;
use std::fmt;

use super::{Asker, At, SetError};
use crate::revision::{Facet, FacetKey, Revision};

/// What is said of the value that is wanted; nothing where the revision has only one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The facet.
    pub facet: Option<Facet>,
    /// The workload that it belongs to, as `kind/name`.
    pub workload: Option<String>,
}

impl Choice {
    /// The facet and the value of the revision that this means.
    pub(super) fn choose<'r>(
        &self,
        revision: &'r Revision,
        asker: Asker,
        at: &At,
    ) -> Result<(&'r Facet, &'r str), SetError> {
        let fits = |key: &FacetKey| {
            self.facet.as_ref().is_none_or(|facet| *facet == key.facet)
                && self.workload.as_ref().is_none_or(|w| *w == format!("{}/{}", key.kind, key.name))
        };
        let found: Vec<_> = revision.facets().filter(|(key, _)| fits(key)).collect();
        let at = || at.clone();
        let Some(&(first, value)) = found.first() else {
            let has = revision.facets().map(|(key, _)| key.to_string()).collect::<Vec<_>>().join(", ");
            return Err(SetError::UnknownFacet { at: at(), asker, choice: self.clone(), has });
        };
        let facets: BTreeSet<String> = found.iter().map(|(key, _)| format!("\"{}\"", key.facet)).collect();
        if facets.len() > 1 {
            let choices = facets.into_iter().collect::<Vec<_>>().join(", ");
            return Err(SetError::AmbiguousValue { at: at(), asker, key: "value", choices });
        }
        if found.iter().any(|(_, other)| *other != value) {
            let choice =
                |(key, value): &(&FacetKey, &str)| format!("\"{}/{}\" ({value})", key.kind, key.name);
            let choices = found.iter().map(choice).collect::<Vec<_>>().join(", ");
            return Err(SetError::AmbiguousValue { at: at(), asker, key: "workload", choices });
        }
        if value.is_empty() {
            return Err(SetError::EmptyValue { at: at(), facet: first.facet.to_string() });
        }
        Ok((&first.facet, value))
    }
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
