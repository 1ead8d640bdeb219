//! The rate limit of each credential at a forge. All calls with one credential share it: a limited number at the same time,
//! for each pipeline in turn. When the forge asks for a pause, no call is made before its end. The pause is measured by the
//! clock of this process, so a change of the wall clock does not affect it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use sluice_core::lock::lock;

use crate::clock;
use crate::fair_queue::{FairQueue, Slot};
use crate::lru::Lru;
use crate::stats::RateBudget;

/// The most calls with one credential at the same time. GitHub accepts a hundred, all others more than this
/// (docs.github.com, "Rate limits for the REST API").
const MAX_CALLS_AT_ONCE: usize = 8;
/// The longest pause that a call waits for. For a longer one, the delivery fails with the time of the next try.
const MAX_WAIT_IN_CALL: Duration = Duration::from_secs(10);
/// The longest pause, so that a wrong clock does not stop deliveries for a day.
const MAX_PAUSE: Duration = Duration::from_secs(2 * 3600);
/// One call of this number is reserved for deliveries: other reads stop before all calls are used.
const RESERVED_SHARE: u64 = 20;

/// The purpose of a call, the less urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallPurpose {
    /// A read that can be made later as well.
    Look,
    /// A step of a delivery.
    Step,
}

/// The most budgets that are kept. Beyond, the least recently used one is dropped.
const MAX_BUDGETS: usize = 10_000;

/// The budgets of all credentials, by host and fingerprint.
#[derive(Debug, Default)]
pub(crate) struct RateBudgets(Mutex<Lru<Arc<CredentialBudget>, MAX_BUDGETS>>);

impl RateBudgets {
    /// The budget of a credential, known by its fingerprint, at a host.
    pub(super) fn of(&self, host: &str, credential: &str) -> Arc<CredentialBudget> {
        let mut all = lock(&self.0);
        all.or_default(format!("{host} {credential}"))
    }

    /// What is left of each budget. Drops those that were not used for long.
    pub(crate) fn snapshot(&self) -> Vec<RateBudget> {
        let now = Instant::now();
        let mut all = lock(&self.0);
        // Some tokens are valid for an hour, and not used again.
        all.retain(|budget| Arc::strong_count(budget) > 1 || !budget.known().is_old(now));
        let rate_budget = |(name, budget): (&String, &Arc<CredentialBudget>)| {
            // A fingerprint has no spaces.
            let (host, credential) = name.rsplit_once(' ').unwrap_or((name, ""));
            let known = budget.known();
            let until = known.paused_until(CallPurpose::Step, now);
            RateBudget {
                host: host.into(),
                credential: credential.into(),
                left: known.left,
                pause: until.map(|until| until.at.duration_since(now)).unwrap_or_default(),
                waiting: budget.waiting.load(Ordering::Relaxed),
            }
        };
        all.iter().map(rate_budget).collect()
    }
}

/// The budget of one credential.
#[derive(Debug)]
pub(super) struct CredentialBudget {
    queue: Arc<FairQueue>,
    waiting: AtomicUsize,
    known: Mutex<RateLimitState>,
}

impl Default for CredentialBudget {
    fn default() -> Self {
        CredentialBudget {
            queue: FairQueue::new(MAX_CALLS_AT_ONCE),
            waiting: Default::default(),
            known: Mutex::default(),
        }
    }
}

/// The limits that the forge has reported.
#[derive(Clone, Copy, Debug, Default)]
struct RateLimitState {
    /// No call is made before then.
    paused: Option<PauseEnd>,
    /// The calls that are left of the limit, until the reset.
    left: Option<u64>,
    limit: Option<u64>,
    reset: Option<PauseEnd>,
    /// When the forge reported that.
    reported: Option<Instant>,
}

/// A future time, by the clock of this process and by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PauseEnd {
    at: Instant,
    wall: Timestamp,
}

impl PauseEnd {
    /// This long from now, but not longer than [`MAX_PAUSE`].
    fn after(wait: Duration, now: PauseEnd) -> Self {
        let wait = wait.min(MAX_PAUSE);
        let wall = SignedDuration::try_from(wait).ok().and_then(|wait| now.wall.checked_add(wait).ok());
        PauseEnd { at: now.at + wait, wall: wall.unwrap_or(now.wall) }
    }

    fn now() -> Self {
        PauseEnd { at: Instant::now(), wall: clock::now() }
    }

    fn is_after(self, now: Instant) -> bool {
        self.at > now
    }
}

/// The rate limit in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RateLimitReport {
    /// The calls that are left.
    pub(super) left: Option<u64>,
    /// The limit.
    pub(super) limit: Option<u64>,
    /// When the forge counts from zero again.
    pub(super) reset: Option<Timestamp>,
    /// When to call again, whatever is left.
    pub(super) after: Option<Timestamp>,
    /// Whether the call was rejected because of the rate limit.
    pub(super) refused: bool,
}

