//! Sets versions in YAML files: by markers, comments like `# {"$promotion": "ns:pipeline:env"}` at the end of
//! a value's line or on the line above, or by a list of fields. Reviewers read the diff of a promotion, so only the bytes of the
//! value change: a file is read by a parser, edited as bytes, read again, and refused if more than the
//! value is different. What cannot be obeyed is an error that says what to write instead.

mod choice;
mod document;
mod edit;
mod error;
mod field;
mod image;
mod marker;
mod page;
mod scalar;
mod set;
mod update;
mod update_error;

pub use choice::Choice;
pub use error::{Asker, At, SetError};
pub use set::set;
pub use update::{Place, Plan, Update};
pub use update_error::UpdateError;

use crate::revision::Revision;

/// What every marker contains; a file without it need not be looked at. Without JSON's quotes, so
/// that a marker whose quotes were forgotten is found and complained about.
pub const NEEDLE: &str = "$promotion";

/// What is to be set: a revision in an environment of a pipeline, in all its targets or in one.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The pipeline's namespace.
    pub namespace: &'a str,
    /// The pipeline's name.
    pub pipeline: &'a str,
    /// The environment that is promoted to.
    pub environment: &'a str,
    /// The only target to set: then every marker has to name its own.
    pub target: Option<&'a str>,
    /// The values to write.
    pub revision: &'a Revision,
}

impl Wanted<'_> {
    /// What the marker names: `namespace:pipeline:environment`.
    pub fn name(&self) -> String {
        format!("{}:{}:{}", self.namespace, self.pipeline, self.environment)
    }
}

/// A file as it is to be, and what was set in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The whole text; the one that came in when every value was set already.
    pub text: String,
    /// One for each marker or entry that was obeyed, in the order of the file.
    pub values: Vec<SetValue>,
}

/// One value that was to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetValue {
    /// The line it is in, from 1.
    pub line: u32,
    /// What the value was, without quotes.
    pub old: String,
    /// What the value is, without quotes.
    pub new: String,
}

/// Whether a file may hold markers of any pipeline: the cheap test before [`set`].
pub fn mentions(bytes: &[u8]) -> bool {
    bytes.windows(NEEDLE.len()).any(|window| window == NEEDLE.as_bytes())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod update_tests;
