//! From watch events to the state of a target, and the errors of reading: the facts of an object, the index, the
//! inventory. These tests use no clock, no client and no server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod captured_statuses;
mod flux_rules;
mod index;
mod kstatus;
mod kubeconfig;
mod members;
mod not_applied;
mod owned_check;
mod ownership;
mod read_error;
mod reader_role;
mod references;
mod sources;
mod support;
mod target_errors;
mod tls_error;
mod untrusted_values;
mod whole_status;
