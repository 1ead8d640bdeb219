//! `sluice history`: what was promoted into the environments of a pipeline, the newest first.

use std::num::NonZero;

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use sluice_view::history::{Entry, history};

use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::load;
use crate::name_completion::{environments, pipelines};
use crate::object_argument;
use crate::output::{DataFormat, view};
use crate::place::Place;
use crate::table::{Cell, Row, Table};
use crate::terminal::Io;

/// Arguments of `sluice history`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What went into prod, when, and who approved it?
  sluice history podinfo -n apps -e prod

  # The last three, for a script
  sluice history podinfo -n apps --limit 3 -o json

Sluice deletes the records of old promotions; git has all of them: git log --grep Sluice-Pipeline")]
pub struct History {
    /// The pipeline
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: String,
    /// Only this environment, or ENVIRONMENT/TARGET
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(environments))]
    environment: Option<String>,
    /// At most this many
    #[arg(long, value_name = "NUMBER")]
    limit: Option<NonZero<usize>>,
    /// Print data instead of a table
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &History, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let (pipeline, promotions) = load::pipeline(&connection, &args.pipeline, io).await?;
    let wanted = args.environment.as_deref();
    let mut entries = history(&args.pipeline, wanted, &promotions);
    // Environments that the pipeline has no more may have a history.
    if let (Some(wanted), []) = (wanted, &entries[..]) {
        Place::find(&pipeline, wanted)?;
    }
    entries.truncate(args.limit.map_or(usize::MAX, NonZero::get));
    if let Some(format) = args.output {
        return Ok(view(format, DocumentKind::History, &entries, io.out)?);
    }
    if entries.is_empty() {
        let into = wanted.map(|wanted| format!(" into {wanted}")).unwrap_or_default();
        io.note(&format!("nothing was promoted{into} yet"));
        return Ok(());
    }
    let now = Timestamp::now();
    let rows: Vec<Row> = entries.iter().map(|entry| row(entry, now)).collect();
    let columns = vec!["ENVIRONMENT", "REVISION", "REPLACES", "PHASE", "AGE", "BY", "DELIVERED AS", "NAME"];
    Table::print(columns, rows, &["REPLACES", "BY", "DELIVERED AS", "AGE"], io)?;
    Ok(())
}

fn row(entry: &Entry, now: Timestamp) -> Row {
    vec![
        Cell::new(&entry.environment),
        Cell::new(&entry.revision),
        Cell::new(&entry.replaces),
        Cell::new(entry.phase.to_string()),
        Cell::age(entry.started.as_deref().copied(), now),
        Cell::new(&entry.by),
        Cell::new(&entry.delivered_as),
        Cell::new(&entry.name),
    ]
}
