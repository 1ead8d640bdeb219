//! An API server at which every write clashes: it is refused as though somebody had been faster, or it is
//! done and nobody hears of it, and only then it passes. Whatever reads and watches passes at once.

use super::door::answer_each;
use crate::Scratch;
use crate::cluster::Cluster;
use crate::kubeconfig::connect;
use crate::listening::Listening;
use anyhow::Result;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, header};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;

/// How a write fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// It is not done, and answered with 409 Conflict: to creating something too, as a quota that two count
    /// against at once does.
    Conflict,
    /// It is done, and the connection ends without an answer.
    Lost,
}

/// The API server as it is seen from behind its clashes, without TLS and as an administrator. Dropping it
/// ends it.
pub struct Clash {
    listening: Listening,
    files: Scratch,
    name: String,
    blows: Arc<Blows>,
}

/// What has become of writes so far.
struct Blows {
    /// What each write meets, one after the other, until it passes.
    each: &'static [Blow],
    /// How many of them were met by what is being written, by method and object.
    met: Mutex<HashMap<(Method, String), usize>>,
    dealt: AtomicUsize,
}

impl Clash {
    /// Every write to a cluster meets these, one try after the other, and then passes.
    ///
    /// # Errors
    /// When there is no free port, or its kubeconfig cannot be written.
    pub fn before(cluster: &Cluster, each: &'static [Blow]) -> Result<Clash> {
        let blows = Arc::new(Blows { each, met: Mutex::default(), dealt: AtomicUsize::new(0) });
        let (kubeconfig, shown) = (cluster.kubeconfig(), Arc::clone(&blows));
        let listening = Listening::start("clash", async move |listener| match connect(&kubeconfig).await {
            Ok(client) => serve(listener, client, shown).await,
            Err(error) => tracing::error!(%error, "nobody is behind the clash"),
        })?;
        let clash =
            Clash { listening, files: Scratch::new("clash")?, name: cluster.name().to_owned(), blows };
        std::fs::write(clash.kubeconfig_path(), clash.kubeconfig())?;
        Ok(clash)
    }

    /// Its port, without TLS.
    pub fn port(&self) -> u16 {
        self.listening.port()
    }

    /// A kubeconfig for whoever is to come through it.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_at(self.port())
    }

    /// A file with [`Clash::kubeconfig`], for programs that want one.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }

    /// The same, by way of another port that leads to it.
    pub fn kubeconfig_at(&self, port: u16) -> String {
        let name = &self.name;
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
             clusters: [{{name: {name}, cluster: {{server: \"http://127.0.0.1:{port}\"}}}}]\n\
             users: [{{name: {name}, user: {{}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n"
        )
    }

    /// How many tries to write have fared badly.
    pub fn dealt(&self) -> usize {
        self.blows.dealt.load(Ordering::Relaxed)
    }
}

impl Blows {
    /// What this try meets.
    fn next(&self, method: &Method, object: String) -> Option<Blow> {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (method.clone(), object);
        let so_far = met.get(&key).copied().unwrap_or_default();
        let Some(blow) = self.each.get(so_far) else {
            met.remove(&key);
            return None;
        };
        met.insert(key, so_far + 1);
        self.dealt.fetch_add(1, Ordering::Relaxed);
        Some(*blow)
    }
}

async fn serve(listener: TcpListener, client: kube::Client, blows: Arc<Blows>) {
    answer_each(listener, move |request| meet(request, client.clone(), Arc::clone(&blows))).await;
}

/// An error ends the connection without an answer.
async fn meet(
    request: Request<Incoming>,
    client: kube::Client,
    blows: Arc<Blows>,
) -> Result<Response<Body>, Error> {
    let (mut head, body) = request.into_parts();
    let body = axum::body::to_bytes(Body::new(body), usize::MAX).await.map_err(Error::other)?;
    let blow = if head.method == Method::GET {
        None
    } else {
        blows.next(&head.method, object(head.uri.path(), &head.method, &body))
    };
    if blow == Some(Blow::Conflict) {
        return conflict(head.uri.path());
    }
    // It goes on in one piece, to another host.
    for name in [header::HOST, header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::CONNECTION] {
        head.headers.remove(name);
    }
    let asked = client.send(Request::from_parts(head, kube::client::Body::from(body.to_vec())));
    // Who cannot be reached says nothing.
    let answer = asked.await.map_err(Error::other)?.map(Body::new);
    match blow {
        None => Ok(answer),
        Some(_) => Err(ErrorKind::ConnectionAborted.into()),
    }
}

/// Which object a call is about: what is created has its name in the body.
fn object(path: &str, method: &Method, body: &Bytes) -> String {
    if method != Method::POST {
        return path.to_owned();
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default())
}

/// What an API server says to who was late.
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
