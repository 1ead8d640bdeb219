//! The decisions about promotions: as a table, row by row, and as properties over generated histories.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by failing"
)]

mod gates;
mod guards;
mod helm_gave_up;
mod kept_proofs;
mod many;
mod merging;
mod not_applied;
mod overruled;
mod properties;
mod receivers;
mod requests_by_people;
mod resumed;
mod simulation;
mod table;
mod targets;
mod triggered;
mod unproven;
