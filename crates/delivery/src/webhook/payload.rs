//! The payload of a webhook: one JSON object. docs/strategies/webhook.md describes its fields. They are written in this
//! order; a change that a reader could notice needs another version.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::clock::rfc3339;
use crate::order::{self, Announcement, Order};

/// The version of the payload.
pub(super) const VERSION: &str = "hooks.pipelines.weave.works/v1alpha1";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Payload<'a> {
    api_version: &'static str,
    kind: &'static str,
    id: String,
    promotion: PayloadNamed<'a>,
    pipeline: PayloadNamed<'a>,
    environment: PayloadEnvironment<'a>,
    revision: PayloadRevision,
    replaces: &'a str,
    evidence: Vec<PayloadEvidence<'a>>,
    attempt: u32,
    created_at: String,
    sent_at: String,
    callback: &'a str,
    callback_token: &'a str,
}

#[derive(Serialize)]
struct PayloadNamed<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

#[derive(Serialize)]
struct PayloadEnvironment<'a> {
    name: &'a str,
    targets: Vec<PayloadTarget<'a>>,
}

#[derive(Serialize)]
struct PayloadTarget<'a> {
    name: &'a str,
    namespace: &'a str,
    cluster: Option<PayloadCluster<'a>>,
}

impl<'a> PayloadTarget<'a> {
    fn of(target: &'a order::DeliveryTarget) -> Self {
        let cluster = target.cluster.as_ref().map(|(namespace, name)| PayloadCluster { namespace, name });
        PayloadTarget { name: &target.name, namespace: &target.namespace, cluster }
    }
}

#[derive(Serialize)]
struct PayloadCluster<'a> {
    namespace: &'a str,
    name: &'a str,
}

#[derive(Serialize)]
struct PayloadRevision {
    text: String,
    facets: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct PayloadEvidence<'a> {
    environment: &'a str,
    target: &'a str,
    at: &'a str,
}

/// The bytes to send and sign.
pub(super) fn bytes(
    order: &Order,
    about: &Announcement,
    now: Timestamp,
) -> Result<Vec<u8>, serde_json::Error> {
    let name = order.promotion.split_once('/').map_or(order.promotion.as_str(), |(_, name)| name);
    let message = Payload {
        api_version: VERSION,
        kind: "Promotion",
        id: about.identity(order.round),
        promotion: PayloadNamed { namespace: &order.namespace, name, uid: &about.uid },
        pipeline: PayloadNamed {
            namespace: &order.namespace,
            name: &order.pipeline,
            uid: &about.pipeline_uid,
        },
        environment: PayloadEnvironment {
            name: &order.environment,
            targets: about.targets.iter().map(PayloadTarget::of).collect(),
        },
        revision: PayloadRevision { text: order.revision.to_string(), facets: order.revision.to_strings() },
        replaces: &order.replaces,
        evidence: about
            .evidence
            .iter()
            .map(|(environment, target, at)| PayloadEvidence { environment, target, at })
            .collect(),
        attempt: about.attempt,
        created_at: rfc3339(order.created),
        sent_at: rfc3339(now),
        callback: order.credentials.callback.as_ref().map_or("", |(url, _)| url),
        callback_token: order.credentials.callback.as_ref().map_or("", |(_, token)| token),
    };
    serde_json::to_vec(&message)
}
