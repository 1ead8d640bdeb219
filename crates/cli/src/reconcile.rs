//! `sluice reconcile`: requests that Flux reconciles the sources and objects of a pipeline now, on the hub.

use std::collections::BTreeSet;

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::pipeline::{Environment, Observe, Pipeline, Target};
use sluice_core::fleet::Kind;
use sluice_view::members::members;
use sluice_view::object_name::FluxName;

use crate::cluster_flags::ClusterFlags;
use crate::complete::{environments, pipelines};
use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::exit::{Exit, Failure, Outcome};
use crate::find::missing;
use crate::flux_wait::{FluxWait, FluxWaitFlags};
use crate::object_argument;
use crate::objects;
use crate::place::Place;
use crate::terminal::{Io, Symbol};

/// The annotation that requests a reconciliation. Any change of its value does
/// ([annotations.go](https://github.com/fluxcd/pkg/blob/main/apis/meta/annotations.go)).
const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";
/// The field manager with which Flux's documentation sets the annotation.
const FIELD_MANAGER: &str = "flux-client-side-apply";

/// Arguments of `sluice reconcile`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Let Flux look at the sources and objects of podinfo now
  sluice reconcile podinfo -n apps

  # Only at those of one environment
  sluice reconcile podinfo -n apps -e dev

  # In a script: wait until Flux has fetched the sources and applied them
  sluice reconcile podinfo -n apps -e dev --wait --timeout 5m

It sets the annotation reconcile.fluxcd.io/requestedAt, as flux reconcile does, on the objects of targets on this \
cluster and on their sources. For targets on other clusters it prints the command to run there. It needs get and patch \
on these kinds of Flux. Sluice itself needs no such request: it observes every change.

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
    let is_wanted = |environment: &Environment, target: &str| {
        place.as_ref().is_none_or(|place| place.has(&environment.name, target))
    };
    let mut here = BTreeSet::new();
    for environment in &pipeline.spec.environments {
        let targets = environment.targets.iter().zip(environment.target_names());
        for (target, target_name) in targets.filter(|(_, name)| is_wanted(environment, name)) {
            let members = members(&pipeline, environment, target, &target_name);
            match &target.cluster_ref {
                None if target.observe == Observe::Watch => {
                    let namespace = &target.namespace;
                    here.extend(members.into_iter().map(|(kind, name)| FluxName {
                        kind,
                        namespace: namespace.clone(),
                        name,
                    }));
                }
                cluster => elsewhere(
                    &environment.name,
                    target,
                    cluster.as_ref().map(|c| c.name.as_str()),
                    &members,
                    io,
                ),
            }
        }
    }
    if here.is_empty() {
        return Err(Failure::new(
            Exit::Refused,
            format!("no object of pipeline {name} on this cluster is known"),
        )
        .hinted("run the commands above on the other clusters, or see what is known: sluice get targets"));
    }
    request_all(&connection, here, args.wait.begin(), io).await
}

/// Returns the API group of a kind of Flux.
fn group(kind: &str) -> Option<&'static str> {
    let kind = Kind::of_flux(kind).or_else(|| Kind::of_source(kind))?;
    (kind != Kind::ExternalArtifact).then(|| kind.resource().0)
}

/// Prints the commands for a target on another cluster.
fn elsewhere(
    environment: &str,
    target: &Target,
    cluster: Option<&str>,
    members: &BTreeSet<(String, String)>,
    io: &mut Io<'_>,
) {
    let cluster = cluster.unwrap_or("another cluster");
    for (kind, name) in members {
        let (kind, namespace) = (kind.to_ascii_lowercase(), &target.namespace);
        let command = format!("flux reconcile {kind} {name} -n {namespace} --with-source");
        io.progress(Symbol::Waiting, &format!("{environment} is on cluster {cluster}; run there: {command}"));
    }
}

/// An object of Flux as it was read.
struct ReadObject {
    named: FluxName,
    api: Api<DynamicObject>,
    object: DynamicObject,
}

