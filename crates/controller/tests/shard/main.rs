//! Which replica holds which shard: scenarios of a few replicas, and random ones on a network that delays and
//! loses messages, with clocks that differ and processes that are stopped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod network;
mod properties;
mod steps;
