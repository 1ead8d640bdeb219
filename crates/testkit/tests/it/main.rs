//! Tests of the testkit with the real servers.

mod browser;
mod cluster;
mod fault_injection;
mod flux;
mod git;
mod gitea;
mod process_guard;

/// Runs a test with two worker threads: some tests block one while a server of the runtime must answer.
fn run(test: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build()?.block_on(test)
}
