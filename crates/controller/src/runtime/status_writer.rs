//! Writes statuses, one at a time for each object and the newest one last: a status that was
//! overtaken while another was being written is never sent. What fails is tried again until it
//! stands or its object is gone. Each write names the version of the object that it was composed
//! for: what somebody else has written since is never overwritten unseen, however late it arrives.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{ACCEPT, HeaderValue};
use kube::api::{Patch, PatchParams, ValidationDirective};
use kube::core::object::HasStatus;
use kube::core::{NamespaceResourceScope, Request};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sluice_api::pipeline::PipelineStatus;
use sluice_api::promotion::PromotionStatus;
use sluice_api::{FIELD_MANAGER, Pipeline, Promotion};
use sluice_delivery::{Line, Permit};
use tokio::sync::mpsc;

use crate::engine::Told;
use crate::intake::{Input, PipelineKey, version_of};
use crate::objects;
use crate::silence::{PATIENCE, within};

/// The object whose status is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StatusOf {
    /// A pipeline.
    Pipeline(PipelineKey),
    /// A promotion of a pipeline, by its name.
    Promotion(PipelineKey, String),
}

impl StatusOf {
    /// The kind, for metrics and logs.
    pub fn kind(&self) -> &'static str {
        match self {
            StatusOf::Pipeline(_) => "Pipeline",
            StatusOf::Promotion(..) => "Promotion",
        }
    }

    /// The pipeline that it is about.
    pub fn pipeline(&self) -> &PipelineKey {
        match self {
            StatusOf::Pipeline(key) | StatusOf::Promotion(key, _) => key,
        }
    }

    /// The promotion's name, for logs.
    pub fn promotion(&self) -> Option<&str> {
        match self {
            StatusOf::Pipeline(_) => None,
            StatusOf::Promotion(_, name) => Some(name),
        }
    }
}

/// What a status was composed for.
#[derive(Clone, Debug, Default)]
pub struct Basis {
    /// The version of the object; 0 where that is not known, and then it is written over anything.
    pub version: u64,
    /// The status that stood there.
    pub stood: Option<Spelled>,
    /// The object's identity. The write never lands on another object that was created under its name.
    pub uid: Option<String>,
}

/// An object as it stands.
#[allow(clippy::large_enum_variant, reason = "most of them are Promotions, and they are moved, not kept")]
#[derive(Debug)]
pub enum Found {
    /// A pipeline.
    Pipeline(Pipeline),
    /// A promotion.
    Promotion(Promotion),
}

/// How a write ended.
#[derive(Debug)]
pub enum Written {
    /// It stands, under this version.
    Stands(u64),
    /// The object is gone.
    Gone,
    /// Somebody else has written its status since: so it stands.
    Overtaken(Box<Found>),
    /// It was not sent: the leave to write it was taken back.
    Withheld,
    /// It failed and is to be tried again.
    Failed(kube::Error),
}

/// The queue of statuses to be written.
pub struct Writer {
    client: Client,
    tell: mpsc::UnboundedSender<Input>,
    queue: Arc<Line>,
    slots: HashMap<StatusOf, Slot>,
    rates: WriteRates,
    begun: u64,
}

/// A status as it is sent. Thousands are kept, and as a tree each would take ten times the room.
pub type Spelled = Arc<RawValue>;

/// Spells a status.
///
/// # Errors
/// When it holds what JSON has no words for.
pub fn spell(status: &impl Serialize) -> serde_json::Result<Spelled> {
    serde_json::value::to_raw_value(status).map(Spelled::from)
}

struct Slot {
    /// Tells it from an earlier one of the same object that was forgotten.
    number: u64,
    next: Option<Spelled>,
    writing: Spelled,
    failures: u32,
    version: u64,
    uid: Option<String>,
    /// The statuses that may be stored: the last one that is known to be, and at most [`MAX_UNKNOWN`] later
    /// ones whose write failed without a definite answer.
    may_stand: Vec<Spelled>,
    permit: Permit,
}

/// How many statuses of unknown fate are remembered for an object. When a forgotten one turns out to be
/// stored, it is taken for another writer's: the stored status is then loaded, as after a restart.
const MAX_UNKNOWN: usize = 8;

/// How many statuses are written side by side: enough to keep an API server busy.
const CONCURRENT: usize = 32;
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

impl Writer {
    /// A writer that tells how each write ended.
    pub fn new(client: Client, tell: mpsc::UnboundedSender<Input>) -> Self {
        let (queue, rates) = (Line::new(CONCURRENT), WriteRates::default());
        Self { client, tell, queue, slots: HashMap::new(), rates, begun: 0 }
    }

