//! Delivery by notification: what is said of a promotion in the words of Flux, and its way to Flux's
//! notification-controller. The event in the cluster itself is the controller's to write: it holds
//! the client.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Serialize;

use crate::clock;
use crate::deliver::Inner;
use crate::error::{DeliveryError, Retry};
use crate::fault;
use crate::order::{About, Delivered, Order};
use crate::outward::{self, Answer, Silence};
use crate::webhook::seconds;

/// The reason that events of promotions have, and no others.
pub const REASON: &str = "Promote";
/// Why a promotion is tried again whose event may have arrived; the status keeps this word.
pub const UNANSWERED: &str = "EventUnanswered";
/// Who says it.
const REPORTER: &str = "sluice";
/// notification-controller passes on those keys that begin with the group of the object, without it.
const PREFIX: &str = "pipelines.weave.works/";
const API_VERSION: &str = "pipelines.weave.works/v1alpha1";

/// Why an event did not arrive where the controller sends events.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NotificationError {
    #[error("the place that --events-addr names cannot be called: {says}")]
    BadAddress { says: String },

    #[error(
        "{to}: cannot be reached: {says}; look whether notification-controller runs, and at --events-addr"
    )]
    Unreachable { to: String, says: String },

    #[error("{to}: the event was sent and no answer came ({says}); it is sent again")]
    Unanswered { to: String, says: String },

    #[error("{to}: asks to send the event again after {until}")]
    RateLimited { to: String, until: Timestamp },

    #[error("{to}: refused the event with status {status}: {says}; look at --events-addr")]
    Refused { to: String, status: u16, says: String },
}

impl NotificationError {
    /// One word for the condition, the event and the metric alike.
    pub fn reason(&self) -> &'static str {
        match self {
            NotificationError::BadAddress { .. } | NotificationError::Refused { .. } => "EventsRefused",
            NotificationError::Unreachable { .. } => "Unreachable",
            NotificationError::Unanswered { .. } => "EventUnanswered",
            NotificationError::RateLimited { .. } => "RateLimited",
        }
    }

    /// When it is worth another try: always, since nobody tells when it is mended.
    pub fn retry(&self) -> Retry {
        match self {
            NotificationError::RateLimited { until, .. } => Retry::At(*until),
            _ => Retry::Soon,
        }
    }
}

/// The sentence of an event; the predecessor's, which receivers take apart.
pub fn message(order: &Order) -> String {
    let Order { namespace, pipeline, environment, revision, .. } = order;
    format!("Promote pipeline {namespace}/{pipeline} to {environment} with version {revision}")
}

/// What an event says beside its sentence, by keys that notification-controller passes on.
pub fn metadata(order: &Order, about: &About) -> BTreeMap<String, String> {
    let revision = order.revision.to_string();
    let (_, promotion) = order.promotion.split_once('/').unwrap_or_default();
    let said = [
        ("environment", order.environment.as_str()),
        ("pipeline", order.pipeline.as_str()),
        ("promotion", promotion),
        ("replaces", order.replaces.as_str()),
        ("revision", &revision),
        ("version", &revision),
        ("id", &about.identity(order.round)),
        // By this notification-controller tells repetitions of this very promotion; it keeps it.
        ("token", &about.identity(order.round)),
    ];
    let said = said.into_iter().filter(|(_, value)| !value.is_empty());
    said.map(|(key, value)| (format!("{PREFIX}{key}"), value.to_string())).collect()
}

/// An event as Flux's controllers send it (`event.toolkit.fluxcd.io`, v1beta1 and v1).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    involved_object: Involved<'a>,
    severity: &'static str,
    timestamp: String,
    message: String,
    reason: &'a str,
    metadata: BTreeMap<String, String>,
    reporting_controller: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reporting_instance: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Involved<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    api_version: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
}

/// The bytes of an event.
fn bytes(order: &Order, about: &About, now: Timestamp) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Event {
        involved_object: Involved {
            kind: "Pipeline",
            namespace: &order.namespace,
            name: &order.pipeline,
            uid: &about.pipeline_uid,
            api_version: API_VERSION,
            resource_version: &about.pipeline_version,
        },
        severity: "info",
        timestamp: seconds(now),
        message: message(order),
        reason: REASON,
        metadata: metadata(order, about),
        reporting_controller: REPORTER,
        reporting_instance: std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()),
    })
}

