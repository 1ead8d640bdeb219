//! The hook server: reads a call, has it judged, answers, and tells the loop.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes};
use kube::Client;
use serde::de::DeserializeOwned;
use sluice_api::Pipeline;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::answer::{Answer, Wrong};
use super::connection::{self, Certificate};
use super::directory::{Directory, Found};
use super::keys::{Keys, Purpose, Unavailable};
use super::limit::{Limits, Proxies};
use super::route::{Endpoint, Place};
use super::signature;
use super::store::Store;
use crate::intake::{Input, PipelineKey};
use crate::metrics::Metrics;
use crate::serve::listen;

/// The longest body: what Flux itself takes.
const LONGEST: usize = 3 << 20;
/// A body that is longer than this is a long one: events and calls of forges are shorter, as a rule.
const LONG: usize = 64 << 10;
/// How many long ones are held at a time. Whoever knows no key may send what he likes until it is judged:
/// all of it together has to fit into what the process may have.
const LONG_ONES: usize = 32;
/// How long a body may take to come.
const SLOWEST: Duration = Duration::from_secs(10);

/// What is said of a path that names nothing.
const NOTHING_HERE: &str = "there is nothing here: POST to /promotion/<namespace>/<pipeline>/<environment>, \
                            /trigger/<namespace>/<pipeline>, /forge/<namespace>/<pipeline> or \
                            /callback/<namespace>/<pipeline>/<promotion>";

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
    /// How many connections there may be at a time, an eighth of them of one peer.
    pub connections: usize,
}

impl HookOptions {
    /// As many connections as are well within what a process may open.
    pub const CONNECTIONS: usize = 1024;
}

