//! A port-forward to the controller's API, through the API server of the hub. The requests go over the forwarded stream
//! itself: nothing listens on this machine, so no other user of the machine can connect or get the token.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::{HeaderValue, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::client::middleware::AuthLayer;
use kube::client::{Body, ClientBuilder};
use kube::{Api, ResourceExt};
use tokio::sync::Mutex;

use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::exit::{Exit, Failure, Outcome};

/// The labels of the controller's pods in `deploy/deployment.yaml`.
const POD_LABELS: &str = "app.kubernetes.io/name=sluice";

/// The port of the API without the flag `--api-addr`.
const DEFAULT_PORT: u16 = 8083;

/// How long a command waits for what the node says about a broken connection.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to the API in a pod of the controller. Every replica answers the same.
pub(crate) struct ControllerTunnel {
    /// Sends requests with the user's token.
    pub client: kube::Client,
    /// The pod, as NAMESPACE/NAME.
    pub pod: String,
    port: u16,
    /// What the node of the pod says if it cannot connect to the port.
    refusal: Shared<BoxFuture<'static, Option<String>>>,
}

impl ControllerTunnel {
    /// Opens a connection to a ready pod of the controller in this namespace, with the rights of the user on the hub.
    /// Returns `None` if the pod has no API, because it runs with `--api-addr=0`.
    pub(crate) async fn open(connection: &Connection, namespace: &str) -> Outcome<Option<ControllerTunnel>> {
        let pods: Api<Pod> = Api::namespaced(connection.client.clone(), namespace);
        let pod = ready_pod(connection, &pods, namespace).await?;
        let (name, port) = (pod.name_any(), api_port(&pod));
        let pod = format!("{namespace}/{name}");
        if port == 0 {
            return Ok(None);
        }
        let opened = tokio::time::timeout(API_CALL_TIMEOUT, pods.portforward(&name, &[port])).await;
        let mut forward = match opened {
            Ok(Ok(forward)) => forward,
            Ok(Err(error)) => return Err(not_forwarded(connection, error, namespace, &name, port)),
            Err(_) => return Err(no_forward(&pod, "no answer within 30 seconds", port)),
        };
        let (Some(stream), Some(refusal)) = (forward.take_stream(port), forward.take_error(port)) else {
            return Err(no_forward(&pod, "the port-forward has no stream", port));
        };
        let (sender, http) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| no_forward(&pod, &error.to_string(), port))?;
        // The task ends with the stream.
        tokio::spawn(http);
        let client = client(connection.token(), sender, port)?;
        Ok(Some(ControllerTunnel { client, pod, port, refusal: refusal.boxed().shared() }))
    }

    /// Returns why the API did not answer a request, and what to do.
    pub(crate) async fn broken(&self) -> (String, String) {
        // The node says why before it closes the stream, but on another channel.
        match tokio::time::timeout(REFUSAL_TIMEOUT, self.refusal.clone()).await.ok().flatten() {
            Some(said) => (
                said,
                format!(
                    "check that the API listens on port {} of the pod: --api-addr in the Deployment sets the port",
                    self.port
                ),
            ),
            None => ("the connection was closed".into(), "try again: the pod may have been replaced".into()),
        }
    }
}

/// Returns a pod of the controller that is ready.
async fn ready_pod(connection: &Connection, pods: &Api<Pod>, namespace: &str) -> Outcome<Pod> {
    let listed = pods.list(&ListParams::default().labels(POD_LABELS)).await;
    let listed = listed.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 403 => lacks("list on pods", &status.message, namespace),
        error => connection.explain(error),
    })?;
    if listed.items.is_empty() {
        let why = format!("no pod of the controller is in namespace {namespace} (label {POD_LABELS})");
        let hint = "if the controller runs in another namespace, name it with --system-namespace or \
                    SLUICE_SYSTEM_NAMESPACE; if Sluice is not installed: kubectl apply --server-side -k deploy";
        return Err(Failure::new(Exit::Cluster, why).hinted(hint));
    }
    listed.items.into_iter().find(is_ready).ok_or_else(|| {
        let why = format!("no pod of the controller in namespace {namespace} is ready");
        Failure::new(Exit::Cluster, why)
            .hinted(format!("see why: kubectl describe pods -n {namespace} -l {POD_LABELS}"))
    })
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns the port that `--api-addr` of a container names. 0 means that the API is switched off.
fn api_port(pod: &Pod) -> u16 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let arguments =
        containers.flat_map(|container| container.command.iter().chain(&container.args).flatten());
    let mut arguments = arguments.skip_while(|argument| !argument.starts_with("--api-addr"));
    let address = match arguments.next().map(|argument| argument.split_once('=')) {
        Some(Some((_, address))) => Some(address),
        Some(None) => arguments.next().map(String::as_str),
        None => None,
    };
    let port = address.and_then(|address| address.rsplit(':').next()?.parse().ok());
    port.unwrap_or(DEFAULT_PORT)
}

