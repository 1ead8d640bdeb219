//! Which replica holds which shard: a table of what one does, and many of them on a network that
//! delays, loses and repeats, with clocks that go apart and processes that are stopped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says no by panicking")]

mod late;
mod network;
mod properties;
mod status_size;
mod steps;
mod writer;
