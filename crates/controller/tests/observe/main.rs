//! From watch events to a status: the facts of an object, the index, the state of a target, and the status of a
//! Pipeline. These tests use no clock, no client and no server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod captured_statuses;
mod flux_rules;
mod index;
mod kstatus;
mod kubeconfig;
mod members;
mod orders_and_events;
mod owned_check;
mod ownership;
mod read_error;
mod reader_role;
mod record;
mod references;
mod size;
mod sources;
mod status;
mod status_pace;
mod support;
mod target_errors;
mod untrusted_values;
mod whole_status;
