//! `sluice export receiver`: the objects with which a forge notifies Flux on each cluster of a pipeline of a push.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use clap_complete::ArgValueCompleter;
use kube::api::ResourceExt;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_api::pipeline::Environment;

use super::names::{address, comment_text, hash, hex, object_name};
use super::scope::{cluster_of, environments, pipeline};
use crate::cluster_flags::ClusterFlags;
use crate::exit::{Exit, Failure, Outcome};
use crate::name_completion::pipelines;
use crate::object_argument;
use crate::terminal::Io;

/// Arguments of `sluice export receiver`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # For every cluster of a pipeline; commit each part where that cluster's Flux reads it
  sluice export receiver podinfo -n apps

  # Where the clusters read another source than that of flux bootstrap
  sluice export receiver podinfo -n apps --source fleet.apps")]
pub struct Receiver {
    /// The pipeline
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: String,
    /// Only for this environment
    #[arg(short, long, value_name = "NAME")]
    environment: Option<String>,
    /// The GitRepository that the clusters read, with its namespace
    #[arg(long, value_name = "NAME.NAMESPACE", default_value = "flux-system.flux-system", value_parser = source)]
    source: Source,
    /// Name of the objects
    #[arg(long, value_name = "NAME", default_value = "sluice")]
    name: String,
    /// Address of the webhook-receiver, as the forge reaches it, if all clusters have the same
    #[arg(long, value_name = "URL", value_parser = address)]
    address: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// A GitRepository.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    namespace: String,
}

fn source(text: &str) -> Result<Source, String> {
    match text.rsplit_once('.') {
        Some((name, namespace)) if !name.is_empty() && !namespace.is_empty() => {
            Ok(Source { name: name.into(), namespace: namespace.into() })
        }
        _ => Err("write its name and namespace, such as flux-system.flux-system".into()),
    }
}

pub(crate) async fn run(args: &Receiver, io: &mut Io<'_>) -> Outcome {
    let (_, pipeline) = pipeline(&args.cluster, &args.pipeline).await?;
    let home = pipeline.namespace().unwrap_or_default();
    // A cluster has one Receiver for each repository.
    let mut places: BTreeMap<(Repository, String), BTreeSet<&str>> = BTreeMap::new();
    for environment in environments(&pipeline, args.environment.as_deref())? {
        let Some(repository) = repository(&pipeline, environment) else { continue };
        for target in &environment.targets {
            let place = (repository.clone(), cluster_of(target, &home));
            places.entry(place).or_default().insert(&environment.name);
        }
    }
    if places.is_empty() {
        let why = format!("pipeline {} promotes into no repository there", pipeline.name_any());
        let hint =
            "a Receiver is for the strategies pull-request and commit: others push nothing to a repository";
        return Err(Failure::new(Exit::Error, why).hinted(hint));
    }
    let mut printed = String::new();
    for ((repository, cluster), environments) in places {
        let environments = environments.into_iter().collect::<Vec<_>>().join(", ");
        printed.push_str(&objects(args, &home, &repository, (&cluster, &environments), &token()?));
    }
    io.out.write_all(printed.as_bytes())?;
    Ok(())
}

/// A repository on a forge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Repository {
    url: String,
    branch: String,
    forge: Option<String>,
}

fn repository(pipeline: &Pipeline, environment: &Environment) -> Option<Repository> {
    let strategy = pipeline.spec.policy(environment)?.strategy.as_ref()?;
    let forge = strategy.pull_request.as_ref().map(|s| s.forge.clone());
    strategy.repository().map(|written| Repository { url: written.url, branch: written.branch, forge })
}

