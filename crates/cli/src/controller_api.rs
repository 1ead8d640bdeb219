//! Questions to the API of the controller, which observes all clusters. The user's token identifies the user.
//! Without an address, the questions go through the API server of the hub to a pod of the controller.

use clap::Args;
use http::{Request, Uri};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cluster_flags::ControllerFlags;
use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::controller_tunnel::ControllerTunnel;
use crate::exit::{Exit, Failure, Outcome};

const EXAMPLE: &str = "http://127.0.0.1:8083";
const WITHOUT_ADDRESS: &str = "check the address, or leave out --server and SLUICE_SERVER: the command then reaches the \
                               API through the hub";
const USE_TOKEN: &str = "use a context of the kubeconfig with a token, such as one of kubectl create token";
const NO_TOKEN: &str = "your user of the kubeconfig has no token, which the controller's API needs: a client certificate \
                        signs in at the hub only";
const LOG_IN_AGAIN: &str = "check the token of this context in your kubeconfig, or log in again";

/// Returns why the API cannot identify the user of a connection, and what to do; `None` if it can.
pub(crate) fn unidentified(connection: &Connection) -> Option<(&'static str, &'static str)> {
    if connection.impersonates() {
        let why = "the controller's API answers for the user of the token, and you act as another user";
        return Some((why, "leave --as out, or use a token of that user"));
    }
    let why = "the controller's API needs a token, and you sign in at the hub without one";
    connection.token().is_none().then_some((why, USE_TOKEN))
}

/// Where the API is.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Controller")]
pub struct ServerFlags {
    /// Address of the controller's API, which gets your token; default is a port-forward through the hub
    #[arg(long, value_name = "URL", env = "SLUICE_SERVER", value_parser = server)]
    server: Option<Uri>,
    #[command(flatten)]
    pub(crate) controller: ControllerFlags,
}

impl ServerFlags {
    /// Returns true if requests go through the API server of the hub.
    pub(crate) fn is_through_hub(&self) -> bool {
        self.server.is_none()
    }
}

/// Checks the address of the API. A token must not cross a network without encryption.
fn server(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|_| format!("write an address such as {EXAMPLE}"))?;
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") if is_loopback => Ok(uri),
        Some("http") => {
            Err("your token must not cross a network without encryption: write an https address, or one of \
                             this machine"
                .into())
        }
        _ => Err(format!("write an address such as {EXAMPLE}")),
    }
}

/// The controller's API.
pub(crate) struct ControllerApi {
    client: kube::Client,
    route: Route,
    /// False if the user has no token, so that the API rejects each request.
    has_token: bool,
}

/// How requests reach the API.
enum Route {
    Address(Uri),
    Tunnel(ControllerTunnel),
}

/// An error of the API.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    detail: String,
}

impl ControllerApi {
    pub(crate) async fn open(connection: &Connection, flags: &ServerFlags) -> Outcome<ControllerApi> {
        ControllerApi::open_unless_off(connection, flags).await?.ok_or_else(|| {
            let namespace = &flags.controller.system_namespace;
            let why =
                format!("the controller in namespace {namespace} has no API: it runs with --api-addr=0");
            Failure::new(Exit::Cluster, why).hinted("remove this flag from the Deployment")
        })
    }

    /// Returns `None` if the controller runs with `--api-addr=0`.
    pub(crate) async fn open_unless_off(
        connection: &Connection,
        flags: &ServerFlags,
    ) -> Outcome<Option<ControllerApi>> {
        if connection.impersonates() {
            let why = "the controller's API answers for the user of the token, so --as and a context that acts as another \
                       user cannot be used here";
            return Err(Failure::new(Exit::Usage, why).hinted("leave --as out, or use a token of that user"));
        }
        let has_token = connection.token().is_some();
        // No address of this machine is a default: any user of the machine can listen there, and would get the token.
        let Some(server) = flags.server.clone() else {
            let namespace = &flags.controller.system_namespace;
            let tunnel = ControllerTunnel::open(connection, namespace).await?;
            return Ok(tunnel.map(|tunnel| ControllerApi {
                client: tunnel.client.clone(),
                route: Route::Tunnel(tunnel),
                has_token,
            }));
        };
        let client = connection.client_of(server.clone())?;
        Ok(Some(ControllerApi { client, route: Route::Address(server), has_token }))
    }

