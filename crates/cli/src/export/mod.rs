//! `sluice export`: prints objects that let Flux and forges work with Sluice, ready to commit.

mod alert;
mod names;
mod receiver;
mod scope;

use crate::exit::Outcome;
use crate::terminal::Io;

/// Arguments of `sluice export`.
#[derive(clap::Args, Clone, Debug)]
pub struct Export {
    #[command(subcommand)]
    what: ExportCommand,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum ExportCommand {
    /// Print Flux's Provider, Alert and Secret with which a pipeline's clusters call its hook
    Alert(alert::Alert),
    /// Print Flux's Receiver and Secret with which a forge notifies a pipeline's clusters of a push
    Receiver(Box<receiver::Receiver>),
}

pub(crate) async fn run(args: &Export, io: &mut Io<'_>) -> Outcome {
    match &args.what {
        ExportCommand::Alert(args) => alert::run(args, io).await,
        ExportCommand::Receiver(args) => receiver::run(args, io).await,
    }
}
