//! The Kubernetes event that announces a promotion: the delivery of the notification strategy. Its name follows
//! from the promotion, so that a second try finds the event of the first.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use sluice_api::FIELD_MANAGER;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::Promotion;
use sluice_core::hex::sha256_hex;
use sluice_delivery::{DeliveryStrategy, Order, fault, notification};

use crate::act::ActError;
use crate::metrics::Metrics;
use crate::record;

/// The longest name of an object.
const MAX_NAME_LENGTH: usize = 253;

/// The event for an order of the notification strategy; `None` for another strategy. It is of events.k8s.io/v1;
/// the API server shows the same object as core/v1.
pub fn event(pipeline: &Pipeline, promotion: &Promotion, order: &Order, now: Timestamp) -> Option<Event> {
    let DeliveryStrategy::Notification(about) = &order.strategy else { return None };
    let mut note = notification::message(order);
    record::limit(&mut note, record::event_sender::MAX_NOTE_BYTES);
    let instance = notification::instance();
    Some(Event {
        metadata: ObjectMeta {
            name: Some(name(&promotion.name_any(), &about.identity(order.round))),
            namespace: pipeline.namespace(),
            annotations: Some(notification::metadata(order, about)),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some("Normal".into()),
        reason: Some(notification::REASON.into()),
        note: Some(note),
        action: Some("Announce".into()),
        regarding: Some(pipeline.object_ref(&())),
        related: Some(promotion.object_ref(&())),
        reporting_controller: Some(FIELD_MANAGER.into()),
        reporting_instance: Some(instance.unwrap_or_else(|| FIELD_MANAGER.into())),
        ..Event::default()
    })
}

/// The name of the event, which differs between promotions, and between rounds of a promotion.
fn name(promotion: &str, identity: &str) -> String {
    let digest = &sha256_hex(identity.as_bytes())[..16];
    let prefix: String = promotion.chars().take(MAX_NAME_LENGTH - digest.len() - 1).collect();
    format!("{}.{digest}", prefix.trim_end_matches(['.', '-']))
}

/// Writes the event, unless it exists.
pub(super) async fn announce(
    client: Client,
    metrics: &Metrics,
    order: &Order,
    event: Option<Event>,
) -> Result<(), ActError> {
    let Some(event) = event else { return Ok(()) };
    order.fencing_token.check()?;
    fault::point("before-event");
    let api: Api<Event> = Api::namespaced(client, &order.namespace);
    let written = record::create(&api, FIELD_MANAGER, &event).await;
    fault::point("after-event");
    match written {
        Ok(Some(_)) => metrics.count_write("Event"),
        Ok(None) => {}
        Err(kube::Error::Api(e)) if e.code == 403 => {
            let why =
                format!("grant the controller the verb create on events of events.k8s.io ({})", e.message);
            return Err(ActError::Event(why));
        }
        Err(error) => return Err(ActError::Event(error.to_string())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_enough_and_differ() {
        assert_eq!(name("podinfo-prod-0123456789", "u"), name("podinfo-prod-0123456789", "u"));
        assert_ne!(name("podinfo-prod-0123456789", "u"), name("podinfo-prod-0123456789", "u.1"));
        let long = name(&"a".repeat(253), "u");
        assert!(long.len() <= MAX_NAME_LENGTH && long.starts_with("aaa"), "{long}");
        assert!(!name("a-", "u").contains("-."));
    }
}
