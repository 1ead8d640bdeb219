//! `sluice export alert`: the objects with which Flux on each cluster of a pipeline reports to the hook server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::Args;
use clap_complete::ArgValueCompleter;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ResourceExt};
use serde_json::json;
use sluice_api::pipeline::{Environment, Observe, PromotionPolicy, Target};
use sluice_api::{MEMBER_LABELS, Pipeline, hook_key};

use super::names::{address, comment_text, object_name};
use super::scope::{cluster_of, environments, pipeline};
use crate::cluster_flags::ClusterFlags;
use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::name_completion::pipelines;
use crate::object_argument;
use crate::terminal::Io;

/// Arguments of `sluice export alert`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # For every cluster of a pipeline; commit each part where that cluster's Flux reads it
  sluice export alert podinfo -n apps --address https://sluice.example.com

  # For one environment, with the keys from the hub's Secret; encrypt them before you commit them
  sluice export alert podinfo -n apps -e dev --address https://sluice.example.com --show-key")]
pub struct Alert {
    /// The pipeline
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: String,
    /// Address of the hook server, as the clusters reach it, for example https://sluice.example.com
    #[arg(long, value_name = "URL", value_parser = address)]
    address: String,
    /// Only for this environment
    #[arg(short, long, value_name = "NAME")]
    environment: Option<String>,
    /// Name of the objects
    #[arg(long, value_name = "NAME", default_value = "sluice")]
    name: String,
    /// Fill in the keys from the Secret on the hub
    #[arg(long)]
    show_key: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Events that say nothing about a running revision. Flux does not send them.
const NOISE: [&str; 4] = [
    "^Dependencies do not meet ready condition",
    "^(Deployment|StatefulSet|DaemonSet|Service|ConfigMap|Secret)/.* (created|configured|deleted)",
    "^Health check passed in",
    "^Cluster state of release",
];

pub(crate) async fn run(args: &Alert, io: &mut Io<'_>) -> Outcome {
    let (connection, pipeline) = pipeline(&args.cluster, &args.pipeline).await?;
    let environments = environments(&pipeline, args.environment.as_deref())?;
    let home = pipeline.namespace().unwrap_or_default();
    // Everything is printed at the end: after an error, a user might commit half a file.
    let (mut printed, mut left_out) = (String::new(), Vec::new());
    for environment in &environments {
        // Targets in one namespace of one cluster share an Alert.
        let mut places: BTreeMap<(String, &str), Vec<&Target>> = BTreeMap::new();
        for target in &environment.targets {
            places.entry((cluster_of(target, &home), &target.namespace)).or_default().push(target);
        }
        for ((place, _), targets) in places {
            let wanted = comment_text(&key_name(&targets, &home));
            let Some(key) = key(args, &connection, (&pipeline, environment), &wanted).await? else {
                let (name, of) = (&environment.name, pipeline.name_any());
                let _ = writeln!(
                    printed,
                    "# Environment {name} of pipeline {home}/{of} has no {wanted} for {place}: {HINT}."
                );
                left_out.push(name.as_str());
                break;
            };
            printed.push_str(&objects(args, &pipeline, environment, (&place, &targets), &key));
        }
    }
    if left_out.len() == environments.len() {
        let why = format!("no key configured for calls from {}", left_out.join(" and "));
        return Err(Failure::new(Exit::Error, why).hinted(HINT));
    }
    io.out.write_all(printed.as_bytes())?;
    Ok(())
}

/// What to do if the pipeline names no Secret.
const HINT: &str = "name a Secret with that key in promotion.strategy.secretRef of the pipeline";

/// Returns the name of the key that signs events about these targets of one cluster: `hmac-key`, or the cluster's own
/// report key for targets with `observe: Push`.
fn key_name(targets: &[&Target], home: &str) -> String {
    let pushed = targets.iter().find(|target| target.observe == Observe::Push);
    let cluster = pushed.and_then(|target| target.cluster_ref.as_ref());
    cluster.map_or_else(|| hook_key::HMAC_KEY.into(), |cluster| hook_key::report_key(cluster, home))
}

/// Returns the key of this name: from the Secret of the environment, or else of a following environment, in the order of
/// the hook server. Without `--show-key` it returns a text that names the Secret. `None` if no Secret is named.
async fn key(
    args: &Alert,
    connection: &Connection,
    (pipeline, environment): (&Pipeline, &Environment),
    wanted: &str,
) -> Outcome<Option<String>> {
    let policies = pipeline.spec.policies_about(&environment.name);
    let secrets: Vec<&str> = policies.into_iter().filter_map(PromotionPolicy::secret).collect();
    let Some(first) = secrets.first() else { return Ok(None) };
    if !args.show_key {
        return Ok(Some(format!("the value of {wanted} in the hub's Secret {first}")));
    }
    let api: Api<Secret> = Api::namespaced(connection.client.clone(), &connection.namespace);
    for secret in &secrets {
        let found = api.get_opt(secret).await.map_err(|e| connection.explain(e))?;
        let key = found.and_then(|found| found.data?.remove(wanted));
        let key = key.and_then(|key| String::from_utf8(key.0).ok()).filter(|key| !key.trim().is_empty());
        if key.is_some() {
            return Ok(key);
        }
    }
    let (all, namespace) = (secrets.join(" or "), &connection.namespace);
    Err(Failure::new(
        Exit::Error,
        format!("there is no key {wanted} in Secret {all} of namespace {namespace}"),
    )
    .hinted("put a long random text there, such as openssl rand -hex 32 makes, another one for each key"))
}

/// Returns Provider, Alert and Secret for the targets in one namespace of a cluster.
fn objects(
    args: &Alert,
    pipeline: &Pipeline,
    environment: &Environment,
    (place, targets): (&str, &[&Target]),
    key: &str,
) -> String {
    let (namespace, name) = (pipeline.namespace().unwrap_or_default(), pipeline.name_any());
    let (cluster, there) = (targets[0].cluster_ref.as_ref(), &targets[0].namespace);
    // Neither namespaces nor environments have a dot, so that no two pipelines share a name.
    let object = object_name(&format!("{}-{namespace}.{name}.{}", args.name, environment.name));
    let address = format!("{}/promotion/{namespace}/{name}/{}", args.address, environment.name);
    let metadata = json!({"name": object, "namespace": there});
    let mut event_metadata =
        json!({"pipeline": format!("{namespace}/{name}"), "environment": environment.name});
    if let Some(cluster) = cluster {
        event_metadata["cluster"] = json!(environment.name_of_cluster(cluster, &namespace));
    }
    let noise = NOISE.map(|n| format!("  - {}\n", json!(n))).concat();
    let mut sources = String::new();
    for source in sources_of(pipeline, targets) {
        let _ = writeln!(sources, "  - {source}");
    }
    format!(
        "# Environment {} of pipeline {namespace}/{name}, for {place}, namespace {}.\n\
         apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {metadata}\nspec:\n  \
         type: generic-hmac\n  address: {}\n  # Room for all five tries.\n  timeout: 60s\n  \
         secretRef: {{\"name\": {}}}\n---\n\
         apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {metadata}\nspec:\n  \
         providerRef: {{\"name\": {}}}\n  eventSeverity: info\n  eventMetadata: {event_metadata}\n  \
         eventSources:\n{sources}  exclusionList:\n{noise}---\n\
         # Encrypt it before you commit it, or make it by hand.\n\
         apiVersion: v1\nkind: Secret\nmetadata: {metadata}\nstringData:\n  token: {}\n---\n",
        environment.name,
        there,
        json!(address),
        json!(object),
        json!(object),
        json!(key),
    )
}

/// Returns the objects whose events are sent: those that the pipeline names, else those with one of its labels.
fn sources_of(pipeline: &Pipeline, targets: &[&Target]) -> Vec<serde_json::Value> {
    let app = pipeline.spec.app_ref.iter().map(|a| (a.kind.clone(), a.name.clone()));
    let named: BTreeSet<_> = app
        .chain(targets.iter().flat_map(|t| &t.workloads).map(|w| (w.kind.clone(), w.name.clone())))
        .collect();
    if named.is_empty() {
        // One label is enough for a member. An event source with several labels would require all of them.
        let of = |label: &str| {
            let labels = json!({label: pipeline.name_any()});
            ["HelmRelease", "Kustomization"]
                .map(|kind| json!({"kind": kind, "name": "*", "matchLabels": labels}))
        };
        return MEMBER_LABELS.iter().flat_map(|label| of(label)).collect();
    }
    named.into_iter().map(|(kind, name)| json!({"kind": kind, "name": name})).collect()
}
