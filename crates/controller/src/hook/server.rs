//! The hook server: it reads a call, passes it to the handler of its endpoint, and answers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes};
use kube::Client;
use sluice_core::lock::lock;
use sluice_core::slots::{Slot, Slots};
use tokio::sync::mpsc;

use super::answer::{CallError, HookAnswer};
use super::call::{HookCall, MAX_SHORT_BODY_BYTES};
use super::directory::{Directory, PipelineLookup};
use super::hmac_keys::HookKeyCache;
use super::proxies::Proxies;
use super::queue::WriteQueue;
use super::rate::{NoticeThrottle, RateLimits};
use super::route::{Endpoint, Route};
use super::secret_checker::SecretChecker;
use super::store::Store;
use crate::metrics::Metrics;
use crate::pipeline_key::PipelineKey;
use crate::record::event_sender::Events;
use crate::state::Input;

/// The longest body, in bytes. Flux's notification-controller has the same limit.
const MAX_BODY_BYTES: usize = 3 << 20;
/// How many long bodies are in memory at a time. A caller without a key may send any body, so all of them together
/// must fit into the memory limit of the process.
const MAX_LONG_BODIES: usize = 32;
/// How many long bodies of one peer are in memory at a time. The others are for other peers.
const MAX_LONG_BODIES_PER_PEER: usize = MAX_LONG_BODIES / 4;
/// How long the caller may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The text of the answer to a path that names nothing.
const UNKNOWN_PATH: &str = "there is nothing here: POST to /promotion/<namespace>/<pipeline>/<environment>, \
                            /trigger/<namespace>/<pipeline>, /forge/<namespace>/<pipeline>, \
                            /callback/<namespace>/<pipeline>/<promotion> or \
                            /approval/<namespace>/<pipeline>/<environment>/<revision>";

/// The options of the hook server.
#[derive(Clone, Debug)]
pub struct HookOptions {
    /// The address and port to listen on.
    pub address: SocketAddr,
    /// The files of the certificate and of its key. Without them the server speaks plain HTTP.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub proxies: Proxies,
    /// How many calls a second one peer may make on average. 0 is no limit.
    pub peer_rate: u32,
    /// How many signed calls a second one pipeline accepts on average. 0 is no limit.
    pub pipeline_rate: u32,
    /// How many connections may be open at a time. One peer may have an eighth of them.
    pub connections: usize,
    /// Whether receivers of the strategy `webhook` can call back. They can if the controller has the server's
    /// own URL.
    pub callbacks: bool,
}

impl HookOptions {
    /// The default of [`HookOptions::connections`], which is well within the usual limit of open files.
    pub const CONNECTIONS: usize = 1024;
}

/// The hook server without its connections: all that is needed to answer a call.
pub struct HookServer {
    pub(super) directory: Arc<Directory>,
    pub(super) keys: Arc<HookKeyCache>,
    pub(super) store: Store,
    pub(super) metrics: Arc<Metrics>,
    /// The inputs of the controller's loop.
    tx: mpsc::UnboundedSender<Input>,
    proxies: Proxies,
    peers: Mutex<RateLimits<IpAddr>>,
    /// By pipeline, and by whether the call is signed: unsigned calls do not use up the limit of signed ones.
    pipelines: Mutex<RateLimits<(PipelineKey, bool)>>,
    long_bodies: Slots<IpAddr>,
    callbacks: bool,
    pub(super) queue: WriteQueue,
    /// The notices about calls with a wrong key, by pipeline and endpoint.
    pub(super) wrong_key_notices: Mutex<NoticeThrottle<(PipelineKey, &'static str)>>,
    pub(super) events: Events,
}

impl HookServer {
    /// A server that reads pipelines from `directory`, and has the controller's loop reconcile them through `tx`.
    pub fn new(
        options: &HookOptions,
        client: Client,
        directory: Arc<Directory>,
        metrics: Arc<Metrics>,
        tx: mpsc::UnboundedSender<Input>,
    ) -> Self {
        Self {
            directory,
            keys: Arc::new(HookKeyCache::new(client.clone())),
            callbacks: options.callbacks,
            queue: WriteQueue::default(),
            events: Events::new(client.clone(), metrics.clone()),
            wrong_key_notices: Mutex::default(),
            store: Store::new(client),
            metrics,
            tx,
            proxies: options.proxies.clone(),
            peers: Mutex::new(RateLimits::new(options.peer_rate)),
            pipelines: Mutex::new(RateLimits::new(options.pipeline_rate)),
            long_bodies: Slots::new(MAX_LONG_BODIES, MAX_LONG_BODIES_PER_PEER),
        }
    }

    /// Returns the checker that reports missing and incomplete Secrets to the controller's loop.
    pub(super) fn secret_checker(&self) -> SecretChecker {
        let (directory, keys) = (self.directory.clone(), self.keys.clone());
        SecretChecker { directory, keys, tx: self.tx.clone(), callbacks: self.callbacks }
    }

