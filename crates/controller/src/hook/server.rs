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
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::answer::{Answer, Wrong};
use super::call::{Call, LONG, Shown};
use super::connection_limit::{ConnectionLimit, ConnectionSlot};
use super::directory::{Directory, Found};
use super::hmac_keys::{HookKeys, Keys, Purpose, Unavailable};
use super::proxies::Proxies;
use super::queue::Queue;
use super::rate::{Limits, Pauses};
use super::route::{Endpoint, Place};
use super::secret_checker::Checker;
use super::signature;
use super::store::Store;
use crate::key::PipelineKey;
use crate::metrics::Metrics;
use crate::record::events::Events;
use crate::state::Input;

/// The longest body: what Flux itself takes.
const LONGEST: usize = 3 << 20;
/// How many long ones are held at a time. Whoever knows no key may send what he likes until it is judged:
/// all of it together has to fit into what the process may have.
const LONG_ONES: usize = 32;
/// How many of them one peer may have: all of them together would leave no other peer a place.
const LONG_ONES_OF_ONE: usize = LONG_ONES / 4;
/// How long a body may take to come.
const SLOWEST: Duration = Duration::from_secs(10);

/// What is said of a path that names nothing.
const NOTHING_HERE: &str = "there is nothing here: POST to /promotion/<namespace>/<pipeline>/<environment>, \
                            /trigger/<namespace>/<pipeline>, /forge/<namespace>/<pipeline>, \
                            /callback/<namespace>/<pipeline>/<promotion> or \
                            /approval/<namespace>/<pipeline>/<environment>/<revision>";

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
    /// Whether receivers of the strategy `webhook` can call back: the address of the hook server is known.
    pub callbacks: bool,
}

impl HookOptions {
    /// As many connections as are well within what a process may open.
    pub const CONNECTIONS: usize = 1024;
}

