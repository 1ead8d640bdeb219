//! `make bench`: measures what Sluice has promised to cost, on real servers on this machine, and
//! prints one table: what, budget, measured, verdict. Name rows to measure only those; see
//! `options.rs` for the flags. Nothing is counted by Sluice's own word where another can count it:
//! writes are those that the API server counted, memory and processor time those of the kernel.

mod commands;
mod controller;
mod crowd;
mod delivery;
mod fleet;
mod handover;
mod hooks;
mod isolation;
mod objects;
mod options;
mod outside;
mod reaction;
mod repository;
mod request;
mod rest;
mod start;
mod table;
mod watch;
mod writes;

use anyhow::Result;
use fleet::{Fleet, MadeOf};
use options::{Options, Row};
use serde_json::json;
use sluice_testkit::ControlPlane;
use std::process::ExitCode;
use table::Table;

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain of causes; Debug would add a backtrace where the environment asks for one.
            eprintln!("✗ {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let Some(options) = Options::read(std::env::args().skip(1))? else { return Ok(()) };
    let mut table = Table::default();
    let outcome = measure(&options, &mut table).await;
    // What was measured before a failure is worth showing.
    table.print();
    outcome
}

async fn measure(options: &Options, table: &mut Table) -> Result<()> {
    commands::size(options, table)?;
    commands::help(options, table)?;
    if options.wants_any(&Row::ON_A_FLEET) {
        let plane = ControlPlane::start().await?;
        on_a_fleet(options, &plane, table).await?;
    }
    if options.wants_any(&Row::OF_DELIVERY) {
        let plane = ControlPlane::start().await?;
        let ground = delivery::Ground::prepare(&plane).await?;
        if options.wants(Row::Repository) {
            repository::measure(options, &ground, table).await?;
        }
        if options.wants(Row::Request) {
            request::measure(options, &ground, table).await?;
        }
        if options.wants(Row::Hooks) {
            hooks::measure(options, &ground, table).await?;
        }
    }
    if options.wants(Row::Crowd) {
        crowd::measure(options, &ControlPlane::start().await?, table).await?;
    }
    if options.wants(Row::Isolation) {
        isolation::measure(options, &ControlPlane::start().await?, table).await?;
    }
    if options.wants(Row::Handover) {
        handover::measure(options, &ControlPlane::start().await?, table).await?;
    }
    Ok(())
}

async fn on_a_fleet(options: &Options, plane: &ControlPlane, table: &mut Table) -> Result<()> {
    // A person has to approve each promotion, so that nothing is delivered here.
    let promotion = |_| {
        json!({"manual": true,
            "strategy": {"commit": {"url": "https://git.invalid/acme/fleet.git", "branch": "main"}}})
    };
    let (pipelines, deployments) = (options.pipelines, options.deployments);
    let made_of = MadeOf { pipelines, deployments, promotion: &promotion };
    let fleet = Fleet::build(plane, made_of).await?;
    start::measure(options, &fleet, table).await?;
    if options.wants_any(&[Row::Restart, Row::Rest, Row::Reaction]) {
        let controller = start::restart(options, &fleet, table).await?;
        if options.wants(Row::Rest) {
            rest::measure(options, &fleet, &controller, table).await?;
        }
        if options.wants(Row::Reaction) {
            reaction::measure(options, &fleet, &controller, table).await?;
        }
    }
    if options.wants(Row::List) {
        commands::list(options, &fleet, table).await?;
    }
    Ok(())
}
