//! Names for shell completion, read from the cluster while the user types. After any error (no cluster, no permission, no
//! answer in time) the shell gets no names and no message.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::time::Duration;

use clap::builder::StyledStr;
use clap_complete::CompletionCandidate;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::core::{NamespaceScope, ObjectMeta};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use sluice_api::gitops_cluster::gitops_cluster_resource;
use sluice_api::{GitopsCluster, Pipeline, Promotion};

use crate::connection::{Connection, ConnectionOptions};
use crate::flux_plugin::{COMPLETE, complete_for_flux};
use crate::objects;
use sluice_core::dns_name::{is_label, is_subdomain};
use sluice_view::fleet::running_on;

/// The environment variable by which the shell's script asks for candidates.
pub(crate) const VARIABLE: &str = "SLUICE_COMPLETE";

/// How long a completion may take. Without an answer by then, the shell completes nothing.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);

/// Prints the candidates and ends the process if a shell or Flux asks for them; otherwise returns.
pub fn complete(cli: fn() -> clap::Command) {
    clap_complete::CompleteEnv::with_factory(cli).var(VARIABLE).complete();
    if complete_for_flux(cli()) {
        std::process::exit(0);
    }
}

/// Returns the names of pipelines.
pub(crate) fn pipelines(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |connection, words| names::<Pipeline>(&connection, &words).await)
}

/// Returns the names of promotions.
pub(crate) fn promotions(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |connection, words| names::<Promotion>(&connection, &words).await)
}

/// Returns the names of promotions and of pipelines, for commands that take either.
pub(crate) fn promotions_and_pipelines(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |connection, words| {
        let (promotions, pipelines) =
            tokio::join!(names::<Promotion>(&connection, &words), names::<Pipeline>(&connection, &words));
        Some([promotions?, pipelines?].concat())
    })
}

/// Returns the environments of the pipelines that the command line names, or else of all pipelines.
pub(crate) fn environments(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |connection, words| {
        let (here, params) = (Some(connection.namespace.as_str()), ListParams::default().match_any());
        let all = objects::list::<Pipeline>(&connection, here, &params).await.ok()?.items;
        let named = |p: &Pipeline| words.0.iter().any(|word| *word == p.name_any());
        let any_named = all.iter().any(named);
        let chosen = all.into_iter().filter(|p| !any_named || named(p));
        let environments = chosen.flat_map(|p| p.spec.environments).map(|e| (e.name, None));
        Some(environments.collect())
    })
}

/// Returns the names of namespaces.
pub(crate) fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |connection, _| {
        let api: Api<Namespace> = Api::all(connection.client);
        let all = api.list_metadata(&ListParams::default().match_any()).await.ok()?.items;
        Some(all.into_iter().filter_map(|n| Some((n.metadata.name?, None))).collect())
    })
}

/// Returns the GitopsClusters of all namespaces, as `NAMESPACE/NAME`, and the hub.
pub(crate) fn clusters(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |connection, _| {
        let api: Api<GitopsCluster> = Api::all_with(connection.client, &gitops_cluster_resource());
        let all = api.list_metadata(&ListParams::default().match_any()).await.ok()?.items;
        let of_cluster = |meta: ObjectMeta| Some((format!("{}/{}", meta.namespace?, meta.name?), None));
        let clusters = all.into_iter().filter_map(|cluster| of_cluster(cluster.metadata));
        Some(clusters.chain([("hub".to_owned(), None)]).collect())
    })
}

/// Returns what runs on the cluster of `--on` (or the hub) and in the namespace of the command line, as `kind/name`: the
/// members and workloads of targets.
pub(crate) fn running_objects(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |connection, words| {
        let params = ListParams::default().match_any();
        let all = objects::list::<Pipeline>(&connection, None, &params).await.ok()?.items;
        let on = words.value(None, "on").filter(|on| on != "hub").unwrap_or_default();
        let found = all.iter().flat_map(|p| running_on(p, &on, &connection.namespace));
        Some(found.map(|object| (object, None)).collect())
    })
}

/// Returns the contexts of the kubeconfig.
pub(crate) fn contexts(current: &OsStr) -> Vec<CompletionCandidate> {
    let kubeconfig = match Words::of_process().connection_options().kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let contexts = kubeconfig.map(|kubeconfig| kubeconfig.contexts).unwrap_or_default();
    let names = contexts.into_iter().map(|context| (context.name, None)).collect();
    candidates(current.to_str().unwrap_or_default(), names, is_context)
}

/// Whether the shell reads the name of a context as one plain word, such as those of kind, GKE and EKS.
fn is_context(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._@:/-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_plain)
}

/// Whether all parts of a name between slashes are names that Kubernetes allows.
fn is_path(name: &str) -> bool {
    name.split('/').all(is_subdomain)
}

