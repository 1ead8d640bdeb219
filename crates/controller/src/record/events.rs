//! Events about promotions, in the cluster and as progress events to `--events-addr`. Kubernetes events regard the Promotion if they report a step or a person's
//! decision, and the Pipeline if a person should look. docs/decisions/0019-what-kubernetes-events-regard.md explains it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};
use sluice_api::FIELD_MANAGER;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Promotion, PromotionStatus};
use sluice_core::decide::Transition;
use sluice_core::promotion::Phase;
use sluice_delivery::notification::ProgressEvent;
use sluice_delivery::{Delivery, FairQueue, Retry};

use super::progress_event::{self, object_of};
use super::progress_queue::{MAX_SENDERS, ProgressQueue, send_with_retries};
use super::promotion::{self, RecordChange};
use super::tampered::TAMPERED;
use crate::act::strategy;
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

/// What an event reports about a promotion.
#[derive(Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether a person should do something.
    pub is_warning: bool,
    /// What happened, as one word.
    pub reason: String,
    /// What happened, as a sentence.
    pub message: String,
    /// What the Kubernetes event of the notice regards; `None` if the notice is only sent as a progress event.
    pub regarding: Option<Regarding>,
}

/// The object that a Kubernetes event about a promotion regards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regarding {
    /// The Pipeline, because a person should look, and looks there first.
    Pipeline,
    /// The Promotion, because the event reports a step of it, or what a person decided about it.
    Promotion,
}

impl Notice {
    /// Returns a notice that a person should see who looks at the Pipeline.
    fn new(is_warning: bool, reason: &str, message: impl Into<String>) -> Self {
        let regarding = Some(Regarding::Pipeline);
        Notice { is_warning, reason: reason.into(), message: message.into(), regarding }
    }

    /// Returns a notice of what a person decided about a promotion.
    fn decision(is_warning: bool, reason: &str, message: impl Into<String>) -> Self {
        Notice { regarding: Some(Regarding::Promotion), ..Self::new(is_warning, reason, message) }
    }

    /// Returns a notice of a step of a promotion. A promotion by change request takes at most 8 writes to the API server,
    /// events included, and one event asks a person to merge. So its other steps are only sent as progress events.
    fn step(reason: &str, message: impl Into<String>, is_by_request: bool) -> Self {
        let regarding = (!is_by_request).then_some(Regarding::Promotion);
        Notice { regarding, ..Self::new(false, reason, message) }
    }
}

/// An event that is to be sent.
#[derive(Debug)]
pub enum PendingEvent {
    /// An event about a promotion of a pipeline.
    Promotion(Arc<Pipeline>, Arc<Promotion>, Notice),
    /// A cluster of a pipeline was lost, or is back.
    Cluster {
        /// The pipeline.
        pipeline: Arc<Pipeline>,
        /// The name of the cluster.
        cluster: String,
        /// Why the cluster is lost; `None` if it is back.
        lost: Option<String>,
    },
    /// An object of this kind cannot be read, so its status cannot say that.
    Unreadable(&'static str, Box<UnreadableObject>),
}

impl PendingEvent {
    /// Returns the event about a change of a promotion's record, or `None` if only the status shows the change.
    pub fn changed(
        pipeline: &Arc<Pipeline>,
        promotion: &Arc<Promotion>,
        before: &PromotionStatus,
        change: &RecordChange,
    ) -> Option<Self> {
        notice(before, change).map(|notice| Self::Promotion(pipeline.clone(), promotion.clone(), notice))
    }

    /// Returns the event that a promotion was started.
    pub fn started(pipeline: &Arc<Pipeline>, promotion: &Arc<Promotion>) -> Self {
        let spec = &promotion.spec;
        let healthy_on = spec.evidence.iter().map(|e| format!("{}/{}", e.environment, e.target));
        let healthy_on: Vec<String> = healthy_on.collect();
        let message = match (&spec.trigger, healthy_on.is_empty()) {
            (Some(trigger), _) => format!("started by a call with key {}", trigger.key),
            (None, false) => format!("started: healthy on {}", healthy_on.join(", ")),
            (None, true) => "started".into(),
        };
        let strategy = strategy::named(pipeline, promotion);
        let is_by_request = strategy.is_some_and(|strategy| strategy.pull_request.is_some());
        let notice = Notice::step("Started", message, is_by_request);
        Self::Promotion(pipeline.clone(), promotion.clone(), notice)
    }