impl RateLimitState {
    /// The time until which a call for this purpose must wait.
    fn paused_until(&self, purpose: CallPurpose, now: Instant) -> Option<PauseEnd> {
        let few = self.left.is_some_and(|left| left <= self.limit.unwrap_or(0) / RESERVED_SHARE);
        let saved = self.reset.filter(|_| few && purpose == CallPurpose::Look);
        self.paused.max(saved).filter(|until| until.is_after(now))
    }

    /// Whether the report is too old to matter.
    fn is_old(&self, now: Instant) -> bool {
        self.reported.is_none_or(|reported| now.saturating_duration_since(reported) > MAX_PAUSE)
    }

    /// Records a report. Returns the end of the pause if the call was rejected.
    fn record(&mut self, report: RateLimitReport, now: PauseEnd) -> Option<PauseEnd> {
        self.reported = Some(now.at);
        let ahead = |at: Timestamp| {
            let wait = Duration::try_from(at.duration_since(now.wall)).unwrap_or_default();
            PauseEnd::after(wait, now)
        };
        (self.left, self.limit) = (report.left.or(self.left), report.limit.or(self.limit));
        self.reset = report.reset.map(ahead).or(self.reset);
        let spent = report.reset.filter(|_| report.left == Some(0)).map(ahead);
        let until = match (report.refused, report.after.map(ahead)) {
            (true, after) => {
                let until = after.or(spent).unwrap_or(PauseEnd::after(Duration::from_secs(60), now));
                until.max(PauseEnd::after(Duration::from_secs(1), now))
            }
            // The forge asks for a pause, but has answered.
            (false, Some(after)) => after.min(PauseEnd::after(MAX_WAIT_IN_CALL, now)),
            (false, None) => spent?,
        };
        self.paused = self.paused.max(Some(until));
        report.refused.then_some(until)
    }
}

impl CredentialBudget {
    /// Waits for a slot in the queue of this pipeline, and for the end of a short pause. The caller holds the slot during
    /// the call.
    ///
    /// # Errors
    /// When the pause is long: its end.
    pub(super) async fn reserve(&self, purpose: CallPurpose, pipeline: &str) -> Result<Slot, Timestamp> {
        self.check(purpose)?;
        let _counted = Counted::one(&self.waiting);
        let slot = self.queue.acquire(pipeline).await;
        while let Some(until) = self.known().paused_until(purpose, Instant::now()) {
            self.check(purpose)?;
            tokio::time::sleep_until(until.at.into()).await;
        }
        Ok(slot)
    }

    /// Checks that calls are possible soon.
    ///
    /// # Errors
    /// When there is a long pause: its end.
    pub(super) fn check(&self, purpose: CallPurpose) -> Result<(), Timestamp> {
        let now = Instant::now();
        match self.known().paused_until(purpose, now) {
            Some(until) if until.is_after(now + MAX_WAIT_IN_CALL) => Err(until.wall),
            _ => Ok(()),
        }
    }

    /// Records the rate limit of an answer. Returns the end of the pause if the call was rejected.
    pub(super) fn record(&self, report: RateLimitReport) -> Option<Timestamp> {
        let mut known = lock(&self.known);
        known.record(report, PauseEnd::now()).map(|until| until.wall)
    }

    fn known(&self) -> RateLimitState {
        *lock(&self.known)
    }
}