    /// Returns the answer to a question.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Outcome<T> {
        let path = format!("{path}?{}", query(parameters));
        let request =
            Request::get(path).body(kube::client::Body::empty()).map_err(|e| self.failure(&e.to_string()))?;
        let asked = async {
            let Ok(answer) = self.client.send(request).await else { return Err(self.unreachable().await) };
            let status = answer.status();
            let body =
                answer.into_body().collect().await.map_err(|e| self.failure(&e.to_string()))?.to_bytes();
            Ok((status, body))
        };
        let answer = tokio::time::timeout(API_CALL_TIMEOUT, asked).await;
        let (status, body) = answer.unwrap_or_else(|_| Err(self.failure("no answer within 30 seconds")))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| self.failure(&error.to_string()));
        }
        let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
        let detail = if problem.detail.is_empty() { status.to_string() } else { problem.detail };
        Err(match status.as_u16() {
            // The API's own text names the header of the request, which a person does not write.
            401 if !self.has_token => Failure::new(Exit::Cluster, NO_TOKEN).hinted(USE_TOKEN),
            401 => Failure::new(Exit::Cluster, detail).hinted(LOG_IN_AGAIN),
            404 => Failure::new(Exit::NotFound, detail),
            400 => Failure::new(Exit::Usage, detail),
            _ => self.failure(&detail),
        })
    }

    async fn unreachable(&self) -> Failure {
        match &self.route {
            Route::Address(_) => self.failure("cannot be reached").hinted(WITHOUT_ADDRESS),
            Route::Tunnel(tunnel) => {
                let (why, hint) = tunnel.broken().await;
                self.failure(&why).hinted(hint)
            }
        }
    }

    fn failure(&self, why: &str) -> Failure {
        let place = match &self.route {
            Route::Address(server) => format!("at {server}"),
            Route::Tunnel(tunnel) => format!("in pod {}", tunnel.pod),
        };
        Failure::new(Exit::Cluster, format!("the controller's API {place}: {why}"))
    }
}

/// Writes the parameters of a request.
fn query(parameters: &[(&str, &str)]) -> String {
    let escaped = |text: &str| {
        let byte = |b: u8| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        };
        text.bytes().map(byte).collect::<String>()
    };
    let pairs = parameters.iter().filter(|(_, value)| !value.is_empty());
    pairs.map(|(name, value)| format!("{name}={}", escaped(value))).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_flags::ClusterFlags;

    #[test]
    fn a_token_is_sent_with_encryption_or_to_this_machine_only() {
        for good in
            ["https://sluice.example.com", "http://127.0.0.1:8083", "http://localhost:1", "http://[::1]:8083"]
        {
            assert!(server(good).is_ok(), "{good}");
        }
        for bad in ["http://sluice.example.com", "http://10.0.0.1:8083", "sluice:8083", "ftp://localhost", ""]
        {
            assert!(server(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn the_token_goes_to_the_api_only_for_its_user() {
        let controller = ControllerFlags { system_namespace: "sluice-system".into() };
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("config");
        let text = "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], \
                    clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {token: t, as: jane}}]}";
        let with = |text: &str, user: Option<&str>| {
            std::fs::write(&kubeconfig, text).unwrap();
            let impersonate = user.map(String::from);
            let flags =
                ClusterFlags { kubeconfig: Some(kubeconfig.clone()), impersonate, ..ClusterFlags::default() };
            flags.open(None).unwrap()
        };
        let by_context = with(text, None);
        let by_flag = with(&text.replace(", as: jane", ""), Some("jane"));
        for address in ["https://sluice.example.com", ""] {
            for other in [&by_flag, &by_context] {
                let flags = ServerFlags { server: address.parse().ok(), controller: controller.clone() };
                let failure = ControllerApi::open(other, &flags).await.err().unwrap();
                assert!(
                    failure.exit == Exit::Usage && failure.message.contains("--as"),
                    "{failure} {address:?}"
                );
            }
        }
    }

    #[test]
    fn parameters_are_escaped() {
        let written = query(&[("cluster", "fleet/eu"), ("name", ""), ("continue", "a\u{1}b&c")]);
        assert_eq!(written, "cluster=fleet%2Feu&continue=a%01b%26c");
    }
}
