//! `sluice reconcile`: requests that Flux reconciles the sources and objects of a pipeline now, on the hub.

use std::collections::BTreeSet;

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use kube::api::DynamicObject;
use sluice_api::pipeline::Pipeline;
use sluice_core::fleet::Kind;
use sluice_view::object_name::FluxName;
use sluice_view::reconcile::{CommandElsewhere, plan, source_of};

use crate::cluster_flags::ClusterFlags;
use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::exit::{Exit, Failure, Outcome};
use crate::find::missing;
use crate::flux_request::{FluxRequestError, FluxRequests, ReadObject};
use crate::flux_wait::{FluxWait, FluxWaitFlags};
use crate::name_completion::{environments, pipelines};
use crate::object_argument;
use crate::objects;
use crate::place::Place;
use crate::terminal::{Io, Symbol};

/// Arguments of `sluice reconcile`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Let Flux look at the sources and objects of podinfo now
  sluice reconcile podinfo -n apps

  # Only at those of one environment
  sluice reconcile podinfo -n apps -e dev

  # In a script: wait until Flux has fetched the sources and applied them
  sluice reconcile podinfo -n apps -e dev --wait --timeout 5m

It sets the annotation reconcile.fluxcd.io/requestedAt, as flux reconcile --with-source does, on the objects of targets \
on this cluster and on their sources, and on each GitRepository here that follows the branch that Sluice commits to. For \
targets on other clusters it prints the command to run there. It needs get and patch \
on these kinds of Flux, and list on gitrepositories. Sluice itself needs no such request: it observes every change.

Exit codes with --wait: 0 if Flux has reconciled everything, 8 if Flux could not reconcile an object, and 9 if the time \
is up. The command does not wait for targets on other clusters.")]
pub struct Reconcile {
    /// The pipeline
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: String,
    /// Only this environment, or ENVIRONMENT/TARGET
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(environments))]
    environment: Option<String>,
    #[command(flatten)]
    wait: FluxWaitFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Reconcile, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let name = &args.pipeline;
    let found = objects::get::<Pipeline>(&connection, &connection.namespace, name).await?;
    let Some(pipeline) = found else { return Err(missing::<Pipeline>(&connection, name, false).await) };
    let place = args.environment.as_ref().map(|wanted| Place::find(&pipeline, wanted)).transpose()?;
    let plan = plan(&pipeline, |environment, target| {
        place.as_ref().is_none_or(|place| place.has(&environment.name, target))
    });
    for CommandElsewhere { environment, cluster, command } in &plan.elsewhere {
        let cluster =
            if cluster.is_empty() { "another cluster".into() } else { format!("cluster {cluster}") };
        io.progress(Symbol::Waiting, &format!("{environment} is on {cluster}; run there: {command}"));
    }
    let mut requests = FluxRequests::new(connection.client.clone());
    let sources = match requests.followers(&plan.repositories, &connection.namespace).await {
        Ok(sources) => sources,
        Err(FluxRequestError::Api(kube::Error::Api(status))) if status.code == 403 => {
            io.note("the source that Sluice commits to is not fetched: that needs list on gitrepositories");
            BTreeSet::new()
        }
        Err(error) => return Err(failure(&connection, error)),
    };
    if plan.here.is_empty() && sources.is_empty() {
        return Err(Failure::new(
            Exit::Refused,
            format!("no object of pipeline {name} on this cluster is known"),
        )
        .hinted("run the commands above on the other clusters, or see what is known: sluice get targets"));
    }
    request_all(&connection, requests, (sources, plan.here), args.wait.begin(), io).await
}

/// Requests the reconciliation of the sources, and then of the objects. With `wait`, the objects are requested when Flux has
/// fetched what the sources have.
async fn request_all(
    connection: &Connection,
    mut requests: FluxRequests,
    (mut sources, here): (BTreeSet<FluxName>, BTreeSet<FluxName>),
    wait: Option<FluxWait>,
    io: &mut Io<'_>,
) -> Outcome {
    let mut failed = None;
    let objects = read_each(connection, &mut requests, here, &mut failed, io).await;
    sources.extend(objects.iter().filter_map(|read| source_of(&read.named, &read.object.data["spec"])));
    let sources = read_each(connection, &mut requests, sources, &mut failed, io).await;
    let token = Timestamp::now().to_string();
    for group in [sources, objects] {
        let mut requested = Vec::new();
        for read in group {
            match read.request(&token).await {
                Ok(()) => {
                    io.progress(Symbol::Done, &format!("requested: {}", read.named));
                    requested.push(read);
                }
                Err(FluxRequestError::Suspended) => {
                    report(&read.named, &suspended(&read.named), &mut failed, io);
                }
                Err(error) => report(&read.named, &failure(connection, error), &mut failed, io),
            }
        }
        for ReadObject { named, api, object } in requested {
            let Some(wait) = wait.filter(|_| !is_static(&named, &object)) else { continue };
            if let Err(failure) = wait.until_reconciled(connection, (&named, &api), &token, io).await {
                report(&named, &failure, &mut failed, io);
            }
        }
    }
    match failed {
        Some(exit) => Err(Failure::new(exit, "")),
        None => Ok(()),
    }
}

/// Reads objects, and reports those that cannot be read.
async fn read_each(
    connection: &Connection,
    requests: &mut FluxRequests,
    names: BTreeSet<FluxName>,
    failed: &mut Option<Exit>,
    io: &mut Io<'_>,
) -> Vec<ReadObject> {
    let mut found = Vec::new();
    for named in names {
        match requests.read(&named).await {
            Ok(read) => found.push(read),
            Err(error) => report(&named, &failure(connection, error), failed, io),
        }
    }
    found
}

/// Returns the failure of a request.
fn failure(connection: &Connection, error: FluxRequestError) -> Failure {
    match error {
        FluxRequestError::Api(error) => connection.explain(error),
        error => Failure::new(Exit::NotFound, error.to_string()),
    }
}

/// Returns the failure for a suspended object, with the command that resumes it.
fn suspended(FluxName { kind, namespace, name }: &FluxName) -> Failure {
    let kind = kind.to_ascii_lowercase();
    let hint = format!(
        "kubectl patch {kind} {name} -n {namespace} --type merge -p '{{\"spec\": {{\"suspend\": false}}}}'"
    );
    Failure::new(Exit::Refused, FluxRequestError::Suspended.to_string()).hinted(hint)
}

/// Returns true for a source that Flux never reconciles: a HelmRepository of type `oci`.
fn is_static(named: &FluxName, object: &DynamicObject) -> bool {
    named.kind == Kind::HelmRepository.name() && object.data["spec"]["type"] == "oci"
}

fn report(named: &FluxName, failure: &Failure, failed: &mut Option<Exit>, io: &mut Io<'_>) {
    io.progress(Symbol::Failed, &format!("{named}: {failure}"));
    if let Some(hint) = &failure.hint {
        io.note(&format!("  {hint}"));
    }
    failed.get_or_insert(failure.exit);
}
