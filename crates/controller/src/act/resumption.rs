//! When a promotion that has ended as `Failed` starts again on its own. Pure.

use std::time::Duration;

use jiff::Timestamp;
use sluice_api::promotion::{Phase, PromotionStatus};
use sluice_core::promotion::{CALLBACK_FAILED, UNHEALTHY};

use crate::record::tampered::TAMPERED;

/// The first pause before a receiver is called again; it doubles with each round.
const FIRST_RECEIVER_PAUSE: Duration = Duration::from_secs(600);
/// The longest pause before a receiver that reported a failure is called again.
const MAX_PAUSE_AFTER_REPORT: Duration = Duration::from_secs(3600);
/// The longest pause before a receiver that reported no failure is called again: it may have started work that people do.
const MAX_PAUSE_WITHOUT_REPORT: Duration = Duration::from_secs(86_400);

/// When a promotion that has failed starts again on its own. If a receiver was called, and it reported a failure or the
/// targets do not run the revision, that is after a pause. It is immediately if the pipeline names another place than the
/// promotion was delivered to, or if the promotion failed before its delivery, which only earlier versions of Sluice
/// record. `None` if only a person starts it again.
pub(crate) fn resumes_at(
    status: &PromotionStatus,
    has_receiver: bool,
    has_moved: impl FnOnce() -> bool,
) -> Option<Timestamp> {
    let failed = **status.times.get("Failed").filter(|_| status.phase == Phase::Failed)?;
    let after_pause = || {
        let pause = FIRST_RECEIVER_PAUSE.saturating_mul(1 << status.round.min(16));
        failed.checked_add(pause.min(max_pause(&status.reason))).ok()
    };
    match &*status.reason {
        CALLBACK_FAILED => after_pause(),
        TAMPERED => None,
        _ if !status.times.contains_key("Delivered") || has_moved() => Some(failed),
        UNHEALTHY if has_receiver => after_pause(),
        _ => None,
    }
}

/// The longest pause before a promotion that has failed for this reason starts again.
pub(crate) fn max_pause(reason: &str) -> Duration {
    if reason == UNHEALTHY { MAX_PAUSE_WITHOUT_REPORT } else { MAX_PAUSE_AFTER_REPORT }
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
            resumes_at(&status, has_receiver, || has_moved).map(|at| at.duration_since(failed).as_mins())
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
        let without_report = |round| resumes_if(false, true, UNHEALTHY, round, &delivered);
        assert_eq!([0, 1, 7, 8, 99].map(without_report), [10, 20, 1280, 1440, 1440].map(Some));
        assert_eq!(resumes_if(false, true, TAMPERED, 0, &delivered), None);
        assert_eq!(resumes_if(true, true, UNHEALTHY, 0, &delivered), Some(0));
        assert_eq!(resumes_if(true, true, TAMPERED, 0, &delivered), None);
        assert_eq!(resumes("NoMarker", 0, &["Failed"]), Some(0));
        assert_eq!(resumes(TAMPERED, 0, &["Failed"]), None);
    }
}
