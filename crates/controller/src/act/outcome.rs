//! Decides how the record of a promotion changes when a side effect has ended. Pure.

use jiff::Timestamp;
use sluice_api::pipeline::Strategy;
use sluice_api::promotion::{
    Phase, PromotionStatus, RecordedChangeRequest, RecordedChecks, RecordedRequestState,
};
use sluice_delivery::{ChangeRequestLook, ChangeRequestStatus, Delivered, ReportedChecks};

use super::backoff::next_try;
use super::{ActError, order, resumption, strategy};
use crate::record::promotion::{DeliveryKind, RecordChange};

/// The change after a delivery.
pub(crate) fn delivered(delivered: Delivered, strategy: &Strategy) -> RecordChange {
    let delivered_to = strategy::destination(strategy);
    match delivered {
        Delivered::Proposed { request, merged: false } => {
            RecordChange::Proposed(order::api_change_request(&request, RecordedRequestState::Open, strategy))
        }
        Delivered::Proposed { request, merged: true } => RecordChange::Delivered {
            kind: DeliveryKind::Merged,
            delivered_to,
            message: format!("{} was merged; waits for the targets to run it", request.url),
            commit: Some(request.head_commit.clone()),
            request: Some(order::api_change_request(&request, RecordedRequestState::Merged, strategy)),
        },
        Delivered::Committed { commit } => RecordChange::Delivered {
            kind: DeliveryKind::Committed,
            delivered_to,
            message: format!("committed as {commit}; waits for the targets to run it"),
            commit: Some(commit),
            request: None,
        },
        Delivered::AlreadySet { commit } => RecordChange::Delivered {
            kind: DeliveryKind::AlreadySet,
            delivered_to,
            message: format!("every value was set already at {commit}; waits for the targets to run it"),
            commit: None,
            request: None,
        },
        Delivered::Notified { to } => RecordChange::Delivered {
            kind: DeliveryKind::Notified,
            delivered_to,
            message: match to {
                Some(to) => format!("announced, also to {to}; waits for the targets to run it"),
                None => "announced by an event; waits for the targets to run it".into(),
            },
            commit: None,
            request: None,
        },
        Delivered::Called { to, status } => RecordChange::Delivered {
            kind: DeliveryKind::Called,
            delivered_to,
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
pub(crate) fn left_open(mut request: RecordedChangeRequest) -> RecordChange {
    request.state = RecordedRequestState::Left;
    RecordChange::Left(request)
}

/// The change when a person has closed the change request.
fn rejected(request: Option<RecordedChangeRequest>) -> RecordChange {
    let message = match &request {
        Some(request) => resumption::closed_message(request),
        None => "its change request was closed and not merged".into(),
    };
    RecordChange::Rejected { request, message }
}

/// The change of a record after a look at its change request, with the checks that the look has read.
pub(crate) fn looked(
    look: ChangeRequestLook,
    record: &PromotionStatus,
    now: Timestamp,
) -> Option<RecordChange> {
    let mut change = polled(look.status, record)?;
    if let RecordChange::Proposed(request)
    | RecordChange::Waiting { request, .. }
    | RecordChange::Delivered { request: Some(request), .. } = &mut change
        && let Some(checks) = look.checks
    {
        note_checks(request, checks, now);
    }
    Some(change)
}

/// Notes the checks of a change request. Checks that are as before, and no checks at all, change nothing: a status is not
/// written for them.
fn note_checks(request: &mut RecordedChangeRequest, found: ReportedChecks, now: Timestamp) {
    let has_none = found.failed + found.pending + found.passed == 0;
    let read = order::recorded_checks(found, now);
    let is_known = request
        .checks
        .as_ref()
        .is_some_and(|known| RecordedChecks { since: known.since, ..read.clone() } == *known);
    if has_none {
        request.checks = None;
    } else if !is_known {
        request.checks = Some(read);
    }
}

/// The change of a record after a poll of its change request. If the record does not say that Sluice closes it, a person has
/// closed it. That it is open says nothing about a promotion that has started again since the poll, or that has not pushed
/// its revision to it yet.
pub(crate) fn polled(status: ChangeRequestStatus, record: &PromotionStatus) -> Option<RecordChange> {
    let (request, withdraws) = (record.change_request.clone(), record.withdraws_request());
    let in_state = |state: RecordedRequestState| {
        request.clone().map(|request| RecordedChangeRequest { state, ..request })
    };
    match status {
        ChangeRequestStatus::Open { .. } | ChangeRequestStatus::Waits { .. }
            if record.phase != Phase::Proposed =>
        {
            in_state(RecordedRequestState::Open).filter(|_| withdraws).map(RecordChange::SeenOpen)
        }
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
            delivered_to: request.as_ref().and_then(strategy::destination_of_request),
            message: "its change request was merged; waits for the targets to run it".into(),
            commit: Some(commit).filter(|c| !c.is_empty()),
            request: in_state(RecordedRequestState::Merged),
        }),
        ChangeRequestStatus::Closed if withdraws => Some(RecordChange::Withdrawn),
        ChangeRequestStatus::Closed | ChangeRequestStatus::Gone => {
            Some(rejected(in_state(RecordedRequestState::Closed)))
        }
        // Only before and while it is closed, Sluice finds out that it carries another promotion. That one may end before it
        // records the change request, so the next decision says whose it is.
        ChangeRequestStatus::HandedOver => None,
        ChangeRequestStatus::Elsewhere => request.map(left_open),
    }
}

/// The change after a step towards closing the open change request of a promotion that does not need it any more.
pub(crate) fn withdrawn(status: ChangeRequestStatus, record: &PromotionStatus) -> Option<RecordChange> {
    match status {
        ChangeRequestStatus::Open { .. } | ChangeRequestStatus::Waits { .. } => {
            Some(RecordChange::WithdrawalBegins)
        }
        ChangeRequestStatus::Gone => Some(RecordChange::Withdrawn),
        ChangeRequestStatus::Closed
        | ChangeRequestStatus::Merged { .. }
        | ChangeRequestStatus::HandedOver
        | ChangeRequestStatus::Elsewhere => polled(status, record),
    }
}

/// The change after a failed delivery, which failed `attempts` times before. Every failure is retried: its cause
/// may be fixed at any time.
pub(crate) fn failed(error: &ActError, strategy: &Strategy, attempts: u32, now: Timestamp) -> RecordChange {
    let again = next_try(error, attempts, now);
    let message = error.message(strategy::secret_name(strategy));
    RecordChange::Failed { reason: error.reason(), message, again }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_delivery::{CheckState, CredentialsError, DeliveryError, EditError, ReportedCheck};

    use super::*;

    fn look(status: ChangeRequestStatus, checks: Option<(usize, usize, usize)>) -> ChangeRequestLook {
        let found = |(failed, pending, passed)| {
            let shown = vec![ReportedCheck {
                name: "ci/build".into(),
                state: CheckState::Pending,
                required: true,
                url: Some("https://ci.example.com/7".into()),
            }];
            ReportedChecks { head: "c0ffee".into(), failed, pending, passed, shown }
        };
        ChangeRequestLook { status, checks: checks.map(found) }
    }

    /// A status is written only if it differs.
    #[test]
    fn checks_change_a_record_only_if_they_differ() {
        let request = RecordedChangeRequest { url: "u".into(), ..RecordedChangeRequest::default() };
        let mut record = PromotionStatus {
            phase: Phase::Proposed,
            change_request: Some(request),
            ..PromotionStatus::default()
        };
        let open = || ChangeRequestStatus::Open { head: "c0ffee".into(), stale: None };
        let at = |second| Timestamp::from_second(second).unwrap();
        let steps = [
            (None, None),
            // Many repositories have no checks.
            (Some((0, 0, 0)), None),
            (Some((0, 1, 2)), Some((2, 1))),
            (Some((0, 1, 2)), Some((2, 1))),
            (None, Some((2, 1))),
            (Some((0, 0, 3)), Some((5, 0))),
            (Some((0, 0, 0)), None),
        ];
        for (second, (checks, expected)) in steps.into_iter().enumerate() {
            let change = looked(look(open(), checks), &record, at(second as i64));
            let Some(RecordChange::Proposed(request)) = change else { panic!("{change:?}") };
            let seen = request.checks.as_ref().map(|checks| (checks.since.as_second(), checks.pending));
            assert_eq!(seen, expected, "{second}");
            record.change_request = Some(request);
        }
        // Sluice merges at the look at which all have passed.
        let merged = ChangeRequestStatus::Merged { commit: "m".into(), head: "c0ffee".into(), ours: true };
        let change = looked(look(merged, Some((0, 0, 3))), &record, at(9));
        let Some(RecordChange::Delivered { request: Some(request), .. }) = change else {
            panic!("{change:?}")
        };
        assert_eq!(request.checks.map(|checks| checks.passed), Some(3));
    }

    /// The history of an environment has many records.
    #[test]
    fn the_largest_list_of_checks_is_small() {
        let shown = ReportedCheck {
            name: format!("{}…", "\u{10ffff}".repeat(100)),
            state: CheckState::Pending,
            required: true,
            url: Some("u".repeat(500)),
        };
        let found = ReportedChecks { shown: vec![shown; 20], ..ReportedChecks::default() };
        let stored = serde_json::to_vec(&order::recorded_checks(found, Timestamp::UNIX_EPOCH)).unwrap();
        assert!(stored.len() < 20 << 10, "{} bytes", stored.len());
    }

    #[test]
    fn a_failure_about_a_value_of_the_secret_names_the_secret() {
        let commit = json!({"commit": {"url": "https://git.example.com/fleet.git", "secretRef": {"name": "fleet-git"}}});
        let message = |error: DeliveryError, strategy: serde_json::Value| {
            let strategy: Strategy = serde_json::from_value(strategy).unwrap();
            match failed(&error.into(), &strategy, 0, Timestamp::UNIX_EPOCH) {
                RecordChange::Failed { message, .. } => message,
                other => panic!("{other:?}"),
            }
        };
        let invalid = || CredentialsError::NoLine { key: "token", is: "is not UTF-8" }.into();
        let named = message(invalid(), commit.clone());
        assert!(named.ends_with("(a line end at its very end is ignored) (Secret fleet-git)"), "{named}");
        let unnamed = message(invalid(), json!({"commit": {"url": "https://git.example.com/fleet.git"}}));
        assert!(unnamed.ends_with("is ignored)"), "{unnamed}");
        let (repository, branch, marker) = ("r".into(), "b".into(), "m".into());
        let marker = EditError::NoMarker { repository, branch, marker, similar: None };
        let other = message(marker.into(), commit);
        assert!(!other.contains("fleet-git"), "{other}");
    }
}
