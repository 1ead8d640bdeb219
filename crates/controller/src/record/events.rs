//! Kubernetes events about promotions: that one waits for people, and each failure with what to do;
//! and about objects that cannot be read. Never about housekeeping.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};
use sluice_api::FIELD_MANAGER;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Promotion, PromotionStatus};
use sluice_core::model::Phase;

use super::promotion::{self, Change};
use crate::metrics::Metrics;
use crate::watch::guard::Unreadable;

/// After each try to send an event; it is given up after the last.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15), Duration::ZERO];
/// The longest note that an event may have, in bytes.
pub(crate) const LONGEST: usize = 1000;

/// Sends events.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    metrics: Arc<Metrics>,
}

impl Events {
    /// Events in the name of Sluice.
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        let reporter =
            Reporter { controller: FIELD_MANAGER.into(), instance: std::env::var("HOSTNAME").ok() };
        Self { recorder: Recorder::new(client, reporter), metrics }
    }

    /// Tells of a change, if people should hear of it.
    pub fn tell(
        &self,
        pipeline: &Pipeline,
        promotion: &Promotion,
        before: &PromotionStatus,
        change: &Change,
    ) {
        let Some((type_, reason, message)) = worth_telling(before, change) else { return };
        let spec = &promotion.spec;
        let note = format!("{} into {}: {message}", spec.revision, spec.place());
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(cut(&note)),
            action: "Promote".into(),
            secondary: Some(promotion.object_ref(&())),
        };
        self.publish(event, pipeline.object_ref(&()), promotion.name_any());
    }

    /// Tells of an object that cannot be read: it has no other place that would say so.
    pub fn unreadable<K: Resource<DynamicType = ()>>(&self, bad: Unreadable) {
        let note = format!(
            "this object cannot be read ({}), and counts as not there; write it as the definition says that \
             sluice crds prints, and apply that definition too",
            bad.error
        );
        let event = Event {
            type_: EventType::Warning,
            reason: "Unreadable".into(),
            note: Some(cut(&note)),
            action: "Read".into(),
            secondary: None,
        };
        let about = ObjectReference {
            api_version: Some(K::api_version(&()).into()),
            kind: Some(K::kind(&()).into()),
            name: bad.metadata.name.clone(),
            namespace: bad.metadata.namespace,
            uid: bad.metadata.uid,
            ..ObjectReference::default()
        };
        self.publish(event, about, bad.metadata.name.unwrap_or_default());
    }

    /// Tells that a call to the hook server showed a key that is for something else.
    pub fn wrong_key(&self, pipeline: &Pipeline, note: &str) {
        let event = Event {
            type_: EventType::Warning,
            reason: "WrongHookKey".into(),
            note: Some(cut(note)),
            action: "Authenticate".into(),
            secondary: None,
        };
        self.publish(event, pipeline.object_ref(&()), pipeline.name_any());
    }

    fn publish(&self, event: Event, about: ObjectReference, name: String) {
        let (recorder, metrics) = (self.recorder.clone(), self.metrics.clone());
        tokio::spawn(async move {
            for pause in PAUSES {
                match recorder.publish(&event, &about).await {
                    Ok(()) => return metrics.wrote("Event"),
                    Err(error) => tracing::warn!(name, %error, "cannot send an event"),
                }
                tokio::time::sleep(pause).await;
            }
        });
    }
}

fn worth_telling(before: &PromotionStatus, change: &Change) -> Option<(EventType, &'static str, String)> {
    match change {
        Change::Proposed(request)
            if before.change_request.as_ref().map(|r| &r.head_commit) != Some(&request.head_commit) =>
        {
            let message = promotion::waiting(request, &format!("{} waits to be merged", request.url));
            let type_ = if request.notes.is_empty() { EventType::Normal } else { EventType::Warning };
            Some((type_, "Proposed", message))
        }
        Change::Waiting { request, why, failed: true } if !before.message.contains(why) => {
            Some((EventType::Warning, "ChecksFailed", format!("{}: {why}", request.url)))
        }
        // That of a notification is the event by which it is delivered.
        Change::Delivered { reason: reason @ ("Committed" | "Called"), message, .. } => {
            Some((EventType::Normal, reason, message.clone()))
        }
        Change::Failed { reason, message, .. } | Change::Trouble { reason, message }
            if before.message != *message =>
        {
            Some((EventType::Warning, reason, message.clone()))
        }
        Change::Waits { message, .. } => Some((EventType::Normal, "WaitingForGate", message.clone())),
        Change::Left(request) => {
            let message =
                format!("{} stays open: the pipeline names another place now; close it by hand", request.url);
            Some((EventType::Warning, "LeftOpen", message))
        }
        Change::Rejected { message, .. } => Some((EventType::Warning, "Rejected", message.clone())),
        Change::Moved(to) if to.to == Phase::Failed => {
            Some((EventType::Warning, to.reason, to.message.clone()))
        }
        Change::Moved(to) if to.reason == "NotRetried" => {
            Some((EventType::Normal, to.reason, to.message.clone()))
        }
        _ => None,
    }
}

/// The beginning of a text that fits into an event.
fn cut(text: &str) -> String {
    let mut text = text.to_string();
    super::cut(&mut text, LONGEST);
    text
}