/// Something that happened to an object, for people: what Flux's notification-controller can pass on to a chat.
/// It delivers nothing, and none of it has the reason [`REASON`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The kind of the object, of the API group of Sluice.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether something failed.
    pub is_error: bool,
    /// One word for what happened.
    pub reason: String,
    /// A sentence for what happened.
    pub message: String,
    /// More about it, by keys without a prefix. The key `token` tells one occurrence from another:
    /// notification-controller drops what it had in the last five minutes.
    pub metadata: BTreeMap<String, String>,
    /// When it happened.
    pub at: Timestamp,
}

impl News {
    fn bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let metadata = self.metadata.iter().filter(|(_, value)| !value.is_empty());
        serde_json::to_vec(&Event {
            involved_object: Involved {
                kind: self.kind,
                namespace: &self.namespace,
                name: &self.name,
                uid: &self.uid,
                api_version: API_VERSION,
                resource_version: "",
            },
            severity: if self.is_error { "error" } else { "info" },
            timestamp: seconds(self.at),
            message: self.message.clone(),
            reason: &self.reason,
            metadata: metadata.map(|(key, value)| (format!("{PREFIX}{key}"), value.clone())).collect(),
            reporting_controller: REPORTER,
            reporting_instance: std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()),
        })
    }
}

/// Sends the event, where there is a place to send it to.
pub(crate) async fn deliver(inner: &Inner, order: &Order, about: &About) -> Result<Delivered, DeliveryError> {
    let Some(address) = &inner.options.events_addr else { return Ok(Delivered::Notified { to: None }) };
    let body = bytes(order, about, clock::now()).map_err(|e| bad(e.to_string()))?;
    order.permit.check()?;
    fault::point("before-call");
    let answer = post(inner, address, body).await;
    fault::point("after-call");
    let (to, answer) = answer?;
    match answer.status {
        // So it answers to what it has had already, for five minutes. Where no try can have arrived,
        // somebody else on the way says so, and means something else by it.
        429 if about.in_doubt => Ok(Delivered::Notified { to: Some(to) }),
        _ => taken(to.clone(), &answer).map(|()| Delivered::Notified { to: Some(to) }),
    }
    .map_err(DeliveryError::from)
}

/// Sends news, where there is a place to send them to. Once: whether to try again is for the caller.
pub(crate) async fn tell(inner: &Inner, news: &News) -> Result<(), NotificationError> {
    let Some(address) = &inner.options.events_addr else { return Ok(()) };
    let body = news.bytes().map_err(|e| bad(e.to_string()))?;
    let (to, answer) = post(inner, address, body).await?;
    match answer.status {
        // notification-controller had it before.
        429 if answer.until.is_none() => Ok(()),
        _ => taken(to, &answer),
    }
}

fn bad(says: String) -> NotificationError {
    NotificationError::BadAddress { says }
}

/// Sends one event; the host that it went to, and the answer.
async fn post(inner: &Inner, address: &str, body: Vec<u8>) -> Result<(String, Answer), NotificationError> {
    let url = reqwest::Url::parse(address).map_err(|e| bad(e.to_string()))?;
    let to = url.host_str().unwrap_or_default().to_string();
    let client = inner.outward.client(None, false).map_err(bad)?;
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let answer = outward::post(&client, url, headers, body).await;
    inner.counters.forge_call("notification", "POST", answer.as_ref().map_or(0, |a| a.status));
    let answer = answer.map_err(|silence| silent(silence, to.clone(), inner.outward.deadline))?;
    Ok((to, answer))
}

/// Whether an answer says that the event was taken.
fn taken(to: String, answer: &Answer) -> Result<(), NotificationError> {
    let says = answer.says(str::to_string);
    Err(match answer.status {
        200..300 => return Ok(()),
        429 | 503 if let Some(until) = answer.until => NotificationError::RateLimited { to, until },
        status @ (408 | 425 | 429 | 500..) => {
            NotificationError::Unreachable { to, says: format!("status {status}: {says}") }
        }
        status => NotificationError::Refused { to, status, says },
    })
}

/// Why no answer came, and whether the event may have arrived all the same.
fn silent(silence: Silence, to: String, after: Duration) -> NotificationError {
    match silence {
        Silence::Timeout => NotificationError::Unanswered { to, says: format!("within {after:?}") },
        Silence::Broken(says) => NotificationError::Unanswered { to, says },
        Silence::NoConnection(says) | Silence::Certificate(says) => {
            NotificationError::Unreachable { to, says }
        }
        Silence::LeadsInside => {
            NotificationError::Unreachable { to, says: "its name leads elsewhere".into() }
        }
    }
}