    /// Answers a call from the address `connection`.
    pub async fn answer<B>(&self, connection: IpAddr, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
    {
        let start = Instant::now();
        let route = Route::parse(request.uri().path());
        let answer = self.handle(connection, route.as_ref(), request).await;
        let endpoint = route.as_ref().map_or("none", |route| route.endpoint.name());
        self.metrics.hooks.count_call(endpoint, answer.metric_label(), start.elapsed());
        respond(&answer, route.as_ref())
    }

    async fn handle<B>(&self, connection: IpAddr, route: Option<&Route>, request: Request<B>) -> HookAnswer
    where
        B: Body<Data = Bytes>,
    {
        let peer = self.proxies.peer(connection, forwarded_for(request.headers()));
        if let Err(pause) = lock(&self.peers).count_call(peer, Instant::now()) {
            return HookAnswer::RateLimited(pause);
        }
        if request.method() != Method::POST {
            return HookAnswer::Error(CallError::Method, "only POST is accepted here".into());
        }
        let Some(route) = route else {
            return HookAnswer::Error(CallError::UnknownPath, UNKNOWN_PATH.into());
        };
        let (head, body) = request.into_parts();
        let (body, _slot) = match self.read_body(peer, &head.headers, body).await {
            Ok(read) => read,
            Err(answer) => return answer,
        };
        let pipeline = match self.directory.find(&route.pipeline) {
            PipelineLookup::Found(pipeline) => Some(pipeline),
            PipelineLookup::Missing => None,
            PipelineLookup::NotLoaded => return HookAnswer::Unavailable,
        };
        let call = HookCall { route, pipeline: pipeline.as_deref(), headers: &head.headers, body: &body };
        let handled = match &route.endpoint {
            Endpoint::Promotion { environment } => self.handle_event(call, environment).await,
            Endpoint::Trigger => self.handle_trigger(call).await,
            Endpoint::Callback { promotion } => self.handle_callback(call, promotion).await,
            Endpoint::Forge => self.handle_forge(call).await,
            Endpoint::Approval { environment, revision } => {
                self.handle_approval(call, environment, revision).await
            }
        };
        match handled.unwrap_or_else(|answer| answer) {
            // While the keys of any pipeline cannot be read, no call without a key is refused: a caller with the right
            // key must send the call again, and other answers elsewhere would reveal which pipelines exist.
            HookAnswer::Refused if self.keys.has_unreadable() => HookAnswer::Unavailable,
            answer => answer,
        }
    }

    /// Reads the whole body, with the slot that it occupies if it is long.
    ///
    /// # Errors
    /// The answer to a body that is too long, too slow or incomplete, or that finds no slot.
    async fn read_body<B>(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        body: B,
    ) -> Result<(Bytes, Option<Slot<IpAddr>>), HookAnswer>
    where
        B: Body<Data = Bytes>,
    {
        let too_long = || {
            let why = format!("the body is longer than {} MiB, and no event is", MAX_BODY_BYTES >> 20);
            HookAnswer::Error(CallError::TooLarge, why)
        };
        let announced = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|length| length > MAX_BODY_BYTES) {
            return Err(too_long());
        }
        let whole = async {
            let mut body = std::pin::pin!(body);
            let (mut whole, mut slot) = (Vec::new(), None);
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else {
                    let why = "the body is incomplete: send it again".to_string();
                    return Err(HookAnswer::Error(CallError::Malformed, why));
                };
                let Ok(data) = frame.into_data() else { continue };
                let length = whole.len() + data.len();
                if length > MAX_BODY_BYTES {
                    return Err(too_long());
                }
                if length > MAX_SHORT_BODY_BYTES && slot.is_none() {
                    slot = Some(self.long_bodies.take_for(peer).ok_or(HookAnswer::Unavailable)?);
                }
                whole.extend_from_slice(&data);
            }
            Ok((Bytes::from(whole), slot))
        };
        tokio::time::timeout(BODY_TIMEOUT, whole).await.unwrap_or_else(|_| {
            let why =
                format!("the body was not complete after {} seconds: send it faster", BODY_TIMEOUT.as_secs());
            Err(HookAnswer::Error(CallError::TooSlow, why))
        })
    }

    /// Returns the peer that a connection is counted for; `None` for a trusted proxy, whose connections are those of
    /// many peers.
    pub(super) fn limited_peer(&self, connection: IpAddr) -> Option<IpAddr> {
        (!self.proxies.contains(connection)).then(|| self.proxies.peer(connection, std::iter::empty()))
    }

    /// Counts a call for a pipeline.
    ///
    /// # Errors
    /// The answer to a call over the limit.
    pub(super) fn count_call(&self, pipeline: &PipelineKey, signed: bool) -> Result<(), HookAnswer> {
        let counted = lock(&self.pipelines).count_call((pipeline.clone(), signed), Instant::now());
        counted.map_err(HookAnswer::RateLimited)
    }

    /// Has the controller's loop reconcile a pipeline.
    pub(super) fn request_reconcile(&self, pipeline: &PipelineKey) -> HookAnswer {
        if self.directory.request_reconcile(pipeline)
            && self.tx.send(Input::Called(pipeline.clone())).is_err()
        {
            return HookAnswer::Unavailable;
        }
        HookAnswer::Accepted(pipeline.clone())
    }
}

fn forwarded_for(headers: &HeaderMap) -> impl DoubleEndedIterator<Item = &str> {
    headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok())
}

fn respond(answer: &HookAnswer, route: Option<&Route>) -> Response<Full<Bytes>> {
    let text = answer.text(route.map(|route| &route.endpoint));
    let body = if text.is_empty() { Bytes::new() } else { Bytes::from(format!("{text}\n")) };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = answer.status();
    let headers = response.headers_mut();
    if !text.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type()));
    }
    if let Some(pause) = answer.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(pause.as_secs()));
    }
    if matches!(answer, HookAnswer::Error(CallError::Method, _)) {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    if let Some(path) = answer.location().and_then(|path| HeaderValue::try_from(path).ok()) {
        headers.insert(LOCATION, path);
    }
    response
}