    /// Has a status written, in place of any earlier one that has not been sent yet.
    pub fn write(&mut self, object: StatusOf, status: Spelled, basis: Basis, permit: Permit) {
        if let Some(slot) = self.slots.get_mut(&object) {
            slot.next = Some(status);
            return;
        }
        self.begun += 1;
        let slot = Slot {
            number: self.begun,
            next: None,
            writing: status,
            failures: 0,
            version: basis.version,
            uid: basis.uid,
            may_stand: basis.stood.into_iter().collect(),
            permit,
        };
        let pause = self.rates.pause(&object, Instant::now());
        self.send(&object, &slot, pause);
        self.slots.insert(object, slot);
    }

    /// The objects whose status is being written.
    pub fn objects(&self) -> impl Iterator<Item = &StatusOf> {
        self.slots.keys()
    }

    /// Leaves an object alone, whatever is still to be written of it.
    pub fn forget(&mut self, object: &StatusOf) {
        self.slots.remove(object);
    }

    /// Whether the status of an object is being written.
    pub fn is_writing(&self, object: &StatusOf) -> bool {
        self.slots.contains_key(object)
    }

    /// Takes note of how a write ended, and sends what has come up in the meantime. Says whether it is one
    /// that counts: what was forgotten since is nobody's.
    pub fn ended(&mut self, object: &StatusOf, number: u64, how: &Written) -> bool {
        if self.slots.get(object).is_none_or(|slot| slot.number != number) {
            return false;
        }
        let Some(mut slot) = self.slots.remove(object) else { return false };
        let pause = match how {
            Written::Gone | Written::Overtaken(_) | Written::Withheld => return true,
            Written::Stands(version) => {
                let Some(next) = slot.next.take() else { return true };
                (slot.version, slot.failures) = (*version, 0);
                slot.may_stand = vec![std::mem::replace(&mut slot.writing, next)];
                self.rates.pause(object, Instant::now())
            }
            Written::Failed(error) => {
                slot.failures += 1;
                if let Some(next) = slot.next.take() {
                    let sent = std::mem::replace(&mut slot.writing, next);
                    if may_have_landed(error) {
                        slot.remember(sent);
                    }
                }
                Duration::from_millis(250 * 2u64.pow(slot.failures.min(8))).min(LONGEST_PAUSE)
            }
        };
        self.send(object, &slot, pause);
        self.slots.insert(object.clone(), slot);
        true
    }

    #[cfg(test)]
    fn remembered(&self, object: &StatusOf) -> usize {
        self.slots.get(object).map_or(0, |slot| slot.may_stand.len())
    }

    fn send(&self, object: &StatusOf, slot: &Slot, pause: Duration) {
        let (client, tell, queue, object) =
            (self.client.clone(), self.tell.clone(), self.queue.clone(), object.clone());
        let number = slot.number;
        let write = Write {
            status: slot.writing.clone(),
            version: slot.version,
            uid: slot.uid.clone(),
            may_stand: slot.may_stand.clone(),
            permit: slot.permit.clone(),
        };
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let _slot = queue.place(&object.pipeline().to_string()).await;
            // Boxed: a task that waits for its slot takes no room for what comes after.
            let how = match &object {
                StatusOf::Pipeline(key) => {
                    Box::pin(write.put(client, &key.namespace, &key.name, Found::Pipeline)).await
                }
                StatusOf::Promotion(key, name) => {
                    Box::pin(write.put(client, &key.namespace, name, Found::Promotion)).await
                }
            };
            // The receiver ends only with the process.
            let _ = tell.send(Input::Written(object, number, how));
        });
    }
}

impl Slot {
    /// Remembers a status whose write has no known outcome, and forgets the oldest such one when there are
    /// too many. The first is the one that is known to have been stored, and stays.
    fn remember(&mut self, sent: Spelled) {
        if self.may_stand.len() > MAX_UNKNOWN {
            self.may_stand.remove(1);
        }
        self.may_stand.push(sent);
    }
}

/// Whether a failed write may have been stored all the same: a 4xx answer says that it was not.
fn may_have_landed(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code))
}

/// A bound on the writes of one status, whatever causes them: another writer of the same status, for one,
/// which answers each write with its own. A generic cell rate: [`WriteRates::BURST`] writes at once, then
/// one per [`WriteRates::PERIOD`].
#[derive(Debug, Default)]
struct WriteRates {
    /// When all writes of an object would be paid for. An object without an entry has none to pay.
    paid_at: HashMap<StatusOf, Instant>,
    purge_at: usize,
}

impl WriteRates {
    /// How many writes go out without a pause. A promotion takes eight, events included.
    const BURST: u32 = 30;
    /// The time between two writes in the long run.
    const PERIOD: Duration = Duration::from_secs(3);
    /// The number of entries from which on those that are paid for are removed.
    const MANY: usize = 256;

