//! The hook server: reads a call, has it judged, answers, and tells the loop.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use kube::{Client, Resource};
use sluice_api::Pipeline;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::answer::{Answer, is_open, judge, secrets};
use super::connection::{self, Certificate};
use super::directory::{Directory, Found};
use super::event::Event;
use super::keys::{Keys, Unavailable};
use super::limit::{Limits, Proxies};
use super::signature;
use crate::intake::{Input, PipelineKey};
use crate::metrics::Metrics;

/// The longest body: what Flux itself takes.
const LONGEST: usize = 3 << 20;
/// How long a body may take to come.
const SLOWEST: Duration = Duration::from_secs(10);

/// How the hook server shall run.
#[derive(Clone, Debug)]
pub struct HookOptions {
    /// Where it is served.
    pub address: SocketAddr,
    /// The files of its certificate and key; without them it speaks plain HTTP.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The proxies whose `X-Forwarded-For` counts.
    pub proxies: Proxies,
    /// Calls a second that are taken of one peer; 0 for all.
    pub peer_rate: u32,
    /// Signed calls a second that are taken for one pipeline; 0 for all.
    pub pipeline_rate: u32,
}

/// What it takes to judge a call.
pub struct Hook {
    directory: Arc<Directory>,
    keys: Keys,
    metrics: Arc<Metrics>,
    tell: mpsc::UnboundedSender<Input>,
    proxies: Proxies,
    peers: Mutex<Limits<IpAddr>>,
    pipelines: Mutex<Limits<PipelineKey>>,
}

impl Hook {
    /// One that knows what `directory` does, and tells whom it concerns through `tell`.
    pub fn new(
        options: &HookOptions,
        client: Client,
        directory: Arc<Directory>,
        metrics: Arc<Metrics>,
        tell: mpsc::UnboundedSender<Input>,
    ) -> Self {
        Self {
            directory,
            keys: Keys::new(client),
            metrics,
            tell,
            proxies: options.proxies.clone(),
            peers: Mutex::new(Limits::new(options.peer_rate)),
            pipelines: Mutex::new(Limits::new(options.pipeline_rate)),
        }
    }

    /// Answers a call.
    pub async fn answer(&self, peer: IpAddr, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let begun = Instant::now();
        let (place, answer) = self.judge(peer, request).await;
        self.metrics.called(answer.result(), begun.elapsed());
        respond(place.as_ref(), &answer)
    }

    async fn judge(&self, peer: IpAddr, request: Request<Incoming>) -> (Option<Place>, Answer) {
        let caller = self.proxies.caller(peer, forwarded(request.headers()));
        if let Err(pause) = lock(&self.peers).take(caller, Instant::now()) {
            return (None, Answer::TooMany(pause));
        }
        let Some(place) = Place::of(request.uri().path()) else {
            let why = "there is nothing here: POST to /promotion/<namespace>/<pipeline>/<environment>";
            return (None, Answer::Wrong(StatusCode::NOT_FOUND, why.into()));
        };
        if request.method() != Method::POST {
            let why = "only POST is taken here".to_string();
            return (None, Answer::Wrong(StatusCode::METHOD_NOT_ALLOWED, why));
        }
        let (head, body) = request.into_parts();
        let answer = match read(&head.headers, body).await {
            Ok(body) => self.promotion(&place, &head.headers, &body).await,
            Err(answer) => answer,
        };
        (Some(place), answer)
    }

    /// A call that tells of an event in an environment.
    async fn promotion(&self, place: &Place, headers: &HeaderMap, body: &Bytes) -> Answer {
        let pipeline = match self.directory.find(&place.pipeline) {
            Found::Pipeline(pipeline) => Some(pipeline),
            Found::None => None,
            Found::NotYet => return Answer::NotNow,
        };
        match self.is_signed(pipeline.as_deref(), place, headers, body).await {
            Ok(true) => {}
            Ok(false) => return Answer::Refused,
            Err(Unavailable) => return Answer::NotNow,
        }
        let Some(pipeline) = pipeline else { return Answer::Refused };
        if let Err(pause) = lock(&self.pipelines).take(place.pipeline.clone(), Instant::now()) {
            return Answer::TooMany(pause);
        }
        let event: Event = match serde_json::from_slice(body) {
            Ok(event) => event,
            Err(error) => {
                let why = format!("the body is not an event of Flux: {error}");
                return Answer::Wrong(StatusCode::BAD_REQUEST, why);
            }
        };
        let answer = judge(&pipeline, &place.environment, &event);
        if answer == Answer::Accepted && self.tell.send(Input::Called(place.pipeline.clone())).is_err() {
            return Answer::NotNow;
        }
        answer
    }

