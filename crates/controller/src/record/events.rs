//! Events about promotions. Those that people should see where they look at the cluster are Kubernetes events:
//! that a promotion waits for them, how it ended, and each failure with what to do. All of them, and the steps in
//! between, go to where `--events-addr` leads: Flux's notification-controller passes them on to a chat or a git
//! host. Never about housekeeping.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};
use sluice_api::FIELD_MANAGER;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Promotion, PromotionStatus};
use sluice_core::decide::Transition;
use sluice_core::promotion::Phase;
use sluice_delivery::notification::News;
use sluice_delivery::{Delivery, FairQueue, Retry, clock};

use super::promotion::{self, RecordChange};
use super::queue::{NewsQueue, SENDERS, tries};
use crate::metrics::Metrics;
use crate::timeout::{API_CALL_TIMEOUT, within};
use crate::watch::cause::words;
use crate::watch::guard::Unreadable;

/// The longest note that an event may have, in bytes.
pub(crate) const LONGEST: usize = 1000;

/// Sends events.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    metrics: Arc<Metrics>,
    delivery: Delivery,
    /// Kubernetes events wait here, fair by namespace.
    writes: Arc<FairQueue>,
    queue: NewsQueue,
}

/// What is said of a change.
#[derive(Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody should do something.
    pub is_warning: bool,
    /// One word for what happened.
    pub reason: String,
    /// A sentence for what happened.
    pub message: String,
    /// Whether it is a Kubernetes event too. One promotion by change request costs the API server no more than 8
    /// writes, events included: the steps that its status tells are news alone.
    pub in_cluster: bool,
}

impl Notice {
    fn new(is_warning: bool, reason: &str, message: impl Into<String>) -> Self {
        Notice { is_warning, reason: reason.into(), message: message.into(), in_cluster: true }
    }

    /// The same, as news alone.
    fn aside(self) -> Self {
        Notice { in_cluster: false, ..self }
    }
}

/// Something that people should know.
#[derive(Debug)]
pub enum PendingEvent {
    /// About a promotion of a pipeline.
    Promotion(Arc<Pipeline>, Arc<Promotion>, Notice),
    /// A cluster of a pipeline was lost, with the cause, or is back.
    Cluster {
        /// The pipeline.
        pipeline: Arc<Pipeline>,
        /// The cluster.
        cluster: String,
        /// Why it is lost; `None` if it is back.
        lost: Option<String>,
    },
    /// An object of this kind cannot be read: it has no status that could say so.
    Unreadable(&'static str, Box<Unreadable>),
}

impl PendingEvent {
    /// A change of a promotion's record; `None` if the status alone shows it.
    pub fn changed(
        pipeline: &Arc<Pipeline>,
        promotion: &Arc<Promotion>,
        before: &PromotionStatus,
        change: &RecordChange,
    ) -> Option<Self> {
        notice(before, change).map(|notice| Self::Promotion(pipeline.clone(), promotion.clone(), notice))
    }

    /// A promotion was started.
    pub fn started(pipeline: &Arc<Pipeline>, promotion: &Arc<Promotion>) -> Self {
        let spec = &promotion.spec;
        let proven = spec.evidence.iter().map(|e| format!("{}/{}", e.environment, e.target));
        let proven: Vec<String> = proven.collect();
        let message = match (&spec.trigger, proven.is_empty()) {
            (Some(trigger), _) => format!("started by a call with key {}", trigger.key),
            (None, false) => format!("started: healthy on {}", proven.join(", ")),
            (None, true) => "started".into(),
        };
        let notice = Notice::new(false, "Started", message).aside();
        Self::Promotion(pipeline.clone(), promotion.clone(), notice)
    }

    /// Someone approved a promotion.
    pub fn approved(pipeline: &Arc<Pipeline>, promotion: &Arc<Promotion>, by: &str) -> Self {
        let notice = Notice::new(false, "Approved", format!("approved by {by}"));
        Self::Promotion(pipeline.clone(), promotion.clone(), notice)
    }
}

impl Events {
    /// Events in the name of Sluice. News go out by the delivery whose figures the metrics tell.
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        let reporter =
            Reporter { controller: FIELD_MANAGER.into(), instance: std::env::var("HOSTNAME").ok() };
        let (writes, queue) = (FairQueue::new(SENDERS), NewsQueue::default());
        let delivery = metrics.delivery().clone();
        Self { recorder: Recorder::new(client, reporter), metrics, delivery, writes, queue }
    }

