//! Decides when a change request is polled next: often while it is new, and less often as it ages. Also decides when a
//! failed delivery or a failed close is retried, and when a branch is checked for a lost commit. All times are of the
//! monotonic clock, so setting the wall clock changes no pause. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sluice_delivery::ReportedChecks;

use super::check_reads::CheckReads;
use crate::pipeline_key::PromotionKey;
use crate::secret::SecretVersion;

/// The next poll, retry, close and check of each promotion.
#[derive(Debug)]
pub struct Schedule {
    poll_interval: Duration,
    polls: HashMap<PromotionKey, Poll>,
    /// When Sluice may try again to close the change request, and the pause after that try.
    withdrawals: HashMap<PromotionKey, (Instant, Duration)>,
    retries: HashMap<PromotionKey, RetryTime>,
    /// When the branch is checked for the delivered commit, and the pause before that check.
    lost_commit_checks: HashMap<PromotionKey, (Instant, Duration)>,
    /// Until when a promotion waits for the last look at its branch before it ends; `None` if the look is over.
    last_checks: HashMap<PromotionKey, Option<Instant>>,
}

/// A failed delivery that is retried.
#[derive(Debug, Default)]
struct RetryTime {
    /// When it failed, if it failed in this process.
    failed: Option<Instant>,
    /// When it is retried, if that differs from the time in its record.
    due: Option<Instant>,
    /// A hash of what the pipeline's targets showed when they were last observed.
    targets_hash: Option<u64>,
    /// The version of the Secret that the delivery used, if it is known.
    secret: Option<SecretVersion>,
    /// When the Secret is read again.
    secret_due: Option<Instant>,
}

impl RetryTime {
    /// The earliest time of a retry.
    fn earliest(&self, now: Instant) -> Instant {
        self.failed.map_or(now, |failed| now.max(failed + MIN_RETRY_PAUSE))
    }

    /// Brings the retry forward to the earliest time. Returns true if that is sooner than before.
    fn bring_forward(&mut self, now: Instant) -> bool {
        let soon = self.earliest(now);
        let is_sooner = self.due.is_none_or(|due| soon < due);
        if is_sooner {
            self.due = Some(soon);
        }
        is_sooner
    }
}

/// The least time between two tries, even if a pipeline's targets change more often.
const MIN_RETRY_PAUSE: Duration = Duration::from_secs(30);

/// The pause between two reads of the Secret of a failed delivery.
const SECRET_READ_PAUSE: Duration = Duration::from_secs(30);

/// The first pause before a check for a delivered commit, in poll intervals. It doubles with each check.
const FIRST_LOST_COMMIT_PAUSE: u32 = 4;
/// The longest pause between two checks for a delivered commit.
const MAX_LOST_COMMIT_PAUSE: Duration = Duration::from_secs(3600);

/// The polls of a change request.
#[derive(Debug)]
struct Poll {
    first: Instant,
    last: Instant,
    due: Instant,
    /// How many polls in a row were looks at a change request that Sluice wanted to close, and keeps.
    looks: u32,
    outdated: Option<Outdated>,
    /// The head commit, and when it was first seen.
    head: Option<(String, Instant)>,
    /// The reads of its checks.
    checks: Option<CheckReads>,
}

/// The first pause after a change request could not be closed. It doubles with each try.
const FIRST_WITHDRAWAL_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause between two tries to close a change request.
const MAX_WITHDRAWAL_PAUSE: Duration = Duration::from_secs(600);

/// The least time between two polls of a change request.
pub(crate) const MIN_POLL_PAUSE: Duration = Duration::from_secs(2);
/// The most looks that make the pause before the next one longer.
const MAX_LOOKS: u32 = 10;

/// A change request that its forge has reported as outdated in every poll since a time.
#[derive(Clone, Copy, Debug)]
struct Outdated {
    /// When it is rebuilt.
    due: Instant,
    /// The pause after that rebuild.
    pause: Duration,
}

/// How long a forge must report a change request as outdated before it is rebuilt. A busy forge reports all change
/// requests as outdated after each commit to the base, until it has checked them.
const MIN_OUTDATED_TIME: Duration = Duration::from_secs(30);

/// How long after a push the first check may take to report. CI systems report a check as soon as they learn of
/// the push.
const FIRST_CHECK_TIMEOUT: Duration = Duration::from_secs(60);

