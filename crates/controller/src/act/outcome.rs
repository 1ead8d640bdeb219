//! From how a side effect ended to what its promotion's record says about it. Pure.

use std::time::Duration;

use jiff::Timestamp;
use sluice_api::pipeline::Strategy;
use sluice_delivery::{ChangeRequestStatus, Delivered, DeliveryError, Retry};

use super::{ActError, order};
use crate::record::promotion::RecordChange;

/// The first pause after a failed delivery; it doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause after a failure that may pass without anybody doing something.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(300);
/// The first pause after a failure that only somebody can correct: in the pipeline, in the files or at the
/// receiver. A change of the pipeline or of its targets ends the pause early.
const FIRST_FIX_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause after such a failure.
const MAX_FIX_PAUSE: Duration = Duration::from_secs(600);

/// The longest pause that somebody else may ask for. GitHub's limits are of an hour, and the longest
/// (docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api).
const MAX_RATE_LIMIT_PAUSE: Duration = Duration::from_secs(3600);

/// The longest pause after a failure for this reason. A stored time that is further ahead was not written by
/// this policy and this clock.
pub(crate) fn max_pause(reason: &str) -> Duration {
    if reason == "RateLimited" { MAX_RATE_LIMIT_PAUSE } else { MAX_FIX_PAUSE }
}

/// What follows from a delivery.
pub(crate) fn delivered(delivered: Delivered, by: &Strategy) -> RecordChange {
    match delivered {
        Delivered::Proposed { request, merged: false } => {
            RecordChange::Proposed(order::api_change_request(&request, "open", by))
        }
        Delivered::Proposed { request, merged: true } => RecordChange::Delivered {
            reason: "Merged",
            message: format!("{} was merged; waits for the targets to run it", request.url),
            commit: Some(request.head_commit.clone()),
            request: Some(order::api_change_request(&request, "merged", by)),
        },
        Delivered::Committed { commit } => RecordChange::Delivered {
            reason: "Committed",
            message: format!("committed as {commit}; waits for the targets to run it"),
            commit: Some(commit),
            request: None,
        },
        Delivered::AlreadySet { commit } => RecordChange::Delivered {
            reason: "AlreadySet",
            message: format!("every value was set already at {commit}; waits for the targets to run it"),
            commit: None,
            request: None,
        },
        Delivered::Notified { to } => RecordChange::Delivered {
            reason: "Notified",
            message: match to {
                Some(to) => format!("announced, also to {to}; waits for the targets to run it"),
                None => "announced by an event; waits for the targets to run it".into(),
            },
            commit: None,
            request: None,
        },
        Delivered::Called { to, status } => RecordChange::Delivered {
            reason: "Called",
            message: format!("{to} took it (status {status}); waits for the targets to run it"),
            commit: None,
            request: None,
        },
        Delivered::Rejected { request } => rejected(Some(order::api_change_request(&request, "closed", by))),
    }
}

/// A change request that is left where it is.
pub(crate) fn left(mut request: sluice_api::promotion::ChangeRequest) -> RecordChange {
    request.state = "left".into();
    RecordChange::Left(request)
}

fn rejected(request: Option<sluice_api::promotion::ChangeRequest>) -> RecordChange {
    let message = match &request {
        Some(request) => format!("{} was closed and not merged", request.url),
        None => "its change request was closed and not merged".into(),
    };
    RecordChange::Rejected { request, message }
}

/// What follows from a look at a change request.
pub(crate) fn followed(
    followed: ChangeRequestStatus,
    request: Option<sluice_api::promotion::ChangeRequest>,
) -> Option<RecordChange> {
    let in_state = |state: &str| {
        request.clone().map(|mut r| {
            r.state = state.into();
            r
        })
    };
    match followed {
        ChangeRequestStatus::Open { .. } => in_state("open").map(RecordChange::Proposed),
        ChangeRequestStatus::Waits { why, failed, queued } => in_state("open").map(|mut request| {
            request.queued |= queued;
            RecordChange::Waiting { request, why, failed }
        }),
        ChangeRequestStatus::Merged { ours: false, .. } => in_state("merged").map(RecordChange::Missed),
        ChangeRequestStatus::Merged { commit, .. } => Some(RecordChange::Delivered {
            reason: "Merged",
            message: "its change request was merged; waits for the targets to run it".into(),
            commit: Some(commit).filter(|c| !c.is_empty()),
            request: in_state("merged"),
        }),
        ChangeRequestStatus::Closed | ChangeRequestStatus::Gone => Some(rejected(in_state("closed"))),
        ChangeRequestStatus::HandedOver => Some(RecordChange::HandedOver),
        ChangeRequestStatus::Elsewhere => request.map(left),
    }
}

/// What follows from a failed delivery, after a number of failures before it. Every failure is tried again: what
/// caused it may be corrected at any time, and nobody need say so.
pub(crate) fn failed(error: &ActError, attempts: u32, now: Timestamp) -> RecordChange {
    let in_pause = |first: Duration, longest: Duration| {
        let pause = first.saturating_mul(2u32.saturating_pow(attempts.min(16))).min(longest);
        now.checked_add(pause).unwrap_or(now)
    };
    let again = match error {
        ActError::Delivery(error) => match DeliveryError::retry(error) {
            Retry::Soon => in_pause(FIRST_PAUSE, MAX_PAUSE),
            // No fault of this promotion: it is as far ahead in the queue as any other.
            Retry::At(at) => at.min(now.checked_add(max_pause(error.reason())).unwrap_or(at)),
            Retry::OnChange => in_pause(FIRST_FIX_PAUSE, MAX_FIX_PAUSE),
        },
        // These cost a read of the hub and nothing else.
        ActError::NoSecret(_)
        | ActError::SecretNotRead(_)
        | ActError::SecretNotAllowed(_)
        | ActError::Internal(_)
        | ActError::Event(_) => in_pause(FIRST_PAUSE, MAX_PAUSE),
    };
    RecordChange::Failed { reason: error.reason(), message: error.to_string(), again }
}

#[cfg(test)]
mod tests {
    use sluice_delivery::{EditError, GitError};

    use super::*;
    use crate::secret::{self, SecretUse};

    fn pauses(error: &ActError) -> Vec<i64> {
        let now = Timestamp::constant(1_800_000_000, 0);
        let pause = |attempts| match failed(error, attempts, now) {
            RecordChange::Failed { again, .. } => again.duration_since(now).as_secs(),
            other => panic!("{other:?}"),
        };
        [0, 1, 5, 40].map(pause).into()
    }

    #[test]
    fn every_failure_is_tried_again_with_a_bounded_pause() {
        let marker = EditError::NoMarker { repository: "r".into(), branch: "b".into(), marker: "m".into() };
        let gone = GitError::Unreachable { repository: "r".into(), says: String::new() };
        let secret = serde_json::json!({"metadata": {"name": "s", "namespace": "apps",
            "annotations": {"pipelines.weave.works/used-by": "pull-request"}}});
        let locked = secret::data(serde_json::from_value(secret).unwrap(), SecretUse::Webhook).unwrap_err();
        for (error, expected) in [
            (ActError::Delivery(DeliveryError::Edit(marker)), [60, 120, 600, 600]),
            (ActError::Delivery(DeliveryError::Git(gone)), [2, 4, 64, 300]),
            (ActError::NoSecret("no".into()), [2, 4, 64, 300]),
            (ActError::SecretNotAllowed(locked), [2, 4, 64, 300]),
        ] {
            assert_eq!(pauses(&error), expected, "{error}");
        }
    }
}
