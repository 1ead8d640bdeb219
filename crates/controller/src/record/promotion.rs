//! The records of promotions: makes new ones, and applies changes to their status. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{
    Evidence, GATES_OPEN, GateStatus, GivenApproval, Phase, Promotion, PromotionSpec, PromotionStatus,
    RecordedChangeRequest, RecordedRequestState,
};
use sluice_core::Time;
use sluice_core::decide::{NewPromotion, Transition, WAITING};
use sluice_core::promotion::Gate;

use super::tampered::{self, TAMPERED};
use crate::translate;

/// The label of a Promotion with the name of its pipeline.
pub const PIPELINE_LABEL: &str = "pipelines.weave.works/pipeline";
/// The label of a Promotion with the name of its environment.
pub const ENVIRONMENT_LABEL: &str = "pipelines.weave.works/environment";

/// The reason of a promotion whose delivery takes long.
pub const DELIVERY_SLOW: &str = "DeliverySlow";

/// The separator in a message between why a promotion ended, and why its change request could not be closed.
const STILL_OPEN: &str = "; its change request is still open: ";
/// The longest text of a revision in fields that only people read, in bytes.
const MAX_SHOWN_BYTES: usize = 1000;
/// The longest message of a record, in bytes.
const MAX_MESSAGE_BYTES: usize = 4000;

/// A name as the value of a label, which has at most 63 characters. The name of a pipeline may be longer.
pub fn label(text: &str) -> String {
    let cut: String = text.chars().take(63).collect();
    cut.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_string()
}

/// Returns the text of a revision for fields that only people read, with a limited length.
pub fn shown(mut revision: String) -> String {
    super::cut(&mut revision, MAX_SHOWN_BYTES);
    revision
}

/// The record of a new promotion.
pub fn object(pipeline: &Pipeline, intent: &NewPromotion) -> Promotion {
    let owner = OwnerReference {
        api_version: Pipeline::api_version(&()).into(),
        kind: Pipeline::kind(&()).into(),
        name: pipeline.name_any(),
        uid: pipeline.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let evidence = intent.proven_by.iter().map(|(environment, target, at)| Evidence {
        environment: environment.clone(),
        target: target.clone(),
        at: Time::to_second(*at),
    });
    Promotion {
        metadata: ObjectMeta {
            name: Some(intent.name.clone()),
            namespace: pipeline.namespace(),
            owner_references: Some(vec![owner]),
            labels: Some(
                [
                    (PIPELINE_LABEL.to_string(), label(&pipeline.name_any())),
                    (ENVIRONMENT_LABEL.to_string(), label(&intent.environment)),
                ]
                .into(),
            ),
            ..ObjectMeta::default()
        },
        spec: PromotionSpec {
            pipeline: pipeline.name_any(),
            environment: intent.environment.clone(),
            target: intent.target.clone(),
            revision: intent.revision.to_string(),
            facets: intent.revision.to_strings(),
            run: intent.run,
            arrival: intent.arrival,
            sequence: intent.sequence,
            replaces: shown(intent.replaces.clone()),
            evidence: evidence.collect(),
            trigger: None,
            approval: None,
            rejection: None,
            retry: None,
        },
        status: None,
    }
}

/// How a promotion was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryKind {
    /// The change request was merged.
    Merged,
    /// A commit was pushed.
    Committed,
    /// Every value was set already.
    AlreadySet,
    /// An event was written.
    Notified,
    /// The receiver of a webhook accepted the call.
    Called,
}

impl DeliveryKind {
    /// The reason, as the record and events show it.
    pub fn reason(self) -> &'static str {
        match self {
            DeliveryKind::Merged => "Merged",
            DeliveryKind::Committed => "Committed",
            DeliveryKind::AlreadySet => "AlreadySet",
            DeliveryKind::Notified => "Notified",
            DeliveryKind::Called => "Called",
        }
    }
}

