//! Every command of the built binary: its output, errors and exit codes, in a pipe that closes, and in a narrow terminal.
//! [`cases`] has a row for each command. The other files check one aspect of all commands. `sluice web` and
//! `sluice controller` run until somebody ends them: `it/web.rs` and most other tests of `it/` check what they do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod binary;
mod cases;
mod check;
mod errors;
mod fixture;
mod help;
mod outputs;
#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "../support/process.rs"]
mod process;
#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "../it/releases.rs"]
mod releases;

/// Runs a test on its own runtime, with a deadline.
fn run(test: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let deadline = std::time::Duration::from_secs(600);
    runtime.block_on(async {
        tokio::time::timeout(deadline, test).await.map_err(|_| anyhow::anyhow!("the test took too long"))?
    })
}
