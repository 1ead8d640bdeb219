//! What the holder of an approval key asks for, whether it counts, and what it changes in the record. The signed body
//! names what is approved and when it was signed, so that nobody who has seen a call can approve anything else with it,
//! or the same again.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde::Deserialize;
use sluice_api::promotion::{KeyApproval, Phase, Promotion, PromotionSpec};

use super::status_change::Change;
use crate::translate;

/// How long ago a body may have been signed: as long as a caller may need to try again.
const OLD: SignedDuration = SignedDuration::from_mins(5);
/// How far ahead of this replica's clock a stored time may be; one further ahead was taken by wrong clocks.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);
/// How far the clocks of a caller and of a replica may differ. A caller whose clock is further ahead could sign now what
/// approves a later try.
const CLOCKS: SignedDuration = SignedDuration::from_secs(2);

/// The body of an approval. Every field is required.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// The pipeline, as `<namespace>/<name>`.
    pub pipeline: String,
    /// The environment that is promoted into.
    pub environment: String,
    /// The revision, as the Promotion names it.
    pub revision: String,
    /// When the body was signed.
    pub at: Timestamp,
}

/// Whether the body speaks of what the address names, and was signed lately.
///
/// # Errors
/// What to send instead.
pub fn check(
    request: &Request,
    (pipeline, environment, revision): (&str, &str, &str),
    now: Timestamp,
) -> Result<(), String> {
    for (name, said, sent_to) in [
        ("pipeline", &request.pipeline, pipeline),
        ("environment", &request.environment, environment),
        ("revision", &request.revision, revision),
    ] {
        if said != sent_to {
            return Err(format!(
                "the body approves {name} {said:?}, and was sent to {sent_to:?}: send it to the address of what it \
                 approves"
            ));
        }
    }
    let age = now.duration_since(request.at);
    if age < -CLOCKS {
        return Err(format!(
            "the body was signed at {}, and here it is {}: set the clock that signs, and sign a new body",
            request.at,
            translate::time(now)
        ));
    }
    if age > OLD {
        return Err(format!(
            "the body was signed at {}, and here it is {}: sign a new body with the time of now; an approval is \
             accepted for {} minutes",
            request.at,
            translate::time(now),
            OLD.as_mins()
        ));
    }
    Ok(())
}

/// How an approval was given.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The name of the Secret with the key.
    pub secret: &'a str,
    /// Tells the key from others.
    pub key_id: &'a str,
    /// When the body was signed.
    pub signed_at: Timestamp,
    /// The time now.
    pub now: Timestamp,
}

/// The promotions of a pipeline that an approval is for. A body that was recorded before approves nothing else.
///
/// # Errors
/// Why there is none.
pub fn approved<'a>(request: &Request, all: &'a [Promotion]) -> Result<Vec<&'a Promotion>, String> {
    let of: Vec<&Promotion> = all.iter().filter(|p| is_into(request, &p.spec)).collect();
    let signed_at = request.at.to_string();
    let is_recorded = |p: &&&Promotion| approval_of(p).is_some_and(|before| before.signed_at == signed_at);
    let recorded: Vec<&Promotion> =
        of.iter().filter(|p| p.spec.revision == request.revision).filter(is_recorded).copied().collect();
    let waiting: Vec<&Promotion> = of.iter().filter(|p| waits(p)).copied().collect();
    let for_it: Vec<&Promotion> =
        waiting.iter().filter(|p| p.spec.revision == request.revision).copied().collect();
    if !recorded.is_empty() {
        // The same call again. Its promotions may have gone on, or wait again, which takes a new approval.
        return match recorded.iter().any(|p| waits(p) && !counts(p, approval_of(p))) {
            false => Ok(recorded),
            true => Err("this body has approved an earlier try: sign a new body with the time of now".into()),
        };
    }
    if !for_it.is_empty() {
        return Ok(for_it);
    }
    let others: Vec<&str> = waiting.iter().map(|p| p.spec.revision.as_str()).collect();
    let pending = if others.is_empty() {
        "nothing waits there".to_string()
    } else {
        format!("{} waits there", others.join(" and "))
    };
    Err(format!("{} does not wait for an approval in {}: {pending}", request.revision, request.environment))
}

