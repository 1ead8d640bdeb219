//! A proxy in front of a server. It numbers, names and records every call, and injects the fault that the plan has for
//! the call. The server behind it needs no change.

use super::plan::{Fault, FaultPlan};
use crate::background_server::{BackgroundServer, send_at_once};
use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response, header};
use futures::TryStreamExt;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// The delay of [`Fault::Slow`].
const SLOW_DELAY: Duration = Duration::from_millis(300);
/// The `Retry-After` header of an answer with 429, in seconds.
const RETRY_AFTER_SECONDS: u32 = 1;

/// A call that came through a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// The number of the call since the plan was set, from 1.
    pub number: usize,
    /// The method and path, with `n` for numbers and names: `POST pulls`. Calls of git have names: `git push`.
    pub operation: String,
    /// The injected fault.
    pub fault: Option<Fault>,
}

/// The proxy. Dropping it ends it.
pub struct FaultProxy {
    server: BackgroundServer,
    log: Arc<CallLog>,
}

#[derive(Default)]
struct CallLog {
    calls: Mutex<(FaultPlan, Vec<RecordedCall>)>,
    /// The bytes in the bodies of git's requests and answers.
    git_bytes: AtomicU64,
}

impl FaultProxy {
    /// Starts a proxy in front of a router.
    ///
    /// # Errors
    /// No port is free.
    pub fn in_front_of(router: Router) -> Result<FaultProxy> {
        let log = Arc::new(CallLog::default());
        let shared = Arc::clone(&log);
        let server = BackgroundServer::start("fault-proxy", async move |listener| {
            serve(listener, router, shared).await
        })?;
        Ok(FaultProxy { server, log })
    }

    /// Starts a proxy in front of the server at an address without TLS.
    ///
    /// # Errors
    /// No port is free.
    pub fn in_front_of_url(url: &str) -> Result<FaultProxy> {
        crate::kubeconfig::install_tls_provider();
        // Without root certificates: the server has no TLS, and reading them takes long.
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .tls_certs_only([])
            .build()?;
        let to = url.to_owned();
        FaultProxy::in_front_of(
            Router::new().fallback(async move |request| forward(&client, &to, request).await),
        )
    }

    /// The address of the proxy.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Sets the plan, numbers calls from 1 again, and returns the calls recorded until now.
    pub fn set_plan(&self, plan: FaultPlan) -> Vec<RecordedCall> {
        std::mem::replace(&mut *self.log.lock(), (plan, Vec::new())).1
    }

    /// Returns the calls since the plan was set.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.log.lock().1.clone()
    }

    /// Returns the number of calls of each operation since the plan was set.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in &self.log.lock().1 {
            *counts.entry(call.operation.clone()).or_default() += 1;
        }
        counts
    }

    /// Returns the bytes that git sent and received through the proxy, without the headers.
    pub fn git_bytes(&self) -> u64 {
        self.log.git_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of calls with a fault since the plan was set.
    pub fn faults(&self) -> usize {
        self.log.lock().1.iter().filter(|call| call.fault.is_some()).count()
    }
}

impl CallLog {
    fn lock(&self) -> MutexGuard<'_, (FaultPlan, Vec<RecordedCall>)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a call and returns its fault.
    fn record(&self, operation: String) -> Option<Fault> {
        let (plan, calls) = &mut *self.lock();
        let number = calls.len() + 1;
        let changes = calls.iter().filter(|call| is_change(&call.operation)).count();
        let fault = plan.at(number, is_change(&operation).then_some(changes + 1));
        calls.push(RecordedCall { number, operation, fault });
        fault
    }
}

async fn serve(listener: TcpListener, router: Router, log: Arc<CallLog>) {
    answer_each(listener, move |request| answer(request, router.clone(), Arc::clone(&log))).await;
}

/// Answers each call of each connection. An error closes the connection without an answer.
pub(super) async fn answer_each<F>(
    listener: TcpListener,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
) where
    F: Future<Output = Result<Response<Body>, Error>> + Send + 'static,
{
    while let Ok((mut stream, _)) = listener.accept().await {
        send_at_once(&mut stream);
        let answer = answer.clone();
        tokio::spawn(async move {
            // An error is a connection that the client or `answer` closed.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
        });
    }
}

