//! How long a failed delivery waits before it is tried again. Pure. When a promotion that has ended as `Failed` starts again is
//! in `resumption.rs`.

use std::time::Duration;

use jiff::Timestamp;
use sluice_delivery::{DeliveryError, Retry};

use super::{ActError, RATE_LIMITED};

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

/// When a delivery is tried again that failed with this error, after `attempts` failures before.
pub(crate) fn next_try(error: &ActError, attempts: u32, now: Timestamp) -> Timestamp {
    let in_pause = |first: Duration, longest: Duration| {
        let pause = first.saturating_mul(2u32.saturating_pow(attempts.min(16))).min(longest);
        now.checked_add(pause).unwrap_or(now)
    };
    match error {
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
    }
}

#[cfg(test)]
mod tests {
    use sluice_api::secret_use::SecretUse;
    use sluice_delivery::{EditError, GitError};

    use super::*;
    use crate::secret;

    fn pauses(error: &ActError) -> Vec<i64> {
        let now = Timestamp::constant(1_800_000_000, 0);
        let pause = |attempts| next_try(error, attempts, now).duration_since(now).as_secs();
        [0, 1, 5, 40].map(pause).into()
    }

    #[test]
    fn every_failure_is_retried_after_a_bounded_pause() {
        let marker = EditError::NoMarker {
            repository: "r".into(),
            branch: "b".into(),
            marker: "m".into(),
            similar: None,
        };
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
