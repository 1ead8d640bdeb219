//! A proxy in front of an API server. It can make every write fail before it passes: with a conflict, or with its answer
//! lost. It can hold back the watches of a resource. Reads pass unchanged. It records each call.

use super::fault_proxy::answer_each;
use crate::Scratch;
use crate::background_server::BackgroundServer;
use crate::cluster::Cluster;
use crate::kubeconfig::connect;
use anyhow::Result;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, Uri, header};
use futures::StreamExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A fault of one try to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// The write has no effect and is answered with 409 Conflict. Creates are, too, as by a quota that two writers
    /// count against at the same time.
    Conflict,
    /// The write has its effect, and the connection ends without an answer.
    Lost,
}

/// The proxy: without TLS, and with the rights of an administrator. Dropping it ends it.
pub struct ApiServerProxy {
    server: BackgroundServer,
    files: Scratch,
    name: String,
    state: Arc<ProxyState>,
}

struct ProxyState {
    /// The faults of each write, in order; the try after them passes.
    faults: &'static [WriteFault],
    /// The number of faults injected so far into a pending write, by method and object.
    pending: Mutex<HashMap<(Method, String), usize>>,
    injected: AtomicUsize,
    /// The plural name of the resource whose watches send nothing; `None` if all send.
    held: watch::Sender<Option<&'static str>>,
    /// The calls so far, as `METHOD path`.
    calls: Mutex<Vec<String>>,
}

impl ApiServerProxy {
    /// Starts a proxy in front of a cluster. The tries of each write meet these faults in order, and then one passes.
    ///
    /// # Errors
    /// No port is free, or the kubeconfig cannot be written.
    pub fn in_front_of(cluster: &Cluster, faults: &'static [WriteFault]) -> Result<ApiServerProxy> {
        let state = Arc::new(ProxyState {
            faults,
            pending: Mutex::default(),
            injected: AtomicUsize::new(0),
            held: watch::Sender::default(),
            calls: Mutex::default(),
        });
        let (kubeconfig, shared) = (cluster.kubeconfig(), Arc::clone(&state));
        let server = BackgroundServer::start("api-server-proxy", async move |listener| {
            match connect(&kubeconfig).await {
                Ok(client) => serve(listener, client, shared).await,
                Err(error) => {
                    tracing::error!(%error, "the proxy of an API server has no client for its cluster")
                }
            }
        })?;
        let files = Scratch::new("api-server-proxy")?;
        let proxy = ApiServerProxy { server, files, name: cluster.name().to_owned(), state };
        std::fs::write(proxy.kubeconfig_path(), proxy.kubeconfig())?;
        Ok(proxy)
    }

    /// The port of the proxy, without TLS.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// A kubeconfig that leads through the proxy.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_at(self.port())
    }

    /// A file with [`ApiServerProxy::kubeconfig`], for programs that read one.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }

    /// A kubeconfig for another port that leads to the proxy.
    pub fn kubeconfig_at(&self, port: u16) -> String {
        let name = &self.name;
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
             clusters: [{{name: {name}, cluster: {{server: \"http://127.0.0.1:{port}\"}}}}]\n\
             users: [{{name: {name}, user: {{}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n"
        )
    }

    /// Holds back what the watches of a resource send, by its plural name, until the next call. `None` holds back
    /// nothing.
    pub fn hold_watches(&self, plural: Option<&'static str>) {
        self.state.held.send_replace(plural);
    }

    /// Returns the calls since the last time, as `METHOD path`, in the order in which they came.
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.state.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of tries to write that met a fault.
    pub fn injected(&self) -> usize {
        self.state.injected.load(Ordering::Relaxed)
    }
}

impl ProxyState {
    /// Returns the body of a watch, which sends nothing while the watches of its resource are held back.
    fn hold(&self, plural: String, body: Body) -> Body {
        let held = self.held.subscribe();
        Body::from_stream(body.into_data_stream().then(move |chunk| {
            let (mut held, plural) = (held.clone(), plural.clone());
            async move {
                // The proxy has ended if there is an error.
                let _ = held.wait_for(|held| *held != Some(plural.as_str())).await;
                chunk
            }
        }))
    }

    /// Returns the fault of this try, and counts it.
    fn next(&self, method: &Method, object: String) -> Option<WriteFault> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (method.clone(), object);
        let so_far = pending.get(&key).copied().unwrap_or_default();
        let Some(fault) = self.faults.get(so_far) else {
            pending.remove(&key);
            return None;
        };
        pending.insert(key, so_far + 1);
        self.injected.fetch_add(1, Ordering::Relaxed);
        Some(*fault)
    }
}

async fn serve(listener: TcpListener, client: kube::Client, state: Arc<ProxyState>) {
    answer_each(listener, move |request| answer(request, client.clone(), Arc::clone(&state))).await;
}

/// Answers a call, with its fault. An error closes the connection without an answer.
async fn answer(
    request: Request<Incoming>,
    client: kube::Client,
    state: Arc<ProxyState>,
) -> Result<Response<Body>, Error> {
    let (mut head, body) = request.into_parts();
    let call = format!("{} {}", head.method, head.uri.path());
    state.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    let body = axum::body::to_bytes(Body::new(body), usize::MAX).await.map_err(Error::other)?;
    let fault = if head.method == Method::GET {
        None
    } else {
        state.next(&head.method, object_path(head.uri.path(), &head.method, &body))
    };
    if fault == Some(WriteFault::Conflict) {
        return conflict(head.uri.path());
    }
    let watched = is_watch(&head.uri).then(|| resource_of(head.uri.path()));
    // The request is forwarded in one piece, to another host.
    for name in [header::HOST, header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::CONNECTION] {
        head.headers.remove(name);
    }
    let answer = client.send(Request::from_parts(head, kube::client::Body::from(body.to_vec())));
    let answer = answer.await.map_err(Error::other)?.map(Body::new);
    match (fault, watched) {
        (None, None) => Ok(answer),
        (None, Some(plural)) => Ok(answer.map(|body| state.hold(plural, body))),
        (Some(_), _) => Err(ErrorKind::ConnectionAborted.into()),
    }
}

/// Whether a call starts a watch.
fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")))
}

/// Returns the plural name of the resource that a list or watch is about.
fn resource_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Returns the path of the object that a call writes. A create has the object's name in its body.
fn object_path(path: &str, method: &Method, body: &Bytes) -> String {
    if method != Method::POST {
        return path.to_owned();
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default())
}

/// Returns the answer of an API server to an outdated write.
fn conflict(path: &str) -> Result<Response<Body>, Error> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Conflict",
        "code": 409,
        "message": format!("Operation cannot be fulfilled on {path}: the object has been modified; please \
                            apply your changes to the latest version and try again"),
    });
    let answer = Response::builder().status(409).header(header::CONTENT_TYPE, "application/json");
    answer.body(Body::from(status.to_string())).map_err(Error::other)
}
