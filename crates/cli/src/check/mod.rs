//! `sluice check`: finds what is wrong with the installation and says how to fix it. The files of this folder read the
//! facts, one file for each group; `sluice_view::check` turns them into findings.

mod clocks;
mod clusters;
mod controller;
mod definitions;
mod flux;
mod hooks;
mod installation;
mod installation_question;
mod observed;
mod pipeline_secrets;
mod read;
mod rights;
mod values;

use std::path::PathBuf;

use clap::Args;
use kube::api::ListParams;
use kube::core::object::HasSpec;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use sluice_api::lenient::List;
use sluice_api::{GROUP, Pipeline, Promotion};
use sluice_view::check::clocks::ClockOf;
use sluice_view::check::clusters::NamedCluster;
use sluice_view::check::observed::Observed;
use sluice_view::check::pipelines::Pipelines;
use sluice_view::check::{CheckFacts, CheckReport, Finding, Reading, Severity, Topic, check};

pub use self::installation::read_installation;
pub use self::installation_question::InstallationQuestion;
use self::read::fact;
use crate::cluster_flags::ClusterFlags;
use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::controller_api::{ServerFlags, unidentified};
use crate::document_kind::DocumentKind;
use crate::exit::{Exit, Failure, Outcome};
use crate::objects::describe;
use crate::output::{DataFormat, view};
use crate::paged_list;
use crate::table::{Tone, marked};
use crate::terminal::{Io, Symbol};
use crate::user_name::user_name;

/// Arguments of `sluice check`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # After the installation, or when something is wrong
  sluice check -A

  # Only what concerns the pipelines of one namespace
  sluice check -n apps

  # Only what is wrong
  sluice check -A --quiet

  # And does the repository have the values that promotions set?
  sluice check -A --checkout .

  # In a script: exit code 0 without errors, 11 with errors
  sluice check -A -o json

The command checks the definitions, the admission policy, the controller, Flux on this cluster, your rights and the \
clocks. It also checks the pipelines, and the clusters, kubeconfigs and Secrets that they name. If there are clusters, it \
sends your token to the controller, and asks whether the controller can read them, and which Flux they run. With --checkout it looks for the values that the \
pipelines set in git. It changes nothing. An object that you may not read is a warning.")]
pub struct Check {
    /// Check the pipelines and clusters of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Leave out what is as it should be
    #[arg(short, long)]
    quiet: bool,
    /// A checkout of the repository that the strategies name: check that it has the values to set
    #[arg(long, value_name = "DIR")]
    checkout: Option<PathBuf>,
    /// The repository of the checkout, if the strategies name several
    #[arg(long, value_name = "URL", requires = "checkout")]
    repository: Option<String>,
    /// Print data instead of sentences
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) async fn run(args: &Check, version: &str, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let mut report = report(args, version, &connection).await?;
    if args.quiet {
        report.findings.retain(|finding| finding.severity != Severity::Ok);
    }
    match args.output {
        Some(format) => view(format, DocumentKind::Check, &report, io.out)?,
        None => print(&report, io)?,
    }
    io.flush()?;
    let sum = summary(&report);
    if report.errors > 0 {
        return Err(Failure::new(Exit::Faulty, sum));
    }
    io.progress(Symbol::Done, &sum);
    Ok(())
}

/// Reads all facts and returns the findings.
async fn report(args: &Check, version: &str, connection: &Connection) -> Outcome<CheckReport> {
    let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
    let explain = |error| connection.explain(error);
    let client = &connection.client;
    let found = of_kind::<Pipeline>(client, namespace, "pipelines").await.map_err(explain)?;
    let promotions = of_kind::<Promotion>(client, namespace, "promotions").await.map_err(explain)?;
    let none = Vec::new();
    let readable = found.known().map_or(&none, |list| &list.items);
    let question = InstallationQuestion {
        namespace,
        pipelines: readable,
        are_all_pipelines: found.known().is_some_and(|list| list.unreadable.is_empty()),
        controller_namespace: args.server.controller.system_namespace.clone(),
        version,
        is_controller: false,
        clock_of: ClockOf::Command,
        // Old API servers do not say who the caller is.
        user: user_name(connection).await.ok(),
        is_through_hub: args.server.is_through_hub(),
        unidentified: unidentified(connection).map(|(why, fix)| (why.into(), fix.into())),
        is_bounded: false,
    };
    let (installation, clusters, secrets) = tokio::try_join!(
        read_installation(client, question),
        clusters::read(client, namespace, readable),
        pipeline_secrets::read(client, readable),
    )
    .map_err(explain)?;
    // If the pipelines cannot be read, a finding says so.
    let checkout = args.checkout.as_deref().filter(|_| found.known().is_some());
    let values = checkout.map(|checkout| values::read(readable, checkout, args.repository.as_deref()));
    let has_clusters = !matches!(installation.definitions.gitops_clusters, Reading::Absent);
    let clusters = if has_clusters { clusters } else { Vec::new() };
    let observed = match clusters.iter().any(NamedCluster::may_exist) {
        true => observed::read(connection, &args.server).await,
        false => Observed::NoClusters,
    };
    let sentences = |list: &List<Pipeline>| list.unreadable.iter().map(describe::<Pipeline, _>).collect();
    let pipelines = match &found {
        Reading::Known(list) => Reading::Known((readable.as_slice(), sentences(list))),
        unread => unread.clone().map(|_| (readable.as_slice(), Vec::new())),
    };
    let namespace = namespace.map(String::from);
    Ok(check(&CheckFacts {
        installation: Some(installation),
        clusters,
        observed,
        secrets: Some(secrets),
        pipelines: Pipelines { namespace, found: pipelines, promotions: promotions.map(|list| list.items) },
        values: values.transpose()?,
    }))
}

/// Reads the objects of a kind of Sluice.
async fn of_kind<K>(client: &Client, namespace: Option<&str>, plural: &str) -> kube::Result<Reading<List<K>>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    K: HasSpec<Spec: DeserializeOwned + Send>,
{
    let answer = paged_list::list(client, namespace, &ListParams::default()).await;
    fact(answer, || match namespace {
        Some(namespace) => format!("list on {plural}.{GROUP} in namespace {namespace}"),
        None => format!("list on {plural}.{GROUP} in all namespaces (name one with -n)"),
    })
}

/// Prints the findings below the heading of their topic.
fn print(report: &CheckReport, io: &mut Io<'_>) -> Outcome {
    let mut topic: Option<Topic> = None;
    for Finding { topic: of, severity, message, fix } in &report.findings {
        if topic.replace(*of) != Some(*of) {
            io.line(of.heading())?;
        }
        let (mark, tone) = match severity {
            Severity::Ok => (Symbol::Done.glyph(), Tone::Good),
            Severity::Warning => ("!", Tone::Held),
            Severity::Error => (Symbol::Failed.glyph(), Tone::Bad),
        };
        marked(mark, tone, message, io)?;
        if let Some(fix) = fix {
            io.copyable_line(format!("    {} {fix}", Symbol::Action.glyph()))?;
        }
    }
    Ok(())
}

fn summary(report: &CheckReport) -> String {
    let count = |n: usize, noun: &str| match n {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    };
    format!("{}, {}", count(report.errors, "error"), count(report.warnings, "warning"))
}
