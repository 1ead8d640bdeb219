//! Tests of the built binary with real API servers, real git and a real forge.

#![allow(clippy::too_many_lines, reason = "a scenario is one function")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod access_matrix;
mod answers;
mod api;
mod approval_race;
mod browser;
mod browser_actions;
mod change_requests;
mod crash;
mod file_proposal;
mod frozen;
mod hostile;
mod hostile_hosts;
mod hostile_pipeline;
mod intake;
mod isolation;
mod lagging_watch;
mod page;
#[path = "../support/people.rs"]
mod people;
#[path = "../support/place.rs"]
mod place;
#[path = "../support/process.rs"]
mod process;
mod progress_events;
#[path = "../support/proxied_cluster.rs"]
mod proxied_cluster;
mod receiver;
mod releases;
mod replicas;
mod resume;
mod rows;
mod sign_in;
mod stop;
mod stored_by_predecessor;
mod story;
mod strategies;
mod tampered;
mod tenancy;
mod trouble;
mod tunnel;
mod web;

/// Runs a test on its own runtime, with a deadline.
fn run(test: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let deadline = std::time::Duration::from_secs(600);
        tokio::time::timeout(deadline, test).await.map_err(|_| anyhow::anyhow!("the test took too long"))?
    })
}
