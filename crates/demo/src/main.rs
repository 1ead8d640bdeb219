//! `make demo`: Sluice on real API servers and real git, from nothing. Only Flux is a stand-in, and
//! the output says so. With `--once` it approves by itself, ends with `demo: ok` and leaves nothing
//! behind; without, it stays until Ctrl-C, and a person approves.

mod fleet;
mod manifests;
mod say;
mod sluice;
mod story;
mod tale;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// What was asked for on the command line.
struct Asked {
    once: bool,
    binary: PathBuf,
}

fn asked() -> Result<Asked> {
    let mut once = false;
    let mut binary = None;
    for argument in std::env::args_os().skip(1) {
        if argument == "--once" {
            once = true;
        } else if binary.replace(PathBuf::from(argument)).is_some() {
            bail!("usage: demo [--once] PATH-OF-SLUICE");
        }
    }
    let binary = binary.context("usage: demo [--once] PATH-OF-SLUICE; make demo knows the path")?;
    let binary = std::path::absolute(binary)?;
    if !binary.is_file() {
        bail!("there is no {}: run make demo, which builds it", binary.display());
    }
    Ok(Asked { once, binary })
}

fn main() -> ExitCode {
    let ended = asked().and_then(|asked| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(run(&asked))
    });
    match ended {
        Ok(code) => code,
        Err(error) => {
            say::failed(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Tells the story until it ends or somebody ends it. Everything that was started is dropped, and so
/// ended, on the way out.
async fn run(asked: &Asked) -> Result<ExitCode> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let told = tokio::select! {
        told = story::tell(asked.once, &asked.binary) => Some(told),
        _ = interrupted.recv() => None,
        _ = terminated.recv() => None,
    };
    match told {
        Some(Ok(())) => {
            println!("demo: ok");
            Ok(ExitCode::SUCCESS)
        }
        Some(Err(error)) => Err(error),
        None if asked.once => bail!("interrupted; everything that was started has ended"),
        None => {
            say::done("everything that was started has ended");
            Ok(ExitCode::SUCCESS)
        }
    }
}