    /// Whether the body is signed by who may. A pipeline that is not there takes as long to refuse.
    async fn is_signed(
        &self,
        pipeline: Option<&Pipeline>,
        place: &Place,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<bool, Unavailable> {
        let mut given = headers.get_all("x-signature").iter().map(HeaderValue::as_bytes);
        let (header, more) = (given.next(), given.next().is_some());
        let Some(pipeline) = pipeline else {
            let _ = signature::verify(header, body, [&b"no pipeline, no key"[..]]);
            return Ok(false);
        };
        if is_open(pipeline, &place.environment) {
            return Ok(true);
        }
        for anew in [false, true] {
            let mut keys = Vec::new();
            for secret in secrets(pipeline, &place.environment) {
                keys.push(self.keys.of(&place.pipeline.namespace, secret, anew).await?);
            }
            let keys = keys.iter().flat_map(|known| known.iter().map(Vec::as_slice));
            if !more && signature::verify(header, body, keys).is_ok() {
                return Ok(true);
            }
            if header.is_none() {
                break;
            }
        }
        Ok(false)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a path names.
#[derive(Clone, Debug)]
struct Place {
    pipeline: PipelineKey,
    environment: String,
}

impl Place {
    /// Names in Kubernetes need no escapes: a path that has some names nothing.
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix("/promotion/")?.split('/');
        let (namespace, name, environment) = (parts.next()?, parts.next()?, parts.next()?);
        let is_name = |text: &str| {
            let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
            !text.is_empty() && text.len() <= 253 && text.bytes().all(good) && !text.starts_with('.')
        };
        if parts.next().is_some() || ![namespace, name, environment].into_iter().all(is_name) {
            return None;
        }
        let pipeline = PipelineKey { namespace: namespace.into(), name: name.into() };
        Some(Self { pipeline, environment: environment.into() })
    }
}

fn forwarded(headers: &HeaderMap) -> impl DoubleEndedIterator<Item = &str> {
    headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok())
}

/// The whole body, if it is neither too long nor too slow.
async fn read(headers: &HeaderMap, body: Incoming) -> Result<Bytes, Answer> {
    let too_long = || {
        let why = format!("the body is longer than {} MiB: no event is", LONGEST >> 20);
        Answer::Wrong(StatusCode::PAYLOAD_TOO_LARGE, why)
    };
    let said = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if said.is_some_and(|length| length > LONGEST) {
        return Err(too_long());
    }
    match tokio::time::timeout(SLOWEST, Limited::new(body, LONGEST).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(_)) => Err(Answer::Wrong(StatusCode::BAD_REQUEST, "the body broke off: send it again".into())),
        Err(_) => {
            let why = format!("the body did not come within {} seconds: send it at once", SLOWEST.as_secs());
            Err(Answer::Wrong(StatusCode::REQUEST_TIMEOUT, why))
        }
    }
}

fn respond(place: Option<&Place>, answer: &Answer) -> Response<Full<Bytes>> {
    let text = answer.text();
    let body = if text.is_empty() { Bytes::new() } else { format!("{text}\n").into() };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = answer.status();
    let headers = response.headers_mut();
    if !text.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    if let Some(pause) = answer.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(pause.as_secs()));
    }
    if answer.status() == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    if let (Answer::Accepted, Some(place)) = (answer, place) {
        let of = &place.pipeline;
        let url = format!("{}/{}", Pipeline::url_path(&(), Some(&of.namespace)), of.name);
        if let Ok(url) = HeaderValue::try_from(url) {
            headers.insert(LOCATION, url);
        }
    }
    response
}

/// Serves calls until it fails.
///
/// # Errors
/// When it cannot listen, or the certificate cannot be read.
pub async fn serve(options: &HookOptions, hook: Hook) -> std::io::Result<()> {
    let certificate = match &options.certificate {
        Some((certificate, key)) => Some(Certificate::read(certificate, key)?),
        None => None,
    };
    let listener = TcpListener::bind(options.address).await?;
    let form = if certificate.is_some() { "https" } else { "http" };
    tracing::info!(address = %listener.local_addr()?, form, "serving hooks");
    connection::serve(listener, certificate, Arc::new(hook)).await;
    Ok(())
}
