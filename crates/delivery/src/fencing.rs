//! Leave to do what others can see, and until when. The end is a moment of the clock and not only a
//! word that somebody will say: a process that was stopped, and goes on where it was, finds by
//! itself that its time is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::error::DeliveryError;

/// Leave to do what others can see. It may be taken back while a delivery is under way; what has not
/// been done by then is not done any more.
#[derive(Clone, Debug)]
pub struct FencingToken {
    revoked: Arc<AtomicBool>,
    term: LeaseTerm,
}

impl FencingToken {
    /// One that stands within a term.
    pub fn within(term: LeaseTerm) -> Self {
        FencingToken { revoked: Arc::default(), term }
    }

    /// Takes it back, for everybody who holds it.
    pub fn revoke(&self) {
        self.revoked.store(true, Ordering::SeqCst);
    }

    /// Whether it still stands.
    ///
    /// # Errors
    /// When it has been taken back, or its term is over.
    pub fn check(&self) -> Result<(), DeliveryError> {
        let stands = !self.revoked.load(Ordering::SeqCst) && self.term.runs();
        if stands { Ok(()) } else { Err(DeliveryError::Revoked) }
    }

    /// The term that it stands within.
    pub fn term(&self) -> &LeaseTerm {
        &self.term
    }
}

impl Default for FencingToken {
    /// One that stands until it is taken back.
    fn default() -> Self {
        FencingToken::within(LeaseTerm::unlimited())
    }
}

/// Time since the machine was started. Nobody sets this clock, and it counts while the process is
/// stopped and while the machine sleeps (`CLOCK_BOOTTIME`, clock_gettime(2)); `std`'s does not count
/// the latter on Linux.
pub fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// The time for which somebody may act. Whoever granted it extends or ends it; everybody who holds it
/// sees that at once. One that is over does not begin again.
#[derive(Clone, Debug)]
pub struct LeaseTerm(Arc<AtomicU64>);

/// In place of a moment: it is over for good.
const ENDED: u64 = 0;
/// In place of a moment: it has no end.
const NEVER: u64 = u64::MAX;
/// How often it is looked whether a term has been ended before its time.
const LOOK: Duration = Duration::from_millis(100);

impl LeaseTerm {
    /// One that runs until a moment of [`since_boot`].
    pub fn until(end: Duration) -> Self {
        LeaseTerm(Arc::new(AtomicU64::new(milliseconds(end))))
    }

    /// One that runs until it is ended.
    pub fn unlimited() -> Self {
        LeaseTerm(Arc::new(AtomicU64::new(NEVER)))
    }

    /// Has it run until another moment, and says whether it does. One that is over, by a word or by the
    /// clock, does not go on: what was held back since would not be begun anew.
    #[must_use]
    pub fn extend(&self, end: Duration) -> bool {
        let moved = |at: u64| (at > milliseconds(since_boot())).then(|| milliseconds(end));
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved).is_ok()
    }

    /// Ends it, for good.
    pub fn end(&self) {
        self.0.store(ENDED, Ordering::SeqCst);
    }

    /// Whether it runs now.
    pub fn runs(&self) -> bool {
        !self.left(since_boot()).is_zero()
    }

    /// How long it runs from a moment on.
    fn left(&self, now: Duration) -> Duration {
        let end = self.0.load(Ordering::SeqCst);
        Duration::from_millis(end.saturating_sub(milliseconds(now)))
    }

    /// Waits until it is over.
    pub async fn over(&self) {
        loop {
            let left = self.left(since_boot());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }
}

/// Rounded down: a term ends rather too early than too late.
fn milliseconds(moment: Duration) -> u64 {
    u64::try_from(moment.as_millis()).unwrap_or(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_by_itself_and_may_be_extended_but_not_begun_again() {
        let second = Duration::from_secs(1);
        let term = LeaseTerm::until(since_boot() + 60 * second);
        let permit = FencingToken::within(term.clone());
        assert!(permit.check().is_ok());
        assert!(term.extend(since_boot() + 120 * second) && permit.check().is_ok());
        permit.revoke();
        assert!(permit.check().is_err() && FencingToken::within(term.clone()).check().is_ok());
        let permit = FencingToken::within(term.clone());
        assert!(term.extend(since_boot().saturating_sub(second)));
        assert!(!term.runs() && matches!(permit.check(), Err(DeliveryError::Revoked)));
        // Nobody else can have had it; but what was held back in between is found by a new term only.
        assert!(!term.extend(since_boot() + 60 * second) && permit.check().is_err());
        let term = LeaseTerm::until(since_boot() + 60 * second);
        term.end();
        assert!(!term.extend(since_boot() + 60 * second) && !term.runs());
        assert!(FencingToken::default().check().is_ok());
    }

    #[test]
    fn a_term_never_lasts_longer_than_it_was_granted() {
        let end = Duration::from_micros(10_999_900);
        let term = LeaseTerm::until(end);
        assert!(!term.left(Duration::from_millis(10_998)).is_zero());
        assert!(term.left(Duration::from_micros(10_999_000)).is_zero());
    }
}
