//! Opens connections to clusters by the rules of kubectl: `--kubeconfig`, `KUBECONFIG`, `~/.kube/config`, and in a pod
//! without any of them the pod's service account.

use std::path::PathBuf;
use std::time::Duration;

use kube::client::middleware::AuthLayer;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{AuthInfo, Context, KubeConfigOptions, Kubeconfig, KubeconfigError};
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

/// A connection to a cluster. Opening it sends no request. The kubeconfig is read once. A program that it names for the
/// login runs once for all clients, if it returns a token. If it returns a client certificate, kube keeps that to itself:
/// the program then runs once for the connection, and three times for each client.
pub(crate) struct Connection {
    /// The client of the API server.
    pub client: Client,
    /// The namespace of the command, unless it works on all namespaces.
    pub namespace: String,
    /// The API server's address, for messages.
    server: String,
    config: Config,
    /// What adds the user's token to requests; `None` for a user without a token.
    token: Option<AuthLayer>,
}

impl Connection {
    /// Opens a connection. `read_timeout` limits the time between two parts of an answer; watches have no limit.
    pub(crate) fn open(options: ConnectionOptions, read_timeout: Option<Duration>) -> Outcome<Connection> {
        let mut config = options.config()?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        if options.impersonate.is_some() {
            config.auth_info.impersonate.clone_from(&options.impersonate);
        }
        let namespace = options.namespace.unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string();
        let token = config.auth_layer().map_err(|e| failure(e, &server))?;
        let client = client(&config, token.as_ref(), read_timeout).map_err(|e| failure(e, &server))?;
        Ok(Connection { client, namespace, server, config, token })
    }

    /// Returns another client of the API server, for watches that have no end.
    pub(crate) fn watching_client(&self) -> Outcome<Client> {
        client(&self.config, self.token.as_ref(), None).map_err(|e| self.explain(e))
    }

    /// Returns a client that sends requests to another server, with the user's token.
    pub(crate) fn client_of(&self, server: http::Uri) -> Outcome<Client> {
        // What the kubeconfig says about the hub, such as its authority and proxy, says nothing about another server. A
        // certificate of the user is for the hub's API server only.
        let mut config = Config::new(server.clone());
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // The API answers 503 with the reason, for example that a cluster cannot be read. Retries would hide it.
        config.default_retry = false;
        client(&config, self.token.as_ref(), Some(API_CALL_TIMEOUT))
            .map_err(|e| failure(e, &server.to_string()))
    }

    /// Returns what adds the user's token to requests, or `None` if the user has no token.
    pub(crate) fn token(&self) -> Option<&AuthLayer> {
        self.token.as_ref()
    }

    /// Returns true if the user acts as another user, by a flag or by the context.
    pub(crate) fn impersonates(&self) -> bool {
        self.config.auth_info.impersonate.is_some()
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

/// Returns a client that uses a token that was read before. Without a token, kube runs the program of a kubeconfig three
/// times for each client ([builder.rs](https://github.com/kube-rs/kube/blob/main/kube-client/src/client/builder.rs)).
fn client(
    config: &Config,
    token: Option<&AuthLayer>,
    read_timeout: Option<Duration>,
) -> kube::Result<Client> {
    let mut config = config.clone();
    config.read_timeout = read_timeout;
    let Some(token) = token else { return Client::try_from(config) };
    config.auth_info = AuthInfo {
        username: None,
        password: None,
        token: None,
        token_file: None,
        exec: None,
        auth_provider: None,
        ..config.auth_info
    };
    let namespace = config.default_namespace.clone();
    let inner = Client::try_from(config)?;
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let inner = inner.clone();
        async move { inner.send(request).await.map_err(tower::BoxError::from) }
    });
    Ok(ClientBuilder::new(service, namespace).with_layer(token).build())
}

/// Returns the configuration of the client for a cluster, by the rules of kubectl. Without a kubeconfig it is that of the pod's
/// service account.
///
/// # Errors
/// When there is no kubeconfig, or it cannot be used.
pub fn cluster_config(kubeconfig: Option<PathBuf>, context: Option<String>) -> Outcome<Config> {
    ConnectionOptions { kubeconfig, context, ..ConnectionOptions::default() }.config()
}

impl ConnectionOptions {
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
    fn a_login_program_runs_once_for_all_clients() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let credential = r#"{"kind": "ExecCredential", "status": {"token": "t"}}"#;
        let script = format!("echo run >> {}; echo '{credential}'", runs.display());
        let exec = serde_json::json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", script], "interactiveMode": "Never"}});
        let kubeconfig = KUBECONFIG.replace("{token: t}", &exec.to_string());
        let connection = with_kubeconfig(&kubeconfig, None).unwrap();
        assert!(connection.token().is_some());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        connection.watching_client().unwrap();
        connection.client_of(http::Uri::from_static("https://sluice.example.com")).unwrap();
        assert_eq!(std::fs::read_to_string(runs).unwrap(), "run\n");
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
