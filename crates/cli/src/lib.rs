//! Sluice's command line, one file a command. The binary embeds [`Command`] beside its own
//! `controller` and hands what was typed to [`main`]; nothing here decides about promotions.

mod age;
mod approve;
mod complete;
mod completion;
mod connect;
mod crds;
mod exit;
mod export;
mod find;
mod get;
mod objects;
mod output;
pub mod plain;
mod proxy;
mod reference;
mod reject;
mod retry;
mod server;
mod sign;
mod suggest;
mod table;
mod validate;
mod version;

use std::io::BufWriter;
use std::process::ExitCode;

pub use complete::complete;
pub use connect::Connect;
pub use exit::{Exit, Failure, Outcome};
pub use sign::{Io, Sign};

/// Everything `sluice` does for a person.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Show pipelines, promotions and targets
    Get(get::Get),
    /// Approve a pending promotion
    Approve(approve::Approve),
    /// Reject a promotion that is not delivered yet
    Reject(reject::Reject),
    /// Retry a promotion that failed or was rejected, or all that failed
    Retry(retry::Retry),
    /// Validate Pipelines offline, and show what they would set in a checkout
    Validate(validate::Validate),
    /// Print what others need to work with Sluice, ready to commit
    Export(export::Export),
    /// Print the custom resource definitions and the admission policy
    Crds(crds::Crds),
    /// Print the completion script for a shell
    Completion(completion::Completion),
    /// Print the version
    Version(version::Version),
}

/// What the commands have to know of the program they are part of.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its version.
    pub version: &'static str,
    /// Its whole command line, for shell completion.
    pub cli: fn() -> clap::Command,
}

/// Runs a command against the process's own stdout and stderr and says how it ended.
/// It brings the small runtime that it needs; call it outside of any other.
pub fn main(command: &Command, program: Program) -> ExitCode {
    let stdout = anstream::AutoStream::auto(std::io::stdout());
    let color = stdout.current_choice() != anstream::ColorChoice::Never;
    let mut out = BufWriter::with_capacity(1 << 16, stdout);
    let mut err = std::io::stderr();
    let mut io = Io { out: &mut out, err: &mut err, color };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(run(command, program, &mut io));
            // A name server that does not answer must not hold the process.
            runtime.shutdown_background();
            exit.into()
        }
        Err(error) => {
            io.tell(Sign::Failed, &format!("cannot start: {error}"));
            Exit::Error.into()
        }
    }
}

/// Runs a command: data to `io.out`, progress and failures to `io.err`.
pub async fn run(command: &Command, program: Program, io: &mut Io<'_>) -> Exit {
    let outcome = match command {
        Command::Get(args) => get::run(args, io).await,
        Command::Approve(args) => approve::run(args, io).await,
        Command::Reject(args) => reject::run(args, io).await,
        Command::Retry(args) => retry::run(args, io).await,
        Command::Validate(args) => validate::run(args, io),
        Command::Export(args) => export::run(args, io).await,
        Command::Crds(args) => crds::run(args, io),
        Command::Completion(args) => completion::run(args, &(program.cli)(), io),
        Command::Version(args) => version::run(args, program.version, io),
    };
    let outcome = outcome.and_then(|()| Ok(io.flush()?));
    match outcome {
        Ok(()) => Exit::Ok,
        Err(failure) => {
            // What was shown before it failed comes first.
            let _ = io.flush();
            io.fail(&failure);
            failure.exit
        }
    }
}
