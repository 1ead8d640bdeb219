//! `sluice clusters`: the clusters that pipelines refer to, and whether Sluice can read them. With `--fleet`: all clusters
//! that the controller observes.

use clap::Args;
use kube::api::ListParams;
use sluice_api::GitopsCluster;
use sluice_api::gitops_cluster::gitops_cluster_resource;
use sluice_view::clusters::{ClusterRow, clusters};
use sluice_view::fleet::observed_clusters::{
    ClusterReadability, Clusters as ObservedClusters, ObservedClusterRow,
};

use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::controller_api::{ControllerApi, ServerFlags};
use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::load;
use crate::objects;
use crate::output::{DataFormat, view};
use crate::table::{Cell, Row, Table, Tone};
use crate::terminal::Io;

/// Arguments of `sluice clusters`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Which clusters do my pipelines use, and can Sluice read them?
  sluice clusters -n apps

  # Those of all namespaces, for a script
  sluice clusters -A -o json

  # Can Sluice read all clusters, also those without targets?
  sluice clusters --fleet")]
pub struct Clusters {
    /// Look in all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Ask the controller about all clusters, also those on which no pipeline has a target
    #[arg(long, conflicts_with = "all_namespaces")]
    fleet: bool,
    /// Print data instead of a table
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) async fn run(args: &Clusters, io: &mut Io<'_>) -> Outcome {
    if args.fleet {
        return on_fleet(args, io).await;
    }
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
    let listed = objects::list_of::<GitopsCluster>(
        &connection,
        &gitops_cluster_resource(),
        (namespace, &ListParams::default()),
        io,
    )
    .await;
    let known = match listed {
        Ok(known) => Some(known),
        // A hub without leaf clusters does not need the kind.
        Err(kube::Error::Api(status)) if status.code == 404 => Some(Vec::new()),
        Err(error @ kube::Error::Api(_)) => {
            io.fail(&connection.explain(error));
            io.note("  only what Pipelines say about clusters is shown");
            None
        }
        Err(error) => return Err(connection.explain(error)),
    };
    let pipelines = load::pipelines(&connection, namespace, &ListParams::default(), io).await?;
    let is_listed = |of: &str| known.is_some() && namespace.is_none_or(|namespace| namespace == of);
    let rows = clusters(known.as_deref().unwrap_or_default(), is_listed, &pipelines);
    if let Some(format) = args.output {
        return Ok(view(format, DocumentKind::Clusters, &rows, io.out)?);
    }
    if rows.is_empty() {
        io.note("no clusters and no pipelines found");
        return Ok(());
    }
    let table: Vec<Row> = rows.iter().map(cells).collect();
    Table::print(vec!["CLUSTER", "SECRET", "READY", "PROBLEM"], table, &["SECRET"], io)?;
    if let Some(row) = rows.iter().find(|row| row.targets == 0 && row.problem.is_empty()) {
        io.note(&format!(
            "no pipeline here has a target on {}; whether Sluice can read it: sluice clusters --fleet",
            row.name
        ));
    }
    Ok(())
}

/// Shows all clusters that the caller may see, by the controller's API.
async fn on_fleet(args: &Clusters, io: &mut Io<'_>) -> Outcome {
    let api = ControllerApi::open(&args.cluster.open(Some(API_CALL_TIMEOUT))?, &args.server).await?;
    let mut rows = api.get::<ObservedClusters>("/api/v1/clusters", &[]).await?.items;
    // The flag for the namespace picks GitopsClusters there.
    if let Some(namespace) = &args.cluster.namespace {
        rows.retain(|row| row.name.split_once('/').is_some_and(|(home, _)| home == namespace));
    }
    if let Some(format) = args.output {
        return Ok(view(format, DocumentKind::FleetClusters, &rows, io.out)?);
    }
    if rows.is_empty() {
        io.note("no clusters found; to see a cluster, you need the right to get its GitopsCluster");
        return Ok(());
    }
    let table: Vec<Row> = rows.iter().map(fleet_cells).collect();
    Ok(Table::print(vec!["CLUSTER", "STATE", "OBJECTS", "PROBLEM"], table, &["OBJECTS"], io)?)
}

fn fleet_cells(row: &ObservedClusterRow) -> Row {
    let tone = match row.state {
        ClusterReadability::Up => Tone::Good,
        ClusterReadability::Connecting => Tone::Busy,
        ClusterReadability::Partial => Tone::Held,
        ClusterReadability::Lost => Tone::Bad,
    };
    vec![
        Cell::new(if row.name.is_empty() { "(the hub)" } else { &row.name }),
        Cell::new(row.state.word()).tone(tone),
        Cell::new(row.objects.to_string()),
        Cell::new(&row.message),
    ]
}

fn cells(row: &ClusterRow) -> Row {
    let tone = match (row.targets, row.ready) {
        _ if !row.problem.is_empty() => Tone::Bad,
        (0, _) => Tone::Plain,
        (targets, ready) if targets == ready => Tone::Good,
        _ => Tone::Held,
    };
    vec![
        Cell::new(if row.name.is_empty() { "(the hub)" } else { &row.name }),
        Cell::new(&row.secret),
        Cell::new(format!("{}/{}", row.ready, row.targets)).tone(tone),
        Cell::new(&row.problem),
    ]
}
