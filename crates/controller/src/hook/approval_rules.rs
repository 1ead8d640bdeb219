//! The requests of `/approval`: whether a request is accepted, and what it changes in the promotion. The signed
//! body names what it approves and when it was signed, so that a person who has seen a call cannot approve
//! anything else with it, nor a later try.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde::Deserialize;
use sluice_api::promotion::{KeyApproval, Phase, Promotion, PromotionSpec};
use sluice_core::Time;

use super::status_change::StatusChange;

/// How long after its signature a body is accepted. A caller has this time to try again.
const MAX_BODY_AGE: SignedDuration = SignedDuration::from_mins(5);
/// How far a stored time may be ahead of this replica's clock. A time further ahead was made by a wrong clock.
const MAX_CLOCK_AHEAD: SignedDuration = SignedDuration::from_mins(1);
/// How far the clocks of a caller and of a replica may differ. A caller whose clock is further ahead could sign a
/// body now that approves a later try.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(2);
/// The age of the oldest body that a later try accepts if a wrong clock recorded when that try began to wait. An older body may
/// have been signed for the try before.
const MAX_AGE_WITHOUT_START: SignedDuration = SignedDuration::from_secs(30);
/// How many earlier approvals of a promotion are remembered.
const MAX_EARLIER: usize = 16;

/// The body of an approval. Every field is required.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalRequest {
    /// The pipeline, as `<namespace>/<name>`.
    pub pipeline: String,
    /// The name of the environment.
    pub environment: String,
    /// The revision, as the Promotion names it.
    pub revision: String,
    /// When the body was signed.
    pub at: Timestamp,
}

/// Checks that the body names the same as the path, and was signed recently.
///
/// # Errors
/// What is wrong, and what to send instead.
pub fn check(
    request: &ApprovalRequest,
    (pipeline, environment, revision): (&str, &str, &str),
    now: Timestamp,
) -> Result<(), String> {
    for (name, approved, sent_to) in [
        ("pipeline", &request.pipeline, pipeline),
        ("environment", &request.environment, environment),
        ("revision", &request.revision, revision),
    ] {
        if approved != sent_to {
            return Err(format!(
                "the body approves {name} {approved:?}, and was sent to {sent_to:?}: send it to the address of what it \
                 approves"
            ));
        }
    }
    let age = now.duration_since(request.at);
    if age < -CLOCK_TOLERANCE {
        return Err(format!(
            "the body was signed at {}, and the time here is {}: correct the clock of the signer, and sign a new body",
            request.at,
            Time::to_second(now)
        ));
    }
    if age > MAX_BODY_AGE {
        return Err(format!(
            "the body was signed at {}, and the time here is {}: sign a new body with the current time; an approval is \
             accepted for {} minutes",
            request.at,
            Time::to_second(now),
            MAX_BODY_AGE.as_mins()
        ));
    }
    Ok(())
}

/// The signature of an approval, and the time at which it is recorded.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalSignature<'a> {
    /// The name of the Secret with the key.
    pub secret: &'a str,
    /// Identifies the key without revealing it.
    pub key_id: &'a str,
    /// When the body was signed.
    pub signed_at: Timestamp,
    /// The current time.
    pub now: Timestamp,
}

/// Returns the promotions that a request approves. A body that is recorded in a promotion approves no promotion that began to
/// wait after it was signed.
///
/// # Errors
/// When there is none: why, and what to do.
pub fn approved_promotions<'a>(
    request: &ApprovalRequest,
    all: &'a [Promotion],
) -> Result<Vec<&'a Promotion>, String> {
    let into: Vec<&Promotion> = all.iter().filter(|p| is_into(request, &p.spec)).collect();
    let signed_at = Time::exact(request.at);
    let is_recorded = |p: &&Promotion| key_approval(p).is_some_and(|before| before.signed_at == signed_at);
    let recorded: Vec<&Promotion> =
        into.iter().copied().filter(|p| p.spec.revision == request.revision).filter(is_recorded).collect();
    let waiting: Vec<&Promotion> = into.iter().filter(|p| waits_for_approval(p)).copied().collect();
    let of_revision: Vec<&Promotion> =
        waiting.iter().filter(|p| p.spec.revision == request.revision).copied().collect();
    if !recorded.is_empty() {
        // A repeated call. If one of its promotions waits again, that try needs a new approval.
        if recorded.iter().any(|p| waits_for_approval(p) && !counts(p, key_approval(p))) {
            return Err("this body has approved an earlier try: sign a new body with the current time".into());
        }
        // The earlier call may have broken off before all promotions into the targets of the environment were approved.
        let is_left = |p: &&Promotion| waiting_since(p).max(earliest_signature(p)) <= request.at;
        let left = of_revision.into_iter().filter(|p| !is_recorded(p)).filter(is_left);
        return Ok(recorded.into_iter().chain(left).collect());
    }
    if !of_revision.is_empty() {
        return Ok(of_revision);
    }
    let others: Vec<&str> = waiting.iter().map(|p| p.spec.revision.as_str()).collect();
    let pending = if others.is_empty() {
        "no promotion waits there".to_string()
    } else {
        format!("{} waits there", others.join(" and "))
    };
    Err(format!("{} does not wait for an approval in {}: {pending}", request.revision, request.environment))
}

/// Returns true if a request approves the revision of this promotion for its environment.
pub fn is_for(request: &ApprovalRequest, spec: &PromotionSpec) -> bool {
    is_into(request, spec) && spec.revision == request.revision
}

