//! The records of promotions: what a new one says, and what becomes of its status when something
//! was decided or done. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{
    ChangeRequest, Evidence, GivenApproval, Phase, Promotion, PromotionSpec, PromotionStatus,
    RecordedRequestState,
};
use sluice_core::decide::{NewPromotion, Transition};
use sluice_core::promotion::Gate;

use super::tampered;
use crate::translate;

/// Labels of a Promotion, for selecting.
pub const PIPELINE_LABEL: &str = "pipelines.weave.works/pipeline";
/// Labels of a Promotion, for selecting.
pub const ENVIRONMENT_LABEL: &str = "pipelines.weave.works/environment";

/// Between why a promotion ended and what keeps its change request from being closed.
const STILL_OPEN: &str = "; its change request is still open: ";
/// The longest message of a record, in bytes.
const LONGEST: usize = 4000;

/// A name as a label's value: that is 63 characters at most, a pipeline's name may be longer.
pub fn label(text: &str) -> String {
    let cut: String = text.chars().take(63).collect();
    cut.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_string()
}

/// The object that records an intent.
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
        at: translate::time(*at),
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
            replaces: intent.replaces.clone(),
            evidence: evidence.collect(),
            trigger: None,
            approval: None,
            rejection: None,
            retry: None,
        },
        status: None,
    }
}

/// Something that changes the record of a promotion.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordChange {
    /// It was decided that it is somewhere else now.
    Moved(Transition),
    /// Its gates were looked at.
    Waits {
        /// Every gate.
        gates: Vec<Gate>,
        /// What it waits for.
        message: String,
    },
    /// Its gates are open, and it is delivered next.
    Passed(Vec<Gate>),
    /// Its spec is not the one that Sluice wrote: why.
    Tampered(String),
    /// Its change request is open.
    Proposed(ChangeRequest),
    /// Its change request is open, and Sluice merges it as soon as it may.
    Waiting {
        /// Which.
        request: ChangeRequest,
        /// What it waits for.
        why: String,
        /// A check has failed: somebody has to look.
        failed: bool,
    },
    /// It was merged, committed, or found in place.
    Delivered {
        /// One word for how.
        reason: &'static str,
        /// A sentence for how.
        message: String,
        /// The commit that carries it.
        commit: Option<String>,
        /// Its change request, if it has one.
        request: Option<ChangeRequest>,
    },
    /// Its change request was closed unmerged.
    Rejected {
        /// The change request as it is now.
        request: Option<ChangeRequest>,
        /// A sentence.
        message: String,
    },
    /// Its change request was merged, with something else in it: it is to be delivered again.
    Missed(ChangeRequest),
    /// Its change request is carried on by a later promotion.
    HandedOver,
    /// Its change request stays where it is: the pipeline does not name that place any more.
    Left(ChangeRequest),
    /// Something about an open change request failed; it stays as it is.
    Trouble {
        /// One word for why.
        reason: &'static str,
        /// What went wrong and what to do.
        message: String,
    },
    /// Its change request was closed by Sluice, which needs it no more.
    Withdrawn,
    /// Delivery failed.
    Failed {
        /// One word for why.
        reason: &'static str,
        /// What went wrong and what to do.
        message: String,
        /// When to try again.
        again: Timestamp,
    },
}

/// The status after a change. A promotion that has ended stays ended: what was still under way then
/// is added to its story, and does not bring it back.
pub fn apply(
    before: &PromotionStatus,
    spec: &PromotionSpec,
    change: &RecordChange,
    now: Timestamp,
) -> PromotionStatus {
    let mut status = before.clone();
    note(&mut status, change, now);
    approved(&mut status, spec, now);
    if status.spec_digest.is_empty() {
        status.spec_digest = tampered::digest(spec);
    }
    let ended = translate::phase(before.phase).has_ended();
    let by_decision = matches!(change, RecordChange::Moved(_));
    if let Some((phase, reason, message)) = place(before, change).filter(|_| by_decision || !ended) {
        let name = phase.to_string();
        if status.phase != phase || !status.times.contains_key(&name) {
            status.times.insert(name, translate::time(now));
        }
        (status.phase, status.reason, status.message) = (phase, reason.into(), message);
    }
    bound(&mut status);
    status
}

/// Records an approval that counts, with the time at which it was seen.
fn approved(status: &mut PromotionStatus, spec: &PromotionSpec, now: Timestamp) {
    let Some(approval) = spec.approval_now(status) else { return };
    let (by, retries) = (approval.by.clone(), approval.retries);
    if status.approval.as_ref().is_none_or(|given| (&given.by, given.retries) != (&by, retries)) {
        let at = approval.at.clone().unwrap_or_else(|| translate::time(now));
        status.approval = Some(GivenApproval { by, at, retries });
    }
}

/// The most notes about a change request, and the longest text in a gate or a note, in bytes.
const NOTES: usize = 20;
const SHORT: usize = 1000;

/// Bounds what others say in a status: the object has to fit into etcd.
fn bound(status: &mut PromotionStatus) {
    super::cut(&mut status.message, LONGEST);
    status.gates.iter_mut().for_each(|gate| super::cut(&mut gate.message, SHORT));
    if let Some(request) = &mut status.change_request {
        if request.notes.len() > NOTES {
            let more = request.notes.len() - NOTES + 1;
            request.notes.truncate(NOTES - 1);
            request.notes.push(format!("and {more} more notes"));
        }
        request.notes.iter_mut().for_each(|note| super::cut(note, SHORT));
        super::cut(&mut request.url, LONGEST);
    }
}

