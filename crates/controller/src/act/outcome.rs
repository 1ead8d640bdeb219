//! Decides how the record of a promotion changes when a side effect has ended. Pure.

use std::time::Duration;

use jiff::Timestamp;
use sluice_api::pipeline::Strategy;
use sluice_api::promotion::{ChangeRequest as ApiChangeRequest, RecordedRequestState};
use sluice_delivery::{ChangeRequestStatus, Delivered, DeliveryError, Retry};

use super::{ActError, RATE_LIMITED, order};
use crate::record::promotion::{DeliveryKind, RecordChange};

/// The first pause after a failed delivery; it doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause after a failure that may end on its own.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(300);
/// The first pause after a failure that a person must fix: in the pipeline, in the files or at the receiver. A
/// change of the pipeline or of its targets ends the pause early.
const FIRST_FIX_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause after such a failure.
const MAX_FIX_PAUSE: Duration = Duration::from_secs(600);

/// The longest pause that a forge may ask for. GitHub's limits are the longest: they reset after an hour
/// (docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api).
const MAX_RATE_LIMIT_PAUSE: Duration = Duration::from_secs(3600);

/// The longest pause after a failure for this reason. A stored time that is further ahead was written with another
/// policy or another clock.
pub(crate) fn max_pause(reason: &str) -> Duration {
    if reason == RATE_LIMITED { MAX_RATE_LIMIT_PAUSE } else { MAX_FIX_PAUSE }
}

/// The change after a delivery.
pub(crate) fn delivered(delivered: Delivered, strategy: &Strategy) -> RecordChange {
    match delivered {
        Delivered::Proposed { request, merged: false } => {
            RecordChange::Proposed(order::api_change_request(&request, RecordedRequestState::Open, strategy))
        }
        Delivered::Proposed { request, merged: true } => RecordChange::Delivered {
            kind: DeliveryKind::Merged,
            message: format!("{} was merged; waits for the targets to run it", request.url),
            commit: Some(request.head_commit.clone()),
            request: Some(order::api_change_request(&request, RecordedRequestState::Merged, strategy)),
        },
        Delivered::Committed { commit } => RecordChange::Delivered {
            kind: DeliveryKind::Committed,
            message: format!("committed as {commit}; waits for the targets to run it"),
            commit: Some(commit),
            request: None,
        },
        Delivered::AlreadySet { commit } => RecordChange::Delivered {
            kind: DeliveryKind::AlreadySet,
            message: format!("every value was set already at {commit}; waits for the targets to run it"),
            commit: None,
            request: None,
        },
        Delivered::Notified { to } => RecordChange::Delivered {
            kind: DeliveryKind::Notified,
            message: match to {
                Some(to) => format!("announced, also to {to}; waits for the targets to run it"),
                None => "announced by an event; waits for the targets to run it".into(),
            },
            commit: None,
            request: None,
        },
        Delivered::Called { to, status } => RecordChange::Delivered {
            kind: DeliveryKind::Called,
            message: format!("{to} accepted the call (status {status}); waits for the targets to run it"),
            commit: None,
            request: None,
        },
        Delivered::Rejected { request } => {
            rejected(Some(order::api_change_request(&request, RecordedRequestState::Closed, strategy)))
        }
    }
}

/// The change when Sluice leaves a change request open.
pub(crate) fn left_open(mut request: ApiChangeRequest) -> RecordChange {
    request.state = RecordedRequestState::Left;
    RecordChange::Left(request)
}

/// The change when a person has closed the change request.
fn rejected(request: Option<ApiChangeRequest>) -> RecordChange {
    let message = match &request {
        Some(request) => format!("{} was closed and not merged", request.url),
        None => "its change request was closed and not merged".into(),
    };
    RecordChange::Rejected { request, message }
}

/// The change after a poll of a change request.
pub(crate) fn polled(status: ChangeRequestStatus, request: Option<ApiChangeRequest>) -> Option<RecordChange> {
    let in_state =
        |state: RecordedRequestState| request.clone().map(|request| ApiChangeRequest { state, ..request });
    match status {
        ChangeRequestStatus::Open { .. } => in_state(RecordedRequestState::Open).map(RecordChange::Proposed),
        ChangeRequestStatus::Waits { why, failed, queued } => {
            in_state(RecordedRequestState::Open).map(|mut request| {
                request.queued |= queued;
                RecordChange::Waiting { request, why, failed }
            })
        }
        ChangeRequestStatus::Merged { ours: false, .. } => {
            in_state(RecordedRequestState::Merged).map(RecordChange::Missed)
        }
        ChangeRequestStatus::Merged { commit, .. } => Some(RecordChange::Delivered {
            kind: DeliveryKind::Merged,
            message: "its change request was merged; waits for the targets to run it".into(),
            commit: Some(commit).filter(|c| !c.is_empty()),
            request: in_state(RecordedRequestState::Merged),
        }),
        ChangeRequestStatus::Closed | ChangeRequestStatus::Gone => {
            Some(rejected(in_state(RecordedRequestState::Closed)))
        }
        ChangeRequestStatus::HandedOver => Some(RecordChange::HandedOver),
        ChangeRequestStatus::Elsewhere => request.map(left_open),
    }
}

/// The change after a failed delivery, which failed `attempts` times before. Every failure is retried: its cause
/// may be fixed at any time.
pub(crate) fn failed(error: &ActError, attempts: u32, now: Timestamp) -> RecordChange {
    let in_pause = |first: Duration, longest: Duration| {
        let pause = first.saturating_mul(2u32.saturating_pow(attempts.min(16))).min(longest);
        now.checked_add(pause).unwrap_or(now)
    };
    let again = match error {
        ActError::Delivery(error) => match DeliveryError::retry(error) {
            Retry::Soon => in_pause(FIRST_PAUSE, MAX_PAUSE),
            // The forge sets the time. The number of attempts does not matter.
            Retry::At(at) => at.min(now.checked_add(max_pause(error.reason())).unwrap_or(at)),
            Retry::OnChange => in_pause(FIRST_FIX_PAUSE, MAX_FIX_PAUSE),
        },
        // A retry costs only a read of the hub.
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
    fn every_failure_is_retried_after_a_bounded_pause() {
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