/// Counts a waiting call, for as long as this is held.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn one(of: &'a AtomicUsize) -> Self {
        of.fetch_add(1, Ordering::Relaxed);
        Counted(of)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const CLOCK: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn in_seconds(n: i64) -> Option<Timestamp> {
        Some(CLOCK + SignedDuration::from_secs(n))
    }

    /// Reports of a forge, and how long a step and a look then wait.
    #[test]
    fn calls_pause_as_the_forge_reports() {
        let all = RateLimitReport { limit: Some(5000), reset: in_seconds(600), ..RateLimitReport::default() };
        let refused = RateLimitReport { refused: true, ..RateLimitReport::default() };
        let cases = [
            ("plenty", RateLimitReport { left: Some(4999), ..all }, 0, 0),
            ("little is left: looks stop", RateLimitReport { left: Some(250), ..all }, 0, 600),
            ("a little more: looks go on", RateLimitReport { left: Some(251), ..all }, 0, 0),
            ("nothing", RateLimitReport { left: Some(0), ..all }, 600, 600),
            ("nothing, of no known limit", RateLimitReport { left: Some(0), limit: None, ..all }, 600, 600),
            (
                "little, without the time of the reset",
                RateLimitReport { left: Some(1), reset: None, ..all },
                0,
                0,
            ),
            ("a pause", RateLimitReport { after: in_seconds(3), ..RateLimitReport::default() }, 3, 3),
            (
                "a long pause, but it answered",
                RateLimitReport { after: in_seconds(300), ..RateLimitReport::default() },
                10,
                10,
            ),
            ("rejected, with a time", RateLimitReport { after: in_seconds(90), ..refused }, 90, 90),
            (
                "a secondary limit, while much is left",
                RateLimitReport { left: Some(4000), ..refused },
                60,
                60,
            ),
            (
                "rejected, nothing is left",
                RateLimitReport { left: Some(0), reset: in_seconds(77), ..refused },
                77,
                77,
            ),
            ("rejected, with a past time", RateLimitReport { after: in_seconds(-5), ..refused }, 1, 1),
            (
                "a clock that is off by a day",
                RateLimitReport { after: in_seconds(86_400), ..refused },
                7200,
                7200,
            ),
        ];
        for (name, report, step, look) in cases {
            let (mut known, now) = (RateLimitState::default(), PauseEnd { at: Instant::now(), wall: CLOCK });
            let stopped = known.record(report, now);
            assert_eq!(stopped.is_some(), report.refused, "{name}");
            let wait = |purpose| {
                known.paused_until(purpose, now.at).map_or(0, |until| (until.at - now.at).as_secs())
            };
            assert_eq!((wait(CallPurpose::Step), wait(CallPurpose::Look)), (step, look), "{name}");
            // The pause ends for all purposes.
            let then = now.at + Duration::from_secs(step.max(look));
            let closed =
                [CallPurpose::Step, CallPurpose::Look].map(|purpose| known.paused_until(purpose, then));
            assert_eq!(closed, [None, None], "{name}");
        }
    }

    #[test]
    fn a_shorter_pause_does_not_end_a_longer_one() {
        let (mut known, now) = (RateLimitState::default(), PauseEnd { at: Instant::now(), wall: CLOCK });
        known.record(
            RateLimitReport { after: in_seconds(90), refused: true, ..RateLimitReport::default() },
            now,
        );
        known.record(RateLimitReport { after: in_seconds(2), ..RateLimitReport::default() }, now);
        let later = known.paused_until(CallPurpose::Step, now.at + Duration::from_secs(30));
        assert_eq!(later.map(|until| until.wall), in_seconds(90));
    }

    #[test]
    fn a_budget_that_is_not_used_is_dropped() {
        let (mut known, now) = (RateLimitState::default(), PauseEnd { at: Instant::now(), wall: CLOCK });
        known.record(
            RateLimitReport { after: in_seconds(86_400), refused: true, ..RateLimitReport::default() },
            now,
        );
        // Not before the end of the longest pause.
        assert_eq!(
            [MAX_PAUSE, MAX_PAUSE + MAX_WAIT_IN_CALL].map(|since| known.is_old(now.at + since)),
            [false, true]
        );
        let budgets = RateBudgets::default();
        let held = budgets.of("forge", "a");
        budgets.of("forge", "b").record(RateLimitReport::default());
        drop(budgets.of("forge", "never used"));
        let again = budgets.of("forge", "a");
        let mut kept: Vec<String> = budgets.snapshot().into_iter().map(|budget| budget.credential).collect();
        kept.sort();
        assert_eq!(kept, ["a", "b"]);
        assert!(Arc::ptr_eq(&held, &again));
    }

    #[test]
    fn the_number_of_budgets_is_limited() {
        let budgets = RateBudgets::default();
        for n in 0..MAX_BUDGETS + 10 {
            budgets.of("forge", &n.to_string()).record(RateLimitReport::default());
        }
        let kept = budgets.snapshot();
        assert_eq!(kept.len(), MAX_BUDGETS);
        assert!(!kept.iter().any(|budget| budget.credential == "0"));
    }

    #[tokio::test]
    async fn calls_wait_in_a_queue_for_each_credential() {
        let budgets = RateBudgets::default();
        let (one, other) = (budgets.of("forge", "a"), budgets.of("forge", "b"));
        let mut slots = Vec::new();
        for n in 0..MAX_CALLS_AT_ONCE {
            slots.push(one.reserve(CallPurpose::Step, &format!("namespace-{n}/app")).await.unwrap());
        }
        let order = Mutex::new(Vec::new());
        let wait = async |pipeline: &'static str| {
            let slot = one.reserve(CallPurpose::Step, pipeline).await.unwrap();
            order.lock().unwrap().push(pipeline);
            drop(slot);
        };
        let release = async {
            drop(other.reserve(CallPurpose::Step, "other").await.unwrap());
            let line = budgets
                .snapshot()
                .iter()
                .map(|p| (p.credential.clone(), p.waiting))
                .collect::<HashMap<_, _>>();
            assert_eq!((line["a"], line["b"]), (4, 0));
            slots.pop();
        };
        // Polled in this order.
        tokio::join!(biased; wait("busy"), wait("busy"), wait("busy"), wait("one"), release);
        assert_eq!(*order.lock().unwrap(), ["busy", "one", "busy", "busy"]);
    }
}