/// A name, and its kind if names of several kinds are listed.
type Name = (String, Option<&'static str>);

async fn names<K>(connection: &Connection, words: &Words) -> Option<Vec<Name>>
where
    K: Resource<DynamicType = (), Scope: NamespaceScope> + Clone + Debug + DeserializeOwned,
{
    let all: Api<K> = Api::all(connection.client.clone());
    let api = if words.everywhere() { all } else { all.constrain(&connection.namespace) };
    let list = api.list_metadata(&ListParams::default().match_any()).await.ok()?;
    let kind = if K::kind(&()) == "Pipeline" { "pipeline" } else { "promotion" };
    Some(list.items.into_iter().filter_map(|o| Some((o.metadata.name?, Some(kind)))).collect())
}

/// The words of the command line to complete.
struct Words(Vec<String>);

impl Words {
    /// Reads the arguments with which a shell's script or Flux runs this program: the words are after `--` or after
    /// `__complete`.
    fn of_process() -> Words {
        let words = std::env::args_os().skip_while(|word| word != "--" && word != COMPLETE).skip(1);
        Words(words.map(|word| word.to_string_lossy().into_owned()).collect())
    }

    /// Returns the value of a flag, as `-n apps`, `-napps`, `--namespace apps` or `--namespace=apps`.
    fn value(&self, short: Option<char>, long: &str) -> Option<String> {
        let (short, long) = (short.map(|short| format!("-{short}")), format!("--{long}"));
        self.0.iter().enumerate().find_map(|(at, word)| {
            if *word == long || Some(word) == short.as_ref() {
                return self.0.get(at + 1).cloned();
            }
            let joined = word.strip_prefix(&long).and_then(|rest| rest.strip_prefix('='));
            let attached = short.as_ref().and_then(|short| word.strip_prefix(short.as_str()));
            joined.or(attached.filter(|_| !word.starts_with("--"))).map(str::to_owned)
        })
    }

    fn everywhere(&self) -> bool {
        self.0.iter().any(|word| word == "-A" || word == "--all-namespaces")
    }

    fn connection_options(&self) -> ConnectionOptions {
        ConnectionOptions {
            kubeconfig: self.value(None, "kubeconfig").map(Into::into),
            context: self.value(None, "context"),
            namespace: self.value(Some('n'), "namespace").filter(|namespace| is_label(namespace)),
            impersonate: self.value(None, "as"),
        }
    }
}

fn ask(
    current: &OsStr,
    list: impl AsyncFnOnce(Connection, Words) -> Option<Vec<Name>>,
) -> Vec<CompletionCandidate> {
    let (Some(current), Ok(runtime)) =
        (current.to_str(), tokio::runtime::Builder::new_current_thread().enable_all().build())
    else {
        return Vec::new();
    };
    let found = runtime.block_on(async {
        let words = Words::of_process();
        let connection = Connection::open(words.connection_options(), Some(COMPLETION_TIMEOUT)).ok()?;
        tokio::time::timeout(COMPLETION_TIMEOUT, list(connection, words)).await.ok()?
    });
    // A DNS server that does not answer must not delay the end of the process.
    runtime.shutdown_background();
    candidates(current, found.unwrap_or_default(), is_path)
}

/// Returns the names that begin with the typed text. A name with a character that Kubernetes does not allow is left out,
/// because the shell writes it to the user's command line.
fn candidates(current: &str, mut names: Vec<Name>, is_safe: fn(&str) -> bool) -> Vec<CompletionCandidate> {
    names.retain(|(name, _)| name.starts_with(current) && is_safe(name));
    names.sort();
    names.dedup_by(|a, b| a.0 == b.0);
    let candidate = |(name, what): Name| CompletionCandidate::new(name).help(what.map(StyledStr::from));
    names.into_iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_in_all_their_forms() {
        for (words, expected) in [
            ("sluice approve -n apps ", Some("apps")),
            ("sluice approve -napps ", Some("apps")),
            ("sluice approve --namespace apps ", Some("apps")),
            ("sluice approve --namespace=apps ", Some("apps")),
            ("sluice approve podinfo ", None),
            ("sluice approve -n", None),
        ] {
            let words = Words(words.split(' ').map(str::to_owned).collect());
            assert_eq!(words.connection_options().namespace.as_deref(), expected, "{:?}", words.0);
        }
    }

    #[test]
    fn names_that_kubernetes_does_not_allow_are_left_out() {
        let names = ["podinfo", "podinfo-2", "web", "pod$(reboot)", "pod;ls", "pod\u{1b}[A", "-o", "podinfo"];
        let names = names.map(|name| (name.to_owned(), None)).to_vec();
        let found = |current| {
            let found = candidates(current, names.clone(), is_path);
            found.iter().map(|c| c.get_value().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found("pod"), ["podinfo", "podinfo-2"]);
        assert_eq!(found(""), ["podinfo", "podinfo-2", "web"]);
        assert_eq!(found("x"), Vec::<String>::new());
    }

    #[test]
    fn a_context_is_one_plain_word_of_a_command_line() {
        for context in ["kind-hub", "gke_project_zone_hub", "arn:aws:eks:eu-west-1:1:cluster/hub", "jane@hub"]
        {
            assert!(is_context(context), "{context}");
        }
        for context in ["a b", "$(reboot)", "-n", "a;b", "", "a\u{1b}[A"] {
            assert!(!is_context(context), "{context}");
        }
        assert!(
            is_path("deployment/podinfo") && is_path("fleet/eu") && !is_path("fleet/") && !is_path("a//b")
        );
    }
}