/// A change of the record of a promotion.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordChange {
    /// A decision changes the phase of the promotion.
    Moved(Transition),
    /// The promotion waits for gates.
    Waits {
        /// All gates, the open ones too.
        gates: Vec<Gate>,
        /// What it waits for.
        message: String,
    },
    /// All gates are open, and the promotion is delivered next.
    Passed(Vec<Gate>),
    /// The spec is not as Sluice wrote it. The text says what is wrong.
    Tampered(String),
    /// The change request is open.
    Proposed(RecordedChangeRequest),
    /// The change request is open, and Sluice merges it as soon as the forge allows the merge.
    Waiting {
        /// The change request.
        request: RecordedChangeRequest,
        /// What it waits for.
        why: String,
        /// Whether a check has failed, so that a person should look.
        failed: bool,
    },
    /// The promotion was delivered: merged, committed, announced, or set already.
    Delivered {
        /// How it was delivered.
        kind: DeliveryKind,
        /// Where it was delivered to.
        delivered_to: Option<String>,
        /// A sentence that says how it was delivered.
        message: String,
        /// The commit that sets the revision.
        commit: Option<String>,
        /// Its change request, if it has one.
        request: Option<RecordedChangeRequest>,
    },
    /// A person closed the change request without merging it.
    Rejected {
        /// The change request as it is now.
        request: Option<RecordedChangeRequest>,
        /// What happened, as a sentence.
        message: String,
    },
    /// The change request was merged without the revision, so the promotion is delivered again.
    Missed(RecordedChangeRequest),
    /// A later promotion uses the change request.
    HandedOver,
    /// The change request stays open: the pipeline names another repository or branch now, and Sluice cannot close the
    /// change request.
    Left(RecordedChangeRequest),
    /// A poll of the change request failed, or Sluice could not close it. The phase does not change.
    Trouble {
        /// The reason, as one word.
        reason: &'static str,
        /// What went wrong and what to do.
        message: String,
    },
    /// A delivery takes long, or does not any more. The phase does not change, and nobody is told.
    Slow(String),
    /// The change request is open, and the promotion has not put its revision there in this try.
    SeenOpen(RecordedChangeRequest),
    /// Sluice is about to close the change request.
    WithdrawalBegins,
    /// Sluice closed the change request, because it is not needed any more.
    Withdrawn,
    /// The delivery failed.
    Failed {
        /// The reason, as one word.
        reason: &'static str,
        /// What went wrong and what to do.
        message: String,
        /// When the delivery is retried.
        again: Timestamp,
    },
}

/// Returns the status after a change. Only a decision changes the phase of a promotion that has ended. The end of
/// a side effect that was still in flight changes the other fields only.
pub fn apply(
    before: &PromotionStatus,
    spec: &PromotionSpec,
    change: &RecordChange,
    now: Timestamp,
) -> PromotionStatus {
    let mut status = before.clone();
    note(&mut status, change, now);
    if status.change_request.is_some() && status.open_request().is_none() {
        status.message = without_still_open(&status.message).into();
    }
    note_approval(&mut status, spec, now);
    if status.spec_digest.is_empty() {
        status.spec_digest = tampered::digest(spec);
    }
    let keeps_phase = match change {
        RecordChange::Moved(_) => false,
        // A delivered promotion may have an open change request that it did not need.
        RecordChange::Rejected { .. } | RecordChange::Trouble { .. } | RecordChange::Left(_) => {
            is_settled(before.phase)
        }
        _ => before.phase.has_ended(),
    };
    if let Some((phase, reason, message)) = phase_after(before, change).filter(|_| !keeps_phase) {
        let name = phase.to_string();
        if status.phase != phase || !status.times.contains_key(&name) {
            status.times.insert(name, Time::to_second(now));
        }
        (status.phase, status.reason, status.message) = (phase, reason.into(), message);
        if matches!(change, RecordChange::Rejected { .. }) {
            // A request for another try that came before Sluice knew of the rejection does not undo it.
            status.retried.clone_from(&spec.retry);
        }
    }
    shorten(&mut status);
    status
}

/// A message without what is said of a change request that is still open.
fn without_still_open(message: &str) -> &str {
    message.split_once(STILL_OPEN).map_or(message, |(before, _)| before)
}