/// What it takes to judge a call.
pub struct HookServer {
    directory: Arc<Directory>,
    keys: Arc<Keys>,
    pub(super) store: Store,
    pub(super) metrics: Arc<Metrics>,
    tell: mpsc::UnboundedSender<Input>,
    proxies: Proxies,
    peers: Mutex<Limits<IpAddr>>,
    /// Of each pipeline those that are signed, and the others: who knows no key holds up nobody who does.
    pipelines: Mutex<Limits<(PipelineKey, bool)>>,
    long_ones: Semaphore,
    long_ones_of: Arc<ConnectionLimit>,
    callbacks: bool,
    pub(super) queue: Queue,
    /// Which pipelines and endpoints the operator was told of that were called with a wrong key.
    told: Mutex<Pauses<(PipelineKey, &'static str)>>,
    events: Events,
}

impl HookServer {
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
            keys: Arc::new(Keys::new(client.clone())),
            callbacks: options.callbacks,
            queue: Queue::default(),
            events: Events::new(client.clone(), metrics.clone()),
            told: Mutex::default(),
            store: Store::new(client),
            metrics,
            tell,
            proxies: options.proxies.clone(),
            peers: Mutex::new(Limits::new(options.peer_rate)),
            pipelines: Mutex::new(Limits::new(options.pipeline_rate)),
            long_ones: Semaphore::new(LONG_ONES),
            long_ones_of: Arc::new(ConnectionLimit::new(LONG_ONES_OF_ONE)),
        }
    }

    /// What tells the loop of Secrets that are missing or incomplete.
    pub(super) fn checker(&self) -> Checker {
        let (directory, keys) = (self.directory.clone(), self.keys.clone());
        Checker { directory, keys, tx: self.tell.clone(), callbacks: self.callbacks }
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
        let (body, _room) = match self.read(caller, &head.headers, body).await {
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
            Endpoint::Approval { environment, revision } => self.approval(call, environment, revision).await,
        };
        judged.unwrap_or_else(|why| match why {
            Unavailable::NotNow => Answer::NotNow,
            Unavailable::Unreadable(why) => Answer::Wrong(Wrong::Unreadable, why),
        })
    }

    /// The whole body, if it is neither too long nor too slow, with the room that it takes.
    async fn read<B>(
        &self,
        caller: IpAddr,
        headers: &HeaderMap,
        body: B,
    ) -> Result<(Bytes, Option<Room<'_>>), Answer>
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
                    let seat = self.long_ones_of.acquire(caller).ok_or(Answer::NotNow)?;
                    room = Some((seat, self.long_ones.try_acquire().map_err(|_| Answer::NotNow)?));
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
    pub(super) fn limited_peer(&self, peer: IpAddr) -> Option<IpAddr> {
        (!self.proxies.holds(peer)).then(|| self.proxies.caller(peer, std::iter::empty()))
    }

    /// Counts a call for a pipeline that is signed, or need not be.
    pub(super) fn take(&self, pipeline: &PipelineKey, signed: bool) -> Result<(), Answer> {
        lock(&self.pipelines).take((pipeline.clone(), signed), Instant::now()).map_err(Answer::TooMany)
    }

    /// Has the loop look at a pipeline.
    pub(super) fn look(&self, pipeline: &PipelineKey) -> Answer {
        if self.directory.call(pipeline) && self.tell.send(Input::Called(pipeline.clone())).is_err() {
            return Answer::NotNow;
        }
        Answer::Accepted(pipeline.clone())
    }

    /// Which key of these Secrets a call shows. If none of `wanted`, the Secrets are read again: a key may be new. For
    /// a pipeline that does not exist about as much is computed, and no Secret is read.
    pub(super) async fn shown(
        &self,
        call: &Call<'_>,
        secrets: &[&str],
        wanted: &[Purpose],
        shows: impl Fn(&[&[u8]]) -> bool,
    ) -> Result<Shown, Unavailable> {
        if call.pipeline.is_none() {
            let computed = 2 * wanted.len() + if call.is_short() { Purpose::SINGLE.len() } else { 0 };
            for _ in 0..computed {
                std::hint::black_box(shows(&[b"no pipeline, no key"]));
            }
            return Ok(Shown::Nothing);
        }
        let mut known = Vec::new();
        for anew in [false, true] {
            known.clear();
            for secret in secrets {
                known.push((*secret, self.keys.of(&call.place.pipeline.namespace, secret, anew).await?));
            }
            for purpose in wanted {
                for (secret, keys) in &known {
                    let keys: Vec<&[u8]> = keys.of_purpose(purpose).iter().map(Vec::as_slice).collect();
                    if shows(&keys) {
                        return Ok(Shown::Key(purpose.clone(), (*secret).to_string()));
                    }
                }
            }
        }
        Ok(wrong(call, &known, wanted, shows))
    }

    /// The cached keys of a Secret.
    pub(super) async fn keys_of(&self, call: &Call<'_>, secret: &str) -> Result<HookKeys, Unavailable> {
        self.keys.of(&call.place.pipeline.namespace, secret, false).await
    }

    /// How many other pipelines take triggers with the key of a Secret.
    pub(super) fn sharing(&self, pipeline: &PipelineKey, secret: &str) -> usize {
        self.directory.sharing(pipeline, secret)
    }

    /// Which key signed the body, in exactly one `X-Signature`.
    pub(super) async fn signed(
        &self,
        call: &Call<'_>,
        secrets: &[&str],
        wanted: &[Purpose],
    ) -> Result<Shown, Unavailable> {
        let mut given = call.headers.get_all("x-signature").iter().map(HeaderValue::as_bytes);
        let (Some(header), None) = (given.next(), given.next()) else { return Ok(Shown::Nothing) };
        let shows = |keys: &[&[u8]]| signature::verify(Some(header), call.body, keys.iter().copied()).is_ok();
        self.shown(call, secrets, wanted, shows).await
    }

    /// Refuses a call. If it shows a key of its pipeline that is for something else, the operator learns which key to
    /// use, and the caller learns no more than any other.
    pub(super) fn refuse(&self, call: &Call<'_>, shown: &Shown, wanted: &[Purpose]) -> Answer {
        let Shown::Wrong(purpose) = shown else { return Answer::Refused };
        let once = (call.place.pipeline.clone(), call.place.endpoint.name());
        if let Some(pipeline) = call.pipeline.filter(|_| lock(&self.told).is_due(once, Instant::now())) {
            // A report of a cluster without a target has no key to name.
            let named = wanted.iter().map(Purpose::key).filter(|key| !key.is_empty());
            let wanted: Vec<&str> = named.collect();
            let (endpoint, use_instead) = (call.place.endpoint.name(), wanted.join(" or "));
            let text = format!(
                "a call of /{endpoint} was refused: it shows {purpose}, and /{endpoint} accepts {use_instead} only; \
                 give the caller {use_instead} of the Secret in promotion.strategy.secretRef; if it has none, add it"
            );
            tracing::warn!(pipeline = %call.place.pipeline, "{text}");
            self.events.wrong_key(pipeline, &text);
        }
        Answer::WrongKey
    }
}

/// Which key of the pipeline a call shows that has none of the wanted ones. Not for long bodies: callers who know no
/// key would have the server compute ever more signatures.
fn wrong(
    call: &Call<'_>,
    known: &[(&str, HookKeys)],
    wanted: &[Purpose],
    shows: impl Fn(&[&[u8]]) -> bool,
) -> Shown {
    if !call.is_short() {
        return Shown::Nothing;
    }
    let others = known.iter().flat_map(|(_, keys)| {
        let reports =
            keys.purposes().filter(|purpose| matches!(purpose, Purpose::Report(_))).take(MOST_REPORT_KEYS);
        let others = Purpose::SINGLE.into_iter().chain(reports.cloned());
        others.map(move |purpose| (keys, purpose))
    });
    for (keys, purpose) in others.filter(|(_, purpose)| !wanted.contains(purpose)) {
        let keys: Vec<&[u8]> = keys.of_purpose(&purpose).iter().map(Vec::as_slice).collect();
        if shows(&keys) {
            return Shown::Wrong(purpose);
        }
    }
    Shown::Nothing
}

/// How many report keys are tried to find out which wrong key a call shows.
const MOST_REPORT_KEYS: usize = 16;

/// The room that a long body takes: of its peer's share, and of all.
type Room<'a> = (ConnectionSlot, SemaphorePermit<'a>);

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
