//! From flags and kubeconfig to a client, with kubectl's rules: `--kubeconfig`, `KUBECONFIG`,
//! `~/.kube/config`, and in a pod without any of them the pod's own account.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::ArgValueCompleter;
use kube::config::{Context, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::complete::namespaces;
use crate::exit::{Exit, Failure, Outcome};
use crate::proxy::direct_by_environment;
use crate::server::sentence;

/// Which cluster, as whom, and where in it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct Connect {
    /// Kubeconfig file; default is KUBECONFIG, then ~/.kube/config
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default is its current one
    #[arg(long, value_name = "NAME", global = true)]
    pub context: Option<String>,
    /// Namespace; default is that of the context
    #[arg(short, long, value_name = "NAME", global = true, value_parser = namespace, add = ArgValueCompleter::new(namespaces))]
    pub namespace: Option<String>,
    /// Act as this user
    #[arg(long = "as", value_name = "USER", global = true)]
    pub impersonate: Option<String>,
}

/// A way to a cluster; nothing was sent yet.
pub(crate) struct Connection {
    /// The client.
    pub client: Client,
    /// The namespace to look in unless all of them are meant.
    pub namespace: String,
    /// The API server's address.
    server: String,
}

impl Connect {
    /// The way to the cluster. `patience` is how long an answer may be silent; none for watches.
    pub(crate) fn open(&self, patience: Option<Duration>) -> Outcome<Connection> {
        let mut config = self.config()?;
        config.connect_timeout = Some(Duration::from_secs(10));
        config.read_timeout = patience;
        if let Some(other) = &self.impersonate {
            config.auth_info.impersonate = Some(other.clone());
        }
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|e| sentence(e, &server))?;
        Ok(Connection { client, namespace, server })
    }

    fn config(&self) -> Outcome<Config> {
        let read = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let kubeconfig = match read {
            Ok(kubeconfig) => kubeconfig,
            Err(error) if self.kubeconfig.is_none() && absent(&error) => {
                return match Config::incluster() {
                    Ok(config) => Ok(config),
                    Err(_) => Err(explain(&error, None)),
                };
            }
            Err(error) => return Err(explain(&error, None)),
        };
        let own_proxy = has_proxy(&kubeconfig, self.context.as_deref());
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = now(Config::from_custom_kubeconfig(kubeconfig.clone(), &options))
            .map_err(|e| explain(&e, Some(&kubeconfig)))?;
        // The library asks NO_PROXY about the proxy's own address instead of the cluster's.
        if !own_proxy && config.cluster_url.host().is_some_and(direct_by_environment) {
            config.proxy_url = None;
        }
        Ok(config)
    }
}

impl Connection {
    /// What an error of this connection means for the person, and what to do about it.
    pub(crate) fn explain(&self, error: kube::Error) -> Failure {
        sentence(error, &self.server)
    }
}

/// A name that would be no namespace's would make another address of the request.
fn namespace(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !text.is_empty() && text.chars().all(fits) {
        true => Ok(text.into()),
        false => Err("a namespace's name is made of lower-case letters, digits and '-'".into()),
    }
}

/// The library reads kubeconfigs by a future that never waits.
fn now<T>(future: impl Future<Output = Result<T, KubeconfigError>>) -> Result<T, KubeconfigError> {
    futures::FutureExt::now_or_never(future).unwrap_or(Err(KubeconfigError::FindPath))
}

fn chosen<'a>(kubeconfig: &'a Kubeconfig, context: Option<&str>) -> Option<&'a Context> {
    let context = context.or(kubeconfig.current_context.as_deref());
    kubeconfig.contexts.iter().find(|c| Some(c.name.as_str()) == context)?.context.as_ref()
}

/// Whether the kubeconfig itself says by which proxy to reach the cluster.
fn has_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let Some(context) = chosen(kubeconfig, context) else { return false };
    let cluster = kubeconfig.clusters.iter().find(|c| c.name == context.cluster);
    cluster.and_then(|c| c.cluster.as_ref()).is_some_and(|c| c.proxy_url.is_some())
}