    /// Returns the event that someone approved a promotion.
    pub fn approved(pipeline: &Arc<Pipeline>, promotion: &Arc<Promotion>, by: &str) -> Self {
        let notice = Notice::decision(false, "Approved", format!("approved by {by}"));
        Self::Promotion(pipeline.clone(), promotion.clone(), notice)
    }
}

impl Events {
    /// Returns a sender of events. It sends progress events with the [`Delivery`] of `metrics`.
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        let reporter =
            Reporter { controller: FIELD_MANAGER.into(), instance: std::env::var("HOSTNAME").ok() };
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
        }
    }

    fn about_promotion(&self, pipeline: &Pipeline, promotion: &Promotion, notice: Notice) {
        let spec = &promotion.spec;
        let note = note_text(&format!("{} into {}: {}", spec.revision, spec.place(), notice.message));
        self.send_progress(progress_event::of_promotion(
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
        self.send_progress(progress_event::of_cluster(pipeline, reason, note.clone(), lost.is_some()));
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

/// Returns what an event reports about a change, or `None` for no event.
pub fn notice(before: &PromotionStatus, change: &RecordChange) -> Option<Notice> {
    Some(match change {
        RecordChange::Proposed(request)
            if before.change_request.as_ref().map(|r| &r.head_commit) != Some(&request.head_commit) =>
        {
            let message = promotion::with_notes(request, &format!("{} waits to be merged", request.url));
            Notice::new(!request.notes.is_empty(), "Proposed", message)
        }
        RecordChange::Waiting { request, why, failed: true } if !before.message.contains(why) => {
            Notice::new(true, "ChecksFailed", format!("{}: {why}", request.url))
        }
        RecordChange::Delivered { kind, message, .. } => {
            Notice::step(kind.reason(), message, before.change_request.is_some())
        }
        RecordChange::Failed { reason, message, .. } | RecordChange::Trouble { reason, message }
            if before.message != *message =>
        {
            Notice::new(true, reason, message)
        }
        RecordChange::Waits { message, .. } => Notice::new(false, "WaitingForGate", message),
        RecordChange::Left(request) => Notice::new(true, "LeftOpen", promotion::left_open_message(request)),
        RecordChange::Rejected { message, .. } => Notice::decision(true, "Rejected", message),
        RecordChange::Tampered(why) if before.reason != TAMPERED => Notice::new(true, TAMPERED, why),
        RecordChange::Moved(to) => moved_notice(before, to)?,
        _ => return None,
    })
}

/// Returns what an event reports about a decided change of the phase, or `None` for no event.
fn moved_notice(before: &PromotionStatus, to: &Transition) -> Option<Notice> {
    Some(match to.to {
        Phase::Failed => Notice::new(true, to.reason, &to.message),
        Phase::Rejected => Notice::decision(true, to.reason, &to.message),
        Phase::Succeeded => Notice::step(to.reason, &to.message, before.change_request.is_some()),
        Phase::Pending if to.reason == "CommitLost" => Notice::new(true, to.reason, &to.message),
        _ if to.reason == "NotRetried" => Notice::new(false, to.reason, &to.message),
        _ => return None,
    })
}

/// Returns the text of a note, safe to print, and cut to what fits into an event.
fn note_text(text: &str) -> String {
    super::safe_message(text, MAX_NOTE_BYTES)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::promotion::DeliveryKind;
    use super::*;

    /// Returns the reason of the notice, whether it is a warning, and what its Kubernetes event regards.
    fn summary_of_notice(
        before: &PromotionStatus,
        change: &RecordChange,
    ) -> Option<(String, bool, Option<Regarding>)> {
        notice(before, change).map(|n| (n.reason, n.is_warning, n.regarding))
    }

    fn moved(to: Phase, reason: &'static str) -> RecordChange {
        RecordChange::Moved(Transition {
            promotion: "p".into(),
            to,
            reason,
            message: "why".into(),
            answers: None,
            spends_approval: false,
            is_undone: false,
        })
    }

    fn delivered(kind: DeliveryKind) -> RecordChange {
        RecordChange::Delivered { kind, message: String::new(), commit: None, request: None }
    }

    fn pipeline() -> Arc<Pipeline> {
        pipeline_with(&json!({"notification": {}}))
    }

    fn pipeline_with(strategy: &serde_json::Value) -> Arc<Pipeline> {
        let object = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps"},
            "spec": {
                "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
                "environments": [{"name": "prod", "targets": [{"namespace": "podinfo"}]}],
                "promotion": {"strategy": strategy}}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    /// Returns a promotion of 6.1.8 into prod with these fields in its spec.
    fn promotion(fields: &serde_json::Value) -> Arc<Promotion> {
        let mut spec = json!({"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "replaces": "6.1.5",
            "facets": {}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let object = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "podinfo-prod-1", "namespace": "apps", "uid": "u-1"}, "spec": spec,
            "status": {"round": 2, "commit": "c0ffee", "changeRequest": {"number": 7, "url": "https://forge/7",
                "state": "open", "branch": "b", "headCommit": "c"}}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn notice_of(event: PendingEvent) -> Notice {
        let PendingEvent::Promotion(_, _, notice) = event else { panic!("{event:?}") };
        notice
    }

    #[test]
    fn a_start_names_its_cause() {
        let evidence =
            |target: &str| json!({"environment": "dev", "target": target, "at": "2026-11-21T10:00:00Z"});
        let trigger = json!({"key": "build-42", "at": "2026-11-21T10:00:00Z"});
        for (fields, message) in [
            (json!({}), "started"),
            (json!({"evidence": [evidence("eu"), evidence("us")]}), "started: healthy on dev/eu, dev/us"),
            (json!({"trigger": trigger}), "started by a call with key build-42"),
            (
                json!({"trigger": trigger, "evidence": [evidence("eu")]}),
                "started by a call with key build-42",
            ),
        ] {
            let notice = notice_of(PendingEvent::started(&pipeline(), &promotion(&fields)));
            assert_eq!(notice, Notice::step("Started", message, false), "{fields}");
        }
    }

    #[test]
    fn a_start_is_only_news_if_a_change_request_will_ask_a_person() {
        let request = json!({"pull-request": {"type": "github", "url": "https://forge/fleet", "baseBranch": "main",
            "secretRef": {"name": "forge"}}});
        for (strategy, regarding) in
            [(request, None), (json!({"notification": {}}), Some(Regarding::Promotion))]
        {
            let event = PendingEvent::started(&pipeline_with(&strategy), &promotion(&json!({})));
            assert_eq!(notice_of(event).regarding, regarding, "{strategy}");
        }
    }

    /// People write the reason of a rejection, and tenants the names in a Pipeline.
    #[test]
    fn a_note_does_not_control_a_terminal() {
        for (text, expected) in
            [("no\u{1b}[2J\u{202e}!".into(), "no[2J!".into()), ("x".repeat(2000), "x".repeat(1000) + "…")]
        {
            assert_eq!(event(true, "Rejected", &text, "Promote").note.unwrap(), expected);
        }
    }

    #[test]
    fn an_approval_regards_the_promotion_and_names_the_approver() {
        let notice = notice_of(PendingEvent::approved(&pipeline(), &promotion(&json!({})), "jane"));
        let (message, regarding) = ("approved by jane".to_string(), Some(Regarding::Promotion));
        assert_eq!(notice, Notice { is_warning: false, reason: "Approved".into(), message, regarding });
    }

    #[test]
    fn steps_and_decisions_regard_the_promotion_and_all_else_the_pipeline() {
        use Regarding::{Pipeline, Promotion};
        let new = PromotionStatus::default();
        let request = json!({"number": 1, "url": "u", "state": "open", "branch": "b", "headCommit": "c"});
        let request: sluice_api::promotion::RecordedChangeRequest = serde_json::from_value(request).unwrap();
        let proposed =
            PromotionStatus { change_request: Some(request.clone()), ..PromotionStatus::default() };
        let rejected = RecordChange::Rejected { request: None, message: String::new() };
        let waits = RecordChange::Waits { gates: Vec::new(), message: String::new() };
        let failed_check =
            RecordChange::Waiting { request: request.clone(), why: "failed".into(), failed: true };
        let news = |reason: &str| Some((reason.to_string(), false, None));
        let info = |reason: &str, regarding| Some((reason.to_string(), false, Some(regarding)));
        let warning = |reason: &str, regarding| Some((reason.to_string(), true, Some(regarding)));
        for (before, change, expected) in [
            // Of a promotion by change request, one Kubernetes event asks a person to merge.
            (&new, RecordChange::Proposed(request.clone()), info("Proposed", Pipeline)),
            (&proposed, RecordChange::Proposed(request), None),
            (&proposed, delivered(DeliveryKind::Merged), news("Merged")),
            (&proposed, moved(Phase::Succeeded, "Succeeded"), news("Succeeded")),
            (&new, delivered(DeliveryKind::Committed), info("Committed", Promotion)),
            (&new, delivered(DeliveryKind::Called), info("Called", Promotion)),
            (&new, delivered(DeliveryKind::Notified), info("Notified", Promotion)),
            (&new, delivered(DeliveryKind::AlreadySet), info("AlreadySet", Promotion)),
            (&new, moved(Phase::Succeeded, "Succeeded"), info("Succeeded", Promotion)),
            (&new, moved(Phase::Rejected, "Rejected"), warning("Rejected", Promotion)),
            (&proposed, rejected, warning("Rejected", Promotion)),
            (&new, waits, info("WaitingForGate", Pipeline)),
            (&proposed, failed_check, warning("ChecksFailed", Pipeline)),
            (&proposed, moved(Phase::Failed, "Unhealthy"), warning("Unhealthy", Pipeline)),
            (&new, moved(Phase::Pending, "CommitLost"), warning("CommitLost", Pipeline)),
            (&new, moved(Phase::Pending, "Resumed"), None),
            (&new, moved(Phase::Superseded, "Superseded"), None),
        ] {
            assert_eq!(summary_of_notice(before, &change), expected, "{change:?}");
        }
    }
}
