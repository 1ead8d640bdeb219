//! The smallest program around the commands: how the binary embeds them, and a way to try them.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

/// Continuous delivery pipelines for Flux
#[derive(Parser)]
#[command(name = "sluice")]
struct Cli {
    #[command(subcommand)]
    command: sluice_cli::Command,
}

fn main() -> ExitCode {
    let program = sluice_cli::Program { version: env!("CARGO_PKG_VERSION"), cli: Cli::command };
    sluice_cli::main(&Cli::parse().command, program)
}
