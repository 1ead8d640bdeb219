//! Which replica holds which shard: scenarios of a few replicas, and random ones on a network that delays and
//! loses messages, with clocks that differ and processes that are stopped. Also status writes that arrive late,
//! and the largest status.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod late;
mod network;
mod properties;
mod status_size;
mod steps;
mod untyped_status;
mod writer;
