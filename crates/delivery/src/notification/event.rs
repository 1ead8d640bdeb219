//! The event that delivers a promotion by the strategy `notification`.

use std::collections::BTreeMap;

use super::flux_event::{API_VERSION, FluxEvent, Involved, PREFIX, REPORTER, instance};
use crate::clock::rfc3339;
use crate::order::{Announcement, Order};
use jiff::Timestamp;

/// The reason of the events of promotions. No other event has it.
pub const REASON: &str = "Promote";

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
        reporting_instance: instance(),
    })
}
