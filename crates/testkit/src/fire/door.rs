//! A door before a server: every call through it gets a number and a name, is written down, and
//! meets what the plan has for it. What is behind the door knows nothing of it.

use super::plan::{Fault, Plan};
use crate::listening::Listening;
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

/// How late a slow answer is.
const LATE: Duration = Duration::from_millis(300);
/// In how many seconds whoever calls too often may come again.
const COME_AGAIN: u32 = 1;

/// A call that came through a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which it was, from one, since the plan was laid.
    pub number: usize,
    /// What was asked, with `n` for numbers and names: `POST pulls`, `git push`.
    pub operation: String,
    /// What it met.
    pub fault: Option<Fault>,
}

/// The door. Dropping it ends its server.
pub struct Door {
    listening: Listening,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    calls: Mutex<(Plan, Vec<Call>)>,
    /// Of git, in bodies, both ways.
    git_bytes: AtomicU64,
}

impl Door {
    /// Opens a door before a server.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn before(router: Router) -> Result<Door> {
        let seen = Arc::new(Seen::default());
        let shown = Arc::clone(&seen);
        let listening = Listening::start("door", async move |listener| serve(listener, router, shown).await)?;
        Ok(Door { listening, seen })
    }

    /// Opens a door before a server at an address.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn before_address(url: &str) -> Result<Door> {
        crate::kubeconfig::install_tls_provider();
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
        let to = url.to_owned();
        Door::before(Router::new().fallback(async move |request| pass_on(&client, &to, request).await))
    }

    /// Its address.
    pub fn url(&self) -> String {
        self.listening.url()
    }

    /// Lays a plan; calls are numbered from one again, and those that were written down are returned.
    pub fn plan(&self, plan: Plan) -> Vec<Call> {
        std::mem::replace(&mut *self.seen.lock(), (plan, Vec::new())).1
    }

    /// The calls since the plan was laid.
    pub fn calls(&self) -> Vec<Call> {
        self.seen.lock().1.clone()
    }

    /// How often each operation was asked for.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in &self.seen.lock().1 {
            *counts.entry(call.operation.clone()).or_default() += 1;
        }
        counts
    }

    /// How many bytes git has sent and received through it, without heads of calls and answers.
    pub fn git_bytes(&self) -> u64 {
        self.seen.git_bytes.load(Ordering::Relaxed)
    }

    /// How many calls met a fault.
    pub fn faults(&self) -> usize {
        self.seen.lock().1.iter().filter(|call| call.fault.is_some()).count()
    }
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, (Plan, Vec<Call>)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, operation: String) -> Option<Fault> {
        let (plan, calls) = &mut *self.lock();
        let number = calls.len() + 1;
        let changes = calls.iter().filter(|call| is_change(&call.operation)).count();
        let fault = plan.at(number, is_change(&operation).then_some(changes + 1));
        calls.push(Call { number, operation, fault });
        fault
    }
}

async fn serve(listener: TcpListener, router: Router, seen: Arc<Seen>) {
    answer_each(listener, move |request| meet(request, router.clone(), Arc::clone(&seen))).await;
}

/// Answers each call of each connection. An error ends the connection without an answer.
pub(super) async fn answer_each<F>(
    listener: TcpListener,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
) where
    F: Future<Output = Result<Response<Body>, Error>> + Send + 'static,
{
    while let Ok((stream, _)) = listener.accept().await {
        let answer = answer.clone();
        tokio::spawn(async move {
            // An error is a connection that was ended, from here or there.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
        });
    }
}

/// An error ends the connection without an answer.
async fn meet(request: Request<Incoming>, router: Router, seen: Arc<Seen>) -> Result<Response<Body>, Error> {
    let ended = || Error::from(ErrorKind::ConnectionAborted);
    let operation = operation(&request);
    let is_git = operation.starts_with("git ");
    let fault = seen.note(operation);
    match fault {
        Some(Fault::Slow) => tokio::time::sleep(LATE).await,
        Some(Fault::Refused(status)) => return refusal(status),
        Some(Fault::Dropped) => return Err(ended()),
        Some(Fault::Silent) => std::future::pending().await,
        _ => {}
    }
    let weighed = |body: Body| if is_git { weighed(body, Arc::clone(&seen)) } else { body };
    let request = request.map(|body| weighed(Body::new(body)));
    let Ok(answer) = TowerToHyperService::new(router).call(request).await;
    let answer = answer.map(weighed);
    match fault {
        None | Some(Fault::Slow) => Ok(answer),
        Some(fault) => spoil(fault, answer).await,
    }
}

/// The same, and what goes through it is counted.
fn weighed(body: Body, seen: Arc<Seen>) -> Body {
    let count = move |chunk: &Bytes| {
        seen.git_bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    };
    Body::from_stream(body.into_data_stream().inspect_ok(count))
}

/// The answer of the server at this address, unchanged; of one that cannot be reached, 502.
async fn pass_on(client: &reqwest::Client, to: &str, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = head.headers;
    // It goes on in one piece.
    headers.remove(header::TRANSFER_ENCODING);
    let asked = client.request(head.method, format!("{to}{path}")).headers(headers);
    let answered = async {
        let whole = axum::body::to_bytes(body, usize::MAX).await.map_err(Error::other)?;
        asked.body(whole).send().await.map_err(Error::other)
    };
    match answered.await {
        Ok(answer) => Response::from(answer).map(Body::new),
        Err(error) => {
            tracing::warn!(%error, "nobody is behind the door");
            let mut answer = Response::new(Body::empty());
            *answer.status_mut() = axum::http::StatusCode::BAD_GATEWAY;
            answer
        }
    }
}

/// What becomes of the answer to something that was done.
async fn spoil(fault: Fault, answer: Response<Body>) -> Result<Response<Body>, Error> {
    let (mut head, body) = answer.into_parts();
    // What git does ends when its answer does.
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
        answer = answer.header(header::RETRY_AFTER, COME_AGAIN);
    }
    answer.body(Body::from(r#"{"message": "made to fail by the plan"}"#)).map_err(Error::other)
}

/// Whether a call changes something when it is done.
fn is_change(operation: &str) -> bool {
    operation == "git push" || !["git ", "GET "].iter().any(|start| operation.starts_with(start))
}

/// What a call asks for, without names and numbers.
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
                let name = part.len() > 20 || part.bytes().all(|b| b.is_ascii_digit());
                if name { "n" } else { part }
            });
            format!("{} {}", request.method(), parts.collect::<Vec<_>>().join("/"))
        }
    }
}
