//! Decides which changes of a promotion cause an event, what the event reports, and which object its Kubernetes event
//! regards. A Kubernetes event regards the Promotion if it reports a step or a person's decision, and the Pipeline if a
//! person should look. docs/decisions/0019-what-kubernetes-events-regard.md explains it. Pure.

use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Promotion, PromotionStatus};
use sluice_core::decide::{Transition, WAITING};
use sluice_core::promotion::Phase;

use super::promotion::{self, RecordChange};
use super::tampered::TAMPERED;
use crate::act::strategy;

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

    /// Returns the notice that a promotion was started.
    pub(super) fn started(pipeline: &Pipeline, promotion: &Promotion) -> Self {
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
        Self::step("Started", message, is_by_request)
    }

    /// Returns the notice that someone approved a promotion.
    pub(super) fn approved(by: &str) -> Self {
        Self::decision(false, "Approved", format!("approved by {by}"))
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
        RecordChange::Waits { message, .. } => Notice::new(false, WAITING, message),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::promotion::DeliveryKind;
    use super::*;

    /// The message of the changes of these tests.
    const WHY: &str = "Helm upgrade failed: timed out";

    fn moved(to: Phase, reason: &'static str) -> RecordChange {
        RecordChange::Moved(Transition {
            promotion: "p".into(),
            to,
            reason,
            message: WHY.into(),
            answers: None,
            spends_approval: false,
            is_undone: false,
        })
    }

    fn delivered(kind: DeliveryKind) -> RecordChange {
        RecordChange::Delivered { kind, delivered_to: None, message: WHY.into(), commit: None, request: None }
    }

    fn pipeline() -> Pipeline {
        pipeline_with(&json!({"notification": {}}))
    }

    fn pipeline_with(strategy: &serde_json::Value) -> Pipeline {
        let object = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps"},
            "spec": {
                "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
                "environments": [{"name": "prod", "targets": [{"namespace": "podinfo"}]}],
                "promotion": {"strategy": strategy}}});
        serde_json::from_value(object).unwrap()
    }

    /// Returns a promotion of 6.1.8 into prod with these fields in its spec.
    fn promotion(fields: &serde_json::Value) -> Promotion {
        let mut spec = json!({"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8", "replaces": "6.1.5",
            "facets": {}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let object = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "podinfo-prod-1", "namespace": "apps", "uid": "u-1"}, "spec": spec,
            "status": {"round": 2, "commit": "c0ffee", "changeRequest": {"number": 7, "url": "https://forge/7",
                "state": "open", "branch": "b", "headCommit": "c"}}});
        serde_json::from_value(object).unwrap()
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
            let notice = Notice::started(&pipeline(), &promotion(&fields));
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
            let notice = Notice::started(&pipeline_with(&strategy), &promotion(&json!({})));
            assert_eq!(notice.regarding, regarding, "{strategy}");
        }
    }

    #[test]
    fn an_approval_regards_the_promotion_and_names_the_approver() {
        let notice = Notice::approved("jane");
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
        let rejected = RecordChange::Rejected { request: None, message: WHY.into() };
        let waits = RecordChange::Waits { gates: Vec::new(), message: WHY.into() };
        let failed_check = RecordChange::Waiting { request: request.clone(), why: WHY.into(), failed: true };
        let again = jiff::Timestamp::UNIX_EPOCH;
        let failed = RecordChange::Failed { reason: "NoMarker", message: WHY.into(), again };
        let news = |reason| Some((reason, false, None));
        let info = |reason, regarding| Some((reason, false, Some(regarding)));
        let warning = |reason, regarding| Some((reason, true, Some(regarding)));
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
            (&new, failed, warning("NoMarker", Pipeline)),
            (&proposed, moved(Phase::Failed, "Unhealthy"), warning("Unhealthy", Pipeline)),
            (&new, moved(Phase::Pending, "CommitLost"), warning("CommitLost", Pipeline)),
            (&new, moved(Phase::Pending, "Resumed"), None),
            (&new, moved(Phase::Superseded, "Superseded"), None),
        ] {
            let message = match &change {
                RecordChange::Proposed(_) => "u waits to be merged".into(),
                RecordChange::Waiting { .. } => format!("u: {WHY}"),
                _ => WHY.into(),
            };
            let expected = expected.map(|(reason, is_warning, regarding)| Notice {
                is_warning,
                reason: reason.to_string(),
                message,
                regarding,
            });
            assert_eq!(notice(before, &change), expected, "{change:?}");
        }
    }
}
