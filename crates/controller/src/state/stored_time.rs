//! Times that objects store, corrected by this process. A stored time comes from another clock, or from this one
//! before it was set, and may be a day ahead. It is limited when it is first read, and counted down by the
//! monotonic clock from then on, so that no wrong clock and no setting of a clock delays anything. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::pipeline_key::PromotionKey;

/// A stored time of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeField {
    /// `status.nextAttempt`.
    NextAttempt,
    /// `status.times.Delivered`.
    Delivered,
}

/// The stored times that were read, by promotion.
#[derive(Debug, Default)]
pub struct StoredTimes {
    known: HashMap<(PromotionKey, TimeField), KnownTime>,
}

#[derive(Debug)]
struct KnownTime {
    stored: Timestamp,
    /// How far ahead it was when it was first read, limited; negative if it was past.
    ahead: SignedDuration,
    /// When it was first read.
    since: Instant,
    /// The correction that is added to the stored time.
    shift: SignedDuration,
}

/// Smaller differences between the clocks are not corrected, so that shown times stay the same.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

impl StoredTimes {
    /// Returns a stored time by the wall clock as it is `now`. When it is first read, it counts as at most
    /// `longest` ahead.
    pub fn read(
        &mut self,
        promotion: &PromotionKey,
        field: TimeField,
        stored: Timestamp,
        longest: Duration,
        now: (Timestamp, Instant),
    ) -> Timestamp {
        let longest = SignedDuration::try_from(longest).unwrap_or(SignedDuration::MAX);
        let first = || KnownTime {
            stored,
            ahead: stored.duration_since(now.0).min(longest),
            since: now.1,
            shift: SignedDuration::ZERO,
        };
        let known = self.known.entry((promotion.clone(), field)).or_insert_with(first);
        if known.stored != stored {
            *known = first();
        }
        let elapsed = SignedDuration::try_from(now.1.duration_since(known.since));
        let ahead = known.ahead.saturating_sub(elapsed.unwrap_or(SignedDuration::MAX));
        let shift = now.0.duration_since(stored).saturating_add(ahead);
        if shift.saturating_sub(known.shift).abs() > TOLERANCE {
            known.shift = shift;
        }
        stored.checked_add(known.shift).unwrap_or(stored)
    }

    /// Forgets the times of a promotion.
    pub fn forget(&mut self, promotion: &PromotionKey) {
        for field in [TimeField::NextAttempt, TimeField::Delivered] {
            self.known.remove(&(promotion.clone(), field));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PromotionKey {
        PromotionKey { namespace: "apps".into(), name: name.into() }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const LONGEST: Duration = Duration::from_secs(300);

    #[test]
    fn a_time_of_a_clock_that_is_a_day_ahead_comes_as_soon_as_the_policy_allows() {
        let (mut times, start) = (StoredTimes::default(), Instant::now());
        let (now, stored) = (at("2026-01-02T03:00:00Z"), at("2026-01-03T03:00:10Z"));
        let due = at("2026-01-02T03:05:00Z");
        for seconds in [0, 1, 7, 299, 300] {
            let moment = now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
            let read = times.read(
                &key("a"),
                TimeField::NextAttempt,
                stored,
                LONGEST,
                (moment, start + Duration::from_secs(seconds as u64)),
            );
            assert_eq!(read, due, "{seconds} seconds later");
        }
        // A different stored time, or another promotion, starts a new count.
        let later = (at("2026-01-02T03:06:00Z"), start + Duration::from_secs(360));
        let other = at("2026-01-02T03:06:30Z");
        assert_eq!(times.read(&key("a"), TimeField::NextAttempt, other, LONGEST, later), other);
        assert_eq!(
            times.read(&key("b"), TimeField::NextAttempt, stored, LONGEST, later),
            at("2026-01-02T03:11:00Z")
        );
        times.forget(&key("a"));
        assert_eq!(times.known.len(), 1);
    }

    #[test]
    fn a_clock_that_is_set_changes_no_pause() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let stored = at("2026-01-02T04:00:10Z");
        // Ten seconds before it is due the clock is set back by an hour, or ahead by a day.
        for (wall, due) in [
            ("2026-01-02T03:00:04Z", "2026-01-02T03:00:10Z"),
            ("2026-01-03T04:00:04Z", "2026-01-03T04:00:10Z"),
        ] {
            let mut times = StoredTimes::default();
            let first = (at("2026-01-02T04:00:00Z"), start);
            assert_eq!(times.read(&key("a"), TimeField::NextAttempt, stored, LONGEST, first), stored);
            assert_eq!(
                times.read(&key("a"), TimeField::NextAttempt, stored, LONGEST, (at(wall), after(4))),
                at(due)
            );
        }
    }

    #[test]
    fn a_past_time_is_never_later_than_now() {
        let (mut times, start) = (StoredTimes::default(), Instant::now());
        let stored = at("2026-01-03T03:00:00Z");
        let first = times.read(
            &key("a"),
            TimeField::Delivered,
            stored,
            Duration::ZERO,
            (at("2026-01-02T03:00:00Z"), start),
        );
        assert_eq!(first, at("2026-01-02T03:00:00Z"));
        // Half an hour later it is half an hour ago, although the stored time is still ahead.
        let now = (at("2026-01-02T03:30:00Z"), start + Duration::from_secs(1800));
        assert_eq!(times.read(&key("a"), TimeField::Delivered, stored, Duration::ZERO, now), first);
        // Small differences between clocks are ignored.
        let near = at("2026-01-02T03:30:01Z");
        assert_eq!(times.read(&key("b"), TimeField::Delivered, near, Duration::ZERO, now), near);
    }
}