/// Answers a call, with its fault. An error closes the connection without an answer.
async fn answer(
    request: Request<Incoming>,
    router: Router,
    log: Arc<CallLog>,
) -> Result<Response<Body>, Error> {
    let closed = || Error::from(ErrorKind::ConnectionAborted);
    let operation = operation(&request);
    let is_git = operation.starts_with("git ");
    let fault = log.record(operation);
    match fault {
        Some(Fault::Slow) => tokio::time::sleep(SLOW_DELAY).await,
        Some(Fault::Refused(status)) => return refusal(status),
        Some(Fault::Dropped) => return Err(closed()),
        Some(Fault::Silent) => std::future::pending().await,
        _ => {}
    }
    let counted = |body: Body| if is_git { counted(body, Arc::clone(&log)) } else { body };
    let request = request.map(|body| counted(Body::new(body)));
    let Ok(answer) = TowerToHyperService::new(router).call(request).await;
    let answer = answer.map(counted);
    match fault {
        None | Some(Fault::Slow) => Ok(answer),
        Some(fault) => spoil(fault, answer).await,
    }
}

/// Adds the bytes of a body to [`CallLog::git_bytes`] as they pass.
fn counted(body: Body, log: Arc<CallLog>) -> Body {
    let count = move |chunk: &Bytes| {
        log.git_bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    };
    Body::from_stream(body.into_data_stream().inspect_ok(count))
}

/// Returns the answer of the server at an address, unchanged; 502 if the server cannot be reached.
async fn forward(client: &reqwest::Client, to: &str, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = head.headers;
    // The request is forwarded in one piece.
    headers.remove(header::TRANSFER_ENCODING);
    let request = client.request(head.method, format!("{to}{path}")).headers(headers);
    let answer = async {
        let whole = axum::body::to_bytes(body, usize::MAX).await.map_err(Error::other)?;
        request.body(whole).send().await.map_err(Error::other)
    };
    match answer.await {
        Ok(answer) => Response::from(answer).map(Body::new),
        Err(error) => {
            tracing::warn!(%error, "cannot reach the server behind the fault proxy");
            let mut answer = Response::new(Body::empty());
            *answer.status_mut() = axum::http::StatusCode::BAD_GATEWAY;
            answer
        }
    }
}

/// Applies a fault to the answer of a call that had its effect.
async fn spoil(fault: Fault, answer: Response<Body>) -> Result<Response<Body>, Error> {
    let (mut head, body) = answer.into_parts();
    // git finishes its work when its answer ends.
    let whole = axum::body::to_bytes(body, usize::MAX).await.map_err(Error::other)?;
    let half = whole.slice(..whole.len() / 2);
    let length = whole.len();
    head.headers.remove(header::TRANSFER_ENCODING);
    head.headers.remove(header::CONTENT_LENGTH);
    match fault {
        Fault::Hidden => refusal(502),
        Fault::Half => {
            head.headers.insert(header::CONTENT_LENGTH, length.max(1).into());
            let parts = [Ok::<Bytes, Error>(half), Err(ErrorKind::ConnectionAborted.into())];
            Ok(Response::from_parts(head, Body::from_stream(futures::stream::iter(parts))))
        }
        Fault::Cut => Ok(Response::from_parts(head, Body::from(half))),
        _ => Err(ErrorKind::ConnectionAborted.into()),
    }
}

fn refusal(status: u16) -> Result<Response<Body>, Error> {
    let mut answer = Response::builder().status(status);
    if status == 429 {
        answer = answer.header(header::RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    answer.body(Body::from(r#"{"message": "made to fail by the plan"}"#)).map_err(Error::other)
}

/// Returns true if an operation changes something.
fn is_change(operation: &str) -> bool {
    operation == "git push" || !["git ", "GET "].iter().any(|start| operation.starts_with(start))
}

/// Returns the operation of a call, without names and numbers.
fn operation(request: &Request<Incoming>) -> String {
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default();
    match path.rsplit('/').next().unwrap_or_default() {
        "git-receive-pack" => "git push".into(),
        "git-upload-pack" => "git fetch".into(),
        "refs" if query == "service=git-receive-pack" => "git refs to push".into(),
        "refs" if query == "service=git-upload-pack" => "git refs to fetch".into(),
        _ => {
            let below = path.split("/repos/").last().unwrap_or(path);
            let parts = below.split('/').skip(2).map(|part| {
                let is_name = part.len() > 20 || part.bytes().all(|b| b.is_ascii_digit());
                if is_name { "n" } else { part }
            });
            format!("{} {}", request.method(), parts.collect::<Vec<_>>().join("/"))
        }
    }
}
