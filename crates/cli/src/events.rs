//! `sluice events`: the Kubernetes events of pipelines and their promotions, the newest last.

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Resource;
use kube::api::ApiResource;
use sluice_api::{GROUP, Pipeline};

use crate::cluster_flags::ClusterFlags;
use crate::complete::pipelines;
use crate::connection::API_CALL_TIMEOUT;
use crate::exit::Outcome;
use crate::load;
use crate::object_argument;
use crate::objects;
use crate::table::{Cell, Row, Table, Tone};
use crate::terminal::Io;

/// Arguments of `sluice events`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What happened to podinfo lately?
  sluice events podinfo -n apps

  # Only what went wrong, of all pipelines of the namespace
  sluice events -n apps --types Warning

The API server keeps events for an hour by default; sluice history shows what was promoted before.")]
pub struct Events {
    /// Only those of this pipeline and its promotions
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: Option<String>,
    /// Only events of these types
    #[arg(long, value_name = "TYPES", value_delimiter = ',', value_parser = ["Normal", "Warning"])]
    types: Vec<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Events, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let promotions = match &args.pipeline {
        Some(name) => {
            let (_, promotions) = load::pipeline(&connection, name, io).await?;
            promotions.into_iter().filter_map(|p| p.metadata.name).collect()
        }
        None => Vec::new(),
    };
    let (resource, here) = (ApiResource::erase::<Event>(&()), Some(connection.namespace.as_str()));
    let listed = objects::list_of::<Event>(&connection, &resource, here, io).await;
    let listed = listed.map_err(|error| connection.explain(error))?;
    let is_wanted = |event: &Event| {
        let object = &event.involved_object;
        let ours = object.api_version.as_deref().is_some_and(|v| v.split('/').next() == Some(GROUP));
        let mut objects = [Some(object), event.related.as_ref()].into_iter().flatten();
        let of_pipeline = args.pipeline.as_deref().is_none_or(|pipeline| {
            objects.any(|object| {
                let name = object.name.as_deref().unwrap_or_default();
                match object.kind.as_deref() {
                    Some("Pipeline") => name == pipeline,
                    _ => promotions.iter().any(|promotion| promotion == name),
                }
            })
        });
        let of_type = args.types.is_empty() || event.type_.as_ref().is_some_and(|t| args.types.contains(t));
        ours && of_pipeline && of_type
    };
    let mut events: Vec<Event> = listed.into_iter().filter(is_wanted).collect();
    events.sort_by_cached_key(|event| (time(event), event.metadata.name.clone()));
    if events.is_empty() {
        // Without the definitions there are no events either, and that is the reason.
        let served = connection.client.list_api_group_resources(&Pipeline::api_version(&())).await;
        served.map_err(|error| connection.explain(error))?;
        io.note("there are no events");
        return Ok(());
    }
    let now = Timestamp::now();
    let rows: Vec<Row> = events.iter().map(|event| row(event, now)).collect();
    Table::print(vec!["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"], rows, &["TYPE"], io)?;
    Ok(())
}

/// Returns the time of an event: that of its last repetition, if it has been repeated.
fn time(event: &Event) -> Option<Timestamp> {
    let repeated = event.series.as_ref().and_then(|series| Some(series.last_observed_time.as_ref()?.0));
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let first = event.event_time.as_ref().map(|time| time.0);
    repeated.or(last).or(first).or(event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

fn row(event: &Event, now: Timestamp) -> Row {
    let kind = event.type_.as_deref().unwrap_or("Normal");
    let object = &event.involved_object;
    let name = object.name.as_deref().unwrap_or_default();
    vec![
        Cell::age(time(event), now),
        Cell::new(kind).tone(if kind == "Warning" { Tone::Bad } else { Tone::Plain }),
        Cell::new(event.reason.as_deref().unwrap_or_default()),
        Cell::new(format!("{}/{name}", object.kind.as_deref().unwrap_or_default().to_lowercase())),
        Cell::new(event.message.as_deref().unwrap_or_default()),
    ]
}
