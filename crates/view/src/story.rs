//! The whole story of one promotion, in the order of time: why it was started, what it waited for, who decided, what was
//! delivered, and how it ended.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::Pipeline;
use sluice_api::promotion::{
    CallbackState, GateStatus, Phase, Promotion, PromotionSpec, PromotionStatus, RecordedChecks, place,
};
use sluice_core::Time;
use sluice_core::observed::Health;

use crate::history::{Entry, entry};
use crate::running::RunningTarget;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoryEvent {
    /// The time of the event.
    pub at: Time,
    /// What happened, as a sentence without a full stop.
    pub what: String,
    /// The phase that the promotion got into, if that is what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// True if it happened before the promotion was started again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_earlier: bool,
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
    /// The checks of the change request, as Sluice has read them last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<RecordedChecks>,
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
        checks: promotion.status.as_ref().and_then(|status| status.change_request.as_ref()?.checks.clone()),
        events: story(promotion),
    }
}

impl StoryEvent {
    fn new(at: Time, what: impl Into<String>) -> Self {
        StoryEvent { at, what: what.into(), phase: None, is_earlier: false }
    }
}

/// Returns what a promotion that has succeeded did, and what its targets run now, if that is no longer its revision or is not
/// healthy; `None` also if the status of the pipeline does not say it.
pub fn after_success(pipeline: &Pipeline, promotion: &Promotion) -> Option<String> {
    let spec = &promotion.spec;
    if promotion.phase() != Phase::Succeeded {
        return None;
    }
    let is_changed =
        |target: &RunningTarget<'_>| spec.changes(&place(target.environment, Some(&target.name)));
    let targets = RunningTarget::all(pipeline).into_iter().filter(is_changed);
    let running: Option<Vec<_>> =
        targets.map(|target| Some((target.status?.revision.as_deref()?, target.health()))).collect();
    let running = running?;
    let (first, _) = running.first()?;
    let health = running.iter().map(|(_, health)| *health).max()?;
    let is_one = running.iter().all(|(revision, _)| revision == first);
    let now = match health {
        _ if !is_one => "its targets run several revisions now".into(),
        Health::Ready if *first == spec.revision => return None,
        Health::Ready => format!("it runs {first} now"),
        _ => format!("the health of {first} there is {health} now"),
    };
    Some(format!("{} ran {} healthily; {now}", spec.place(), spec.revision))
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
        let is_earlier = approval.retries < status.retries;
        let what = format!("{} approved it", approval.by);
        story.push(StoryEvent { is_earlier, ..StoryEvent::new(approval.at, what) });
    }
    story.extend(started_again(spec));
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
        let event = phase.and_then(|phase| {
            let what = entered(spec, &status, phase)?;
            Some(StoryEvent { phase: Some(phase), ..StoryEvent::new(*at, what) })
        });
        story.extend(event);
    }
    // Stable: what happened in one second stays in this order.
    story.sort_by_key(|event| event.at);
    let began = current_try_began(spec, &status);
    for event in &mut story {
        event.is_earlier |= began.is_some_and(|began| event.at < began) && !is_of_every_try(event, promotion);
    }
    story
}

/// Returns the request of a person for another try. Its value is a time if a command or a page of Sluice has written it.
fn started_again(spec: &PromotionSpec) -> Option<StoryEvent> {
    let at: Timestamp = spec.retry.as_ref()?.parse().ok()?;
    Some(StoryEvent::new(Time::to_second(at), "another try was requested"))
}

/// Returns when the current try began, if the promotion was started again and the record says when.
fn current_try_began(spec: &PromotionSpec, status: &PromotionStatus) -> Option<Time> {
    let answered = spec.retry.is_some() && spec.retry == status.retried;
    let requested = started_again(spec).filter(|_| answered).map(|event| event.at);
    let waits = status.entered(Phase::Pending).filter(|_| status.retries > 0);
    requested.or(waits)
}

/// Whether something that happened before the current try counts for it, too: why the promotion was started.
fn is_of_every_try(event: &StoryEvent, promotion: &Promotion) -> bool {
    let created = promotion.metadata.creation_timestamp.as_ref().map(|time| Time::exact(time.0));
    created.is_some_and(|created| event.at <= created)
}

/// Returns what the record does not have, if the promotion was started again: it keeps the last of each kind of event.
pub fn left_out(promotion: &Promotion) -> Option<String> {
    let status = promotion.status.as_ref()?;
    let tries = u64::from(status.retries.max(status.round));
    let is_retried = tries > 0 || status.retried.is_some();
    let closed = match status.withdrawn_requests.len() {
        0 => String::new(),
        _ => format!(" Closed before: {}.", status.withdrawn_requests.join(", ")),
    };
    (is_retried || !closed.is_empty()).then(|| {
        let again = match tries {
            0 => "It was tried again.".to_owned(),
            1 => "It was started again.".to_owned(),
            n => format!("It was started again at least {n} times."),
        };
        let again = if is_retried { again } else { String::new() };
        format!(
            "{again}{closed} The record keeps the last time of each phase, the last approval, rejection and retry, and only \
             the last error. Earlier ones are in the events and the audit log of the cluster, if these are kept."
        )
        .trim()
        .to_owned()
    })
}

/// What it means that the promotion got into a phase.
fn entered(spec: &PromotionSpec, status: &PromotionStatus, phase: Phase) -> Option<String> {
    let message = match status.phase == phase && !status.message.is_empty() {
        true => format!(": {}", status.message),
        false => String::new(),
    };
    Some(match phase {
        Phase::Pending => return None,
        // The message is of the last failure.
        Phase::Promoting if status.attempts > 1 => {
            format!(
                "the delivery failed for the first time, and {} times since then{message}",
                status.attempts - 1
            )
        }
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
