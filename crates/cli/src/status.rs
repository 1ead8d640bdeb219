//! `sluice status`: one pipeline on one screen, with the one thing to look at first.

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use sluice_view::status::{EnvironmentLine, PipelineScreen, status};

use crate::cluster_flags::ClusterFlags;
use crate::complete::pipelines;
use crate::connection::API_CALL_TIMEOUT;
use crate::exit::Outcome;
use crate::explain::lines;
use crate::load;
use crate::output::{DataFormat, view};
use crate::reference;
use crate::table::{Cell, Row, Table};
use crate::terminal::Io;

/// Arguments of `sluice status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Where is podinfo, how does it do, and why does it not move?
  sluice status podinfo -n apps

  # All that holds it, environment by environment
  sluice explain podinfo -n apps")]
pub struct Status {
    /// The pipeline
    #[arg(value_parser = reference::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: String,
    /// Print data instead of a screen
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Status, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let (pipeline, promotions) = load::pipeline(&connection, &args.pipeline, io).await?;
    let now = Timestamp::now();
    let shown = status(&pipeline, &promotions, now);
    if let Some(format) = args.output {
        return Ok(view(format, "PipelineStatus", &shown, io.out)?);
    }
    let PipelineScreen { namespace, name, suspended, trouble, environments, cause } = &shown;
    io.line(format!("{namespace}/{name}{}", if *suspended { " (suspended)" } else { "" }))?;
    if let Some(trouble) = trouble {
        io.line(format!("  {trouble}"))?;
    }
    io.line("")?;
    let rows: Vec<Row> = environments.iter().map(|line| row(line, now)).collect();
    let columns = vec!["ENVIRONMENT", "RUNS", "HEALTH", "SINCE", "TARGETS", "AFTER", "INCOMING", "STATE"];
    Table::print(columns, &rows, io)?;
    if let Some(cause) = cause {
        io.line("")?;
        lines(cause).into_iter().try_for_each(|line| io.line(line))?;
    }
    Ok(())
}

fn row(line: &EnvironmentLine, now: Timestamp) -> Row {
    let incoming = line.incoming.as_ref().map(|(revision, phase)| format!("{revision} {phase}"));
    vec![
        Cell::new(&line.environment),
        Cell::new(line.runs.as_deref().unwrap_or_default()),
        Cell::new(line.health.to_string()).tone(line.health.into()),
        Cell::age(line.since.as_deref().copied(), now),
        Cell::new(format!("{}/{}", line.ready.0, line.ready.1)),
        Cell::new(line.after.join(",")),
        Cell::new(incoming.unwrap_or_default()),
        Cell::new(line.situation.words()),
    ]
}
