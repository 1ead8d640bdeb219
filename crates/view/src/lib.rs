//! VIEW. One pure function for each question that people ask about pipelines and promotions. Commands, the API and pages
//! render the answers and compute nothing of their own. Objects come in as values; there is no clock, no input and no
//! output.

pub mod change;
pub mod check;
pub mod clusters;
pub mod draft;
pub mod environment_graph;
pub mod events;
pub mod explain;
pub mod explain_back;
mod explanation_draft;
mod explanation_text;
pub mod first_setup;
pub mod fleet;
pub mod history;
pub mod members;
mod metadata_by_people;
pub mod object_name;
mod ordered;
pub mod pipeline_screen;
pub mod pipeline_validation;
mod place;
pub mod progress;
pub mod reconcile;
pub mod request_checks;
mod running;
pub mod safe_text;
mod situation;
pub mod story;
pub mod tree;
pub mod triggers;
pub mod versions;
pub mod yaml;
