//! What Sluice asks of an API server and of Flux, judged by real ones: its own definitions and rules,
//! manifests as users have them, and the fields of Flux that are read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says no by panicking")]

mod admitted;
mod contract;
mod descriptions;
mod hub;
mod immutable;
mod manifests;
mod requests;
mod rules;
mod shown;
