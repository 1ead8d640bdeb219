//! Tests of the built binary with a stand-in for Flux on each leaf cluster, which deploys what is merged. They are
//! a binary of their own, since the stand-in acts on every object of its cluster, and other tests write the status
//! of their objects themselves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/docs.rs"]
mod docs;
mod fleet;
mod history;
mod other_pages;
#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "../support/people.rs"]
mod people;
#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "../support/place.rs"]
mod place;
#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "../support/process.rs"]
mod process;
mod questions;
mod succession;
mod swarm;
mod verdict;

/// Runs one test at a time: each test alone uses all of a small machine.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs a test on its own runtime, with a deadline, after the tests before it.
fn run(test: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    // A failed test leaves nothing that affects the next one.
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let deadline = std::time::Duration::from_secs(900);
        tokio::time::timeout(deadline, test).await.map_err(|_| anyhow::anyhow!("the test took too long"))?
    })
}
