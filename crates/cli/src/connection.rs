//! Opens connections to clusters by the rules of kubectl: `--kubeconfig`, `KUBECONFIG`, `~/.kube/config`, and in a pod
//! without any of them the pod's service account.

use std::path::PathBuf;
use std::time::Duration;

use kube::client::ConfigExt;
use kube::client::middleware::AuthLayer;
use kube::config::{Context, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::api_errors::failure;
use crate::exit::{Exit, Failure, Outcome};
use crate::proxy::direct_by_environment;

/// How long an API server may take to answer, unless the command watches.
pub(crate) const API_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the connection to an API server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The choice of a cluster, a user and a namespace. Without a value, that of the kubeconfig counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionOptions {
    /// The kubeconfig file; default is KUBECONFIG, then ~/.kube/config.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; default is its current one.
    pub context: Option<String>,
    /// The namespace; default is that of the context.
    pub namespace: Option<String>,
    /// The user to act as.
    pub impersonate: Option<String>,
}

/// A connection to a cluster. Opening it sends no request.
pub(crate) struct Connection {
    /// The client of the API server.
    pub client: Client,
    /// The namespace of the command, unless it works on all namespaces.
    pub namespace: String,
    /// The API server's address, for messages.
    server: String,
}

impl Connection {
    /// Opens a connection. `read_timeout` limits the time between two parts of an answer; watches have no limit.
    pub(crate) fn open(options: ConnectionOptions, read_timeout: Option<Duration>) -> Outcome<Connection> {
        let config = options.connecting(read_timeout)?;
        let namespace = options.namespace.unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|e| failure(e, &server))?;
        Ok(Connection { client, namespace, server })
    }

    /// Returns a client that sends requests to another server, with the user's token.
    pub(crate) fn client_of(options: &ConnectionOptions, server: http::Uri) -> Outcome<Client> {
        let mut config = options.config()?;
        config.cluster_url = server.clone();
        // The authority of the hub has not signed the certificate of another server.
        config.root_cert = None;
        config.tls_server_name = None;
        // What the kubeconfig trusts about the hub says nothing about another server.
        config.accept_invalid_certs = false;
        config.proxy_url = None;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(API_CALL_TIMEOUT);
        // A certificate is for the hub's API server only.
        config.auth_info.client_certificate = None;
        config.auth_info.client_certificate_data = None;
        config.auth_info.client_key = None;
        config.auth_info.client_key_data = None;
        Client::try_from(config).map_err(|e| failure(e, &server.to_string()))
    }

    /// Returns what adds the user's token to requests, or `None` if the user has no token.
    pub(crate) fn token(options: &ConnectionOptions) -> Outcome<Option<AuthLayer>> {
        let config = options.config()?;
        config.auth_layer().map_err(|e| failure(e, &config.cluster_url.to_string()))
    }

    /// Returns the address of the API server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Returns the failure for an error of this connection, with what to do about it.
    pub(crate) fn explain(&self, error: kube::Error) -> Failure {
        failure(error, &self.server)
    }
}

impl ConnectionOptions {
    /// Returns the configuration of a client. `read_timeout` limits the time between two parts of an answer; watches have
    /// no limit.
    pub(crate) fn connecting(&self, read_timeout: Option<Duration>) -> Outcome<Config> {
        let mut config = self.config()?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = read_timeout;
        if self.impersonate.is_some() {
            config.auth_info.impersonate.clone_from(&self.impersonate);
        }
        Ok(config)
    }

    /// Returns true if the user of the context acts as another user (`as` in the kubeconfig).
    pub(crate) fn context_impersonates(&self) -> Outcome<bool> {
        Ok(self.config()?.auth_info.impersonate.is_some())
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
                    Err(_) => Err(kubeconfig_failure(&error, None)),
                };
            }
            Err(error) => return Err(kubeconfig_failure(&error, None)),
        };
        let own_proxy = has_proxy(&kubeconfig, self.context.as_deref());
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = now(Config::from_custom_kubeconfig(kubeconfig.clone(), &options))
            .map_err(|e| kubeconfig_failure(&e, Some(&kubeconfig)))?;
        // kube compares NO_PROXY with the address of the proxy instead of the cluster's.
        if !own_proxy && config.cluster_url.host().is_some_and(direct_by_environment) {
            config.proxy_url = None;
        }
        Ok(config)
    }
}

/// Runs kube's future that reads a kubeconfig. It never waits.
fn now<T>(future: impl Future<Output = Result<T, KubeconfigError>>) -> Result<T, KubeconfigError> {
    futures::FutureExt::now_or_never(future).unwrap_or(Err(KubeconfigError::FindPath))
}

fn chosen<'a>(kubeconfig: &'a Kubeconfig, context: Option<&str>) -> Option<&'a Context> {
    let context = context.or(kubeconfig.current_context.as_deref());
    kubeconfig.contexts.iter().find(|c| Some(c.name.as_str()) == context)?.context.as_ref()
}

/// Returns true if the kubeconfig names the proxy of the cluster.
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

fn kubeconfig_failure(error: &KubeconfigError, kubeconfig: Option<&Kubeconfig>) -> Failure {
    let contexts = kubeconfig
        .map(|k| k.contexts.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", "))
        .filter(|names| !names.is_empty());
    let (message, hint) = match error {
        KubeconfigError::FindPath => {
            ("no kubeconfig: the home directory is not known".into(), Some(NAME_ONE.into()))
        }
        KubeconfigError::ReadConfig(_, path) if absent(error) => {
            (format!("no kubeconfig: {} does not exist", path.display()), Some(NAME_ONE.into()))
        }
        KubeconfigError::ReadConfig(cause, path) => {
            (format!("cannot read the kubeconfig {}: {cause}", path.display()), None)
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
    "fix the file that --kubeconfig or KUBECONFIG names (else ~/.kube/config), or name another one";
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
        let options = ConnectionOptions { kubeconfig: Some(path), context, ..ConnectionOptions::default() };
        Connection::open(options, None)
    }

    #[test]
    fn the_context_names_the_namespace() {
        let east = with_kubeconfig(KUBECONFIG, None).unwrap();
        assert_eq!(east.namespace, "apps");
        let west = with_kubeconfig(KUBECONFIG, Some("west")).unwrap();
        assert_eq!(west.namespace, "default");
    }

    #[test]
    fn each_kubeconfig_error_has_a_message_and_a_remedy() {
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
        let kubeconfig = Some("/nowhere/config".into());
        let options = ConnectionOptions { kubeconfig, ..ConnectionOptions::default() };
        let failure = Connection::open(options, None).err().unwrap();
        assert_eq!(failure.message, "no kubeconfig: /nowhere/config does not exist");
        assert_eq!(failure.hint.as_deref(), Some(NAME_ONE));
    }
}
