//! `make bench`: measures Sluice's costs on real servers on this machine, and prints one table: what, budget, measured,
//! verdict. Arguments select measurements; `options.rs` has the flags. The figures come from outside of Sluice where
//! possible: writes from the API server, memory and processor time from the kernel.

mod api_views;
mod burst;
mod change_request;
mod clusters_fixture;
mod command_times;
mod controller;
mod delivery_fixture;
mod handover;
mod hooks;
mod isolation;
mod live_pages;
mod many_clusters;
mod many_pipelines;
mod measurement;
mod objects;
mod options;
mod page_server;
mod pages;
mod pipelines_at_rest;
mod pipelines_fixture;
mod pipelines_on_clusters;
mod pixels;
mod process_stats;
mod questions;
mod reaction;
mod repository;
mod start_and_memory;
mod table;
mod viewers;
mod watch;
mod writes;

use anyhow::Result;
use measurement::Measurement;
use options::BenchOptions;
use sluice_testkit::ControlPlane;
use std::process::ExitCode;
use table::ResultTable;

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain of causes. `Debug` may add a backtrace.
            eprintln!("✗ {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let Some(options) = BenchOptions::read(std::env::args().skip(1))? else { return Ok(()) };
    let mut table = ResultTable::default();
    let outcome = measure(&options, &mut table).await;
    // Also after an error, for the measurements before it.
    table.print();
    outcome
}

async fn measure(options: &BenchOptions, table: &mut ResultTable) -> Result<()> {
    command_times::size(options, table)?;
    command_times::help(options, table)?;
    if options.wants_any(&Measurement::OF_MANY_PIPELINES) {
        many_pipelines::measure(options, &ControlPlane::start().await?, table).await?;
    }
    if options.wants_any(&Measurement::OF_DELIVERY) {
        let plane = ControlPlane::start().await?;
        let cluster = delivery_fixture::DeliveryCluster::prepare(&plane).await?;
        if options.wants(Measurement::Repository) {
            repository::measure(options, &cluster, table).await?;
        }
        if options.wants(Measurement::Request) {
            change_request::measure(options, &cluster, table).await?;
        }
        if options.wants(Measurement::Hooks) {
            hooks::measure(options, &cluster, table).await?;
        }
    }
    if options.wants(Measurement::Burst) {
        burst::measure(options, &ControlPlane::start().await?, table).await?;
    }
    if options.wants(Measurement::Clusters) {
        many_clusters::measure(options, &ControlPlane::start().await?, table).await?;
    }
    if options.wants(Measurement::Questions) {
        questions::measure(options, &ControlPlane::start().await?, table).await?;
    }
    if options.wants(Measurement::Isolation) {
        isolation::measure(options, &ControlPlane::start().await?, table).await?;
    }
    if options.wants(Measurement::Handover) {
        handover::measure(options, &ControlPlane::start().await?, table).await?;
    }
    Ok(())
}
