//! The rule by which revisions move on: as a table, row by row, and as properties over generated
//! histories.

mod properties;
mod sim;
mod table;
