//! Which versions run in which environment, and which targets differ. With `--fleet`: which versions run on which clusters,
//! also where no pipeline has a target. `sluice charts` and `sluice images` show this of different things.

use std::collections::BTreeSet;

use clap::Args;
use clap_complete::ArgValueCompleter;
use kube::api::ListParams;
use sluice_api::Pipeline;
use sluice_view::fleet::versions::RunningVersion;
use sluice_view::versions::{Outlier, UnreadTarget, VersionRow, unread};

use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::controller_api::{ControllerApi, ServerFlags};
use crate::document_kind::DocumentKind;
use crate::exit::{Exit, Failure, Outcome};
use crate::load;
use crate::name_completion::{clusters, environments};
use crate::output::{DataFormat, view};
use crate::suggest::instead;
use crate::table::{Cell, Row, Table, Tone};
use crate::terminal::Io;

/// The arguments of commands that show versions.
#[derive(Args, Clone, Debug)]
pub(crate) struct VersionArguments {
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
    /// Ask the controller about all clusters, also where no pipeline has a target
    #[arg(long, conflicts_with_all = ["all_namespaces", "selector", "environment"])]
    fleet: bool,
    /// With --fleet: only this cluster, as NAMESPACE/NAME of its GitopsCluster, or hub
    #[arg(long, value_name = "CLUSTER", default_value = "", requires = "fleet", add = ArgValueCompleter::new(clusters))]
    on: String,
    /// With --fleet: only this version
    #[arg(long, value_name = "VERSION", default_value = "", requires = "fleet")]
    version: String,
    /// Print data instead of a table
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    server: ServerFlags,
}

