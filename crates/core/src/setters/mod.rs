//! Sets versions in YAML files: at markers, which are comments such as `# {"$promotion": "ns:pipeline:env"}` at the end
//! of a value's line or on the line above it, or by a list of fields. Reviewers read the diff of a promotion, so only the
//! bytes of the values change: a file is parsed, edited as bytes and parsed again, and the edit is refused if anything
//! else is different. Every error says what to write instead.

mod choice;
mod edit;
mod field;
mod image;
mod limits;
mod marked_values;
mod marker;
mod marker_place;
mod parsed_document;
mod path_wildcards;
mod placeholder;
mod resolve;
mod scalar;
mod set_error;
mod similar_marker;
mod update;
mod update_entry;
mod update_error;

pub use choice::Choice;
pub use edit::{EditedFile, SetValue};
pub use limits::MAX_FILE_BYTES;
pub use marked_values::{MarkerRequest, set_marked};
pub use marker::{MARKER_KEY, mentions};
pub use placeholder::{UpdateTarget, filled};
pub use set_error::{Asker, Location, SetError};
pub use similar_marker::similar_marker;
pub use update::Plan;
pub use update_entry::Update;
pub use update_error::UpdateError;

#[cfg(test)]
mod marker_tests;
#[cfg(test)]
mod update_tests;
