//! `sluice triggers`: what starts a pipeline.

use std::collections::BTreeMap;

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use sluice_core::fleet::{ClusterKey, Kind};
use sluice_view::triggers::{
    ReadObjects, TriggerObjects, TriggerView, Triggers as StartedBy, clusters, triggers,
};

use crate::age::since;
use crate::cluster_flags::ClusterFlags;
use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::controller_api::{ControllerApi, ServerFlags};
use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::load;
use crate::name_completion::pipelines;
use crate::object_argument;
use crate::objects;
use crate::output::{DataFormat, view};
use crate::served_kind::ServedKinds;
use crate::terminal::{Io, Symbol};

/// Arguments of `sluice triggers`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What makes podinfo start: commits, charts, image automations, webhooks?
  sluice triggers podinfo -n apps

If the pipeline begins on other clusters, the command asks the controller, which gets your token. Otherwise, or if the \
controller cannot be asked, it reads objects of Flux on this cluster, as far as you may list them.")]
pub struct Triggers {
    /// The pipeline
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: String,
    /// Print data instead of sentences
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) async fn run(args: &Triggers, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let (pipeline, promotions) = load::pipeline(&connection, &args.pipeline, io).await?;
    // Only the controller reads the other clusters. The objects of the hub are all that a pipeline without them needs.
    let has_others = clusters(&pipeline).iter().any(|cluster| *cluster != ClusterKey::Local);
    let asked = match has_others {
        true => ask_controller(&connection, args, io).await,
        false => None,
    };
    let found = match asked {
        Some(found) => found,
        None => {
            let objects = TriggerObjects::from(&read(&connection, io).await?);
            triggers(&pipeline, &promotions, &BTreeMap::from([(ClusterKey::Local, Ok(objects))]))
        }
    };
    if let Some(format) = args.output {
        return Ok(view(format, DocumentKind::Triggers, &found, io.out)?);
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

/// Returns what starts the pipeline, by the controller's API. Returns `None`, with a note, if the API cannot be asked.
async fn ask_controller(
    connection: &Connection,
    args: &Triggers,
    io: &mut Io<'_>,
) -> Option<Vec<TriggerView>> {
    let path = format!("/api/v1/pipelines/{}/{}/triggers", connection.namespace, args.pipeline);
    let asked = async {
        let api = ControllerApi::open(connection, &args.server).await?;
        api.get::<StartedBy>(&path, &[]).await
    };
    match asked.await {
        Ok(StartedBy { items, unread }) => {
            unread.iter().for_each(|sentence| io.note(sentence));
            Some(items)
        }
        Err(failure) => {
            io.note(&format!("what starts it on other clusters is not shown: {failure}"));
            failure.hint.iter().for_each(|hint| io.note(&format!("  {hint}")));
            None
        }
    }
}

fn lines(trigger: &TriggerView, now: Timestamp) -> Vec<String> {
    let last = trigger.last.map(|at| format!(", last {} ago", since(*at, now))).unwrap_or_default();
    let on = if trigger.cluster.is_empty() { String::new() } else { format!(" on {}", trigger.cluster) };
    let mut lines = vec![format!("  {}{on}{last}", trigger.what), format!("    {}", trigger.how)];
    if !trigger.problem.is_empty() {
        lines.push(format!("    {} {}", Symbol::Failed.glyph(), trigger.problem));
    }
    lines
}

/// Reads the objects of Flux.
async fn read(connection: &Connection, io: &mut Io<'_>) -> Outcome<ReadObjects> {
    let of_sources = || Kind::SHOWN.into_iter().chain([Kind::GitRepository]);
    let kinds = of_sources().chain([Kind::Kustomization, Kind::HelmRelease]).chain(Kind::SHOWN_ON_HUB);
    let served = ServedKinds::of(connection, &kinds.collect::<Vec<_>>()).await?;
    let from = (connection, &served);
    let mut sources = Vec::new();
    for kind in of_sources() {
        let of_kind = list(from, kind, io).await?;
        sources.extend(of_kind.into_iter().map(|source| (kind, source)));
    }
    Ok(ReadObjects {
        kustomizations: list(from, Kind::Kustomization, io).await?,
        releases: list(from, Kind::HelmRelease, io).await?,
        sources,
        policies: list(from, Kind::ImagePolicy, io).await?,
        automations: list(from, Kind::ImageUpdateAutomation, io).await?,
        receivers: list(from, Kind::Receiver, io).await?,
        alerts: list(from, Kind::Alert, io).await?,
        providers: list(from, Kind::Provider, io).await?,
    })
}

/// Lists the objects of a kind, of all namespaces or, if that is forbidden, of the pipeline's. A kind that the cluster does
/// not have, or that the user may not list, has none.
async fn list<K: DeserializeOwned>(
    (connection, served): (&Connection, &ServedKinds),
    kind: Kind,
    io: &mut Io<'_>,
) -> Outcome<Vec<K>> {
    let Some(resource) = served.get(kind) else { return Ok(Vec::new()) };
    for namespace in [None, Some(connection.namespace.as_str())] {
        match objects::list_of(connection, &resource, (namespace, &ListParams::default()), io).await {
            Ok(found) => return Ok(found),
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            Err(error) => return Err(connection.explain(error)),
        }
    }
    io.note(&format!("you may not list {}: what they start is not shown", resource.plural));
    Ok(Vec::new())
}