/// Returns a client that sends requests over one connection, one after the other, with the user's token.
fn client(token: Option<&AuthLayer>, sender: http1::SendRequest<Body>, port: u16) -> Outcome<kube::Client> {
    let host = HeaderValue::from_str(&format!("127.0.0.1:{port}"));
    let host = host.map_err(|error| Failure::new(Exit::Error, error.to_string()))?;
    let sender = Arc::new(Mutex::new(sender));
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        request.headers_mut().insert(header::HOST, host.clone());
        let sender = Arc::clone(&sender);
        async move {
            let mut sender = sender.lock().await;
            sender.ready().await?;
            Ok::<_, tower::BoxError>(sender.send_request(request).await?)
        }
    });
    let client = ClientBuilder::new(service, "");
    Ok(match token {
        Some(token) => client.with_layer(token).build(),
        None => client.build(),
    })
}

/// Returns the failure for an error of the API server, or of the node behind it.
fn not_forwarded(
    connection: &Connection,
    error: kube::Error,
    namespace: &str,
    name: &str,
    port: u16,
) -> Failure {
    let pod = format!("{namespace}/{name}");
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            // Kubernetes names the verb get, but not the verb create, which it checks since 1.35
            // (https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/registry/core/pod/rest/authorize.go).
            let verb = if status.message.contains("cannot get") { "get" } else { "create" };
            lacks(&format!("{verb} on pods/portforward"), &status.message, namespace)
        }
        kube::Error::Api(status) => no_forward(&pod, status.message.trim(), port),
        kube::Error::UpgradeConnection(error) => {
            no_forward(&pod, &format!("no WebSocket to {}: {error}", connection.server()), port)
        }
        error => connection.explain(error),
    }
}

fn no_forward(pod: &str, why: &str, port: u16) -> Failure {
    let (namespace, name) = pod.split_once('/').unwrap_or_default();
    Failure::new(Exit::Cluster, format!("cannot forward a port to pod {pod} of the controller: {why}"))
        .hinted(format!(
            "if kubectl port-forward -n {namespace} {name} {port} works in another terminal, add --server \
             http://127.0.0.1:{port} (or set SLUICE_SERVER)"
        ))
}

fn lacks(right: &str, said: &str, namespace: &str) -> Failure {
    // Kubernetes writes no reason after the colon if it does not name the verb.
    let said = said.trim().trim_end_matches(':');
    Failure::new(Exit::Cluster, format!("you lack {right} in namespace {namespace}: {said}")).hinted(format!(
        "ask the cluster's administrator to bind the ClusterRole sluice-api-client to you in namespace {namespace}, or \
         name an address of the controller's API with --server"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};
    use hyper::body::{Bytes, Incoming};
    use hyper::service::service_fn;
    use kube::Config;
    use kube::client::ConfigExt;
    use serde_json::json;

    const LARGE: usize = 3 << 20;

    /// Answers with the headers that matter, and with more than any buffer holds.
    async fn answer(request: http::Request<Incoming>) -> Result<http::Response<Full<Bytes>>, http::Error> {
        let header =
            |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let seen = format!("{} {} {}", header(header::HOST), header(header::AUTHORIZATION), request.uri());
        http::Response::builder().header("seen", seen).body(Full::from(vec![0; LARGE]))
    }

    #[tokio::test]
    async fn several_large_answers_come_over_one_connection() {
        let (stream, other) = tokio::io::duplex(1 << 10);
        let server = hyper::server::conn::http1::Builder::new();
        tokio::spawn(server.serve_connection(TokioIo::new(other), service_fn(answer)));
        let (sender, http) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(http);
        let mut config = Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        config.auth_info.token = Some("t".into());
        let token = config.auth_layer().unwrap();
        let client = client(token.as_ref(), sender, 9000).unwrap();
        for page in ["/first", "/second", "/third"] {
            let answer = client.send(http::Request::get(page).body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.headers()["seen"], format!("127.0.0.1:9000 Bearer t {page}"));
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), LARGE);
        }
    }

    #[test]
    fn the_port_is_that_of_the_flag() {
        let table = [
            (json!([]), 8083),
            (json!(["controller", "--cache-dir=/cache"]), 8083),
            (json!(["--api-addr=127.0.0.1:9000"]), 9000),
            (json!(["--api-addr", "[::1]:9001", "--api-actions"]), 9001),
            (json!(["--api-addr=0"]), 0),
            (json!(["--api-addr"]), 8083),
        ];
        for (args, port) in table {
            let containers = json!([{"name": "proxy"}, {"name": "sluice", "args": args}]);
            let pod: Pod = serde_json::from_value(json!({"spec": {"containers": containers}})).unwrap();
            assert_eq!(api_port(&pod), port, "{args}");
        }
    }
}
