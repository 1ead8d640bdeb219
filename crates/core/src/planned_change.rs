//! What a delivery to git would change or has changed, for people who decide about it.

use std::collections::{BTreeMap, BTreeSet};

/// The values that a delivery would set on a branch, or has set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedChange {
    /// The address of the repository, without credentials.
    pub repository: String,
    /// The branch.
    pub branch: String,
    /// The newest commit of the branch, for which the change was computed; of a delivery that was made, its commit.
    pub commit: String,
    /// The values that change. Empty if all of them are set already.
    pub values: Vec<PlannedValue>,
}

/// A value in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedValue {
    /// The path of the file.
    pub path: String,
    /// The line of the value, from 1.
    pub line: u32,
    /// The value as it is; `None` if it is hidden.
    pub old: Option<String>,
    /// The value as it would be.
    pub new: String,
}

impl PlannedChange {
    /// Hides each old value that is no revision of the pipeline. A Pipeline can name any field of a file, and
    /// may be written by people who may not read the repository: to them, the field of a password must stay hidden.
    ///
    /// `facets` are those of the revision to deliver, by their keys; `known` are the facets of all known revisions.
    pub fn hide_unknown_values(&mut self, facets: &BTreeMap<String, String>, known: &BTreeSet<&str>) {
        // The new value holds a facet, perhaps in a text like `v1.2.3`. The old one is the same text with another facet.
        let is_known = |old: &str, new: &str| {
            let mut parts = facets
                .values()
                .filter(|facet| !facet.is_empty())
                .flat_map(|facet| new.split_once(facet.as_str()));
            parts.any(|(before, after)| {
                let facet = old.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                facet.is_some_and(|facet| known.contains(facet))
            })
        };
        for value in &mut self.values {
            value.old = value.old.take().filter(|old| is_known(old, &value.new));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_revisions_that_the_pipeline_knows_are_shown() {
        let facets =
            |version: &str| BTreeMap::from([("HelmRelease/app:chart".to_string(), version.to_string())]);
        let known = BTreeSet::from(["6.1.0", "6.1.5", "hunter"]);
        for (old, new, shown) in [
            ("6.1.0", "6.2.0", true),
            ("v6.1.0-debian", "v6.2.0-debian", true),
            ("6.1.0", "v6.2.0", false),
            ("hunter2", "6.2.0", false),
            ("6.1.0 and more", "6.2.0", false),
            ("", "6.2.0", false),
            ("6.1.0", "a value without the revision", false),
        ] {
            let value =
                PlannedValue { path: "a.yaml".into(), line: 1, old: Some(old.into()), new: new.into() };
            let mut change = PlannedChange { values: vec![value], ..PlannedChange::default() };
            change.hide_unknown_values(&facets("6.2.0"), &known);
            assert_eq!(change.values[0].old.as_deref(), shown.then_some(old), "{old:?} to {new:?}");
        }
    }
}