/// Whether a promotion needs no change request any more.
fn is_settled(phase: Phase) -> bool {
    phase.has_ended() || phase == Phase::Delivered
}

/// Notes an approval that counts, with the time at which it was read.
fn note_approval(status: &mut PromotionStatus, spec: &PromotionSpec, now: Timestamp) {
    let Some(approval) = spec.approval_now(status) else { return };
    let (by, retries) = (approval.by.clone(), approval.retries);
    if status.approval.as_ref().is_none_or(|given| (&given.by, given.retries) != (&by, retries)) {
        let at = approval.at.unwrap_or_else(|| Time::to_second(now));
        status.approval = Some(GivenApproval { by, at, retries });
    }
}

/// How many notes about a change request are kept.
const MAX_NOTES: usize = 20;
/// The longest message of a gate or a note, in bytes.
const MAX_NOTE_BYTES: usize = 1000;

/// Makes the messages in a status safe to print, and shortens those of other programs: the object must fit into etcd.
fn shorten(status: &mut PromotionStatus) {
    super::limit(&mut status.message, MAX_MESSAGE_BYTES);
    status.gates.iter_mut().for_each(|gate| super::limit(&mut gate.message, MAX_NOTE_BYTES));
    if let Some(request) = &mut status.change_request {
        if request.notes.len() > MAX_NOTES {
            let more = request.notes.len() - MAX_NOTES + 1;
            request.notes.truncate(MAX_NOTES - 1);
            request.notes.push(format!("and {more} more notes"));
        }
        request.notes.iter_mut().for_each(|note| super::limit(note, MAX_NOTE_BYTES));
        super::limit(&mut request.url, MAX_MESSAGE_BYTES);
    }
}

/// A message about an open change request, with the notes about settings that its forge rejected.
pub fn with_notes(request: &RecordedChangeRequest, message: &str) -> String {
    let notes = request.notes.iter().map(|note| format!("; {note}"));
    std::iter::once(message.to_string()).chain(notes).collect()
}

/// The phase of a promotion after a change, with the reason and the message. `None` if all three stay.
fn phase_after<'a>(before: &PromotionStatus, change: &'a RecordChange) -> Option<(Phase, &'a str, String)> {
    Some(match change {
        RecordChange::Moved(to) => (to.to, to.reason, to.message.clone()),
        RecordChange::Waits { message, .. } => (Phase::Pending, WAITING, message.clone()),
        RecordChange::Passed(_) => (before.phase, GATES_OPEN, "its gates are open".into()),
        RecordChange::Tampered(why) => (Phase::Failed, TAMPERED, why.clone()),
        RecordChange::Proposed(request) => (
            Phase::Proposed,
            "Proposed",
            with_notes(request, &format!("waits for {} to be merged", request.url)),
        ),
        RecordChange::Waiting { request, why, .. } => {
            (Phase::Proposed, "Proposed", with_notes(request, &format!("{}: {why}", request.url)))
        }
        RecordChange::Delivered { kind, message, .. } => (Phase::Delivered, kind.reason(), message.clone()),
        RecordChange::Rejected { message, .. } => (Phase::Rejected, "Rejected", message.clone()),
        RecordChange::SeenOpen(_)
        | RecordChange::WithdrawalBegins
        | RecordChange::Withdrawn
        | RecordChange::HandedOver => return None,
        RecordChange::Missed(request) => {
            let message =
                format!("{} was merged without this revision; it will be delivered again", request.url);
            (before.phase, "MergedEarlier", message)
        }
        RecordChange::Left(request) => (before.phase, "LeftOpen", left_open_message(request)),
        RecordChange::Slow(message) => (before.phase, DELIVERY_SLOW, message.clone()),
        RecordChange::Trouble { reason, message } => (before.phase, reason, message.clone()),
        RecordChange::Failed { reason, message, .. } => (Phase::Promoting, reason, message.clone()),
    })
}

/// The message about a change request that Sluice leaves open.
pub(super) fn left_open_message(request: &RecordedChangeRequest) -> String {
    format!(
        "{} stays open: the pipeline names another repository or branch now; close it by hand",
        request.url
    )
}

