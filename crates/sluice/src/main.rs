//! The binary: arguments, wiring, signals. No logic.

mod controller;
mod controller_flags;
mod hub_port;
mod log;
mod sign_in_flags;
mod web;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use sluice_cli::Program;

/// Continuous delivery pipelines for Flux
///
/// Promotes each revision of an application from environment to environment, over several clusters, once Flux has
/// deployed it and it is healthy, and shows which revision runs where.
#[derive(Parser)]
#[command(name = "sluice", version, propagate_version = false, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the controller
    #[command(after_help = controller_flags::EXAMPLES)]
    Controller(Box<controller_flags::Flags>),
    /// Open the pages in a browser, with your own kubeconfig and rights
    Web(Box<web::Flags>),
    #[command(flatten)]
    Person(Box<sluice_cli::Command>),
}

fn main() -> ExitCode {
    // The TLS provider for all connections. It fails only if one is installed, which is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    sluice_cli::complete(Arguments::command);
    let arguments = Arguments::try_parse().unwrap_or_else(|error| sluice_cli::with_tip(error).exit());
    match arguments.command {
        Command::Controller(flags) => controller::main(*flags),
        Command::Web(flags) => web::main(&flags),
        Command::Person(command) => {
            let program = Program { version: env!("CARGO_PKG_VERSION"), cli: Arguments::command };
            sluice_cli::main(&command, program)
        }
    }
}