/// What it takes to judge a call.
pub struct Hook {
    directory: Arc<Directory>,
    keys: Keys,
    pub(super) store: Store,
    pub(super) metrics: Arc<Metrics>,
    tell: mpsc::UnboundedSender<Input>,
    proxies: Proxies,
    peers: Mutex<Limits<IpAddr>>,
    /// Of each pipeline those that are signed, and the others: who knows no key holds up nobody who does.
    pipelines: Mutex<Limits<(PipelineKey, bool)>>,
    long_ones: Semaphore,
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
            keys: Keys::new(client.clone()),
            store: Store::new(client),
            metrics,
            tell,
            proxies: options.proxies.clone(),
            peers: Mutex::new(Limits::new(options.peer_rate)),
            pipelines: Mutex::new(Limits::new(options.pipeline_rate)),
            long_ones: Semaphore::new(LONG_ONES),
        }
    }

    /// Answers a call.
    pub async fn answer<B>(&self, peer: IpAddr, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
    {
        let begun = Instant::now();
        let place = Place::of(request.uri().path());
        let answer = self.judge(peer, place.as_ref(), request).await;
        let endpoint = place.as_ref().map_or("none", |place| place.endpoint.name());
        self.metrics.hooks.called(endpoint, answer.result(), begun.elapsed());
        respond(&answer, place.as_ref())
    }

    async fn judge<B>(&self, peer: IpAddr, place: Option<&Place>, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes>,
    {
        let caller = self.proxies.caller(peer, forwarded(request.headers()));
        if let Err(pause) = lock(&self.peers).take(caller, Instant::now()) {
            return Answer::TooMany(pause);
        }
        if request.method() != Method::POST {
            return Answer::Wrong(Wrong::Method, "only POST is taken here".into());
        }
        let Some(place) = place else { return Answer::Wrong(Wrong::Nowhere, NOTHING_HERE.into()) };
        let (head, body) = request.into_parts();
        let (body, _room) = match self.read(&head.headers, body).await {
            Ok(read) => read,
            Err(answer) => return answer,
        };
        let pipeline = match self.directory.find(&place.pipeline) {
            Found::Pipeline(pipeline) => Some(pipeline),
            Found::None => None,
            Found::NotYet => return Answer::NotNow,
        };
        let call = Call { place, pipeline: pipeline.as_deref(), headers: &head.headers, body: &body };
        let judged = match &place.endpoint {
            Endpoint::Promotion { environment } => self.event(call, environment).await,
            Endpoint::Trigger => self.trigger(call).await,
            Endpoint::Callback { promotion } => self.callback(call, promotion).await,
            Endpoint::Forge => self.forge(call).await,
        };
        judged.unwrap_or(Answer::NotNow)
    }

    /// The whole body, if it is neither too long nor too slow, with the room that it takes.
    async fn read<B>(
        &self,
        headers: &HeaderMap,
        body: B,
    ) -> Result<(Bytes, Option<SemaphorePermit<'_>>), Answer>
    where
        B: Body<Data = Bytes>,
    {
        let too_long = || {
            let why = format!("the body is longer than {} MiB: no event is", LONGEST >> 20);
            Answer::Wrong(Wrong::Huge, why)
        };
        let said = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
        if said.is_some_and(|length| length > LONGEST) {
            return Err(too_long());
        }
        let whole = async {
            let mut body = std::pin::pin!(body);
            let (mut whole, mut room) = (Vec::new(), None);
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else {
                    let why = "the body broke off: send it again".to_string();
                    return Err(Answer::Wrong(Wrong::Malformed, why));
                };
                let Ok(data) = frame.into_data() else { continue };
                let length = whole.len() + data.len();
                if length > LONGEST {
                    return Err(too_long());
                }
                if length > LONG && room.is_none() {
                    room = Some(self.long_ones.try_acquire().map_err(|_| Answer::NotNow)?);
                }
                whole.extend_from_slice(&data);
            }
            Ok((Bytes::from(whole), room))
        };
        tokio::time::timeout(SLOWEST, whole).await.unwrap_or_else(|_| {
            let why = format!("the body did not come within {} seconds: send it at once", SLOWEST.as_secs());
            Err(Answer::Wrong(Wrong::Slow, why))
        })
    }

    /// As whom the connections of a peer are counted; not at all where it is a proxy, which has them for
    /// many.
    pub(super) fn crowd(&self, peer: IpAddr) -> Option<IpAddr> {
        (!self.proxies.holds(peer)).then(|| self.proxies.caller(peer, std::iter::empty()))
    }

    /// Counts a call for a pipeline that is signed, or need not be.
    pub(super) fn take(&self, pipeline: &PipelineKey, signed: bool) -> Result<(), Answer> {
        lock(&self.pipelines).take((pipeline.clone(), signed), Instant::now()).map_err(Answer::TooMany)
    }

    /// Has the loop look at a pipeline.
    pub(super) fn look(&self, pipeline: &PipelineKey) -> Answer {
        match self.tell.send(Input::Called(pipeline.clone())) {
            Ok(()) => Answer::Accepted(pipeline.clone()),
            Err(_) => Answer::NotNow,
        }
    }

    /// Whether a call shows that it knows one of the keys of these Secrets. Where it does not, they are
    /// read again: they may be new. For a pipeline that is not there as much is reckoned, and nothing read.
    pub(super) async fn knows(
        &self,
        call: &Call<'_>,
        secrets: &[&str],
        of: Purpose,
        shows: impl Fn(&[&[u8]]) -> bool,
    ) -> Result<bool, Unavailable> {
        if call.pipeline.is_none() {
            // Twice, as below.
            let _ = [shows(&[b"no pipeline, no key"]), shows(&[b"nor another"])];
            return Ok(false);
        }
        for anew in [false, true] {
            let mut known = Vec::new();
            for secret in secrets {
                known.push(self.keys.of(&call.place.pipeline.namespace, secret, anew).await?);
            }
            let keys: Vec<&[u8]> = known.iter().flat_map(|known| known.of(of)).map(Vec::as_slice).collect();
            if shows(&keys) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the body is signed with a key of these Secrets, by exactly one `X-Signature`.
    pub(super) async fn is_signed(&self, call: &Call<'_>, secrets: &[&str]) -> Result<bool, Unavailable> {
        let mut given = call.headers.get_all("x-signature").iter().map(HeaderValue::as_bytes);
        let (Some(header), None) = (given.next(), given.next()) else { return Ok(false) };
        let shows = |keys: &[&[u8]]| signature::verify(Some(header), call.body, keys.iter().copied()).is_ok();
        self.knows(call, secrets, Purpose::Hook, shows).await
    }
}

/// A call that was read.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    /// Where it went.
    pub place: &'a Place,
    /// The pipeline that is there.
    pub pipeline: Option<&'a Pipeline>,
    /// What it says beside its body.
    pub headers: &'a HeaderMap,
    /// What it says.
    pub body: &'a Bytes,
}

impl Call<'_> {
    /// The body, which is an object: serde would take a list for one, field by field.
    ///
    /// # Errors
    /// What it is in place of one.
    pub(super) fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        let first = self.body.iter().find(|byte| !byte.is_ascii_whitespace());
        if first.is_some_and(|byte| *byte != b'{') {
            // Names what is there, or where it is no JSON at all.
            serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(self.body)?;
        }
        serde_json::from_slice(self.body)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forwarded(headers: &HeaderMap) -> impl DoubleEndedIterator<Item = &str> {
    headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok())
}

fn respond(answer: &Answer, called: Option<&Place>) -> Response<Full<Bytes>> {
    let text = answer.text(called.map(|place| &place.endpoint));
    let body = if text.is_empty() { Bytes::new() } else { Bytes::from(format!("{text}\n")) };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = answer.status();
    let headers = response.headers_mut();
    if !text.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.form()));
    }
    if let Some(pause) = answer.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(pause.as_secs()));
    }
    if matches!(answer, Answer::Wrong(Wrong::Method, _)) {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    if let Some(place) = answer.location().and_then(|place| HeaderValue::try_from(place).ok()) {
        headers.insert(LOCATION, place);
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
    let listener = listen(options.address).await?;
    let form = if certificate.is_some() { "https" } else { "http" };
    tracing::info!(address = %listener.local_addr()?, form, "serving hooks");
    connection::serve(listener, certificate, options.connections, Arc::new(hook)).await;
    Ok(())
}
