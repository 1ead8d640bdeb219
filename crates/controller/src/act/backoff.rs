//! When to ask a forge again how a change request is: often while it is new, ever more seldom as it
//! ages; and when to try again what has failed. Counted in ticks of this process' own clock, so that setting the wall clock does nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// When each change request is looked at next.
#[derive(Debug)]
pub struct Backoff {
    base: Duration,
    next: HashMap<String, Poll>,
    withdrawals: HashMap<String, (Instant, Duration)>,
    tries: HashMap<String, Try>,
    checks: HashMap<String, (Instant, Duration)>,
}

/// A delivery that has failed and is tried again.
#[derive(Debug, Default)]
struct Try {
    /// When it failed in this process.
    failed: Option<Instant>,
    /// When it is tried again, if that is not as its record says.
    due: Option<Instant>,
    /// What its pipeline's targets showed then, as a hash.
    shown: Option<u64>,
}

impl Try {
    /// When it may be tried again at the earliest.
    fn soonest(&self, now: Instant) -> Instant {
        self.failed.map_or(now, |failed| now.max(failed + LEAST_PAUSE))
    }
}

/// The least time between two tries, however often a pipeline's targets change in between.
const LEAST_PAUSE: Duration = Duration::from_secs(30);

/// The first pause before a look for a delivered commit is so many times that between looks at a new change
/// request. It doubles with each look.
const CHECK_PAUSE: u32 = 4;
/// The longest pause between two looks for a delivered commit.
const LONGEST_CHECK_PAUSE: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct Poll {
    since: Instant,
    looked: Instant,
    due: Instant,
    stale: Option<Staleness>,
    /// The head that it had, and since when.
    head: Option<(String, Instant)>,
}

/// The pause after a change request could not be closed; it doubles with each try.
const WITHDRAW_AGAIN: Duration = Duration::from_secs(10);
/// The longest pause between two tries to close one.
const WITHDRAW_SELDOM: Duration = Duration::from_secs(600);

/// The least time between two looks at a change request.
pub(crate) const BREATH: Duration = Duration::from_secs(2);

/// That a forge says of a change request that it cannot be merged as it is, without a break.
#[derive(Clone, Copy, Debug)]
struct Staleness {
    /// When it is to be made anew.
    due: Instant,
    /// How long to wait after that.
    pause: Duration,
}

/// How long a forge must say so: a busy one says it of every change request each time the base
/// moves, until it has looked.
const PATIENCE: Duration = Duration::from_secs(30);

/// So long after a push may the first check be a long time coming: what runs checks begins with them when it is told
/// of the push.
const SETTLED: Duration = Duration::from_secs(60);

impl Backoff {
    /// Looks at a new change request after `base`, and again after that.
    pub fn new(base: Duration) -> Self {
        let (withdrawals, tries, checks) = Default::default();
        Self { base, next: HashMap::new(), withdrawals, tries, checks }
    }

    /// When the change request of a promotion is to be looked at.
    pub fn due(&mut self, promotion: &str, now: Instant) -> Instant {
        self.next
            .entry(promotion.into())
            .or_insert(Poll { since: now, looked: now, due: now + self.base, stale: None, head: None })
            .due
    }

    /// Takes note that it was looked at.
    pub fn looked(&mut self, promotion: &str, now: Instant) {
        let base = self.base;
        if let Some(poll) = self.next.get_mut(promotion) {
            poll.looked = now;
            poll.due = now + pause(base, now.duration_since(poll.since));
        }
    }

    /// Has it looked at now, since its forge says that something became of it; but not more often than
    /// every few seconds, however often that is said.
    pub fn look_soon(&mut self, promotion: &str, now: Instant) {
        if let Some(poll) = self.next.get_mut(promotion) {
            poll.due = poll.due.min(now.max(poll.looked + BREATH));
        }
    }

    /// Has a failed delivery tried again soon, also one that failed before this process began.
    pub fn try_soon(&mut self, promotion: &str, now: Instant) {
        let waits = self.tries.entry(promotion.into()).or_default();
        let soon = waits.soonest(now);
        waits.due = Some(waits.due.map_or(soon, |due| due.min(soon)));
    }

    /// Takes note whether the forge said that the change request cannot be merged as it is, and says whether
    /// it is to be made anew: when it was said for a while without a break, and then ever more seldom.
    pub fn stale(&mut self, promotion: &str, stale: bool, now: Instant) -> bool {
        let Some(poll) = self.next.get_mut(promotion) else { return false };
        if !stale {
            poll.stale = None;
            return false;
        }
        let stale = poll.stale.get_or_insert(Staleness { due: now + PATIENCE, pause: PATIENCE });
        let due = stale.due <= now;
        if due {
            stale.pause *= 2;
            stale.due = now + stale.pause;
        }
        due
    }

    /// Takes note of the head that was pushed, and says whether that was so long ago that checks of it would
    /// have begun to report.
    pub fn checks_settled(&mut self, promotion: &str, head: &str, now: Instant) -> bool {
        let Some(poll) = self.next.get_mut(promotion) else { return false };
        match &poll.head {
            Some((known, since)) if known == head => now.duration_since(*since) >= SETTLED,
            _ => {
                poll.head = Some((head.into(), now));
                false
            }
        }
    }