fn absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(e, _) => e.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

fn explain(error: &KubeconfigError, kubeconfig: Option<&Kubeconfig>) -> Failure {
    let contexts = kubeconfig
        .map(|k| k.contexts.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", "))
        .filter(|names| !names.is_empty());
    let (message, hint) = match error {
        KubeconfigError::FindPath => {
            ("there is no kubeconfig: the home directory is not known".into(), Some(NAME_ONE.into()))
        }
        KubeconfigError::ReadConfig(_, path) if absent(error) => {
            (format!("there is no kubeconfig: {} does not exist", path.display()), Some(NAME_ONE.into()))
        }
        KubeconfigError::ReadConfig(cause, path) => {
            (format!("the kubeconfig {} cannot be read: {cause}", path.display()), None)
        }
        KubeconfigError::CurrentContextNotSet => (
            "the kubeconfig has no current context".into(),
            Some(match contexts {
                Some(names) => format!("choose one with --context; there are: {names}"),
                None => NAME_ONE.into(),
            }),
        ),
        KubeconfigError::LoadContext(name) => (
            format!("the kubeconfig has no context {name}"),
            contexts.map(|names| format!("there are: {names}")),
        ),
        KubeconfigError::LoadClusterOfContext(name) => (
            format!("the kubeconfig's context names a cluster {name} that the kubeconfig does not have"),
            None,
        ),
        KubeconfigError::Parse(cause) => {
            let cause = cause.to_string();
            let place = cause.lines().next().unwrap_or_default();
            (format!("the kubeconfig is not YAML: {place}"), Some(NAME_ANOTHER.into()))
        }
        other => (format!("the kubeconfig cannot be used: {other}"), Some(NAME_ANOTHER.into())),
    };
    Failure { exit: Exit::Cluster, message, hint }
}

const NAME_ANOTHER: &str =
    "mend the file that --kubeconfig or KUBECONFIG names (else ~/.kube/config), or name another one";
const NAME_ONE: &str = "name one with --kubeconfig, or in the environment variable KUBECONFIG";

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: east
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: jane, user: {token: t}}]
contexts:
- {name: east, context: {cluster: c, user: jane, namespace: apps}}
- {name: west, context: {cluster: c, user: joe}}
";

    fn with_kubeconfig(text: &str, context: Option<&str>) -> Result<Connection, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, text).unwrap();
        let context = context.map(str::to_owned);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        Connect { kubeconfig: Some(path), context, ..Connect::default() }.open(None)
    }

    #[test]
    fn the_context_says_where() {
        let east = with_kubeconfig(KUBECONFIG, None).unwrap();
        assert_eq!(east.namespace, "apps");
        let west = with_kubeconfig(KUBECONFIG, Some("west")).unwrap();
        assert_eq!(west.namespace, "default");
    }

    #[test]
    fn what_is_wrong_with_a_kubeconfig_is_a_sentence() {
        let wrong = |text: &str, context| {
            let failure = with_kubeconfig(text, context).err().unwrap();
            assert_eq!(failure.exit, Exit::Cluster);
            format!("{}\n  {}", failure.message, failure.hint.unwrap_or_default())
        };
        insta::assert_snapshot!(wrong(KUBECONFIG, Some("north")), @"
        the kubeconfig has no context north
          there are: east, west
        ");
        insta::assert_snapshot!(wrong(&KUBECONFIG.replace("current-context: east", ""), None), @"
        the kubeconfig has no current context
          choose one with --context; there are: east, west
        ");
        let missing = Connect { kubeconfig: Some("/nowhere/config".into()), ..Connect::default() };
        let failure = missing.open(None).err().unwrap();
        assert_eq!(failure.message, "there is no kubeconfig: /nowhere/config does not exist");
        assert_eq!(failure.hint.as_deref(), Some(NAME_ONE));
    }
}
