//! Whether a promotion that has ended starts again on its own. Pure.

use sluice_api::promotion::{Phase, PromotionStatus, RecordedChangeRequest, RecordedRequestState};

use crate::record::tampered::TAMPERED;

/// Whether a promotion that has failed starts again on its own: if the pipeline names another place than the promotion was
/// written to, or if the promotion failed before its delivery, which only earlier versions of Sluice record. Otherwise only
/// a person starts it again.
pub(crate) fn resumes(status: &PromotionStatus, has_moved: bool) -> bool {
    let was_delivered = status.times.contains_key("Delivered");
    status.phase == Phase::Failed && status.reason != TAMPERED && (!was_delivered || has_moved)
}

/// Why a promotion that something newer has replaced does not come back without a person: a person has closed its change
/// request, and Sluice has read that only afterwards.
pub(crate) fn rejected_by_closing(status: &PromotionStatus) -> Option<String> {
    let is_replaced = matches!(status.phase, Phase::Superseded | Phase::Cancelled);
    // What was delivered is in git, whatever became of its change request.
    let may_come_back = is_replaced && !status.times.contains_key("Delivered");
    let request = status.change_request.as_ref().filter(|_| may_come_back);
    request.filter(|request| request.state == RecordedRequestState::Closed).map(closed_message)
}

/// The message of a promotion whose change request a person has closed.
pub(crate) fn closed_message(request: &RecordedChangeRequest) -> String {
    format!("{} was closed and not merged", request.url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_rejects_what_was_replaced_and_not_what_is_in_git() {
        let message = "https://git.example.com/1 was closed and not merged";
        let rejects = |phase: &str, state: &str, times: serde_json::Value| {
            let request = serde_json::json!({"number": 1, "url": "https://git.example.com/1", "state": state, "branch": "b",
                "headCommit": "c"});
            let status = serde_json::json!({"phase": phase, "changeRequest": request, "times": times});
            rejected_by_closing(&serde_json::from_value(status).unwrap())
        };
        let none = serde_json::json!({});
        for phase in ["Superseded", "Cancelled"] {
            assert_eq!(rejects(phase, "closed", none.clone()).as_deref(), Some(message), "{phase}");
            assert_eq!(rejects(phase, "withdrawn", none.clone()), None, "{phase}");
            let delivered = serde_json::json!({"Delivered": "2026-11-24T10:00:00Z"});
            assert_eq!(rejects(phase, "closed", delivered), None, "{phase}");
        }
        assert_eq!(rejects("Pending", "closed", none), None);
    }

    #[test]
    fn a_failed_promotion_resumes_if_it_was_not_delivered_or_belongs_elsewhere_now() {
        let resumes_if = |has_moved: bool, reason: &str, times: &[&str]| {
            let times: serde_json::Map<String, serde_json::Value> =
                times.iter().map(|phase| ((*phase).into(), "2026-11-24T10:00:00Z".into())).collect();
            let status = serde_json::json!({"phase": "Failed", "reason": reason, "times": times});
            resumes(&serde_json::from_value(status).unwrap(), has_moved)
        };
        let delivered = ["Delivered", "Failed"];
        for reason in ["CallbackFailed", "Unhealthy"] {
            assert!(!resumes_if(false, reason, &delivered), "{reason}");
            assert!(resumes_if(true, reason, &delivered), "{reason}");
        }
        assert!(resumes_if(false, "NoMarker", &["Failed"]));
        assert!(!resumes_if(true, TAMPERED, &delivered));
        assert!(!resumes_if(false, TAMPERED, &["Failed"]));
    }
}
