//! `sluice status`: one pipeline on one screen, with the one thing to look at first; with `-w` as it changes.

mod live;
mod screen;

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use sluice_view::pipeline_screen::status;

use self::screen::Page;
use crate::cluster_flags::{ClusterFlags, ControllerFlags};
use crate::connection::API_CALL_TIMEOUT;
use crate::controller_lease::warn_if_nobody_acts;
use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::load;
use crate::name_completion::pipelines;
use crate::object_argument;
use crate::output::{DataFormat, view};
use crate::terminal::Io;

/// Arguments of `sluice status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Which revision of podinfo runs where, is it healthy, and why does it not move?
  sluice status podinfo -n apps

  # The same, as it changes; Ctrl-C ends it
  sluice status podinfo -n apps -w

  # Why each environment gets a revision or not
  sluice explain podinfo -n apps")]
pub struct Status {
    /// The pipeline
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: String,
    /// Keep watching: update the screen of a terminal, print changed lines into a pipe; Ctrl-C ends it
    #[arg(short, long)]
    watch: bool,
    /// Print data instead of a screen
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    controller: ControllerFlags,
}

pub(crate) async fn run(args: &Status, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    if args.watch {
        return live::run(&connection, &args.pipeline, args.output, io).await;
    }
    let (pipeline, promotions) = load::pipeline(&connection, &args.pipeline, io).await?;
    warn_if_nobody_acts(&connection, &args.controller.system_namespace, io).await;
    let now = Timestamp::now();
    let shown = status(&pipeline, &promotions, now);
    if let Some(format) = args.output {
        return Ok(view(format, DocumentKind::PipelineStatus, &shown, io.out)?);
    }
    let page = Page { now, color: io.color, width: io.terminal.map(|size| size.width) };
    io.out.write_all(page.lines(&shown)?.join("\n").as_bytes())?;
    Ok(io.line("")?)
}
