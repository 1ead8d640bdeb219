//! How far one promotion is, for a command that waits for it: whether it has ended, continues without a person, or
//! needs one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::promotion::{
    GATES_OPEN, GateStatus, Phase, Promotion, PromotionStatus, RecordedChangeRequest, RecordedRequestState,
};
use sluice_core::pipeline::MergeMode;
use sluice_core::promotion::GateKind;

/// What happens next to a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Course {
    /// It continues without a person.
    Moving,
    /// It continues only if a person acts.
    NeedsPerson,
    /// The targets run the revision and are healthy.
    Succeeded,
    /// It has ended otherwise: failed, rejected, superseded or cancelled.
    Ended,
}

/// How far a promotion is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// What happens next.
    pub course: Course,
    /// The state, as the end of a sentence about the promotion: `is delivered, and prod does not run it yet`.
    pub state: String,
    /// The command that a person can run now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Returns how far a promotion is. A request of a person that the controller has not answered yet counts: the status is
/// then about an earlier try.
pub fn progress(promotion: &Promotion) -> Progress {
    let (spec, status) = (&promotion.spec, promotion.status.clone().unwrap_or_default());
    if spec.retry.is_some() && spec.retry != status.retried {
        return moving("waits for the controller to start another try");
    }
    let because = match status.message.as_str() {
        "" => String::new(),
        message => format!(": {message}"),
    };
    match status.phase {
        Phase::Pending => pending(promotion, &status),
        Phase::Promoting if status.message.is_empty() => moving("is being delivered"),
        Phase::Promoting => moving(format!("could not be delivered, and is tried again{because}")),
        Phase::Proposed => proposed(&status),
        Phase::Delivered if status.message.is_empty() => {
            moving(format!("is delivered, and {} does not run it yet", spec.place()))
        }
        Phase::Delivered => moving(format!("is delivered{because}")),
        Phase::Succeeded => Progress { course: Course::Succeeded, ..moving("has succeeded") },
        Phase::Failed => ended(promotion, format!("has failed{because}"), true),
        Phase::Rejected if status.message.starts_with("rejected by ") => {
            ended(promotion, format!("was {}", status.message), true)
        }
        Phase::Rejected => ended(promotion, format!("was rejected{because}"), true),
        Phase::Superseded => ended(promotion, format!("was superseded by a newer revision{because}"), false),
        Phase::Cancelled => ended(promotion, format!("was cancelled{because}"), false),
    }
}

fn moving(state: impl Into<String>) -> Progress {
    Progress { course: Course::Moving, state: state.into(), next: None }
}

fn ended(promotion: &Promotion, state: String, can_retry: bool) -> Progress {
    let next = can_retry.then(|| command("retry", promotion));
    Progress { course: Course::Ended, state, next }
}

/// Returns a command about a promotion: `sluice retry podinfo-prod-5f1c9a -n apps`.
fn command(verb: &str, promotion: &Promotion) -> String {
    let name = promotion.metadata.name.as_deref().unwrap_or_default();
    format!("sluice {verb} {name} -n {}", promotion.metadata.namespace.as_deref().unwrap_or("default"))
}

fn pending(promotion: &Promotion, status: &PromotionStatus) -> Progress {
    let mut closed = status.gates.iter().filter(|gate| !gate.open).peekable();
    if closed.peek().is_none() {
        return moving(match status.message.as_str() {
            "" => "waits for the controller".into(),
            _ if status.reason == GATES_OPEN => "is being delivered".into(),
            message => format!("is pending: {message}"),
        });
    }
    if promotion.spec.approval_now(status).is_some() {
        return moving("waits for the controller to see the approval");
    }
    let words = |gate: &GateStatus| match gate.message.as_str() {
        "" => format!("the gate {} is closed", gate.name),
        // The command is printed on its own line.
        message => message.split(": sluice approve").next().unwrap_or(message).to_owned(),
    };
    let known = status.gates.iter().any(|gate| !gate.open && GateKind::named(&gate.name).is_some());
    let state: Vec<String> = closed.map(words).collect();
    Progress {
        course: Course::NeedsPerson,
        state: state.join("; "),
        next: known.then(|| command("approve", promotion)),
    }
}

fn proposed(status: &PromotionStatus) -> Progress {
    let Some(request) = &status.change_request else { return moving("is proposed") };
    let state = format!("waits in change request #{} ({})", request.number, request.url);
    let course = if waits_for_person(request) { Course::NeedsPerson } else { Course::Moving };
    Progress { course, state, next: None }
}

/// Whether only a person merges a change request.
pub(crate) fn waits_for_person(request: &RecordedChangeRequest) -> bool {
    let merge = request.strategy.as_ref().map_or(MergeMode::Never, |strategy| strategy.merge);
    merge == MergeMode::Never && request.state == RecordedRequestState::Open
}