/// What an open change request waits for, and what its forge did not take of what was asked for.
pub fn waiting(request: &ChangeRequest, what: &str) -> String {
    let notes = request.notes.iter().map(|note| format!("; {note}"));
    std::iter::once(what.to_string()).chain(notes).collect()
}

/// Where a change brings a promotion, one word for why, and a sentence.
fn place<'a>(before: &PromotionStatus, change: &'a RecordChange) -> Option<(Phase, &'a str, String)> {
    Some(match change {
        RecordChange::Moved(to) => (translate::api_phase(to.to), to.reason, to.message.clone()),
        RecordChange::Waits { message, .. } => (Phase::Pending, "WaitingForGate", message.clone()),
        RecordChange::Passed(_) => {
            (before.phase, "GatesOpen", "its gates are open: it is being delivered".into())
        }
        RecordChange::Tampered(why) => (Phase::Failed, "Tampered", why.clone()),
        RecordChange::Proposed(request) => (
            Phase::Proposed,
            "Proposed",
            waiting(request, &format!("waits for {} to be merged", request.url)),
        ),
        RecordChange::Waiting { request, why, .. } => {
            (Phase::Proposed, "Proposed", waiting(request, &format!("{}: {why}", request.url)))
        }
        RecordChange::Delivered { reason, message, .. } => (Phase::Delivered, reason, message.clone()),
        RecordChange::Rejected { message, .. } => (Phase::Rejected, "Rejected", message.clone()),
        RecordChange::Withdrawn | RecordChange::HandedOver => return None,
        RecordChange::Missed(request) => {
            let message =
                format!("{} was merged without this revision; looks what is left to do", request.url);
            (before.phase, "MergedEarlier", message)
        }
        RecordChange::Left(request) => {
            let message =
                format!("{} stays open: the pipeline names another place now; close it by hand", request.url);
            (before.phase, "LeftOpen", message)
        }
        RecordChange::Trouble { reason, message } => (before.phase, reason, message.clone()),
        RecordChange::Failed { reason, message, .. } => (Phase::Promoting, reason, message.clone()),
    })
}

/// What a change adds to the story, wherever it brings the promotion.
fn note(status: &mut PromotionStatus, change: &RecordChange, now: Timestamp) {
    match change {
        RecordChange::Moved(to) => {
            if to.to == sluice_core::promotion::Phase::Pending {
                status.attempts = 0;
                status.next_attempt = None;
                // They are decided anew, and what they said before is not shown until then.
                status.gates.clear();
                // Others who have been told of it once must not take this for a repetition, nor may what was
                // done for it be found for done. It may have been seen to run with nobody knowing who did it.
                let came = ["Delivered", "Succeeded"].map(|phase| status.times.remove(phase).is_some());
                status.round += u32::from(to.is_undone || came.contains(&true));
            }
            if to.answers.is_some() {
                status.retried.clone_from(&to.answers);
            }
            status.retries = status.retries.saturating_add(u32::from(to.spends_approval));
        }
        RecordChange::Waits { gates, .. } | RecordChange::Passed(gates) => {
            status.gates = translate::gates(gates)
        }
        RecordChange::Tampered(_) => {}
        RecordChange::Proposed(request) => {
            status.commit = Some(request.head_commit.clone());
            status.change_request = Some(request.clone());
            delivered_something(status);
        }
        RecordChange::Delivered { commit, request, .. } => {
            status.commit = commit.clone().or(status.commit.take());
            status.change_request = request.clone().or(status.change_request.take());
            delivered_something(status);
            // Also when the targets were seen healthy before the merge was.
            status.times.entry("Delivered".into()).or_insert_with(|| translate::time(now));
        }
        RecordChange::Rejected { request, .. } => {
            status.change_request = request.clone().or(status.change_request.take());
        }
        RecordChange::Withdrawn => {
            if let Some(request) = &mut status.change_request {
                request.state = RecordedRequestState::Withdrawn;
            }
            status.message = status.message.split(STILL_OPEN).next().unwrap_or_default().into();
        }
        RecordChange::Waiting { request, .. }
        | RecordChange::Missed(request)
        | RecordChange::Left(request) => status.change_request = Some(request.clone()),
        RecordChange::HandedOver => {
            if let Some(request) = &mut status.change_request {
                request.state = RecordedRequestState::HandedOver;
            }
        }
        RecordChange::Trouble { message, .. } if translate::phase(status.phase).has_ended() => {
            let ended = status.message.split(STILL_OPEN).next().unwrap_or_default();
            status.message = format!("{ended}{STILL_OPEN}{message}");
        }
        RecordChange::Trouble { .. } => {}
        RecordChange::Failed { .. } if translate::phase(status.phase).has_ended() => {}
        RecordChange::Failed { again, .. } => {
            status.attempts += 1;
            status.next_attempt = Some(translate::time(*again));
        }
    }
}

/// After a success, earlier failures are over.
fn delivered_something(status: &mut PromotionStatus) {
    status.next_attempt = None;
    for gate in &mut status.gates {
        gate.open = true;
        gate.message = String::new();
    }
}