/// Notes a change in the status, without the phase.
fn note(status: &mut PromotionStatus, change: &RecordChange, now: Timestamp) {
    match change {
        RecordChange::Moved(to) => note_transition(status, to),
        RecordChange::Waits { gates, .. } => {
            let gates = translate::gates(gates);
            let is_known = |gate: &GateStatus| {
                let mut same = status.gates.iter().filter(|known| known.name == gate.name);
                same.any(|known| {
                    gate.newer.iter().all(|newer| known.newer.contains(newer))
                        && gate.unreported.iter().all(|target| known.unreported.contains(target))
                })
            };
            if !gates.iter().all(|gate| gate.open || is_known(gate)) {
                // It begins to wait for something else: a body that was signed before does not approve that.
                status.times.remove("Pending");
            }
            status.gates = gates;
        }
        RecordChange::Passed(gates) => status.gates = translate::gates(gates),
        RecordChange::Tampered(_) => {}
        RecordChange::Proposed(request) => {
            status.commit = Some(request.head_commit.clone());
            note_open(status, request);
            end_failures(status);
        }
        RecordChange::Delivered { commit, request, delivered_to, .. } => {
            status.delivered_to.clone_from(delivered_to);
            status.commit = commit.clone().or(status.commit.take());
            status.change_request = request.clone().or(status.change_request.take());
            end_failures(status);
            // This time is needed even if the targets were healthy before Sluice learned of the merge.
            status.times.entry("Delivered".into()).or_insert_with(|| Time::to_second(now));
        }
        RecordChange::Rejected { request, .. } => {
            status.change_request = request.clone().or(status.change_request.take());
        }
        RecordChange::WithdrawalBegins | RecordChange::Withdrawn | RecordChange::HandedOver => {
            note_end_of_request(status, change);
        }
        RecordChange::Waiting { request, .. } | RecordChange::SeenOpen(request) => {
            note_open(status, request);
        }
        RecordChange::Missed(request) | RecordChange::Left(request) => {
            status.change_request = Some(request.clone());
        }
        RecordChange::Trouble { message, .. } if is_settled(status.phase) => {
            status.message = format!("{}{STILL_OPEN}{message}", without_still_open(&status.message));
        }
        RecordChange::Trouble { .. } | RecordChange::Slow(_) => {}
        RecordChange::Failed { .. } if status.phase.has_ended() => {}
        RecordChange::Failed { again, .. } => {
            status.attempts += 1;
            status.next_attempt = Some(Time::to_second(*again));
        }
    }
}

/// Notes that Sluice closes the change request, has closed it, or has handed it over to another promotion.
fn note_end_of_request(status: &mut PromotionStatus, change: &RecordChange) {
    if let Some(request) = &mut status.change_request {
        match change {
            RecordChange::Withdrawn => request.state = RecordedRequestState::Withdrawn,
            RecordChange::HandedOver => request.state = RecordedRequestState::HandedOver,
            _ => {}
        }
        if !matches!(change, RecordChange::HandedOver) {
            note_withdrawn(&mut status.withdrawn_requests, &request.url);
        }
    }
}

/// Notes that a change request is open. If it was noted as closed by Sluice, a person has opened it again, or Sluice has not
/// closed it after all. The next close may be a rejection by a person.
fn note_open(status: &mut PromotionStatus, request: &RecordedChangeRequest) {
    status.withdrawn_requests.retain(|closed| *closed != request.url);
    status.change_request = Some(request.clone());
}

/// How many closed change requests of a round a record keeps.
const MAX_WITHDRAWN: usize = 20;

/// Notes that it is no rejection if the change request with this address is closed.
fn note_withdrawn(withdrawn: &mut Vec<String>, url: &str) {
    withdrawn.retain(|other| other != url);
    withdrawn.push(url.into());
    let surplus = withdrawn.len().saturating_sub(MAX_WITHDRAWN);
    withdrawn.drain(..surplus);
}

