//! Events in the form of Flux's controllers (`event.toolkit.fluxcd.io`, v1beta1 and v1).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::clock::rfc3339;
use crate::order::{Announcement, Order};

/// The reason of the events of promotions. No other event has it.
pub const REASON: &str = "Promote";
/// The controller that reports the events.
const REPORTER: &str = "sluice";
/// notification-controller passes on those keys that begin with the group of the object, without it.
const PREFIX: &str = "pipelines.weave.works/";
const API_VERSION: &str = "pipelines.weave.works/v1alpha1";

/// The sentence of an event. It is the one of the predecessor, because receivers parse it.
pub fn message(order: &Order) -> String {
    let Order { namespace, pipeline, environment, revision, .. } = order;
    format!("Promote pipeline {namespace}/{pipeline} to {environment} with version {revision}")
}

/// The metadata of an event, by keys that notification-controller passes on.
pub fn metadata(order: &Order, about: &Announcement) -> BTreeMap<String, String> {
    let revision = order.revision.to_string();
    let (_, promotion) = order.promotion.split_once('/').unwrap_or_default();
    let fields = [
        ("environment", order.environment.as_str()),
        ("pipeline", order.pipeline.as_str()),
        ("promotion", promotion),
        ("replaces", order.replaces.as_str()),
        ("revision", &revision),
        ("version", &revision),
        ("id", &about.identity(order.round)),
        // By this key, notification-controller recognizes repetitions of the same promotion.
        ("token", &about.identity(order.round)),
    ];
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    fields.map(|(key, value)| (format!("{PREFIX}{key}"), value.to_string())).collect()
}

/// An event as Flux's controllers send it (`event.toolkit.fluxcd.io`, v1beta1 and v1).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FluxEvent<'a> {
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
pub(super) fn bytes(
    order: &Order,
    about: &Announcement,
    now: Timestamp,
) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&FluxEvent {
        involved_object: Involved {
            kind: "Pipeline",
            namespace: &order.namespace,
            name: &order.pipeline,
            uid: &about.pipeline_uid,
            api_version: API_VERSION,
            resource_version: &about.pipeline_version,
        },
        severity: "info",
        timestamp: rfc3339(now),
        message: message(order),
        reason: REASON,
        metadata: metadata(order, about),
        reporting_controller: REPORTER,
        reporting_instance: std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()),
    })
}

/// News about an object, for people: Flux's notification-controller can pass them on to a chat. They deliver nothing,
/// and never have the reason [`REASON`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The kind of the object, of the API group of Sluice.
    pub kind: &'static str,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The uid of the object.
    pub uid: String,
    /// Whether something failed.
    pub is_error: bool,
    /// One word for what happened.
    pub reason: String,
    /// A sentence for what happened.
    pub message: String,
    /// Metadata, by keys without a prefix. The key `token` identifies one occurrence: notification-controller drops
    /// repetitions within five minutes.
    pub metadata: BTreeMap<String, String>,
    /// When it happened.
    pub at: Timestamp,
}

impl News {
    pub(super) fn bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let metadata = self.metadata.iter().filter(|(_, value)| !value.is_empty());
        serde_json::to_vec(&FluxEvent {
            involved_object: Involved {
                kind: self.kind,
                namespace: &self.namespace,
                name: &self.name,
                uid: &self.uid,
                api_version: API_VERSION,
                resource_version: "",
            },
            severity: if self.is_error { "error" } else { "info" },
            timestamp: rfc3339(self.at),
            message: self.message.clone(),
            reason: &self.reason,
            metadata: metadata.map(|(key, value)| (format!("{PREFIX}{key}"), value.clone())).collect(),
            reporting_controller: REPORTER,
            reporting_instance: std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()),
        })
    }
}
