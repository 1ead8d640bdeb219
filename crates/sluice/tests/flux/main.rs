//! The whole with a stand-in for Flux on each leaf cluster: what is merged comes to run by itself,
//! as it does where Flux is. A binary of its own, since the stand-in acts on every object of its
//! cluster, and other tests write their objects' status themselves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by failing"
)]

mod fleet;
mod history;
#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "../support/place.rs"]
mod place;
#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "../support/process.rs"]
mod process;
mod succession;
mod swarm;
mod verdict;

/// One test at a time: each keeps a small machine's API servers and forge busy by itself.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs a test on a runtime of its own, with a deadline, when it is its turn.
fn run(test: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    // A test that failed has left nothing behind that the next one could meet.
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let deadline = std::time::Duration::from_secs(900);
        tokio::time::timeout(deadline, test).await.map_err(|_| anyhow::anyhow!("the test took too long"))?
    })
}