/// Notes a transition to another phase in the status, without the phase.
fn note_transition(status: &mut PromotionStatus, to: &Transition) {
    if to.to == Phase::Pending {
        status.attempts = 0;
        status.next_attempt = None;
        status.delivered_to = None;
        // The gates are decided again. Until then their last messages are not shown.
        status.gates.clear();
        let is_closed = |request: &mut RecordedChangeRequest| request.state == RecordedRequestState::Closed;
        if to.answers.is_some()
            && let Some(closed) = status.change_request.take_if(is_closed)
        {
            // A person wants another try although a person has closed this one, which counts for nothing now.
            note_withdrawn(&mut status.withdrawn_requests, &closed.url);
        }
        // After a delivery a new round begins, so that receivers do not take the next delivery for a
        // repetition, and Sluice does not find the effects of the last one. A promotion may also have
        // succeeded without a delivery.
        let ended = ["Delivered", "Succeeded"].map(|phase| status.times.remove(phase).is_some());
        if to.is_undone || ended.contains(&true) {
            status.round += 1;
            // If everything is set already, this round has no commit, and the earlier one may be gone.
            status.commit = None;
            status.withdrawn_requests.clear();
        }
        if to.spends_approval {
            // It begins to wait again: a body that was signed before does not approve this try.
            status.times.remove("Pending");
        }
    }
    if to.answers.is_some() {
        status.retried.clone_from(&to.answers);
    }
    status.retries = status.retries.saturating_add(u32::from(to.spends_approval));
}

/// Ends the retries and opens the gates, after a successful delivery.
fn end_failures(status: &mut PromotionStatus) {
    status.next_attempt = None;
    for gate in &mut status.gates {
        gate.open = true;
        gate.message = String::new();
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::promotion::{GateKind, Phase};

    use super::*;

    /// Approvals by key that were signed before that time do not count.
    #[test]
    fn a_promotion_that_needs_another_approval_begins_to_wait_again() {
        let transition = Transition {
            promotion: "p".into(),
            to: Phase::Pending,
            reason: "ApprovalOutdated",
            message: String::new(),
            answers: None,
            spends_approval: false,
            is_undone: false,
        };
        let [began, now] = [10, 20].map(|second| Timestamp::from_second(second).unwrap_or_default());
        let mut before = PromotionStatus::default();
        before.times.insert("Pending".into(), Time::to_second(began));
        for (spends_approval, expected) in [(false, began), (true, now)] {
            let change = RecordChange::Moved(Transition { spends_approval, ..transition.clone() });
            let after = apply(&before, &PromotionSpec::default(), &change, now);
            assert_eq!(after.entered(Phase::Pending), Some(Time::to_second(expected)));
        }
        let shut = |kind: GateKind| Gate::closed(kind, "waits".into());
        let [approval, downgrade] = [GateKind::Approval, GateKind::Downgrade].map(shut);
        before.gates = translate::gates(std::slice::from_ref(&approval));
        let newer = |version: &str| {
            let facets = [("HelmRelease/web:chart".to_string(), version.to_string())].into();
            sluice_core::revision::Revision::from_strings(&facets).into_iter().collect::<Vec<_>>()
        };
        let from = |version: &str| Gate { newer: newer(version), ..downgrade.clone() };
        let recorded = PromotionStatus { gates: translate::gates(&[from("6.3.0")]), ..before.clone() };
        for (version, expected) in [("6.3.0", began), ("7.0.0", now)] {
            let change = RecordChange::Waits { gates: vec![from(version)], message: "it is older".into() };
            let after = apply(&recorded, &PromotionSpec::default(), &change, now);
            assert_eq!(after.entered(Phase::Pending), Some(Time::to_second(expected)), "{version}");
        }
        for (gates, expected) in [(vec![approval.clone()], began), (vec![approval, downgrade], now)] {
            let change = RecordChange::Waits { gates, message: "it is older".into() };
            let after = apply(&before, &PromotionSpec::default(), &change, now);
            assert_eq!(after.entered(Phase::Pending), Some(Time::to_second(expected)), "{change:?}");
        }
    }
}