    /// Until when the next try to close a promotion's change request waits, if it does.
    pub fn withdrawal_waits(&self, promotion: &str, now: Instant) -> Option<Instant> {
        self.withdrawals.get(promotion).map(|(due, _)| *due).filter(|due| *due > now)
    }

    /// Takes note of a try to close it: the next one, should this one fail, comes later each time.
    pub fn withdrawing(&mut self, promotion: &str, now: Instant) {
        let (due, pause) = self.withdrawals.entry(promotion.into()).or_insert((now, WITHDRAW_AGAIN));
        *due = now + *pause;
        *pause = (*pause * 2).min(WITHDRAW_SELDOM);
    }

    /// Whether a promotion's change request could not be closed for so long that it is tried seldom now.
    pub fn has_long_been_withdrawing(&self, promotion: &str) -> bool {
        self.withdrawals.get(promotion).is_some_and(|(_, pause)| *pause >= WITHDRAW_SELDOM)
    }

    /// A delivery has failed, and is retried after a pause.
    pub fn failed(&mut self, promotion: &str, now: Instant, pause: Duration) {
        self.tries.insert(promotion.into(), Try { failed: Some(now), due: Some(now + pause), shown: None });
    }

    /// Has a delivery that has failed tried again now: its owner has changed the pipeline.
    pub fn try_now(&mut self, promotion: &str, now: Instant) {
        self.tries.entry(promotion.into()).or_default().due = Some(now);
    }

    /// Takes note of what the targets of a pipeline show while a delivery waits for its next try. If they
    /// show something else than before, somebody may have corrected what it failed by, and it is tried again
    /// soon. Says whether that is sooner than before.
    pub fn saw(&mut self, promotion: &str, shown: u64, now: Instant) -> bool {
        let waits = self.tries.entry(promotion.into()).or_default();
        if waits.shown.replace(shown).is_none_or(|before| before == shown) {
            return false;
        }
        let soon = waits.soonest(now);
        let is_sooner = waits.due.is_none_or(|due| soon < due);
        if is_sooner {
            waits.due = Some(soon);
        }
        is_sooner
    }

    /// When the branch that a promotion was delivered to is looked at for its commit.
    pub fn check_due(&mut self, promotion: &str, now: Instant) -> Instant {
        let pause = self.base * CHECK_PAUSE;
        self.checks.entry(promotion.into()).or_insert((now + pause, pause)).0
    }

    /// Takes note that it is looked at: the next look comes later each time.
    pub fn checking(&mut self, promotion: &str, now: Instant) {
        if let Some((due, pause)) = self.checks.get_mut(promotion) {
            *pause = (*pause * 2).min(LONGEST_CHECK_PAUSE);
            *due = now + *pause;
        }
    }

    /// When a promotion is tried again, by the wall clock as it is now: its record says so by the wall
    /// clock as it was when it failed, and that may have been set since.
    pub fn next_try(&self, promotion: &str, recorded: Timestamp, now: (Timestamp, Instant)) -> Timestamp {
        let due = self.tries.get(promotion).and_then(|waits| waits.due);
        let pause = due.map(|due| due.saturating_duration_since(now.1));
        pause.and_then(|pause| now.0.checked_add(pause).ok()).unwrap_or(recorded)
    }

    /// Forgets a promotion whose change request is of no interest any more.
    pub fn forget(&mut self, promotion: &str) {
        self.next.remove(promotion);
        self.withdrawals.remove(promotion);
        self.tries.remove(promotion);
        self.checks.remove(promotion);
    }
}

