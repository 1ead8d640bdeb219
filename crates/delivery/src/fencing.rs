//! Permission for side effects that others can see, and its end. The end is a time of the clock, so a process that was
//! stopped and continues later finds on its own that its permission has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::error::DeliveryError;

/// Permission for the side effects of one delivery. It can be revoked while the delivery runs: side effects that have
/// not happened by then do not happen any more.
#[derive(Clone, Debug)]
pub struct FencingToken {
    revoked: Arc<AtomicBool>,
    term: LeaseTerm,
}

impl FencingToken {
    /// A token that is valid within a lease term.
    pub fn within(term: LeaseTerm) -> Self {
        FencingToken { revoked: Arc::default(), term }
    }

    /// Revokes the token, and all its clones.
    pub fn revoke(&self) {
        self.revoked.store(true, Ordering::SeqCst);
    }

    /// Checks that the token is valid.
    ///
    /// # Errors
    /// When the token was revoked, or its lease term has ended.
    pub fn check(&self) -> Result<(), DeliveryError> {
        let is_valid = !self.revoked.load(Ordering::SeqCst) && self.term.runs();
        if is_valid { Ok(()) } else { Err(DeliveryError::Revoked) }
    }

    /// Waits until the token is not valid any more.
    pub(crate) async fn invalid(&self) {
        while self.check().is_ok() {
            tokio::time::sleep(END_CHECK_INTERVAL).await;
        }
    }

    /// The lease term of the token.
    pub fn term(&self) -> &LeaseTerm {
        &self.term
    }
}

impl Default for FencingToken {
    /// A token that is valid until it is revoked.
    fn default() -> Self {
        FencingToken::within(LeaseTerm::unlimited())
    }
}

/// Time since the machine was started. Nobody sets this clock, and it counts while the process is
/// stopped and while the machine sleeps (`CLOCK_BOOTTIME`, clock_gettime(2)). The clock of `std` does not count
/// sleep on Linux.
pub fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// The time for which a replica may act. The lease manager extends or ends it, and all clones see that immediately. A
/// term that has ended does not begin again.
#[derive(Clone, Debug)]
pub struct LeaseTerm(Arc<AtomicU64>);

/// Instead of a time: the term has ended.
const ENDED: u64 = 0;
/// Instead of a time: the term has no end.
const NEVER: u64 = u64::MAX;
/// How often [`LeaseTerm::over`] checks whether the term was ended early, and [`FencingToken::invalid`] the token.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl LeaseTerm {
    /// A term until a time of [`since_boot`].
    pub fn until(end: Duration) -> Self {
        LeaseTerm(Arc::new(AtomicU64::new(milliseconds(end))))
    }

    /// A term until [`LeaseTerm::end`].
    pub fn unlimited() -> Self {
        LeaseTerm(Arc::new(AtomicU64::new(NEVER)))
    }

    /// Moves the end of the term, and returns whether that was possible. A term that has ended stays ended: side
    /// effects that were rejected since would not be tried again.
    #[must_use]
    pub fn extend(&self, end: Duration) -> bool {
        let moved = |at: u64| (at > milliseconds(since_boot())).then(|| milliseconds(end));
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved).is_ok()
    }

    /// Ends the term.
    pub fn end(&self) {
        self.0.store(ENDED, Ordering::SeqCst);
    }

    /// Whether the term has not ended.
    pub fn runs(&self) -> bool {
        self.runs_at(since_boot())
    }

    /// Whether the term has not ended at a time since boot.
    pub fn runs_at(&self, now: Duration) -> bool {
        !self.left(now).is_zero()
    }

    /// How long the term runs from a time on.
    fn left(&self, now: Duration) -> Duration {
        let end = self.0.load(Ordering::SeqCst);
        Duration::from_millis(end.saturating_sub(milliseconds(now)))
    }

    /// Waits until the term has ended.
    pub async fn over(&self) {
        loop {
            let left = self.left(since_boot());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(END_CHECK_INTERVAL)).await;
        }
    }
}

/// Rounded down, so that a term does not end too late.
fn milliseconds(moment: Duration) -> u64 {
    u64::try_from(moment.as_millis()).unwrap_or(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_at_its_time_and_can_be_extended_until_then() {
        let second = Duration::from_secs(1);
        let term = LeaseTerm::until(since_boot() + 60 * second);
        let token = FencingToken::within(term.clone());
        assert!(token.check().is_ok());
        assert!(term.extend(since_boot() + 120 * second) && token.check().is_ok());
        token.revoke();
        assert!(token.check().is_err() && FencingToken::within(term.clone()).check().is_ok());
        let token = FencingToken::within(term.clone());
        assert!(term.extend(since_boot().saturating_sub(second)));
        assert!(!term.runs() && matches!(token.check(), Err(DeliveryError::Revoked)));
        // No other replica can have acted; but side effects that were rejected in between need a new term.
        assert!(!term.extend(since_boot() + 60 * second) && token.check().is_err());
        let term = LeaseTerm::until(since_boot() + 60 * second);
        term.end();
        assert!(!term.extend(since_boot() + 60 * second) && !term.runs());
        assert!(FencingToken::default().check().is_ok());
    }

    #[test]
    fn a_term_never_lasts_longer_than_granted() {
        let end = Duration::from_micros(10_999_900);
        let term = LeaseTerm::until(end);
        assert!(!term.left(Duration::from_millis(10_998)).is_zero());
        assert!(term.left(Duration::from_micros(10_999_000)).is_zero());
    }
}
