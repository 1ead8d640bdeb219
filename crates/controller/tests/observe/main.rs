//! What is made of watch events: the facts that are kept of an object, what the index adds up to,
//! what a target then shows, and the status that says so. No clock, no client and no server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says no by panicking")]

mod announced;
mod captured;
mod connect;
mod debounce;
mod flux_rules;
mod index;
mod kstatus;
mod members;
mod ownership;
mod pace;
mod read_error;
mod record;
mod sentences;
mod size;
mod status;
mod support;
mod values;
mod whole_status;
mod words;