/// The pause between two looks at a change request of this age.
fn pause(base: Duration, age: Duration) -> Duration {
    const HOUR: Duration = Duration::from_secs(3600);
    match age {
        age if age < HOUR / 4 => base,
        age if age < 4 * HOUR => base * 2,
        age if age < 24 * HOUR => base * 6,
        _ => base * 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_seldom_with_age_and_end_with_interest() {
        let start = Instant::now();
        let mut backoff = Backoff::new(Duration::from_secs(30));
        assert_eq!(backoff.due("a", start), start + Duration::from_secs(30));
        let mut now = start;
        let mut looks = 0;
        while now < start + Duration::from_secs(24 * 3600) {
            now = backoff.due("a", now);
            backoff.looked("a", now);
            looks += 1;
        }
        // 12 an hour is what a peer spends on each open change request, for ever.
        assert!(looks < 700, "{looks} looks in the first day");
        assert_eq!(backoff.due("a", now) - now, Duration::from_secs(600));
        backoff.forget("a");
        backoff.due("a", now);
        let mut made = 0;
        for second in 0..600 {
            let at = now + Duration::from_secs(second);
            made += u32::from(backoff.stale("a", true, at));
            // One good word in between, and it starts over.
            assert!(second != 20 || !backoff.stale("a", false, at));
        }
        assert_eq!(made, 4);
        backoff.forget("a");
        assert_eq!(backoff.due("a", now), now + Duration::from_secs(30));
    }

    #[test]
    fn a_clock_that_is_set_back_by_an_hour_delays_no_try() {
        let (start, mut backoff) = (Instant::now(), Backoff::new(Duration::from_secs(30)));
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (recorded, set_back) = (at("2026-01-02T04:00:10Z"), at("2026-01-02T03:00:00Z"));
        // Another process has seen it fail: there is nothing but the record.
        assert_eq!(backoff.next_try("a", recorded, (set_back, start)), recorded);
        backoff.failed("a", start, Duration::from_secs(10));
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(backoff.next_try("a", recorded, (set_back, after(4))), at("2026-01-02T03:00:06Z"));
        assert_eq!(backoff.next_try("a", recorded, (set_back, after(20))), set_back);
        backoff.forget("a");
        assert_eq!(backoff.next_try("a", recorded, (set_back, after(4))), recorded);
    }

    #[test]
    fn a_change_at_the_targets_ends_a_pause_and_not_more_than_twice_a_minute() {
        let (start, mut backoff) = (Instant::now(), Backoff::new(Duration::from_secs(30)));
        let at = |seconds| start + Duration::from_secs(seconds);
        let clock: Timestamp = "2026-01-02T03:00:00Z".parse().unwrap();
        let recorded = clock + jiff::SignedDuration::from_secs(1800);
        let mut tries = 0;
        for second in 0..600 {
            // They change every second.
            backoff.saw("a", second, at(second));
            if backoff.next_try("a", recorded, (clock, at(second))) <= clock {
                tries += 1;
                backoff.forget("a");
                backoff.tries.insert(
                    "a".into(),
                    Try { failed: Some(at(second)), due: Some(at(second + 1800)), shown: None },
                );
            }
        }
        assert!((15..=21).contains(&tries), "{tries} tries in ten minutes");
    }

    #[test]
    fn a_delivered_commit_is_looked_for_ever_more_seldom() {
        let (start, mut backoff) = (Instant::now(), Backoff::new(Duration::from_secs(30)));
        assert_eq!(backoff.check_due("a", start), start + Duration::from_secs(120));
        let mut looks = 0;
        for second in 0..24 * 3600 {
            let now = start + Duration::from_secs(second);
            if backoff.check_due("a", now) <= now {
                backoff.checking("a", now);
                looks += 1;
            }
        }
        assert!((25..=32).contains(&looks), "{looks} looks in a day");
        backoff.forget("a");
        assert_eq!(backoff.check_due("a", start), start + Duration::from_secs(120));
    }

    #[test]
    fn a_word_of_the_forge_has_it_looked_at_now_and_not_without_end() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(30 * second);
        backoff.look_soon("a", start);
        assert_eq!(backoff.due("a", start), start + 30 * second);
        backoff.look_soon("a", start + 5 * second);
        assert_eq!(backoff.due("a", start), start + 5 * second);
        backoff.looked("a", start + 5 * second);
        for _ in 0..100 {
            backoff.look_soon("a", start + 6 * second);
        }
        assert_eq!(backoff.due("a", start), start + 7 * second);
        backoff.looked("a", start + 7 * second);
        // It is asked about as before when nobody says anything.
        assert_eq!(backoff.due("a", start), start + 37 * second);
    }

    #[test]
    fn a_word_of_the_forge_has_a_failed_delivery_tried_soon_and_not_at_once() {
        let second = Duration::from_secs(1);
        let (mut backoff, start) = (Backoff::new(30 * second), Instant::now());
        backoff.try_soon("before", start);
        assert_eq!(backoff.tries["before"].due, Some(start), "it failed before this process began");
        backoff.failed("a", start, 600 * second);
        backoff.try_soon("a", start);
        let due = backoff.tries["a"].due.unwrap();
        assert!(due >= start + LEAST_PAUSE && due < start + 60 * second);
    }

    #[test]
    fn a_head_is_settled_a_minute_after_it_was_first_seen() {
        let (start, mut backoff) = (Instant::now(), Backoff::new(Duration::from_secs(30)));
        let at = |seconds| start + Duration::from_secs(seconds);
        backoff.due("a", start);
        for (seconds, head, settled) in [
            (30, "x", false),
            (89, "x", false),
            (90, "x", true),
            (91, "y", false),
            (150, "y", false),
            (151, "y", true),
        ] {
            assert_eq!(backoff.checks_settled("a", head, at(seconds)), settled, "{seconds} {head}");
        }
        assert!(!backoff.checks_settled("b", "x", at(1000)), "nobody follows it");
    }

    #[test]
    fn closing_is_tried_ever_more_seldom() {
        let start = Instant::now();
        let mut backoff = Backoff::new(Duration::from_secs(30));
        let mut tries = 0;
        for second in 0..24 * 3600 {
            let now = start + Duration::from_secs(second);
            if backoff.withdrawal_waits("a", now).is_none() {
                backoff.withdrawing("a", now);
                tries += 1;
            }
        }
        assert!((140..160).contains(&tries), "{tries} tries in a day");
        assert!(backoff.has_long_been_withdrawing("a"));
        backoff.forget("a");
        assert_eq!(backoff.withdrawal_waits("a", start), None);
    }
}