/// Returns true if a request is for the pipeline and environment of this promotion.
fn is_into(request: &ApprovalRequest, spec: &PromotionSpec) -> bool {
    let name = request.pipeline.split_once('/').map_or("", |(_, name)| name);
    (spec.pipeline.as_str(), &spec.environment) == (name, &request.environment)
}

fn key_approval(promotion: &Promotion) -> Option<&KeyApproval> {
    promotion.status.as_ref()?.key_approval.as_deref()
}

/// Returns true if a promotion waits for a gate that an approval opens.
fn waits_for_approval(promotion: &Promotion) -> bool {
    let status = promotion.status.as_ref();
    status.is_some_and(|status| status.phase == Phase::Pending && status.gates.iter().any(|gate| !gate.open))
}

/// Returns true if an approval by key is for the current try of a promotion: it was not spent on an earlier try,
/// and was recorded after the promotion began to wait.
pub fn counts(promotion: &Promotion, approval: Option<&KeyApproval>) -> bool {
    let Some(approval) = approval else { return false };
    let status = promotion.status.as_ref();
    let spent = status.and_then(|status| status.spent_key_approval.as_ref());
    spent != Some(&approval.signed_at) && *approval.at >= waiting_since(promotion)
}

/// Returns when a promotion began to wait; [`Timestamp::MIN`] if that is not recorded.
fn waiting_since(promotion: &Promotion) -> Timestamp {
    let status = promotion.status.as_ref();
    status.and_then(|status| status.times.get("Pending")).map_or(Timestamp::MIN, |at| **at)
}

/// Returns the earliest time at which an approval of the current try may be signed. The first try accepts the clock of
/// an approver that is behind. A later try must not accept a body of the try before it: not by an approver whose
/// clock is ahead, and not within the second in which the wait began.
fn earliest_signature(promotion: &Promotion) -> Timestamp {
    let began = waiting_since(promotion);
    let is_first_try = promotion.status.as_ref().is_none_or(|status| status.retries == 0);
    let earliest = match is_first_try {
        true => began.checked_sub(CLOCK_TOLERANCE),
        false => began.checked_add(CLOCK_TOLERANCE + SignedDuration::from_secs(1)),
    };
    earliest.unwrap_or(began)
}

/// Returns when the bodies of earlier approvals of a promotion were signed, the last one first.
fn used_signature_times(promotion: &Promotion) -> Vec<Time> {
    let spent = promotion.status.as_ref().and_then(|status| status.spent_key_approval);
    let recorded = key_approval(promotion).into_iter();
    let mut used: Vec<Time> =
        recorded.flat_map(|one| [one.signed_at].into_iter().chain(one.earlier.iter().copied())).collect();
    used.extend(spent.filter(|spent| !used.contains(spent)));
    used.truncate(MAX_EARLIER);
    used
}

/// Returns why a body does not approve the current try of a promotion because of the time at which it was signed. A stored time
/// that is ahead of this clock was recorded by a wrong clock, and is not compared.
fn time_problem(promotion: &Promotion, signature: ApprovalSignature<'_>) -> Option<String> {
    let (signed_at, now) = (signature.signed_at, signature.now);
    if used_signature_times(promotion).contains(&Time::exact(signed_at)) {
        return Some("this body was used before: sign a new body with the current time".into());
    }
    // A body that was signed before the promotion began to wait is for an earlier try, even if it was not sent then.
    let is_ahead = |at: Timestamp| at.duration_since(now) > MAX_CLOCK_AHEAD;
    let began = waiting_since(promotion);
    let is_first_try =
        promotion.status.as_ref().is_none_or(|s| s.retries == 0 && s.spent_key_approval.is_none());
    let earliest = match is_ahead(began) {
        false => earliest_signature(promotion),
        true if is_first_try => Timestamp::MIN,
        true => now.checked_sub(MAX_AGE_WITHOUT_START).unwrap_or(now),
    };
    if signed_at < earliest {
        return Some(format!(
            "the body was signed at {signed_at}, and {} needs a body that was signed at {earliest} or later: sign a new \
             body with the current time",
            promotion.name_any()
        ));
    }
    // Only the newest approval is recorded: an older body may have approved an earlier try.
    let newest = key_approval(promotion).map(|before| *before.signed_at);
    let newest = newest.map(|at| if is_ahead(at) { began } else { at }).filter(|at| !is_ahead(*at));
    newest
        .is_some_and(|newest| signed_at < newest)
        .then(|| "a later approval than this body is recorded: sign a new body with the current time".into())
}

/// Returns the change that an approval makes to the status of a promotion.
pub fn status_change(
    promotion: &Promotion,
    request: &ApprovalRequest,
    signature: ApprovalSignature<'_>,
) -> StatusChange {
    if promotion.spec.revision != request.revision || promotion.spec.environment != request.environment {
        return StatusChange::Foreign;
    }
    let before = key_approval(promotion);
    if before.is_some_and(|before| before.signed_at == Time::exact(signature.signed_at)) {
        return StatusChange::Unchanged;
    }
    if !waits_for_approval(promotion) {
        return StatusChange::Rejected(format!(
            "{} does not wait for an approval any more",
            promotion.name_any()
        ));
    }
    if let Some(why) = time_problem(promotion, signature) {
        return StatusChange::Rejected(why);
    }
    // The clocks of replicas differ, but an approval must not be older than the wait that it ends.
    let approval = KeyApproval {
        secret: signature.secret.into(),
        key: signature.key_id.into(),
        signed_at: Time::exact(signature.signed_at),
        at: Time::to_second(signature.now.max(waiting_since(promotion))),
        earlier: used_signature_times(promotion),
    };
    StatusChange::Write(serde_json::json!({"keyApproval": approval}))
}