    /// Writes an event, and sends it to the listener of events.
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
        let note = cut(&format!("{} into {}: {}", spec.revision, spec.place(), notice.message));
        self.send_news(news(promotion, &notice, note.clone()));
        if !notice.in_cluster {
            return;
        }
        let event = event(notice.is_warning, &notice.reason, &note, "Promote");
        let event = Event { secondary: Some(promotion.object_ref(&())), ..event };
        self.publish(event, pipeline.object_ref(&()), promotion.name_any());
    }

    fn cluster(&self, pipeline: &Pipeline, cluster: &str, lost: Option<&str>) {
        let (reason, message) = match lost {
            Some(why) => ("ClusterLost", format!("{cluster} cannot be reached: {why}")),
            None => ("ClusterBack", format!("{cluster} is back")),
        };
        let (name, namespace) = (pipeline.name_any(), pipeline.namespace().unwrap_or_default());
        let at = clock::now();
        let note = cut(&message);
        self.send_news(News {
            kind: "Pipeline",
            namespace,
            name: name.clone(),
            uid: pipeline.uid().unwrap_or_default(),
            is_error: lost.is_some(),
            reason: reason.into(),
            message: note.clone(),
            metadata: BTreeMap::from([("token".into(), format!("{reason} {at}"))]),
            at,
        });
        let event = event(lost.is_some(), reason, &note, "Observe");
        self.publish(event, pipeline.object_ref(&()), name);
    }

    /// Sends news on their way, if anybody listens. What cannot be sent is given up after the last try: the
    /// status has it.
    fn send_news(&self, news: News) {
        if !self.delivery.sends_events() {
            return;
        }
        let (delivery, news) = (self.delivery.clone(), Arc::new(news));
        let sent = news.clone();
        let attempt = move |_| {
            let (delivery, news) = (delivery.clone(), sent.clone());
            async move {
                delivery.send_news(&news).await.map_err(|error| {
                    let (object, reason) = (object_of(&news), &news.reason);
                    tracing::warn!(object, reason, %error, "cannot send an event");
                    Retry::Soon
                })
            }
        };
        if !self.queue.send(format!("{}/{}", news.namespace, news.name), attempt) {
            self.metrics.failed("EventsDropped");
            let (object, reason) = (object_of(&news), &news.reason);
            tracing::warn!(object, reason, "an event is dropped: too many wait for the receiver");
        }
    }

    fn unreadable<K: Resource<DynamicType = ()>>(&self, bad: Unreadable) {
        let note = format!(
            "this object cannot be read ({}), and counts as not there; write it as the definition says that \
             sluice crds prints, and apply that definition too",
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

    /// Tells that a call to the hook server showed a key that is for something else.
    pub fn wrong_key(&self, pipeline: &Pipeline, note: &str) {
        let event = event(true, "WrongHookKey", note, "Authenticate");
        self.publish(event, pipeline.object_ref(&()), pipeline.name_any());
    }

    fn publish(&self, event: Event, about: ObjectReference, name: String) {
        let Self { recorder, metrics, writes, .. } = self.clone();
        tokio::spawn(async move {
            let owner = format!("{}/{name}", about.namespace.as_deref().unwrap_or_default());
            tries(&writes, &owner, async |_| {
                match within(API_CALL_TIMEOUT, recorder.publish(&event, &about)).await {
                    Ok(()) => {
                        metrics.wrote("Event");
                        Ok(())
                    }
                    Err(error) => {
                        let (kind, reason, error) = (&about.kind, &event.reason, words(&error));
                        tracing::warn!(kind, object = owner, reason, error, "cannot write an event");
                        Err(Retry::Soon)
                    }
                }
            })
            .await;
        });
    }
}

/// A Kubernetes event, with as much of the note as fits into one.
fn event(is_warning: bool, reason: &str, note: &str, action: &str) -> Event {
    Event {
        type_: if is_warning { EventType::Warning } else { EventType::Normal },
        reason: reason.into(),
        note: Some(cut(note)),
        action: action.into(),
        secondary: None,
    }
}

/// The object that news are about, for the log.
fn object_of(news: &News) -> String {
    format!("{} {}/{}", news.kind, news.namespace, news.name)
}

/// What is sent of a promotion.
fn news(promotion: &Promotion, notice: &Notice, message: String) -> News {
    let spec = &promotion.spec;
    let status = promotion.status.as_ref();
    let url = status.and_then(|s| s.change_request.as_ref()).map(|r| r.url.clone());
    let round = status.map_or(0, |s| s.round);
    let (uid, at) = (promotion.uid().unwrap_or_default(), clock::now());
    let metadata = [
        ("pipeline", spec.pipeline.clone()),
        ("environment", spec.place()),
        ("revision", spec.revision.clone()),
        ("replaces", spec.replaces.clone()),
        ("changeRequest", url.unwrap_or_default()),
        ("commit", status.and_then(|s| s.commit.clone()).unwrap_or_default()),
        ("token", format!("{uid}.{round} {}", notice.reason)),
    ];
    News {
        kind: "Promotion",
        namespace: promotion.namespace().unwrap_or_default(),
        name: promotion.name_any(),
        uid,
        is_error: notice.is_warning,
        reason: notice.reason.clone(),
        message,
        metadata: metadata.map(|(key, value)| (key.to_string(), value)).into(),
        at,
    }
}

/// What people should know of a change.
pub fn notice(before: &PromotionStatus, change: &RecordChange) -> Option<Notice> {
    Some(match change {
        RecordChange::Proposed(request)
            if before.change_request.as_ref().map(|r| &r.head_commit) != Some(&request.head_commit) =>
        {
            let message = promotion::waiting(request, &format!("{} waits to be merged", request.url));
            Notice::new(!request.notes.is_empty(), "Proposed", message)
        }
        RecordChange::Waiting { request, why, failed: true } if !before.message.contains(why) => {
            Notice::new(true, "ChecksFailed", format!("{}: {why}", request.url))
        }
        RecordChange::Delivered { reason: reason @ ("Committed" | "Called"), message, .. } => {
            Notice::new(false, reason, message)
        }
        // That of a notification is the event by which it is delivered.
        RecordChange::Delivered { reason, message, .. } => Notice::new(false, reason, message).aside(),
        RecordChange::Failed { reason, message, .. } | RecordChange::Trouble { reason, message }
            if before.message != *message =>
        {
            Notice::new(true, reason, message)
        }
        RecordChange::Waits { message, .. } => Notice::new(false, "WaitingForGate", message),
        RecordChange::Left(request) => {
            let message =
                format!("{} stays open: the pipeline names another place now; close it by hand", request.url);
            Notice::new(true, "LeftOpen", message)
        }
        RecordChange::Rejected { message, .. } => Notice::new(true, "Rejected", message),
        RecordChange::Tampered(why) if before.reason != "Tampered" => Notice::new(true, "Tampered", why),
        RecordChange::Moved(to) => moved(before, to)?,
        _ => return None,
    })
}

/// What people should know of a decision.
fn moved(before: &PromotionStatus, to: &Transition) -> Option<Notice> {
    Some(match to.to {
        Phase::Failed | Phase::Rejected => Notice::new(true, to.reason, &to.message),
        // Its change request was the event that people saw of it.
        Phase::Succeeded if before.change_request.is_some() => {
            Notice::new(false, to.reason, &to.message).aside()
        }
        Phase::Succeeded => Notice::new(false, to.reason, &to.message),
        Phase::Pending if to.reason == "CommitLost" => Notice::new(true, to.reason, &to.message),
        _ if to.reason == "NotRetried" => Notice::new(false, to.reason, &to.message),
        _ => return None,
    })
}

/// The beginning of a text that fits into an event.
fn cut(text: &str) -> String {
    let mut text = text.to_string();
    super::cut(&mut text, LONGEST);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(before: &PromotionStatus, change: &RecordChange) -> Option<(String, bool, bool)> {
        notice(before, change).map(|n| (n.reason, n.is_warning, n.in_cluster))
    }

    fn moves(to: Phase, reason: &'static str) -> RecordChange {
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

    fn delivered(reason: &'static str) -> RecordChange {
        RecordChange::Delivered { reason, message: String::new(), commit: None, request: None }
    }

    #[test]
    fn every_step_is_said_and_a_change_request_costs_the_cluster_one_event() {
        let new = PromotionStatus::default();
        let request = json!({"number": 1, "url": "u", "state": "open", "branch": "b", "headCommit": "c"});
        let request: sluice_api::promotion::ChangeRequest = serde_json::from_value(request).unwrap();
        let proposed =
            PromotionStatus { change_request: Some(request.clone()), ..PromotionStatus::default() };
        let is = |reason: &str, warning, in_cluster| Some((reason.to_string(), warning, in_cluster));
        for (before, change, expected) in [
            (&new, RecordChange::Proposed(request.clone()), is("Proposed", false, true)),
            (&proposed, RecordChange::Proposed(request), None),
            (&proposed, delivered("Merged"), is("Merged", false, false)),
            (&proposed, moves(Phase::Succeeded, "Succeeded"), is("Succeeded", false, false)),
            (&new, delivered("Committed"), is("Committed", false, true)),
            (&new, delivered("AlreadySet"), is("AlreadySet", false, false)),
            (&new, moves(Phase::Succeeded, "Succeeded"), is("Succeeded", false, true)),
            (&proposed, moves(Phase::Failed, "Unhealthy"), is("Unhealthy", true, true)),
            (&new, moves(Phase::Rejected, "Rejected"), is("Rejected", true, true)),
            (&new, moves(Phase::Pending, "CommitLost"), is("CommitLost", true, true)),
            (&new, moves(Phase::Pending, "Resumed"), None),
            (&new, moves(Phase::Superseded, "Superseded"), None),
        ] {
            assert_eq!(said(before, &change), expected, "{change:?}");
        }
    }
}
