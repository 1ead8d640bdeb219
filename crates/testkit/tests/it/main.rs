//! The test kit against the real servers: what other tests stand on is proven here.

mod cluster;
mod fire;
mod flux;
mod git;
mod gitea;
mod leash;

/// Two worker threads: some tests wait for a server that a third thread feeds.
fn run(test: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build()?.block_on(test)
}