/// Returns the type of Receiver for a forge, its events, and the forge's name for push events. Source:
/// fluxcd.io/flux/components/notification/receivers: `github` is also for Gitea and Forgejo, `bitbucket`
/// for Bitbucket Server and Data Center; `generic` is for all others, and its path is the secret.
fn kind(forge: Option<&str>) -> (&'static str, Value, &'static str) {
    match forge {
        Some("github" | "gitea" | "forgejo") => {
            ("github", json!(["ping", "push"]), "push events, as application/json")
        }
        Some("gitlab") => ("gitlab", json!(["Push Hook"]), "push events"),
        Some("bitbucket-server") => {
            ("bitbucket", json!(["repo:refs_changed", "diagnostics:ping"]), "repository push")
        }
        Some("azure-devops") => ("generic", json!([]), "code pushed"),
        _ => ("generic", json!([]), "pushes"),
    }
}

/// Returns a random token. For receivers of type `generic` the secret path is made from it.
fn token() -> Outcome<String> {
    let mut bytes = [0; 32];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => Ok(hex(&bytes)),
        Err(_) => Err(Failure::new(Exit::Error, "this machine gives no random numbers to make a token of")),
    }
}

/// Returns the name of the objects for a repository. It is different for each pipeline and repository, because all
/// objects of a cluster are in the namespace of its source.
fn name_of(args: &Receiver, home: &str, repository: &Repository) -> String {
    let Repository { url, branch, forge } = repository;
    let of = hash(&[url, branch, forge.as_deref().unwrap_or_default()]);
    // Namespaces have no dot.
    object_name(&format!("{}-{home}.{}-{of}", args.name, args.pipeline))
}

/// Returns Receiver and Secret for one cluster, with a comment about the webhook to register at the forge.
fn objects(
    args: &Receiver,
    home: &str,
    repository: &Repository,
    (cluster, environments): (&str, &str),
    token: &str,
) -> String {
    let (kind, events, pushes) = kind(repository.forge.as_deref());
    let object = name_of(args, home, repository);
    let Source { name: source, namespace } = &args.source;
    let metadata = json!({"name": object, "namespace": namespace});
    let secret = if kind == "generic" { "none: the path is the secret" } else { "the token of the Secret" };
    let events = if events == json!([]) { String::new() } else { format!("  events: {events}\n") };
    format!(
        "# Environment {environments}, for {cluster}. Register at {url} (branch {branch}):\n\
         #   address  {address} followed by what this prints:\n\
         #            kubectl -n {namespace} get receiver {object} -o jsonpath='{{.status.webhookPath}}'\n\
         #   events   {pushes}\n#   secret   {secret}\n\
         apiVersion: notification.toolkit.fluxcd.io/v1\nkind: Receiver\nmetadata: {metadata}\nspec:\n  \
         type: {kind}\n{events}  secretRef: {{\"name\": {name}}}\n  resources:\n  \
         - {resource}\n---\n\
         # A random one, another each time. Encrypt it before you commit it.\n\
         apiVersion: v1\nkind: Secret\nmetadata: {metadata}\nstringData:\n  \
         token: {token}\n---\n",
        url = comment_text(&repository.url),
        branch = comment_text(&repository.branch),
        address = args.address.as_deref().unwrap_or("https://<the cluster's webhook-receiver>"),
        name = json!(object),
        token = json!(token),
        resource =
            json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": source}),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use sluice_api::pipeline::Target;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Receiver,
    }

    #[test]
    fn texts_of_a_pipeline_stay_in_the_comment() {
        let odd = "x\n---\nkind: Role\r---\rkind: Role\u{85}kind: Role\u{2028}kind: Role";
        let cluster = json!({"kind": "GitopsCluster", "name": odd, "namespace": odd});
        let target: Target =
            serde_json::from_value(json!({"namespace": "a", "clusterRef": cluster})).unwrap();
        let repository = Repository { url: odd.into(), branch: odd.into(), forge: None };
        let args = Cli::parse_from(["x", "fleet", "--address", "https://x.example"]).args;
        let text = objects(&args, "apps", &repository, (&cluster_of(&target, "apps"), "dev"), "t");
        let breaks = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
        let kinds: Vec<&str> = text.split(breaks).filter(|line| line.starts_with("kind:")).collect();
        assert_eq!(kinds, ["kind: Receiver", "kind: Secret"]);
    }
}