impl VersionArguments {
    /// What is asked of a row, as the end of a sentence about none.
    fn filter(&self) -> String {
        let parts = [
            self.name.as_ref().map(|name| format!("has {name} in its name")),
            self.environment.as_ref().map(|environment| format!("runs in {environment}")),
            self.outliers.then(|| "has outliers".to_string()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }
}

/// What has versions, and how a command shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Versioned {
    /// The word in sentences and addresses.
    pub word: &'static str,
    /// The heading of the names in pipelines, and on the fleet.
    pub headings: [&'static str; 2],
    /// The kind of the data in pipelines, and on the fleet.
    pub documents: [DocumentKind; 2],
    /// The view of pipelines.
    pub rows: fn(&[Pipeline]) -> Vec<VersionRow>,
}

/// Shows the versions of something.
pub(crate) async fn run(args: &VersionArguments, shown: Versioned, io: &mut Io<'_>) -> Outcome {
    let Versioned { word, headings, documents, rows } = shown;
    if args.fleet {
        return on_fleet(args, shown, io).await;
    }
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
    let params = ListParams { label_selector: args.selector.clone(), ..ListParams::default() };
    let pipelines = load::pipelines(&connection, namespace, &params, io).await?;
    check_environment(&pipelines, args.environment.as_deref(), namespace)?;
    let mut found = rows(&pipelines);
    let all = found.len();
    warn_of_unread(&unread(&pipelines, args.environment.as_deref()), io);
    found.retain(|row| {
        args.name.as_ref().is_none_or(|name| row.name.contains(name.as_str()))
            && args.environment.as_ref().is_none_or(|environment| row.environment == *environment)
            && (!args.outliers || !row.outliers.is_empty())
    });
    if let Some(format) = args.output {
        return Ok(view(format, documents[0], &found, io.out)?);
    }
    if found.is_empty() {
        let here = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        let elsewhere = if here.is_empty() { "" } else { "; -A looks in all of them" };
        io.note(&match all {
            0 => format!("no {word} found{here}{elsewhere}"),
            _ => format!("none of the {all} {word}{here} {}{elsewhere}", args.filter()),
        });
        return Ok(());
    }
    let table: Vec<Row> = found.iter().map(cells).collect();
    let columns = vec![headings[0], "PIPELINE", "ENVIRONMENT", "VERSION", "TARGETS", "OUTLIERS"];
    Ok(Table::print(columns, table, &["TARGETS", "PIPELINE"], io)?)
}

/// The most unreadable targets that are named.
const MAX_UNREAD: usize = 10;

/// Names the targets of which rows may be missing.
fn warn_of_unread(unread: &[UnreadTarget], io: &mut Io<'_>) {
    for UnreadTarget { pipeline, target, why } in unread.iter().take(MAX_UNREAD) {
        io.note(&format!("{target} of {pipeline} is not shown in full: {why}"));
    }
    let further = unread.len().saturating_sub(MAX_UNREAD);
    if further > 0 {
        io.note(&format!("{further} more targets are not shown in full: sluice get targets lists them"));
    }
}

/// Fails if there are pipelines and none of them has this environment.
fn check_environment(pipelines: &[Pipeline], wanted: Option<&str>, namespace: Option<&str>) -> Outcome {
    let names = pipelines.iter().flat_map(|pipeline| &pipeline.spec.environments).map(|e| &e.name);
    let there: Vec<String> = names.collect::<BTreeSet<_>>().into_iter().cloned().collect();
    let Some(wanted) = wanted.filter(|wanted| !there.is_empty() && !there.iter().any(|name| name == wanted))
    else {
        return Ok(());
    };
    let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    let end = instead(wanted, &there, "environments", "it");
    Err(Failure::new(Exit::NotFound, format!("no pipeline{place} has an environment {wanted}{end}")))
}

/// Returns the charts or images of all pages, and the clusters that are missing, with the reason.
pub(crate) async fn all_pages(
    api: &ControllerApi,
    path: &str,
    filters: &[(&str, &str)],
) -> Outcome<(Vec<RunningVersion>, BTreeSet<(String, String)>)> {
    let (mut rows, mut unread, mut next) = (Vec::new(), BTreeSet::new(), String::new());
    loop {
        let parameters = [filters, &[("limit", "5000"), ("continue", &next)]].concat();
        let page: sluice_view::fleet::versions::Versions = api.get(path, &parameters).await?;
        rows.extend(page.items);
        unread.extend(page.unread.into_iter().map(|cluster| (cluster.cluster, cluster.why)));
        next = page.continue_;
        if next.is_empty() {
            return Ok((rows, unread));
        }
    }
}

/// Shows what runs on all clusters, by the controller's API.
async fn on_fleet(args: &VersionArguments, shown: Versioned, io: &mut Io<'_>) -> Outcome {
    let Versioned { word, headings, documents, .. } = shown;
    let api = ControllerApi::open(&args.cluster.open(Some(API_CALL_TIMEOUT))?, &args.server).await?;
    let path = format!("/api/v1/{word}");
    let namespace = args.cluster.namespace.clone().unwrap_or_default();
    let filters = [
        ("name", args.name.as_deref().unwrap_or_default()),
        ("namespace", &namespace),
        ("cluster", &args.on),
        ("version", &args.version),
        ("outliers", if args.outliers { "true" } else { "" }),
    ];
    let (rows, unread) = all_pages(&api, &path, &filters).await?;
    for (cluster, why) in &unread {
        let name = if cluster.is_empty() { "the hub" } else { cluster };
        io.note(&format!("{name} is not shown in full: {why}"));
    }
    if let Some(format) = args.output {
        return Ok(view(format, documents[1], &rows, io.out)?);
    }
    if rows.is_empty() {
        let right = "to see a cluster, you need the right to get its GitopsCluster";
        let place = if args.on.is_empty() { "the clusters that you may see" } else { &args.on };
        io.note(&format!("no {word} found on {place}; {right}"));
        return Ok(());
    }
    let table: Vec<Row> = rows.iter().map(fleet_cells).collect();
    let columns = vec![headings[1], "VERSION", "CLUSTER", "NAMESPACE", "OBJECT", "HEALTH", "MADE BY"];
    Ok(Table::print(columns, table, &["MADE BY", "NAMESPACE", "OBJECT"], io)?)
}

fn fleet_cells(row: &RunningVersion) -> Row {
    let version = if row.outlier { format!("{} (differs)", row.version) } else { row.version.clone() };
    vec![
        Cell::new(&row.name),
        Cell::new(version).tone(if row.outlier { Tone::Bad } else { Tone::Plain }),
        Cell::new(if row.cluster.is_empty() { "hub" } else { &row.cluster }),
        Cell::new(&row.namespace),
        Cell::new(&row.object),
        Cell::new(row.health.to_string()).tone(Tone::from(row.health)),
        Cell::new(&row.made_by),
    ]
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
