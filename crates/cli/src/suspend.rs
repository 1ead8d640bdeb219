//! `sluice suspend`: stops all promotions of pipelines.

use clap::Args;

use crate::exit::Outcome;
use crate::suspension::{self, ChosenPipelines};
use crate::terminal::Io;

/// Arguments of `sluice suspend`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # One pipeline, or several
  sluice suspend podinfo search -n apps

  # All pipelines of the namespace, or those with a label
  sluice suspend --all -n apps
  sluice suspend -l team=web -n apps

A suspended pipeline still observes its targets and change requests. Nothing is started, pushed, opened or merged.")]
pub struct Suspend {
    #[command(flatten)]
    pipelines: ChosenPipelines,
}

pub(crate) async fn run(args: &Suspend, io: &mut Io<'_>) -> Outcome {
    suspension::run(&args.pipelines, true, io).await
}