/// Whether a request approves this revision for this environment of this pipeline.
pub fn is_for(request: &Request, spec: &PromotionSpec) -> bool {
    is_into(request, spec) && spec.revision == request.revision
}

/// Whether a request is about this environment of this pipeline.
fn is_into(request: &Request, spec: &PromotionSpec) -> bool {
    let name = request.pipeline.split_once('/').map_or("", |(_, name)| name);
    (spec.pipeline.as_str(), &spec.environment) == (name, &request.environment)
}

fn approval_of(promotion: &Promotion) -> Option<&KeyApproval> {
    promotion.status.as_ref()?.key_approval.as_deref()
}

/// Whether a promotion waits for a gate that an approval opens.
fn waits(promotion: &Promotion) -> bool {
    let status = promotion.status.as_ref();
    status.is_some_and(|status| status.phase == Phase::Pending && status.gates.iter().any(|gate| !gate.open))
}

/// Whether an approval by key counts for the try that a promotion is at: it was not spent on an earlier try, and was
/// recorded since the promotion began to wait.
pub fn counts(promotion: &Promotion, approval: Option<&KeyApproval>) -> bool {
    let Some(approval) = approval else { return false };
    let status = promotion.status.as_ref();
    let spent = status.and_then(|status| status.spent_key_approval.as_ref());
    spent != Some(&approval.signed_at)
        && approval.at.parse().is_ok_and(|at: Timestamp| at >= since(promotion))
}

/// Since when a promotion has been waiting; the beginning of time if that is not recorded.
fn since(promotion: &Promotion) -> Timestamp {
    let status = promotion.status.as_ref();
    let pending = status.and_then(|status| status.times.get("Pending")?.parse().ok());
    pending.unwrap_or(Timestamp::MIN)
}

/// What an approval changes in the record of a promotion.
pub fn after(promotion: &Promotion, request: &Request, given: Given<'_>) -> Change {
    if promotion.spec.revision != request.revision || promotion.spec.environment != request.environment {
        return Change::NotTheirs;
    }
    let before = approval_of(promotion);
    if before.is_some_and(|before| before.signed_at == given.signed_at.to_string()) {
        return Change::Nothing;
    }
    if !waits(promotion) {
        return Change::Refused(format!("{} does not wait for an approval any more", promotion.name_any()));
    }
    // A body that was signed before is for an earlier try, also if nobody sent it then. A time that was taken by clocks
    // that were ahead tells nothing.
    let (began, is_ahead) = (since(promotion), |at: Timestamp| at.duration_since(given.now) > AHEAD);
    if !is_ahead(began) && given.signed_at + CLOCKS < began {
        return Change::Refused(format!(
            "the body was signed at {}, and {} waits since {began}: sign a new body with the time of now",
            given.signed_at,
            promotion.name_any()
        ));
    }
    // Only the newest approval is recorded: an older body may have approved an earlier try.
    let newest = before.and_then(|before| before.signed_at.parse::<Timestamp>().ok());
    let newest = newest.map(|at| if is_ahead(at) { began } else { at });
    if newest.is_some_and(|newest| given.signed_at < newest) {
        let why = "a later approval than this body is recorded: sign a new body with the time of now";
        return Change::Refused(why.into());
    }
    // The clocks of replicas differ: an approval of now is never older than what it approves.
    let approval = KeyApproval {
        secret: given.secret.into(),
        key: given.key_id.into(),
        signed_at: given.signed_at.to_string(),
        at: translate::time(given.now.max(since(promotion))),
    };
    Change::Write(serde_json::json!({"keyApproval": approval}))
}
