//! Errors of entries in an `update` list that name no value, or more than one. Every message names the entry and what
//! there is instead.

use std::collections::BTreeMap;

use super::resolve::listed;
use super::set_error::{Location, SetError};

/// The most files, objects or values that an error names.
pub(super) const MAX_NAMED: usize = 6;

/// An entry of an `update` list that cannot be carried out. The error stays until the files or the pipeline change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum UpdateError {
    #[error("update[{number}].{field}: {problem}; correct it in the pipeline")]
    BadEntry { number: usize, field: &'static str, problem: String },

    #[error(
        "{entry}: no .yaml or .yml file of the repository has that path; near it there is {near}; correct the \
         path, or the repository or branch, in the pipeline"
    )]
    NoFile { entry: String, near: String },

    #[error("{entry}: there is no such object; there is {there}; correct path, kind or name in the pipeline")]
    NoObject { entry: String, there: String },

    #[error(
        "{entry}: several objects match: {there}; give path, kind and name so that one is left, or an entry \
         for each"
    )]
    AmbiguousObject { entry: String, there: String },

    #[error(
        "{entry}: there is no such field: {problem}; correct the field in the pipeline, or add it to the file"
    )]
    NoField { entry: String, problem: String },

    #[error(
        "{entry}: several values match: {there}; give path, kind, name and field so that one is left, or an \
         entry for each"
    )]
    AmbiguousField { entry: String, there: String },

    #[error(
        "{at}: {entry} names an alias (*name) of a value in another place; name the field with the \
         anchor (&name)"
    )]
    Alias { at: Location, entry: String },

    #[error("{at}: {field} {is}")]
    NotAValue { at: Location, field: String, is: &'static str },

    #[error(
        "{at}: {entry} and an earlier entry name the same value, and would set it to {:?} and {:?}; remove one of \
         them", values[0], values[1]
    )]
    Contradiction { at: Location, entry: String, values: [String; 2] },

    #[error(transparent)]
    Set(#[from] SetError),
}

impl UpdateError {
    /// Returns the reason as one PascalCase word, for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            UpdateError::BadEntry { .. } => "BadUpdate",
            UpdateError::NoFile { .. } => "NoFile",
            UpdateError::NoObject { .. } => "NoObject",
            UpdateError::AmbiguousObject { .. } => "AmbiguousObject",
            UpdateError::NoField { .. } => "NoField",
            UpdateError::AmbiguousField { .. } => "AmbiguousField",
            UpdateError::Alias { .. } => "Alias",
            UpdateError::NotAValue { .. } => "NotAValue",
            UpdateError::Contradiction { .. } => "Contradiction",
            UpdateError::Set(e) => e.reason(),
        }
    }
}

/// Returns the paths that are most similar to a path that no file has: those of the same file name, then those with the
/// most common folders.
pub(super) fn near<'p>(asked: &str, paths: impl Iterator<Item = &'p str>) -> String {
    let shared = |path: &str| asked.split('/').zip(path.split('/')).take_while(|(a, b)| a == b).count();
    let name = |path: &'p str| path.rsplit('/').next().unwrap_or(path);
    let mut ranked: BTreeMap<(bool, std::cmp::Reverse<usize>), Vec<String>> = BTreeMap::new();
    for path in paths {
        let other_name = asked.rsplit('/').next() != Some(name(path));
        ranked.entry((other_name, std::cmp::Reverse(shared(path)))).or_default().push(path.into());
    }
    listed(ranked.into_values().flatten().collect(), MAX_NAMED)
}
