//! `sluice export`: what others need in order to work with Sluice, ready to commit.

mod alert;

use crate::exit::Outcome;
use crate::sign::Io;

/// Arguments of `sluice export`.
#[derive(clap::Args, Clone, Debug)]
pub struct Export {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// Flux's Provider, Alert and Secret with which a pipeline's clusters call its hook
    Alert(alert::Alert),
}

pub(crate) async fn run(args: &Export, io: &mut Io<'_>) -> Outcome {
    match &args.what {
        What::Alert(args) => alert::run(args, io).await,
    }
}
