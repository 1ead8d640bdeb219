//! The rule by which revisions move on: as a table, row by row, and as properties over generated
//! histories.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by failing"
)]

mod asked;
mod gates;
mod given_up;
mod guards;
mod kept;
mod merging;
mod people;
mod properties;
mod resumed;
mod sim;
mod table;
mod targets;
