//! `sluice resume`: continues the promotions of suspended pipelines.

use clap::Args;

use crate::exit::Outcome;
use crate::suspension::{self, ChosenPipelines};
use crate::terminal::Io;

/// Arguments of `sluice resume`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # One pipeline, or several
  sluice resume podinfo search -n apps

  # All pipelines of the namespace, or those with a label
  sluice resume --all -n apps
  sluice resume -l team=web -n apps

The newest revision that is proven by then is promoted next.")]
pub struct Resume {
    #[command(flatten)]
    pipelines: ChosenPipelines,
}

pub(crate) async fn run(args: &Resume, io: &mut Io<'_>) -> Outcome {
    suspension::run(&args.pipelines, false, io).await
}
