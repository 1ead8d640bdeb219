//! `make bench`: measures Sluice's costs on real servers on this machine, and prints one table: what, budget, measured,
//! verdict. Arguments select measurements; `options.rs` has the flags. The figures come from outside of Sluice where
//! possible: writes from the API server, memory and processor time from the kernel.

mod burst;
mod command_times;
mod controller;
mod delivery;
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
mod pixels;
mod process_stats;
mod questions;
mod reaction;
mod repository;
mod request;
mod start_and_memory;
mod table;
mod viewers;
mod watch;
mod writes;

use anyhow::{Context, Result};
use many_pipelines::{PipelinesOnOneCluster, PipelinesSize};
use measurement::Measurement;
use options::BenchOptions;
use page_server::PageServer;
use serde_json::json;
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
    if options.wants_any(&Measurement::ON_A_FLEET) {
        let plane = ControlPlane::start().await?;
        on_a_fleet(options, &plane, table).await?;
    }
    if options.wants_any(&Measurement::OF_DELIVERY) {
        let plane = ControlPlane::start().await?;
        let cluster = delivery::DeliveryCluster::prepare(&plane).await?;
        if options.wants(Measurement::Repository) {
            repository::measure(options, &cluster, table).await?;
        }
        if options.wants(Measurement::Request) {
            request::measure(options, &cluster, table).await?;
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

async fn on_a_fleet(options: &BenchOptions, plane: &ControlPlane, table: &mut ResultTable) -> Result<()> {
    // Promotions need an approval, so that Sluice delivers nothing.
    let promotion = |_| {
        json!({"manual": true,
            "strategy": {"commit": {"url": "https://git.invalid/acme/fleet.git", "branch": "main"}}})
    };
    let (pipelines, deployments) = (options.pipelines, options.deployments);
    let size = PipelinesSize { pipelines, deployments, promotion: &promotion };
    let fleet = PipelinesOnOneCluster::build(plane, size).await?;
    start_and_memory::measure(options, &fleet, table).await?;
    if options.wants_any(&[Measurement::Restart, Measurement::Rest, Measurement::Reaction]) {
        let controller = start_and_memory::restart(options, &fleet, table).await?;
        if options.wants(Measurement::Rest) {
            pipelines_at_rest::measure(options, &fleet, &controller, table).await?;
        }
        if options.wants(Measurement::Reaction) {
            reaction::measure(options, &fleet, &controller, table).await?;
        }
    }
    if options.wants(Measurement::List) || options.wants_any(&Measurement::OF_PAGES) {
        fleet.create_promotions().await?;
    }
    if options.wants(Measurement::List) {
        command_times::list(options, &fleet, table)?;
    }
    if options.wants_any(&Measurement::OF_PAGES) {
        of_pages(options, &fleet, table).await?;
    }
    Ok(())
}

async fn of_pages(
    options: &BenchOptions,
    fleet: &PipelinesOnOneCluster,
    table: &mut ResultTable,
) -> Result<()> {
    let server = PageServer::start(options, fleet).await?;
    if options.wants(Measurement::Pages) {
        pages::measure(fleet, &server, table).await?;
    }
    if options.wants(Measurement::Pixels) {
        pixels::measure(fleet, &server, table).await.with_context(|| server.controller.log())?;
    }
    if options.wants(Measurement::Live) {
        live_pages::measure(options, fleet, &server, table).await.with_context(|| server.controller.log())?;
    }
    Ok(())
}
