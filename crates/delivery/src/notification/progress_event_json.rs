//! The fields of a progress event, and its JSON as `--events-addr` receives it. The controller decides when to send one.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::flux_event::{API_VERSION, FluxEvent, Involved, PREFIX, REPORTER, instance};
use crate::clock::rfc3339;

/// What happened to an object, for people: Flux's notification-controller can pass it on to a chat. It delivers nothing,
/// and never has the reason of a promotion's event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressEvent {
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

impl ProgressEvent {
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
            reporting_instance: instance(),
        })
    }
}
