//! The views, each as a table: objects as the API server stores them, and what people read.

#![allow(clippy::unwrap_used, reason = "tests say it by failing")]

mod check;
mod check_hooks;
mod check_pipelines;
mod draft;
mod environment_graph;
mod events;
mod explain;
mod explain_back;
mod explain_cases;
mod explain_failure_cases;
mod explain_reasons;
mod fixture;
mod fleet;
mod history;
mod progress;
mod reconcile;
mod request_checks;
mod running;
mod status;
mod story;
mod triggers;
