//! `sluice add`: connects something to the hub.

mod cluster;
mod target_account;

use crate::exit::Outcome;
use crate::terminal::Io;

/// Arguments of `sluice add`.
#[derive(clap::Args, Clone, Debug)]
pub struct Add {
    #[command(subcommand)]
    what: AddCommand,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum AddCommand {
    /// Connect a cluster: create an account on it that may only read, and name it on the hub
    Cluster(Box<cluster::Cluster>),
}

pub(crate) async fn run(args: &Add, io: &mut Io<'_>) -> Outcome {
    match &args.what {
        AddCommand::Cluster(args) => cluster::run(args, io).await,
    }
}
