//! `sluice charts` and `sluice images`: which versions run in which environment, and which targets differ.

use clap::Args;
use clap_complete::ArgValueCompleter;
use kube::api::ListParams;
use sluice_api::Pipeline;
use sluice_view::versions::{Outlier, VersionRow};

use crate::cluster_flags::ClusterFlags;
use crate::complete::environments;
use crate::connection::API_CALL_TIMEOUT;
use crate::exit::Outcome;
use crate::load;
use crate::output::{DataFormat, view};
use crate::table::{Cell, Row, Table, Tone};
use crate::terminal::Io;

pub(crate) const CHARTS_EXAMPLES: &str = "Examples:
  # Which version of podinfo runs where?
  sluice charts podinfo -A

  # Which targets in prod do not run what the others run?
  sluice charts -A -e prod --outliers";

pub(crate) const IMAGES_EXAMPLES: &str = "Examples:
  # Where does this image run, and with which tags?
  sluice images ghcr.io/stefanprodan/podinfo -A

  # Which targets in prod do not run what the others run?
  sluice images -A -e prod --outliers";

/// Arguments of `sluice charts` and `sluice images`.
#[derive(Args, Clone, Debug)]
pub struct Versions {
    /// Only names that contain this text
    name: Option<String>,
    /// Look in all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only pipelines with these labels, such as app=podinfo,team!=web
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Only this environment
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(environments))]
    environment: Option<String>,
    /// Only versions of which a target differs from the others of its environment
    #[arg(long)]
    outliers: bool,
    /// Print data instead of a table
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Runs `sluice charts` or `sluice images`: `kind` is `Charts` or `Images`, `rows` the view.
pub(crate) async fn run(
    args: &Versions,
    kind: &str,
    rows: impl Fn(&[Pipeline]) -> Vec<VersionRow>,
    io: &mut Io<'_>,
) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
    let params = ListParams { label_selector: args.selector.clone(), ..ListParams::default() };
    let mut found = rows(&load::pipelines(&connection, namespace, &params, io).await?);
    found.retain(|row| {
        args.name.as_ref().is_none_or(|name| row.name.contains(name.as_str()))
            && args.environment.as_ref().is_none_or(|environment| row.environment == *environment)
            && (!args.outliers || !row.outliers.is_empty())
    });
    if let Some(format) = args.output {
        return Ok(view(format, kind, &found, io.out)?);
    }
    if found.is_empty() {
        let here = namespace.map(|namespace| format!(" in namespace {namespace}; -A looks in all of them"));
        io.note(&format!("no {} found{}", kind.to_lowercase(), here.unwrap_or_default()));
        return Ok(());
    }
    let table: Vec<Row> = found.iter().map(cells).collect();
    let name = if kind == "Charts" { "HELM RELEASE" } else { "IMAGE" };
    let columns = vec![name, "PIPELINE", "ENVIRONMENT", "VERSION", "TARGETS", "OUTLIERS"];
    Ok(Table::print(columns, &table, io)?)
}

fn cells(row: &VersionRow) -> Row {
    let outliers: Vec<String> = row.outliers.iter().map(outlier).collect();
    vec![
        Cell::new(&row.name),
        Cell::new(&row.pipeline),
        Cell::new(&row.environment),
        Cell::new(&row.version),
        Cell::new(row.targets.to_string()),
        Cell::new(outliers.join(", ")).tone(Tone::Bad),
    ]
}

fn outlier(outlier: &Outlier) -> String {
    let cluster = if outlier.cluster.is_empty() { String::new() } else { format!(" on {}", outlier.cluster) };
    format!("{} in {}{cluster}", outlier.version, outlier.target)
}
