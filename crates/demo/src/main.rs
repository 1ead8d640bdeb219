//! `make demo`: Sluice on real API servers and real git. Only Flux is a stand-in, and the output says so. With `--once`,
//! the demo approves the promotion, ends with `demo: ok` and leaves nothing behind. Without it, a person approves, and
//! the demo runs until Ctrl-C. With `--fault`, something is wrong with prod, and a person finds out what.

mod hub_view;
mod manifests;
mod output;
mod scenario;
mod servers;
mod sluice;
mod versions;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// The command line.
struct Arguments {
    once: bool,
    has_fault: bool,
    binary: PathBuf,
}

const USAGE: &str = "usage: demo [--once] [--fault] PATH-OF-SLUICE";

fn parse_arguments() -> Result<Arguments> {
    let (mut once, mut has_fault) = (false, false);
    let mut binary = None;
    for argument in std::env::args_os().skip(1) {
        if argument == "--once" {
            once = true;
        } else if argument == "--fault" {
            has_fault = true;
        } else if binary.replace(PathBuf::from(argument)).is_some() {
            bail!("{USAGE}");
        }
    }
    let binary = binary.with_context(|| format!("{USAGE}; make demo passes the path"))?;
    let binary = std::path::absolute(binary)?;
    if !binary.is_file() {
        bail!("{} does not exist; run make demo, which builds it", binary.display());
    }
    Ok(Arguments { once, has_fault, binary })
}

fn main() -> ExitCode {
    let ended = parse_arguments().and_then(|arguments| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(run(&arguments))
    });
    match ended {
        Ok(code) => code,
        Err(error) => {
            output::failed(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the scenario until it ends or a signal comes. All servers are dropped, and so ended, at the return.
async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        outcome = scenario::run(arguments.once, arguments.has_fault, &arguments.binary) => Some(outcome),
        _ = interrupted.recv() => None,
        _ = terminated.recv() => None,
    };
    match outcome {
        Some(Ok(())) => {
            println!("demo: ok");
            Ok(ExitCode::SUCCESS)
        }
        Some(Err(error)) => Err(error),
        None if arguments.once => bail!("interrupted; all servers have ended"),
        None => {
            output::done("all servers have ended");
            Ok(ExitCode::SUCCESS)
        }
    }
}