impl Schedule {
    /// Polls new change requests at this interval.
    pub fn new(poll_interval: Duration) -> Self {
        let (polls, withdrawals, retries, lost_commit_checks, last_checks) = Default::default();
        Self { poll_interval, polls, withdrawals, retries, lost_commit_checks, last_checks }
    }

    /// When the change request of a promotion is polled next.
    pub fn poll_due(&mut self, promotion: &PromotionKey, now: Instant) -> Instant {
        let due = now + self.poll_interval;
        let first =
            || Poll { first: now, last: now, due, looks: 0, outdated: None, head: None, checks: None };
        self.polls.entry(promotion.clone()).or_insert_with(first).due
    }

    /// Notes that the change request is polled now; `is_look` if that is because of [`Schedule::look_due`].
    pub fn polled(&mut self, promotion: &PromotionKey, is_look: bool, now: Instant) {
        if let Some(poll) = self.polls.get_mut(promotion) {
            poll.looks = if is_look { (poll.looks + 1).min(MAX_LOOKS) } else { 0 };
            poll.last = now;
            poll.due = now + poll_pause(self.poll_interval, now.duration_since(poll.first));
        }
    }

    /// When the change request of a promotion is looked at that Sluice wanted to close, and keeps now: soon, and after growing
    /// pauses while its forge does not answer.
    pub fn look_due(&mut self, promotion: &PromotionKey, now: Instant) -> Instant {
        let due = self.poll_due(promotion, now);
        let Some(poll) = self.polls.get_mut(promotion) else { return due };
        let pause = MIN_POLL_PAUSE.saturating_mul(2_u32.saturating_pow(poll.looks));
        poll.due = due.min(now.max(poll.last + pause));
        poll.due
    }

    /// Polls the change request now, because its forge has reported a change. Two polls are at least [`MIN_POLL_PAUSE`]
    /// apart.
    pub fn poll_soon(&mut self, promotion: &PromotionKey, now: Instant) {
        if let Some(poll) = self.polls.get_mut(promotion) {
            poll.due = poll.due.min(now.max(poll.last + MIN_POLL_PAUSE));
            poll.checks.iter_mut().for_each(|checks| checks.hurry(now));
        }
    }

    /// Whether a poll that starts now also reads the checks of the head, for people.
    pub(crate) fn starts_check_read(&mut self, promotion: &PromotionKey, head: &str, now: Instant) -> bool {
        let Some(poll) = self.polls.get_mut(promotion) else { return false };
        if poll.checks.as_ref().is_none_or(|checks| !checks.is_of(head)) {
            poll.checks = Some(CheckReads::of(head, self.poll_interval, now));
        }
        poll.checks.as_mut().is_some_and(|checks| checks.starts(now))
    }

    /// Notes the checks that a poll has read.
    pub(crate) fn checks_read(&mut self, promotion: &PromotionKey, found: &ReportedChecks) {
        if let Some(checks) = self.polls.get_mut(promotion).and_then(|poll| poll.checks.as_mut()) {
            checks.ended(found);
        }
    }

    /// Retries a failed delivery soon, also one that failed before this process started.
    pub fn retry_soon(&mut self, promotion: &PromotionKey, now: Instant) {
        self.retries.entry(promotion.clone()).or_default().bring_forward(now);
    }

    /// Notes whether the forge reports the change request as outdated. Returns true if it must be rebuilt now. The
    /// first rebuild is due when the forge has reported the change request as outdated for [`MIN_OUTDATED_TIME`]. The
    /// pause doubles after each rebuild.
    pub fn is_rebuild_due(&mut self, promotion: &PromotionKey, is_outdated: bool, now: Instant) -> bool {
        let Some(poll) = self.polls.get_mut(promotion) else { return false };
        if !is_outdated {
            poll.outdated = None;
            return false;
        }
        let first = Outdated { due: now + MIN_OUTDATED_TIME, pause: MIN_OUTDATED_TIME };
        let outdated = poll.outdated.get_or_insert(first);
        let is_due = outdated.due <= now;
        if is_due {
            outdated.pause *= 2;
            outdated.due = now + outdated.pause;
        }
        is_due
    }