    /// The pause before the next write of an object, which is counted.
    fn pause(&mut self, object: &StatusOf, now: Instant) -> Duration {
        if self.paid_at.len() >= self.purge_at.max(Self::MANY) {
            self.paid_at.retain(|_, at| *at > now);
            self.purge_at = 2 * self.paid_at.len();
        }
        let paid_at = self.paid_at.entry(object.clone()).or_insert(now);
        let pause = paid_at.saturating_duration_since(now).saturating_sub(Self::PERIOD * Self::BURST);
        *paid_at = (*paid_at).max(now) + Self::PERIOD;
        pause
    }
}

/// A write on its way.
struct Write {
    status: Spelled,
    version: u64,
    uid: Option<String>,
    may_stand: Vec<Spelled>,
    permit: Permit,
}

/// How often a write is sent anew because people have edited the object.
const EDITED: u32 = 5;

impl Write {
    async fn put<K>(mut self, client: Client, namespace: &str, name: &str, found: fn(K) -> Found) -> Written
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + HasStatus<Status: DeserializeOwned + Ours>
            + DeserializeOwned
            + Clone
            + Debug,
    {
        // Without a version the API server takes a write for whatever has the name: a uid in what is applied
        // to a status is not compared.
        if self.version == 0 && self.uid.is_some() {
            match within(PATIENCE, get::<K>(&client, namespace, name)).await {
                Ok(Some(stored)) if self.uid == stored.meta().uid => self.version = version_of(stored.meta()),
                Ok(_) => return Written::Gone,
                Err(error) => return Written::Failed(error),
            }
        }
        for _ in 0..EDITED {
            if self.permit.check().is_err() {
                return Written::Withheld;
            }
            match patch::<K>(client.clone(), namespace, name, self.version, &self.status).await {
                Ok(version) => return Written::Stands(version),
                Err(kube::Error::Api(e)) if e.code == 404 => return Written::Gone,
                Err(kube::Error::Api(e)) if e.code == 409 => {}
                Err(error) => return Written::Failed(error),
            }
            let stored = match within(PATIENCE, get::<K>(&client, namespace, name)).await {
                Ok(None) => return Written::Gone,
                Ok(Some(object)) => object,
                Err(error) => return Written::Failed(error),
            };
            // It was deleted, and created again: this status is not about the new one.
            if self.uid.is_some() && self.uid != stored.meta().uid {
                return Written::Gone;
            }
            if !self.expects(stored.status()) {
                return Written::Overtaken(Box::new(found(stored)));
            }
            // Its status is as it was: something else of it was edited.
            self.version = version_of(stored.meta());
        }
        Written::Failed(kube::Error::Service("the object is edited all the time".into()))
    }

    /// Whether this is a status that may stand as far as this replica knows.
    fn expects<S: DeserializeOwned + Ours>(&self, stands: Option<&S>) -> bool {
        let Some(stands) = stands.map(Ours::ours) else { return true };
        let mut expected = self.may_stand.iter().chain([&self.status]);
        expected.any(|text| serde_json::from_str::<S>(text.get()).is_ok_and(|status| status == stands))
    }
}

/// A status of which calls, whichever replica takes them, write a part.
trait Ours: PartialEq {
    /// What the loop writes of it.
    fn ours(&self) -> Self;
}

impl Ours for PipelineStatus {
    fn ours(&self) -> Self {
        let mut status = self.clone();
        let _ = Told::of(&mut status);
        status
    }
}

impl Ours for PromotionStatus {
    fn ours(&self) -> Self {
        PromotionStatus { callback: None, key_approval: None, ..self.clone() }
    }
}

/// What is sent: the object as far as it is ours.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Name<'a>,
    status: &'a RawValue,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Name<'a> {
    name: &'a str,
    namespace: &'a str,
    /// Refused where the object is at another version.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
}

/// What is read of the answer.
#[derive(Debug, Deserialize)]
struct Stands {
    metadata: Version,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// The same JSON, as YAML takes it too: what is applied is read as YAML, which refuses a whole document for
/// one of these characters (yaml.org/spec/1.2.2, "c-printable"), and messages of workloads and receivers
/// may have any. Outside of strings JSON has none of them.
fn printable(json: Vec<u8>) -> Vec<u8> {
    let is_refused = |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let Some(text) = std::str::from_utf8(&json).ok().filter(|text| text.contains(is_refused)) else {
        return json;
    };
    let mut escaped = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        match is_refused(c) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    escaped.into_bytes()
}

/// Of the object that stands, only what says which version it is.
const METADATA: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json",
);

