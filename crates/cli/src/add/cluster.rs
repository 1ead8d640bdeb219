//! `sluice add cluster`: the steps of docs/operations.md, "Add a cluster". Without `--apply` it changes nothing.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::GitopsCluster;
use sluice_api::gitops_cluster::gitops_cluster_resource;
use sluice_api::kubeconfig_key::KUBECONFIG_KEYS;

use super::target_account::{self, MANIFESTS, kind};
use crate::cluster_flags::ClusterFlags;
use crate::connection::{API_CALL_TIMEOUT, Connection, ConnectionOptions};
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use crate::promotion_change::FIELD_MANAGER;
use crate::terminal::{Io, Symbol};
use sluice_core::dns_name::is_label;

/// Arguments of `sluice add cluster`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What would be done to connect the cluster of the context eu as the GitopsCluster apps/prod-eu?
  sluice add cluster prod-eu --cluster-context eu -n apps

  # Do it, with the address by which the hub reaches the cluster
  sluice add cluster prod-eu --cluster-context eu -n apps --server https://eu.example.com:6443 --apply

  # With git: commit the first for the new cluster; then the second for the hub, encrypted
  sluice add cluster prod-eu --cluster-context eu -n apps --export target
  sluice add cluster prod-eu --cluster-context eu -n apps --export hub

--context and --kubeconfig choose the hub, --cluster-context and --cluster-kubeconfig the new cluster. The account on \
the new cluster may only read (deploy/target). The kubeconfig on the hub has its token, in a Secret NAME-kubeconfig.")]
pub struct Cluster {
    /// The name of the GitopsCluster
    #[arg(value_parser = cluster_name)]
    name: String,
    /// Context of the new cluster; default is the current one of --cluster-kubeconfig
    #[arg(long, value_name = "NAME", required_unless_present = "cluster_kubeconfig")]
    cluster_context: Option<String>,
    /// Kubeconfig file of the new cluster; default is that of the hub
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: Option<PathBuf>,
    /// Address by which the hub reaches the new cluster; default is that of the context
    #[arg(long, value_name = "URL", value_parser = https)]
    server: Option<String>,
    /// Create the objects on both clusters
    #[arg(long, conflicts_with = "export")]
    apply: bool,
    /// Print the objects of one of the clusters as YAML; those of the hub have the token
    #[arg(long, value_name = "CLUSTER")]
    export: Option<Side>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// The cluster whose objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    /// The new cluster
    Target,
    /// The hub
    Hub,
}

/// Checks the name of a GitopsCluster.
fn cluster_name(text: &str) -> Result<String, String> {
    match is_label(text) {
        true => Ok(text.into()),
        false => Err("a cluster's name is made of lower-case letters, digits and '-'".into()),
    }
}

/// Checks an address.
fn https(text: &str) -> Result<String, String> {
    match text
        .strip_prefix("https://")
        .is_some_and(|rest| !rest.is_empty() && !rest.contains([' ', '@', '?', '#']))
    {
        true => Ok(text.trim_end_matches('/').into()),
        false => Err("write https:// and the address of the API server".into()),
    }
}

pub(crate) async fn run(args: &Cluster, io: &mut Io<'_>) -> Outcome {
    if args.export == Some(Side::Target) {
        return MANIFESTS.iter().try_for_each(|manifest| {
            writeln!(io.out, "---")?;
            Ok(io.out.write_all(manifest.as_bytes())?)
        });
    }
    let hub = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let target = ConnectionOptions {
        kubeconfig: args.cluster_kubeconfig.clone().or_else(|| args.cluster.kubeconfig.clone()),
        context: args.cluster_context.clone(),
        ..ConnectionOptions::default()
    };
    let target = Connection::open(target, Some(API_CALL_TIMEOUT))?;
    let server = address(args, &hub, &target, io)?;
    let exists = existing(&hub, &args.name).await?;
    match (args.apply, args.export) {
        (false, Some(_)) => {
            let token = target_account::token(&target, false).await?;
            let objects = hub_objects(args, &hub, &token.kubeconfig(&args.name, &server))?;
            io.progress(Symbol::Waiting, "the Secret has a token: encrypt it before you commit it");
            for object in objects {
                writeln!(io.out, "---")?;
                io.out.write_all(output::yaml(&object)?.as_bytes())?;
            }
            Ok(())
        }
        (false, None) => plan(args, &hub, &server, exists, io),
        (true, _) => apply(args, (&hub, &target), &server, io).await,
    }
}