    /// Notes the head commit. Returns true if its first check has had enough time to report.
    pub fn checks_settled(&mut self, promotion: &PromotionKey, head: &str, now: Instant) -> bool {
        let Some(poll) = self.polls.get_mut(promotion) else { return false };
        match &poll.head {
            Some((known, since)) if known == head => now.duration_since(*since) >= FIRST_CHECK_TIMEOUT,
            _ => {
                poll.head = Some((head.into(), now));
                false
            }
        }
    }

    /// When the change request may be closed again; `None` if it may be now.
    pub fn withdrawal_due(&self, promotion: &PromotionKey, now: Instant) -> Option<Instant> {
        self.withdrawals.get(promotion).map(|(due, _)| *due).filter(|due| *due > now)
    }

    /// Notes a try to close the change request. If it fails, the next try comes after a doubled pause.
    pub fn withdrawal_started(&mut self, promotion: &PromotionKey, now: Instant) {
        let (due, pause) = self.withdrawals.entry(promotion.clone()).or_insert((now, FIRST_WITHDRAWAL_PAUSE));
        *due = now + *pause;
        *pause = (*pause * 2).min(MAX_WITHDRAWAL_PAUSE);
    }

    /// Whether closing the change request has failed so often that the pause is [`MAX_WITHDRAWAL_PAUSE`].
    pub fn has_withdrawal_stalled(&self, promotion: &PromotionKey) -> bool {
        self.withdrawals.get(promotion).is_some_and(|(_, pause)| *pause >= MAX_WITHDRAWAL_PAUSE)
    }

    /// Notes a failed delivery, which used a Secret of this version, and is retried after a pause.
    pub fn failed(
        &mut self,
        promotion: &PromotionKey,
        now: Instant,
        pause: Duration,
        secret: Option<SecretVersion>,
    ) {
        let (failed, due) = (Some(now), Some(now + pause));
        self.retries.insert(promotion.clone(), RetryTime { failed, due, secret, ..RetryTime::default() });
    }

    /// When the Secret of a failed delivery is read again.
    pub fn secret_due(&mut self, promotion: &PromotionKey, now: Instant) -> Instant {
        let retry = self.retries.entry(promotion.clone()).or_default();
        *retry.secret_due.get_or_insert(now + SECRET_READ_PAUSE)
    }

    /// Notes that the Secret of a failed delivery is read now.
    pub fn secret_read_started(&mut self, promotion: &PromotionKey, now: Instant) {
        self.retries.entry(promotion.clone()).or_default().secret_due = Some(now + SECRET_READ_PAUSE);
    }

    /// Notes the version of the Secret of a failed delivery. If it is another one than the delivery used, the
    /// delivery is retried soon. Returns true if that is sooner than before.
    pub fn secret_observed(
        &mut self,
        promotion: &PromotionKey,
        version: SecretVersion,
        now: Instant,
    ) -> bool {
        let Some(retry) = self.retries.get_mut(promotion) else { return false };
        let before = retry.secret.replace(version);
        before.is_some() && before != retry.secret && retry.bring_forward(now)
    }

    /// Retries a failed delivery now, because its pipeline was edited.
    pub fn retry_now(&mut self, promotion: &PromotionKey, now: Instant) {
        self.retries.entry(promotion.clone()).or_default().due = Some(now);
    }

    /// Notes what a pipeline's targets show while a delivery waits for its retry. If they show something else than
    /// before, someone may have fixed the cause of the failure, and the delivery is retried soon. Returns true if
    /// that is sooner than before.
    pub fn targets_observed(&mut self, promotion: &PromotionKey, targets_hash: u64, now: Instant) -> bool {
        let retry = self.retries.entry(promotion.clone()).or_default();
        let before = retry.targets_hash.replace(targets_hash);
        before.is_some_and(|before| before != targets_hash) && retry.bring_forward(now)
    }

    /// When the branch is checked for the commit that delivered a promotion.
    pub fn lost_commit_check_due(&mut self, promotion: &PromotionKey, now: Instant) -> Instant {
        let pause = self.poll_interval * FIRST_LOST_COMMIT_PAUSE;
        self.lost_commit_checks.entry(promotion.clone()).or_insert((now + pause, pause)).0
    }

    /// Notes that the branch is checked now. The next check comes after a doubled pause.
    pub fn lost_commit_check_started(&mut self, promotion: &PromotionKey, now: Instant) {
        if let Some((due, pause)) = self.lost_commit_checks.get_mut(promotion) {
            *pause = (*pause * 2).min(MAX_LOST_COMMIT_PAUSE);
            *due = now + *pause;
        }
    }