/// Reads an object, its status leniently; `None` where it is gone.
async fn get<K>(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    Ok(objects::get(client, namespace, name).await?.map(|read| read.object))
}

async fn patch<K>(
    client: Client,
    namespace: &str,
    name: &str,
    version: u64,
    status: &RawValue,
) -> kube::Result<u64>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let (api_version, kind) = (K::api_version(&()), K::kind(&()));
    let resource_version = (version > 0).then(|| version.to_string());
    let metadata = Name { name, namespace, resource_version };
    let body = Body { api_version: &api_version, kind: &kind, metadata, status };
    // To look for fields that it does not know, the server would read the status a second time.
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Ignore),
        ..PatchParams::apply(FIELD_MANAGER).force()
    };
    let url = K::url_path(&(), Some(namespace));
    let mut request = Request::new(url)
        .patch_subresource("status", name, &params, &Patch::Apply(&body))
        .map_err(kube::Error::BuildRequest)?;
    request.headers_mut().insert(ACCEPT, METADATA);
    let request = request.map(printable);
    let stands = within(PATIENCE, client.request::<Stands>(request)).await?;
    Ok(stands.metadata.resource_version.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> StatusOf {
        let key = PipelineKey { namespace: "apps".into(), name: "podinfo".into() };
        StatusOf::Promotion(key, name.into())
    }

    #[tokio::test]
    async fn few_statuses_are_remembered_however_long_writes_fail() {
        // Nobody listens there, and the outcomes are given by hand.
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let mut writer = Writer::new(client, mpsc::unbounded_channel().0);
        let object = object("podinfo-1");
        let status = |n: usize| spell(&serde_json::json!({"message": n.to_string()})).unwrap();
        let basis = Basis { version: 1, stood: Some(status(0)), uid: None };
        writer.write(object.clone(), status(1), basis, Permit::default());
        let silent = Written::Failed(crate::silence::silent(PATIENCE));
        for n in 2..200 {
            writer.write(object.clone(), status(n), Basis::default(), Permit::default());
            assert!(writer.ended(&object, 1, &silent));
        }
        assert_eq!(writer.remembered(&object), MAX_UNKNOWN + 1);
        assert_eq!(writer.slots[&object].may_stand[0].get(), status(0).get(), "the one that was stored");
        // What the server has refused is not stored.
        let refused = kube::core::Status::failure("no", "Forbidden").with_code(403);
        let refused = Written::Failed(kube::Error::Api(refused.boxed()));
        let before = writer.slots[&object].may_stand.last().unwrap().get().to_string();
        writer.write(object.clone(), status(500), Basis::default(), Permit::default());
        writer.ended(&object, 1, &refused);
        assert_eq!(writer.slots[&object].may_stand.last().unwrap().get(), before);
    }

    #[test]
    fn two_writers_of_one_status_do_not_answer_each_other_without_end() {
        let (mut rates, begun) = (WriteRates::default(), Instant::now());
        let (mut now, mut writes) = (begun, 0u32);
        // Each write is answered at once by the other writer, and is due again.
        while now < begun + Duration::from_secs(600) {
            now += rates.pause(&object("podinfo-1"), now) + Duration::from_millis(5);
            writes += 1;
        }
        assert!((200..=WriteRates::BURST + 202).contains(&writes), "{writes} writes in ten minutes");
        assert_eq!(rates.pause(&object("podinfo-2"), now), Duration::ZERO, "another object is not slowed");
        // A pause pays, and what is paid for takes no room.
        let later = now + WriteRates::PERIOD * (WriteRates::BURST + 2);
        assert_eq!(rates.pause(&object("podinfo-1"), later), Duration::ZERO);
        for n in 0..5000u32 {
            rates.pause(&object(&n.to_string()), later + WriteRates::PERIOD * n);
        }
        assert!(rates.paid_at.len() <= 2 * WriteRates::MANY, "{}", rates.paid_at.len());
    }

    #[test]
    fn what_yaml_does_not_take_as_it_is_is_escaped_and_reads_the_same() {
        let said = "boom \u{7f} end â\u{80}\u{99} \u{85} \u{feff}\u{fffe} \u{1b} \u{2028} 🦀 \\u007f \" ä";
        let value = serde_json::json!({"message": said, "\u{9b}": 1});
        let sent = printable(serde_json::to_vec(&value).unwrap());
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&sent).unwrap(), value);
        // c-printable, without the byte order mark, which readers take for one.
        let takes = |c: char| {
            matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
                && c != '\u{feff}'
        };
        let text = String::from_utf8(sent).unwrap();
        assert!(text.chars().all(takes), "{text:?}");
        let plain = serde_json::to_vec("as it was").unwrap();
        assert_eq!(printable(plain.clone()), plain);
    }
}
