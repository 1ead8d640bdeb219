//! When a promotion that has ended as `Failed` starts again on its own. Pure.

use std::time::Duration;

use jiff::Timestamp;
use sluice_api::promotion::{Phase, PromotionStatus};
use sluice_core::promotion::{CALLBACK_FAILED, NOT_ARRIVED, UNHEALTHY};

use super::strategy;
use crate::record::tampered::TAMPERED;

/// The first pause before a receiver that reported a failure is called again; it doubles with each round.
const FIRST_RECEIVER_PAUSE: Duration = Duration::from_secs(600);
/// The longest pause before a receiver is called again, and the pause if it reported nothing.
pub(crate) const MAX_RECEIVER_PAUSE: Duration = Duration::from_secs(3600);

/// When a promotion that has failed starts again on its own. If a receiver was called, and it reported a failure or no
/// target ran the revision, that is after a pause. It is immediately if the pipeline names another place than the
/// promotion was delivered to, or if the promotion failed before its delivery, which only earlier versions of Sluice
/// record. `None` if only a person starts it again.
pub(crate) fn resumes_at(status: &PromotionStatus, has_receiver: bool, has_moved: bool) -> Option<Timestamp> {
    let failed = **status.times.get("Failed").filter(|_| status.phase == Phase::Failed)?;
    let after = |pause: Duration| failed.checked_add(pause.min(MAX_RECEIVER_PAUSE)).ok();
    match &*status.reason {
        CALLBACK_FAILED => after(FIRST_RECEIVER_PAUSE.saturating_mul(1 << status.round.min(16))),
        TAMPERED => None,
        _ if !status.times.contains_key("Delivered") => Some(failed),
        // The former receiver has done its work, and a person may have taken it back.
        UNHEALTHY if status.delivered_to.as_deref().is_some_and(strategy::is_of_receiver) => None,
        _ if has_moved => Some(failed),
        NOT_ARRIVED if has_receiver => after(MAX_RECEIVER_PAUSE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_promotion_resumes_unless_the_targets_or_a_forger_failed_it() {
        let resumes_if = |has_moved: bool, has_receiver: bool, reason: &str, round: u32, times: &[&str]| {
            let times: serde_json::Map<String, serde_json::Value> =
                times.iter().map(|phase| ((*phase).into(), "2026-11-24T10:00:00Z".into())).collect();
            let status =
                serde_json::json!({"phase": "Failed", "reason": reason, "round": round, "times": times});
            let status: PromotionStatus = serde_json::from_value(status).unwrap();
            let failed: Timestamp = "2026-11-24T10:00:00Z".parse().unwrap();
            resumes_at(&status, has_receiver, has_moved).map(|at| at.duration_since(failed).as_mins())
        };
        let resumes =
            |reason: &str, round: u32, times: &[&str]| resumes_if(false, false, reason, round, times);
        let delivered = ["Delivered", "Failed"];
        assert_eq!(
            [0, 1, 2, 3, 99].map(|round| resumes(CALLBACK_FAILED, round, &delivered)),
            [Some(10), Some(20), Some(40), Some(60), Some(60)]
        );
        assert_eq!(resumes(UNHEALTHY, 0, &delivered), None, "Flux applies the commit later");
        // It is unknown what became of a call.
        assert_eq!(resumes_if(false, true, NOT_ARRIVED, 0, &delivered), Some(60));
        assert_eq!(resumes_if(false, true, UNHEALTHY, 0, &delivered), None, "it ran");
        assert_eq!(resumes_if(false, true, TAMPERED, 0, &delivered), None);
        assert_eq!(resumes_if(true, true, UNHEALTHY, 0, &delivered), Some(0));
        assert_eq!(resumes_if(true, true, TAMPERED, 0, &delivered), None);
        let of = |to: &str| PromotionStatus {
            phase: Phase::Failed,
            reason: UNHEALTHY.into(),
            delivered_to: Some(to.into()),
            times: delivered
                .iter()
                .map(|phase| ((*phase).into(), "2026-11-24T10:00:00Z".parse().unwrap()))
                .collect(),
            ..PromotionStatus::default()
        };
        assert!(resumes_at(&of("webhook 0123456789abcdef"), true, true).is_none(), "a target has run it");
        assert!(resumes_at(&of("commit main"), true, true).is_some(), "it went to another place");
        assert_eq!(resumes("NoMarker", 0, &["Failed"]), Some(0));
        assert_eq!(resumes(TAMPERED, 0, &["Failed"]), None);
    }
}