    /// Until when a promotion waits for the last look at its branch before it ends.
    pub fn last_check_until(&mut self, promotion: &PromotionKey, now: Instant) -> Instant {
        let until = now + self.poll_interval * FIRST_LOST_COMMIT_PAUSE;
        self.last_checks.entry(promotion.clone()).or_insert(Some(until)).unwrap_or(now)
    }

    /// Notes that a look at the branch has ended. If the promotion waits for the last one, that was it.
    pub fn last_check_ended(&mut self, promotion: &PromotionKey) {
        if let Some(until) = self.last_checks.get_mut(promotion) {
            *until = None;
        }
    }

    /// Whether the last look at the branch was answered, or has taken too long.
    pub fn is_last_check_over(&self, promotion: &PromotionKey, now: Instant) -> bool {
        self.last_checks.get(promotion).is_some_and(|until| until.is_none_or(|until| until <= now))
    }

    /// When a failed delivery is retried, by the wall clock as it is now. The recorded time follows the wall clock
    /// as it was when the delivery failed; someone may have set the clock since.
    pub fn next_retry(
        &self,
        promotion: &PromotionKey,
        recorded: Timestamp,
        now: (Timestamp, Instant),
    ) -> Timestamp {
        let due = self.retries.get(promotion).and_then(|retry| retry.due);
        let pause = due.map(|due| due.saturating_duration_since(now.1));
        pause.and_then(|pause| now.0.checked_add(pause).ok()).unwrap_or(recorded)
    }

    /// Forgets the last look at the branch: the promotion is delivered again, or another process may have delivered it.
    pub fn forget_last_check(&mut self, promotion: &PromotionKey) {
        self.last_checks.remove(promotion);
    }

    /// Forgets a promotion.
    pub fn forget(&mut self, promotion: &PromotionKey) {
        self.polls.remove(promotion);
        self.withdrawals.remove(promotion);
        self.retries.remove(promotion);
        self.lost_commit_checks.remove(promotion);
        self.last_checks.remove(promotion);
    }
}

