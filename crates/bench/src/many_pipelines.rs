//! The measurements on one cluster with many pipelines. They share the cluster, because creating its objects takes long.

use crate::measurement::Measurement;
use crate::options::BenchOptions;
use crate::page_server::PageServer;
use crate::pipelines_fixture::{PipelinesOnOneCluster, PipelinesSize};
use crate::table::ResultTable;
use crate::{command_times, live_pages, pages, pipelines_at_rest, pixels, reaction, start_and_memory};
use anyhow::{Context, Result};
use serde_json::json;
use sluice_testkit::ControlPlane;

/// Builds the cluster with pipelines, and takes the selected measurements one after another.
///
/// # Errors
/// A measurement fails.
pub async fn measure(options: &BenchOptions, plane: &ControlPlane, table: &mut ResultTable) -> Result<()> {
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
        measure_pages(options, &fleet, table).await?;
    }
    Ok(())
}

async fn measure_pages(
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
