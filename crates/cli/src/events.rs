//! `sluice events`: the Kubernetes events of pipelines and their promotions, the newest last.

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Resource;
use kube::api::{ApiResource, ListParams};
use sluice_api::Pipeline;
use sluice_view::events::{EventFilter, EventLine, events};

use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::load;
use crate::name_completion::pipelines;
use crate::object_argument;
use crate::objects;
use crate::output::{DataFormat, view};
use crate::table::{Cell, Row, Table, Tone};
use crate::terminal::Io;

/// Arguments of `sluice events`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What happened to podinfo lately?
  sluice events podinfo -n apps

  # Only what went wrong, of all pipelines of the namespace
  sluice events -n apps --types Warning

  # What went wrong in all namespaces, for a script
  sluice events -A --types Warning -o json

The API server keeps events for an hour by default; sluice history shows what was promoted before.")]
pub struct Events {
    /// Only those of this pipeline and its promotions
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: Option<String>,
    /// Only events of these types
    #[arg(long, value_name = "TYPES", value_delimiter = ',', value_parser = ["Normal", "Warning"])]
    types: Vec<String>,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "pipeline")]
    all_namespaces: bool,
    /// Print data instead of a table
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Events, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let promotions: Vec<String> = match &args.pipeline {
        Some(name) => {
            let (_, promotions) = load::pipeline(&connection, name, io).await?;
            promotions.into_iter().filter_map(|p| p.metadata.name).collect()
        }
        None => Vec::new(),
    };
    let resource = ApiResource::erase::<Event>(&());
    let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
    // Of a whole cluster, the events of other objects are many.
    let ours =
        ListParams::default().fields(&format!("involvedObject.apiVersion={}", Pipeline::api_version(&())));
    let listed = objects::list_of::<Event>(&connection, &resource, (namespace, &ours), io).await;
    let listed = listed.map_err(|error| connection.explain(error))?;
    let filter =
        EventFilter { pipeline: args.pipeline.as_deref(), promotions: &promotions, types: &args.types };
    let lines = events(listed, &filter);
    if lines.is_empty() {
        // Without the definitions there are no events either, and that is the reason.
        let served = connection.client.list_api_group_resources(&Pipeline::api_version(&())).await;
        served.map_err(|error| connection.explain(error))?;
    }
    if let Some(format) = args.output {
        return Ok(view(format, DocumentKind::Events, &lines, io.out)?);
    }
    if lines.is_empty() {
        io.note("there are no events");
        return Ok(());
    }
    let (now, with_namespace) = (Timestamp::now(), args.all_namespaces);
    let rows: Vec<Row> = lines.iter().map(|line| row(line, with_namespace, now)).collect();
    let mut columns = vec!["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
    if with_namespace {
        columns.insert(0, "NAMESPACE");
    }
    Ok(Table::print(columns, rows, &["TYPE"], io)?)
}

fn row(line: &EventLine, with_namespace: bool, now: Timestamp) -> Row {
    let tone = if line.type_ == "Warning" { Tone::Bad } else { Tone::Plain };
    let mut row = vec![
        Cell::age(line.last_seen.map(|time| *time), now),
        Cell::new(&line.type_).tone(tone),
        Cell::new(&line.reason),
        Cell::new(&line.object),
        Cell::new(&line.message),
    ];
    if with_namespace {
        row.insert(0, Cell::new(&line.namespace));
    }
    row
}