/// Returns the address of the new cluster for the hub.
fn address(args: &Cluster, hub: &Connection, target: &Connection, io: &mut Io<'_>) -> Outcome<String> {
    if target.server() == hub.server() {
        return Err(Failure::new(Exit::Usage, format!("the new cluster and the hub are both {}", hub.server()))
            .hinted("a target on the hub needs no GitopsCluster: leave out its clusterRef; else name the other cluster with --cluster-context"));
    }
    let server = args.server.clone().unwrap_or_else(|| target.server().trim_end_matches('/').to_owned());
    if !server.starts_with("https://") {
        return Err(Failure::new(
            Exit::Usage,
            format!("the address of the new cluster is {server}, and Sluice needs https"),
        )
        .hinted("name its https address with --server"));
    }
    let is_local =
        ["https://127.", "https://localhost", "https://[::1]"].iter().any(|local| server.starts_with(local));
    if is_local {
        io.progress(
            Symbol::Waiting,
            &format!(
                "{server} leads to the same machine: if the hub is elsewhere, name the address with --server"
            ),
        );
    }
    Ok(server)
}

/// Returns true if the GitopsCluster exists.
///
/// # Errors
/// When the hub does not have the kind, or the GitopsCluster names another Secret.
async fn existing(hub: &Connection, name: &str) -> Outcome<bool> {
    match clusters(hub).get_opt(name).await {
        Ok(None) => {
            // An API server without the kind gives the same answer.
            let groups = hub.client.list_api_groups().await.map_err(|error| hub.explain(error))?;
            match groups.groups.iter().any(|group| group.name == "gitops.weave.works") {
                true => Ok(false),
                false => Err(Failure::new(Exit::Cluster, "the hub does not have the kind GitopsCluster")
                    .hinted("kubectl apply --server-side -f deploy/gitopscluster.yaml")),
            }
        }
        Ok(Some(cluster)) => match cluster.spec.kubeconfig_secret() {
            Some(secret) if secret != secret_name(name) => {
                let message =
                    format!("GitopsCluster {name} exists, and its kubeconfig is in Secret {secret}");
                Err(Failure::new(Exit::Refused, message).hinted("choose another name, or change that Secret"))
            }
            _ => Ok(true),
        },
        Err(error) => Err(hub.explain(error)),
    }
}

fn clusters(hub: &Connection) -> Api<GitopsCluster> {
    Api::namespaced_with(hub.client.clone(), &hub.namespace, &gitops_cluster_resource())
}

fn secret_name(cluster: &str) -> String {
    format!("{cluster}-kubeconfig")
}

/// Returns the Secret and the GitopsCluster.
fn hub_objects(args: &Cluster, hub: &Connection, kubeconfig: &Value) -> Outcome<[Value; 2]> {
    let (name, namespace) = (&args.name, &hub.namespace);
    let secret = secret_name(name);
    let text = output::yaml(kubeconfig)?;
    Ok([
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": namespace},
            "stringData": {KUBECONFIG_KEYS[0]: text}}),
        json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"secretRef": {"name": secret}}}),
    ])
}

/// Prints what `--apply` does.
fn plan(args: &Cluster, hub: &Connection, server: &str, exists: bool, io: &mut Io<'_>) -> Outcome {
    io.line(format!("on the new cluster ({server}):"))?;
    for object in target_account::objects()? {
        let name = object.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default()
            + &object.name_any();
        io.line(format!("  {} {name}", kind(&object)))?;
    }
    let namespace = &hub.namespace;
    io.line(format!("on the hub ({}):", hub.server().trim_end_matches('/')))?;
    io.line(format!("  Secret {namespace}/{}, with the token of the account", secret_name(&args.name)))?;
    let known = if exists { " (exists)" } else { "" };
    io.line(format!("  GitopsCluster {namespace}/{}{known}", args.name))?;
    io.flush()?;
    io.progress(Symbol::Waiting, "nothing was changed: --apply creates these objects, --export prints them");
    Ok(())
}

async fn apply(
    args: &Cluster,
    (hub, target): (&Connection, &Connection),
    server: &str,
    io: &mut Io<'_>,
) -> Outcome {
    io.progress(Symbol::Action, "creating the account on the new cluster");
    target_account::apply(target).await?;
    let token = target_account::token(target, true).await?;
    io.progress(Symbol::Done, "the account has a token; it may only read");
    let [secret, cluster] = hub_objects(args, hub, &token.kubeconfig(&args.name, server))?;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(hub.client.clone(), &hub.namespace);
    let applied = secrets.patch(&secret_name(&args.name), &params, &Patch::Apply(&secret)).await;
    applied.map_err(|error| hub.explain(error))?;
    let applied = clusters(hub).patch(&args.name, &params, &Patch::Apply(&cluster)).await;
    applied.map_err(|error| hub.explain(error))?;
    let (name, namespace) = (&args.name, &hub.namespace);
    io.progress(Symbol::Done, &format!("GitopsCluster {namespace}/{name} leads to {server}"));
    io.note(&format!(
        "  name it in a Pipeline: clusterRef: {{kind: GitopsCluster, name: {name}, namespace: {namespace}}}"
    ));
    Ok(())
}
