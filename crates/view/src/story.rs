//! The whole story of one promotion, in the order of time: why it was started, what it waited for, who decided, what was
//! delivered, and how it ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::promotion::{CallbackState, GateStatus, Phase, Promotion, PromotionSpec, PromotionStatus};
use sluice_core::Time;

use crate::history::{Entry, entry};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoryEvent {
    /// The time of the event.
    pub at: Time,
    /// What happened, as a sentence without a full stop.
    pub what: String,
}

/// A promotion and its whole story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionStory {
    /// The Promotion's namespace.
    pub namespace: String,
    /// The name of the pipeline.
    pub pipeline: String,
    /// How the promotion is.
    #[serde(flatten)]
    pub entry: Entry,
    /// The gates that must be open before the delivery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateStatus>,
    /// What happened, in the order of time.
    pub events: Vec<StoryEvent>,
}

/// Returns a promotion with its whole story.
pub fn promotion_story(promotion: &Promotion) -> PromotionStory {
    PromotionStory {
        namespace: promotion.metadata.namespace.clone().unwrap_or_default(),
        pipeline: promotion.spec.pipeline.clone(),
        entry: entry(promotion),
        gates: promotion.status.as_ref().map(|status| status.gates.clone()).unwrap_or_default(),
        events: story(promotion),
    }
}

impl StoryEvent {
    fn new(at: Time, what: impl Into<String>) -> Self {
        StoryEvent { at, what: what.into() }
    }
}

/// Returns what happened to a promotion, in the order of time.
pub fn story(promotion: &Promotion) -> Vec<StoryEvent> {
    let (spec, status) = (&promotion.spec, promotion.status.clone().unwrap_or_default());
    let mut story = Vec::new();
    for proof in &spec.evidence {
        let what = format!("{}/{} ran {} healthily", proof.environment, proof.target, spec.revision);
        story.push(StoryEvent::new(proof.at, what));
    }
    if let Some(trigger) = &spec.trigger {
        let what = format!("a call of /trigger with key {} requested {}", trigger.key, spec.revision);
        story.push(StoryEvent::new(trigger.at, what));
    }
    if let Some(created) = &promotion.metadata.creation_timestamp {
        let replaces = match spec.replaces.as_str() {
            "" => String::new(),
            replaces => format!(" in place of {replaces}"),
        };
        let what = format!("the promotion of {} into {}{replaces} was started", spec.revision, spec.place());
        story.push(StoryEvent::new(Time::exact(created.0), what));
    }
    if let Some(approval) = &status.approval {
        story.push(StoryEvent::new(approval.at, format!("{} approved it", approval.by)));
    }
    if let Some(approval) = &status.key_approval {
        story.push(StoryEvent::new(approval.at, format!("the {} approved it", approval.by())));
    }
    if let Some(report) = &status.callback {
        let message = if report.message.is_empty() { String::new() } else { format!(": {}", report.message) };
        let reported = match report.state {
            CallbackState::Accepted => "accepted it",
            CallbackState::Done => "carried it out",
            CallbackState::Failed => "did not carry it out",
        };
        story.push(StoryEvent::new(report.at, format!("the receiver {reported}{message}")));
    }
    for (phase, at) in &status.times {
        // A newer controller may know more phases.
        let phase: Option<Phase> = serde_json::from_value(phase.as_str().into()).ok();
        story.extend(phase.and_then(|phase| Some(StoryEvent::new(*at, entered(spec, &status, phase)?))));
    }
    // Stable: what happened in one second stays in this order.
    story.sort_by_key(|event| event.at);
    story
}

/// What it means that the promotion got into a phase.
fn entered(spec: &PromotionSpec, status: &PromotionStatus, phase: Phase) -> Option<String> {
    let message = match status.phase == phase && !status.message.is_empty() {
        true => format!(": {}", status.message),
        false => String::new(),
    };
    Some(match phase {
        Phase::Pending => return None,
        Phase::Promoting => format!("the delivery failed for the first time{message}"),
        Phase::Proposed => match &status.change_request {
            Some(request) => format!("change request #{} was opened: {}", request.number, request.url),
            None => "the change request was opened".into(),
        },
        Phase::Delivered => match &status.commit {
            Some(commit) => format!("it was delivered as commit {commit}"),
            None => "it was delivered".into(),
        },
        Phase::Succeeded => format!("{} ran {} healthily", spec.place(), spec.revision),
        Phase::Failed => format!("it failed{message}"),
        Phase::Rejected => match &spec.rejection {
            Some(rejection) => format!("{} rejected it: {}", rejection.by, rejection.reason),
            None => format!("it was rejected{message}"),
        },
        Phase::Superseded => format!("a newer revision replaced it{message}"),
        Phase::Cancelled => format!("it was cancelled{message}"),
    })
}
