//! Sends events: Kubernetes events, and progress events to `--events-addr`. `promotion_events.rs` decides which changes
//! cause one.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};
use sluice_api::FIELD_MANAGER;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::Promotion;
use sluice_delivery::notification::{self, ProgressEvent};
use sluice_delivery::{Delivery, FairQueue, Retry};

use super::pending_event::PendingEvent;
use super::progress_event_fields::{self, object_of};
use super::progress_queue::{MAX_SENDERS, ProgressQueue, send_with_retries};
use super::promotion_events::{Notice, Regarding};
use super::unwritten_status::UnwrittenStatus;
use crate::metrics::Metrics;
use crate::timeout::{API_CALL_TIMEOUT, within};
use crate::watch::parsed_object::UnreadableObject;
use crate::watch::read_error::api_error_message;

/// The longest note of an event, in bytes.
pub(crate) const MAX_NOTE_BYTES: usize = 1000;

/// Sends events.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    metrics: Arc<Metrics>,
    delivery: Delivery,
    /// The queue of Kubernetes events, fair by namespace.
    writes: Arc<FairQueue>,
    queue: ProgressQueue,
}

impl Events {
    /// Returns a sender of events. It sends progress events with the [`Delivery`] of `metrics`.
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.into(), instance: notification::instance() };
        let (writes, queue) = (FairQueue::new(MAX_SENDERS), ProgressQueue::default());
        let delivery = metrics.delivery().clone();
        Self { client, reporter, metrics, delivery, writes, queue }
    }

    /// Writes an event, and sends it as a progress event.
    pub fn send(&self, event: PendingEvent) {
        match event {
            PendingEvent::Promotion(pipeline, promotion, notice) => {
                self.about_promotion(&pipeline, &promotion, notice);
            }
            PendingEvent::Cluster { pipeline, cluster, lost } => {
                self.cluster(&pipeline, &cluster, lost.as_deref());
            }
            PendingEvent::Unreadable("Pipeline", object) => self.unreadable::<Pipeline>(*object),
            PendingEvent::Unreadable(_, object) => self.unreadable::<Promotion>(*object),
            PendingEvent::StatusNotWritten(about, why) => self.status_not_written(*about, &why),
        }
    }

    fn about_promotion(&self, pipeline: &Pipeline, promotion: &Promotion, notice: Notice) {
        let spec = &promotion.spec;
        let note = note_text(&format!("{} into {}: {}", spec.revision, spec.place(), notice.message));
        self.send_progress(progress_event_fields::of_promotion(
            promotion,
            &notice.reason,
            note.clone(),
            notice.is_warning,
        ));
        let objects = (pipeline.object_ref(&()), promotion.object_ref(&()));
        let (about, related) = match notice.regarding {
            Some(Regarding::Pipeline) => objects,
            Some(Regarding::Promotion) => (objects.1, objects.0),
            None => return,
        };
        let event = event(notice.is_warning, &notice.reason, &note, "Promote");
        self.publish(Event { secondary: Some(related), ..event }, about, promotion.name_any());
    }

    fn cluster(&self, pipeline: &Pipeline, cluster: &str, lost: Option<&str>) {
        let (reason, message) = match lost {
            Some(why) => ("ClusterLost", format!("{cluster} cannot be reached: {why}")),
            None => ("ClusterBack", format!("{cluster} is back")),
        };
        let name = pipeline.name_any();
        let note = note_text(&message);
        self.send_progress(progress_event_fields::of_cluster(pipeline, reason, note.clone(), lost.is_some()));
        let event = event(lost.is_some(), reason, &note, "Observe");
        self.publish(event, pipeline.object_ref(&()), name);
    }

    /// Sends a progress event if there is an address for them. One that cannot be sent is dropped after the last try.
    fn send_progress(&self, event: ProgressEvent) {
        if !self.delivery.sends_events() {
            return;
        }
        let (delivery, event) = (self.delivery.clone(), Arc::new(event));
        let sent = event.clone();
        let attempt = move |_| {
            let (delivery, event) = (delivery.clone(), sent.clone());
            async move {
                delivery.send_progress_event(&event).await.map_err(|error| {
                    let (object, reason) = (object_of(&event), &event.reason);
                    tracing::warn!(object, reason, %error, "cannot send an event");
                    Retry::Soon
                })
            }
        };
        if !self.queue.send(format!("{}/{}", event.namespace, event.name), attempt) {
            self.metrics.count_failure("EventsDropped");
            let (object, reason) = (object_of(&event), &event.reason);
            tracing::warn!(object, reason, "cannot send an event: the queue of events is full");
        }
    }

    fn unreadable<K: Resource<DynamicType = ()>>(&self, bad: UnreadableObject) {
        let note = format!(
            "this object cannot be read ({}) and is ignored: correct it to match the definition that sluice crds \
             prints, and apply that definition too",
            bad.error
        );
        let about = ObjectReference {
            api_version: Some(K::api_version(&()).into()),
            kind: Some(K::kind(&()).into()),
            name: bad.metadata.name.clone(),
            namespace: bad.metadata.namespace,
            uid: bad.metadata.uid,
            ..ObjectReference::default()
        };
        let event = event(true, "Unreadable", &note, "Read");
        self.publish(event, about, bad.metadata.name.unwrap_or_default());
    }

    fn status_not_written(&self, about: ObjectReference, why: &UnwrittenStatus) {
        let name = about.name.clone().unwrap_or_default();
        self.publish(event(true, why.reason, &why.note, "Record"), about, name);
    }

    /// Writes the event that a caller signed a call of the hook server with a key for another purpose.
    pub fn wrong_key(&self, pipeline: &Pipeline, note: &str) {
        let event = event(true, "WrongHookKey", note, "Authenticate");
        self.publish(event, pipeline.object_ref(&()), pipeline.name_any());
    }

    fn publish(&self, event: Event, about: ObjectReference, name: String) {
        let Self { client, reporter, metrics, writes, .. } = self.clone();
        // Each event gets a new Recorder, because a Recorder counts an event with the reason of an earlier one as a
        // repetition, and drops its note.
        let recorder = Recorder::new(client, reporter);
        tokio::spawn(async move {
            let owner = format!("{}/{name}", about.namespace.as_deref().unwrap_or_default());
            send_with_retries(&writes, &owner, async |_| {
                match within(API_CALL_TIMEOUT, recorder.publish(&event, &about)).await {
                    Ok(()) => {
                        metrics.count_write("Event");
                        Ok(())
                    }
                    Err(error) => {
                        let (kind, reason, error) = (&about.kind, &event.reason, api_error_message(&error));
                        tracing::warn!(kind, object = owner, reason, error, "cannot write an event");
                        Err(Retry::Soon)
                    }
                }
            })
            .await;
        });
    }
}

/// Returns a Kubernetes event. Its note is safe to print, and cut if it is too long.
fn event(is_warning: bool, reason: &str, note: &str, action: &str) -> Event {
    Event {
        type_: if is_warning { EventType::Warning } else { EventType::Normal },
        reason: reason.into(),
        note: Some(note_text(note)),
        action: action.into(),
        secondary: None,
    }
}

/// Returns the text of a note, safe to print, and cut to what fits into an event.
fn note_text(text: &str) -> String {
    super::safe_message(text, MAX_NOTE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// People write the reason of a rejection, and tenants the names in a Pipeline.
    #[test]
    fn a_note_does_not_control_a_terminal() {
        for (text, expected) in
            [("no\u{1b}[2J\u{202e}!".into(), "no[2J!".into()), ("x".repeat(2000), "x".repeat(1000) + "…")]
        {
            assert_eq!(event(true, "Rejected", &text, "Promote").note.unwrap(), expected);
        }
    }
}
