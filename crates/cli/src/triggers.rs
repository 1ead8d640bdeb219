//! `sluice triggers`: what starts a pipeline.

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use kube::api::ApiResource;
use serde::de::DeserializeOwned;
use sluice_api::flux::image::IMAGE_GROUP;
use sluice_api::flux::notification::NOTIFICATION_GROUP;
use sluice_api::flux::{HELM_GROUP, KUSTOMIZE_GROUP};
use sluice_core::fleet::Kind;
use sluice_view::triggers::{FluxObjects, TriggerView, triggers};

use crate::age::since;
use crate::cluster_flags::ClusterFlags;
use crate::complete::pipelines;
use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::exit::Outcome;
use crate::load;
use crate::objects;
use crate::output::{DataFormat, view};
use crate::reference;
use crate::terminal::{Io, Symbol};

/// The group of Flux's sources.
const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";
/// The kinds of Flux's sources.
const SOURCES: [&str; 5] = ["GitRepository", "OCIRepository", "HelmRepository", "HelmChart", "Bucket"];

/// Arguments of `sluice triggers`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What makes podinfo start: commits, charts, image automations, webhooks?
  sluice triggers podinfo -n apps

It reads objects of Flux on this cluster, as far as you may list them.")]
pub struct Triggers {
    /// The pipeline
    #[arg(value_parser = reference::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: String,
    /// Print data instead of sentences
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Triggers, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let (pipeline, promotions) = load::pipeline(&connection, &args.pipeline, io).await?;
    let flux = read(&connection, io).await?;
    let found = triggers(&pipeline, &promotions, &flux);
    if let Some(format) = args.output {
        return Ok(view(format, "Triggers", &found, io.out)?);
    }
    let mut environment = None;
    for trigger in &found {
        if environment != Some(&trigger.environment) {
            io.line(&trigger.environment)?;
            environment = Some(&trigger.environment);
        }
        lines(trigger, Timestamp::now()).into_iter().try_for_each(|line| io.line(line))?;
    }
    if found.is_empty() {
        io.note("nothing that starts it is known: its first environments have no target");
    }
    Ok(())
}

fn lines(trigger: &TriggerView, now: Timestamp) -> Vec<String> {
    let last = trigger.last.map(|at| format!(", last {} ago", since(*at, now))).unwrap_or_default();
    let mut lines = vec![format!("  {}{last}", trigger.what), format!("    {}", trigger.how)];
    if !trigger.problem.is_empty() {
        lines.push(format!("    {} {}", Symbol::Failed.glyph(), trigger.problem));
    }
    lines
}

/// Reads the objects of Flux.
async fn read(connection: &Connection, io: &mut Io<'_>) -> Outcome<FluxObjects> {
    let mut sources = Vec::new();
    for kind in SOURCES {
        let of_kind = list(connection, SOURCE_GROUP, kind, io).await?;
        sources.extend(of_kind.into_iter().map(|source| (kind.to_string(), source)));
    }
    Ok(FluxObjects {
        kustomizations: list(connection, KUSTOMIZE_GROUP, Kind::Kustomization.name(), io).await?,
        releases: list(connection, HELM_GROUP, Kind::HelmRelease.name(), io).await?,
        sources,
        policies: list(connection, IMAGE_GROUP, "ImagePolicy", io).await?,
        automations: list(connection, IMAGE_GROUP, "ImageUpdateAutomation", io).await?,
        receivers: list(connection, NOTIFICATION_GROUP, "Receiver", io).await?,
        alerts: list(connection, NOTIFICATION_GROUP, "Alert", io).await?,
        providers: list(connection, NOTIFICATION_GROUP, "Provider", io).await?,
    })
}

/// Lists the objects of a kind, of all namespaces or, if that is forbidden, of the pipeline's. A kind that the cluster does
/// not have, or that the user may not list, has none.
async fn list<K: DeserializeOwned>(
    connection: &Connection,
    group: &str,
    kind: &str,
    io: &mut Io<'_>,
) -> Outcome<Vec<K>> {
    let Some(resource) = served(connection, group, kind).await? else { return Ok(Vec::new()) };
    for namespace in [None, Some(connection.namespace.as_str())] {
        match objects::list_of(connection, &resource, namespace, io).await {
            Ok(found) => return Ok(found),
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            Err(error) => return Err(connection.explain(error)),
        }
    }
    io.note(&format!("you may not list {}: what they start is not shown", resource.plural));
    Ok(Vec::new())
}

/// Returns a kind in the version that the cluster prefers; `None` if it does not have the kind.
async fn served(connection: &Connection, group: &str, kind: &str) -> Outcome<Option<ApiResource>> {
    match kube::discovery::group(&connection.client, group).await {
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(error) => Err(connection.explain(error)),
        Ok(served) => Ok(served.recommended_kind(kind).map(|(resource, _)| resource)),
    }
}