/// Requests the reconciliation of the sources, and then of the objects. With `wait`, the objects are requested when Flux has
/// fetched what the sources have.
async fn request_all(
    connection: &Connection,
    here: BTreeSet<FluxName>,
    wait: Option<FluxWait>,
    io: &mut Io<'_>,
) -> Outcome {
    let mut failed = None;
    let objects = read_each(connection, here, &mut failed, io).await;
    let sources = objects.iter().filter_map(|read| source(&read.named, &read.object.data)).collect();
    let sources = read_each(connection, sources, &mut failed, io).await;
    let token = Timestamp::now().to_string();
    for group in [sources, objects] {
        let mut requested = Vec::new();
        for read in group {
            match request(connection, &read, &token, io).await {
                Ok(()) => requested.push(read),
                Err(failure) => report(&read.named, &failure, &mut failed, io),
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
    names: BTreeSet<FluxName>,
    failed: &mut Option<Exit>,
    io: &mut Io<'_>,
) -> Vec<ReadObject> {
    let mut found = Vec::new();
    for named in names {
        match read(connection, &named).await {
            Ok((api, object)) => found.push(ReadObject { named, api, object }),
            Err(failure) => report(&named, &failure, failed, io),
        }
    }
    found
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

/// Reads an object in the version that the API server serves.
async fn read(
    connection: &Connection,
    FluxName { kind, namespace, name }: &FluxName,
) -> Outcome<(Api<DynamicObject>, DynamicObject)> {
    let not_installed =
        || Failure::new(Exit::NotFound, format!("this cluster has no kind {kind}: is Flux installed?"));
    let group = group(kind).ok_or_else(not_installed)?;
    let served = match kube::discovery::group(&connection.client, group).await {
        Err(kube::Error::Discovery(_)) => return Err(not_installed()),
        served => served.map_err(|error| connection.explain(error))?,
    };
    let (resource, _) = served.recommended_kind(kind).ok_or_else(not_installed)?;
    let api: Api<DynamicObject> = Api::namespaced_with(connection.client.clone(), namespace, &resource);
    let object = api.get_opt(name).await.map_err(|error| connection.explain(error))?;
    let object = object.ok_or_else(|| Failure::new(Exit::NotFound, "it does not exist"))?;
    Ok((api, object))
}

/// Returns the source of a Kustomization or HelmRelease.
fn source(named: &FluxName, object: &Value) -> Option<FluxName> {
    let spec = &object["spec"];
    let places = ["/sourceRef", "/chart/spec/sourceRef", "/chartRef"];
    let reference = places.into_iter().find_map(|place| spec.pointer(place))?;
    let kind = reference["kind"].as_str().filter(|kind| group(kind).is_some())?;
    let namespace = reference["namespace"].as_str().unwrap_or(&named.namespace);
    let name = reference["name"].as_str()?.into();
    Some(FluxName { kind: kind.into(), namespace: namespace.into(), name })
}

/// Sets the annotation, unless the object is suspended: Flux ignores it then.
async fn request(
    connection: &Connection,
    ReadObject { named, api, object }: &ReadObject,
    token: &str,
    io: &mut Io<'_>,
) -> Outcome {
    if object.data["spec"]["suspend"] == true {
        let FluxName { kind, namespace, name } = named;
        let hint = format!(
            "kubectl patch {} {name} -n {namespace} --type merge -p '{{\"spec\": {{\"suspend\": false}}}}'",
            kind.to_ascii_lowercase()
        );
        return Err(Failure::new(Exit::Refused, "it is suspended").hinted(hint));
    }
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = json!({"metadata": {"annotations": {REQUESTED_AT: token}}});
    let patched = api.patch(&object.name_any(), &params, &Patch::Merge(patch)).await;
    patched.map_err(|error| connection.explain(error))?;
    io.progress(Symbol::Done, &format!("requested: {named}"));
    Ok(())
}