/// The pause between two polls of a change request of this age.
fn poll_pause(poll_interval: Duration, age: Duration) -> Duration {
    const HOUR: Duration = Duration::from_secs(3600);
    match age {
        age if age < HOUR / 4 => poll_interval,
        age if age < 4 * HOUR => poll_interval * 2,
        age if age < 24 * HOUR => poll_interval * 6,
        _ => poll_interval * 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PromotionKey {
        PromotionKey { namespace: "apps".into(), name: name.into() }
    }

    #[test]
    fn polls_become_rarer_with_age_and_begin_again_after_forget() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Duration::from_secs(30));
        assert_eq!(schedule.poll_due(&key("a"), start), start + Duration::from_secs(30));
        let mut now = start;
        let mut polls = 0;
        while now < start + Duration::from_secs(24 * 3600) {
            now = schedule.poll_due(&key("a"), now);
            schedule.polled(&key("a"), false, now);
            polls += 1;
        }
        // A comparable controller polls each open change request 12 times an hour, forever.
        assert!(polls < 700, "{polls} polls in the first day");
        assert_eq!(schedule.poll_due(&key("a"), now) - now, Duration::from_secs(600));
        schedule.forget(&key("a"));
        schedule.poll_due(&key("a"), now);
        let mut rebuilds = 0;
        for second in 0..600 {
            let at = now + Duration::from_secs(second);
            rebuilds += u32::from(schedule.is_rebuild_due(&key("a"), true, at));
            // After one poll that does not report the change request as outdated, the time starts again.
            assert!(second != 20 || !schedule.is_rebuild_due(&key("a"), false, at));
        }
        assert_eq!(rebuilds, 4);
        schedule.forget(&key("a"));
        assert_eq!(schedule.poll_due(&key("a"), now), now + Duration::from_secs(30));
    }

    #[test]
    fn a_clock_that_is_set_back_by_an_hour_delays_no_retry() {
        let (start, mut schedule) = (Instant::now(), Schedule::new(Duration::from_secs(30)));
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (recorded, set_back) = (at("2026-01-02T04:00:10Z"), at("2026-01-02T03:00:00Z"));
        // The delivery failed in another process, so only the recorded time is known.
        assert_eq!(schedule.next_retry(&key("a"), recorded, (set_back, start)), recorded);
        schedule.failed(&key("a"), start, Duration::from_secs(10), None);
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(
            schedule.next_retry(&key("a"), recorded, (set_back, after(4))),
            at("2026-01-02T03:00:06Z")
        );
        assert_eq!(schedule.next_retry(&key("a"), recorded, (set_back, after(20))), set_back);
        schedule.forget(&key("a"));
        assert_eq!(schedule.next_retry(&key("a"), recorded, (set_back, after(4))), recorded);
    }

    #[test]
    fn a_change_at_the_targets_ends_a_pause_at_most_twice_a_minute() {
        let (start, mut schedule) = (Instant::now(), Schedule::new(Duration::from_secs(30)));
        let at = |seconds| start + Duration::from_secs(seconds);
        let clock: Timestamp = "2026-01-02T03:00:00Z".parse().unwrap();
        let recorded = clock + jiff::SignedDuration::from_secs(1800);
        let mut tries = 0;
        for second in 0..600 {
            // The targets change every second.
            schedule.targets_observed(&key("a"), second, at(second));
            if schedule.next_retry(&key("a"), recorded, (clock, at(second))) <= clock {
                tries += 1;
                schedule.failed(&key("a"), at(second), Duration::from_secs(1800), None);
            }
        }
        assert!((15..=21).contains(&tries), "{tries} tries in ten minutes");
    }

    #[test]
    fn another_version_of_the_secret_ends_a_pause() {
        let (start, mut schedule) = (Instant::now(), Schedule::new(Duration::from_secs(30)));
        let at = |seconds| start + Duration::from_secs(seconds);
        let version = |version: &str| SecretVersion(Some(version.into()));
        assert!(!schedule.secret_observed(&key("a"), version("5"), start), "no delivery waits");
        schedule.failed(&key("a"), start, Duration::from_secs(600), Some(version("5")));
        assert_eq!(schedule.secret_due(&key("a"), start), at(30));
        assert_eq!(schedule.secret_due(&key("a"), at(29)), at(30));
        schedule.secret_read_started(&key("a"), at(30));
        assert_eq!(schedule.secret_due(&key("a"), at(31)), at(60));
        assert!(!schedule.secret_observed(&key("a"), version("5"), at(31)));
        assert!(schedule.secret_observed(&key("a"), version("6"), at(61)));
        assert_eq!(schedule.retries[&key("a")].due, Some(at(61)));
        assert!(!schedule.secret_observed(&key("a"), version("7"), at(62)), "it is due already");

        // The Secret did not exist. It is created 5 s later.
        schedule.failed(&key("b"), start, Duration::from_secs(300), Some(SecretVersion(None)));
        assert!(!schedule.secret_observed(&key("b"), SecretVersion(None), at(4)));
        assert!(schedule.secret_observed(&key("b"), version("8"), at(5)));
        assert_eq!(schedule.retries[&key("b")].due, Some(start + MIN_RETRY_PAUSE));

        // The delivery failed in another process, which alone knew the version.
        schedule.secret_due(&key("c"), start);
        assert!(!schedule.secret_observed(&key("c"), version("9"), at(30)));
        assert!(schedule.secret_observed(&key("c"), version("10"), at(60)));
    }

    #[test]
    fn checks_for_a_delivered_commit_become_rarer() {
        let (start, mut schedule) = (Instant::now(), Schedule::new(Duration::from_secs(30)));
        assert_eq!(schedule.lost_commit_check_due(&key("a"), start), start + Duration::from_secs(120));
        let mut checks = 0;
        for second in 0..24 * 3600 {
            let now = start + Duration::from_secs(second);
            if schedule.lost_commit_check_due(&key("a"), now) <= now {
                schedule.lost_commit_check_started(&key("a"), now);
                checks += 1;
            }
        }
        assert!((25..=32).contains(&checks), "{checks} checks in a day");
        schedule.forget(&key("a"));
        assert_eq!(schedule.lost_commit_check_due(&key("a"), start), start + Duration::from_secs(120));
    }

    #[test]
    fn looks_at_a_forge_that_does_not_answer_become_rarer() {
        let (start, mut schedule) = (Instant::now(), Schedule::new(Duration::from_secs(30)));
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let due = schedule.look_due(&key("a"), now);
            assert_eq!(schedule.look_due(&key("a"), now), due, "each decision of the pipeline asks");
            pauses.push((due - now).as_secs());
            schedule.polled(&key("a"), true, due);
            now = due;
        }
        assert_eq!(pauses, [2, 4, 8, 16, 30, 30]);
        schedule.polled(&key("a"), false, now);
        assert_eq!(schedule.look_due(&key("a"), now) - now, MIN_POLL_PAUSE);
    }

    #[test]
    fn a_report_of_the_forge_causes_a_poll_now_and_many_reports_cause_few() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut schedule = Schedule::new(30 * second);
        schedule.poll_soon(&key("a"), start);
        assert_eq!(schedule.poll_due(&key("a"), start), start + 30 * second);
        schedule.poll_soon(&key("a"), start + 5 * second);
        assert_eq!(schedule.poll_due(&key("a"), start), start + 5 * second);
        schedule.polled(&key("a"), false, start + 5 * second);
        for _ in 0..100 {
            schedule.poll_soon(&key("a"), start + 6 * second);
        }
        assert_eq!(schedule.poll_due(&key("a"), start), start + 7 * second);
        schedule.polled(&key("a"), false, start + 7 * second);
        // Without reports it is polled at the interval again.
        assert_eq!(schedule.poll_due(&key("a"), start), start + 37 * second);
    }

    #[test]
    fn a_report_of_the_forge_causes_a_retry_soon_and_not_immediately() {
        let second = Duration::from_secs(1);
        let (mut schedule, start) = (Schedule::new(30 * second), Instant::now());
        schedule.retry_soon(&key("before"), start);
        assert_eq!(
            schedule.retries[&key("before")].due,
            Some(start),
            "it failed before this process started"
        );
        schedule.failed(&key("a"), start, 600 * second, None);
        schedule.retry_soon(&key("a"), start);
        let due = schedule.retries[&key("a")].due.unwrap();
        assert!(due >= start + MIN_RETRY_PAUSE && due < start + 60 * second);
    }

    #[test]
    fn the_checks_of_a_head_are_settled_a_minute_after_it_was_first_seen() {
        let (start, mut schedule) = (Instant::now(), Schedule::new(Duration::from_secs(30)));
        let at = |seconds| start + Duration::from_secs(seconds);
        schedule.poll_due(&key("a"), start);
        for (seconds, head, settled) in [
            (30, "x", false),
            (89, "x", false),
            (90, "x", true),
            (91, "y", false),
            (150, "y", false),
            (151, "y", true),
        ] {
            assert_eq!(schedule.checks_settled(&key("a"), head, at(seconds)), settled, "{seconds} {head}");
        }
        assert!(!schedule.checks_settled(&key("b"), "x", at(1000)), "it is not polled");
    }

    #[test]
    fn tries_to_close_a_change_request_become_rarer() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Duration::from_secs(30));
        let mut tries = 0;
        for second in 0..24 * 3600 {
            let now = start + Duration::from_secs(second);
            if schedule.withdrawal_due(&key("a"), now).is_none() {
                schedule.withdrawal_started(&key("a"), now);
                tries += 1;
            }
        }
        assert!((140..160).contains(&tries), "{tries} tries in a day");
        assert!(schedule.has_withdrawal_stalled(&key("a")));
        schedule.forget(&key("a"));
        assert_eq!(schedule.withdrawal_due(&key("a"), start), None);
    }

    #[test]
    fn a_promotion_of_the_same_name_in_another_namespace_changes_no_time() {
        let (start, mut schedule) = (Instant::now(), Schedule::new(Duration::from_secs(30)));
        let (own, other) = (key("a"), PromotionKey { namespace: "evil".into(), ..key("a") });
        let due = schedule.poll_due(&own, start);
        schedule.poll_due(&other, start);
        schedule.polled(&other, false, start + Duration::from_secs(20));
        schedule.failed(&other, start, Duration::from_secs(600), None);
        schedule.withdrawal_started(&other, start);
        schedule.lost_commit_check_started(&other, start);
        schedule.last_check_until(&other, start);
        schedule.last_check_ended(&other);
        assert_eq!(schedule.poll_due(&own, start), due);
        assert!(!schedule.retries.contains_key(&own) && !schedule.is_last_check_over(&own, start));
        assert_eq!(schedule.withdrawal_due(&own, start), None);
        assert_eq!(schedule.lost_commit_check_due(&own, start), start + Duration::from_secs(120));
    }
}
