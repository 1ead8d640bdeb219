//! The API on a real API server: the definitions and rules, manifests of users, and the fields of Flux that Sluice reads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod admitted;
mod contract;
mod descriptions;
mod hub;
mod immutable;
mod manifests;
mod requests;
mod rules;
mod shown;
mod stored_before;
mod trigger_facts;
