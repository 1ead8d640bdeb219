//! What a forge grants to one credential. Whoever calls with it shares this: so many calls at once, of each
//! pipeline in turn; and when the forge says that it has had enough, nobody calls before its time. The pause is counted by this process' own clock; setting the wall clock does not change it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::clock;
use crate::fair_queue::{FairQueue, Slot};
use crate::lru::Lru;
use crate::stats::RateBudget;

/// So many calls with one credential are on their way at once. GitHub takes a hundred, all others more
/// than this (docs.github.com, "Rate limits for the REST API").
const MAX_CALLS_AT_ONCE: usize = 8;
/// So long a pause is waited out where it is met. Longer ones are for whoever asked.
const MAX_WAIT_IN_CALL: Duration = Duration::from_secs(10);
/// A clock that is off, here or there, does not stop us for a day.
const MAX_PAUSE: Duration = Duration::from_secs(2 * 3600);
/// One call in so many is kept for deliveries: mere looks stop before all is spent.
const RESERVED_SHARE: u64 = 20;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A look at what may as well be looked at later.
    Look,
    /// A step of a delivery.
    Step,
}

/// The most budgets that are kept: beyond, the one that was used longest ago is dropped, with what it knows.
const MAX_BUDGETS: usize = 10_000;

/// The budgets of all credentials, by host and fingerprint.
#[derive(Debug)]
pub(crate) struct RateBudgets(Mutex<Lru<Arc<CredentialBudget>>>);

impl Default for RateBudgets {
    fn default() -> Self {
        RateBudgets(Mutex::new(Lru::new(MAX_BUDGETS)))
    }
}

impl RateBudgets {
    /// The budget of a credential, known by its fingerprint, at a host.
    pub(super) fn of(&self, host: &str, credential: &str) -> Arc<CredentialBudget> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.or_default(format!("{host} {credential}"))
    }

    /// What each has left. Forgets those that nobody has called with for long.
    pub(crate) fn snapshot(&self) -> Vec<RateBudget> {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Some tokens live for an hour: nobody calls with an old one again.
        all.retain(|budget| Arc::strong_count(budget) > 1 || !budget.known().is_old(now));
        let rate_budget = |(name, budget): (&String, &Arc<CredentialBudget>)| {
            // A fingerprint has no blanks.
            let (host, credential) = name.rsplit_once(' ').unwrap_or((name, ""));
            let known = budget.known();
            let until = known.closed(Purpose::Step, now);
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

/// What the forge has said.
#[derive(Clone, Copy, Debug, Default)]
struct RateLimitState {
    /// Nobody calls before then.
    paused: Option<Moment>,
    /// So many calls are left of so many, until the forge counts anew.
    left: Option<u64>,
    limit: Option<u64>,
    reset: Option<Moment>,
    /// When that was.
    heard: Option<Instant>,
}

/// A time to come: when it is by our own clock, and what people are told that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    at: Instant,
    told: Timestamp,
}

impl Moment {
    /// So long from now, but not in a day.
    fn after(wait: Duration, now: Moment) -> Self {
        let wait = wait.min(MAX_PAUSE);
        let told = SignedDuration::try_from(wait).ok().and_then(|wait| now.told.checked_add(wait).ok());
        Moment { at: now.at + wait, told: told.unwrap_or(now.told) }
    }

    fn now() -> Self {
        Moment { at: Instant::now(), told: clock::now() }
    }

    fn is_after(self, now: Instant) -> bool {
        self.at > now
    }
}

/// What an answer says about the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RateLimitReport {
    /// Calls that are left.
    pub(super) left: Option<u64>,
    /// Calls that there are in all.
    pub(super) limit: Option<u64>,
    /// When the forge counts anew.
    pub(super) reset: Option<Timestamp>,
    /// When to call again, whatever is left.
    pub(super) after: Option<Timestamp>,
    /// It was no answer to the call: the forge has had enough.
    pub(super) refused: bool,
}

impl RateLimitState {
    /// Until when a call for this purpose has to wait.
    fn closed(&self, purpose: Purpose, now: Instant) -> Option<Moment> {
        let few = self.left.is_some_and(|left| left <= self.limit.unwrap_or(0) / RESERVED_SHARE);
        let saved = self.reset.filter(|_| few && purpose == Purpose::Look);
        self.paused.max(saved).filter(|until| until.is_after(now))
    }

    /// Whether it tells nothing any more.
    fn is_old(&self, now: Instant) -> bool {
        self.heard.is_none_or(|heard| now.saturating_duration_since(heard) > MAX_PAUSE)
    }

    /// Takes down what an answer says; until when nobody calls then, where it was no answer but that.
    fn record(&mut self, report: RateLimitReport, now: Moment) -> Option<Moment> {
        self.heard = Some(now.at);
        let ahead = |at: Timestamp| {
            let wait = Duration::try_from(at.duration_since(now.told)).unwrap_or_default();
            Moment::after(wait, now)
        };
        (self.left, self.limit) = (report.left.or(self.left), report.limit.or(self.limit));
        self.reset = report.reset.map(ahead).or(self.reset);
        let spent = report.reset.filter(|_| report.left == Some(0)).map(ahead);
        let until = match (report.refused, report.after.map(ahead)) {
            (true, after) => {
                let until = after.or(spent).unwrap_or(Moment::after(Duration::from_secs(60), now));
                until.max(Moment::after(Duration::from_secs(1), now))
            }
            // Asked to slow down while it still answers.
            (false, Some(after)) => after.min(Moment::after(MAX_WAIT_IN_CALL, now)),
            (false, None) => spent?,
        };
        self.paused = self.paused.max(Some(until));
        report.refused.then_some(until)
    }
}

impl CredentialBudget {
    /// Waits for a turn of this pipeline. The call is to be made while what is returned is held.
    ///
    /// # Errors
    /// When it would take long: until when.
    pub(super) async fn reserve(&self, purpose: Purpose, pipeline: &str) -> Result<Slot, Timestamp> {
        self.open(purpose)?;
        let _counted = Counted::one(&self.waiting);
        let turn = self.queue.acquire(pipeline).await;
        while let Some(until) = self.known().closed(purpose, Instant::now()) {
            self.open(purpose)?;
            tokio::time::sleep_until(until.at.into()).await;
        }
        Ok(turn)
    }

    /// Whether there is something to be had soon.
    ///
    /// # Errors
    /// When not: until when.
    pub(super) fn open(&self, purpose: Purpose) -> Result<(), Timestamp> {
        let now = Instant::now();
        match self.known().closed(purpose, now) {
            Some(until) if until.is_after(now + MAX_WAIT_IN_CALL) => Err(until.told),
            _ => Ok(()),
        }
    }

    /// Takes down what an answer says; until when nobody calls, where the call was refused for that.
    pub(super) fn record(&self, report: RateLimitReport) -> Option<Timestamp> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.record(report, Moment::now()).map(|until| until.told)
    }

    fn known(&self) -> RateLimitState {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One more, for as long as this is held.
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

    /// What a forge says, and how long a step and a look then wait.
    #[test]
    fn what_a_forge_says_is_obeyed() {
        let all = RateLimitReport { limit: Some(5000), reset: in_seconds(600), ..RateLimitReport::default() };
        let refused = RateLimitReport { refused: true, ..RateLimitReport::default() };
        let cases = [
            ("plenty", RateLimitReport { left: Some(4999), ..all }, 0, 0),
            ("little: looks stop", RateLimitReport { left: Some(250), ..all }, 0, 600),
            ("a little more: they do not", RateLimitReport { left: Some(251), ..all }, 0, 0),
            ("nothing", RateLimitReport { left: Some(0), ..all }, 600, 600),
            ("nothing, of no known limit", RateLimitReport { left: Some(0), limit: None, ..all }, 600, 600),
            (
                "little, but it does not say when it counts anew",
                RateLimitReport { left: Some(1), reset: None, ..all },
                0,
                0,
            ),
            ("slower, please", RateLimitReport { after: in_seconds(3), ..RateLimitReport::default() }, 3, 3),
            (
                "much slower, but it answered",
                RateLimitReport { after: in_seconds(300), ..RateLimitReport::default() },
                10,
                10,
            ),
            ("enough, call in", RateLimitReport { after: in_seconds(90), ..refused }, 90, 90),
            (
                "a secondary limit, while much is left",
                RateLimitReport { left: Some(4000), ..refused },
                60,
                60,
            ),
            (
                "enough, all is spent",
                RateLimitReport { left: Some(0), reset: in_seconds(77), ..refused },
                77,
                77,
            ),
            ("enough, at once again", RateLimitReport { after: in_seconds(-5), ..refused }, 1, 1),
            (
                "a clock that is off by a day",
                RateLimitReport { after: in_seconds(86_400), ..refused },
                7200,
                7200,
            ),
        ];
        for (name, told, step, look) in cases {
            let (mut known, now) = (RateLimitState::default(), Moment { at: Instant::now(), told: CLOCK });
            let stopped = known.record(told, now);
            assert_eq!(stopped.is_some(), told.refused, "{name}");
            let wait =
                |purpose| known.closed(purpose, now.at).map_or(0, |until| (until.at - now.at).as_secs());
            assert_eq!((wait(Purpose::Step), wait(Purpose::Look)), (step, look), "{name}");
            // And when that is over, it is over for all.
            let then = now.at + Duration::from_secs(step.max(look));
            let closed = [Purpose::Step, Purpose::Look].map(|purpose| known.closed(purpose, then));
            assert_eq!(closed, [None, None], "{name}");
        }
    }

    #[test]
    fn a_shorter_pause_does_not_end_a_longer_one_and_what_is_told_does_not_change() {
        let (mut known, now) = (RateLimitState::default(), Moment { at: Instant::now(), told: CLOCK });
        known.record(
            RateLimitReport { after: in_seconds(90), refused: true, ..RateLimitReport::default() },
            now,
        );
        known.record(RateLimitReport { after: in_seconds(2), ..RateLimitReport::default() }, now);
        let later = known.closed(Purpose::Step, now.at + Duration::from_secs(30));
        assert_eq!(later.map(|until| until.told), in_seconds(90));
    }

    #[test]
    fn a_credential_that_is_not_used_any_more_is_forgotten() {
        let (mut known, now) = (RateLimitState::default(), Moment { at: Instant::now(), told: CLOCK });
        known.record(
            RateLimitReport { after: in_seconds(86_400), refused: true, ..RateLimitReport::default() },
            now,
        );
        // Not before the longest pause is over.
        assert_eq!(
            [MAX_PAUSE, MAX_PAUSE + MAX_WAIT_IN_CALL].map(|since| known.is_old(now.at + since)),
            [false, true]
        );
        let budgets = RateBudgets::default();
        let held = budgets.of("forge", "a");
        budgets.of("forge", "b").record(RateLimitReport::default());
        drop(budgets.of("forge", "never heard of"));
        let again = budgets.of("forge", "a");
        let mut kept: Vec<String> = budgets.snapshot().into_iter().map(|budget| budget.credential).collect();
        kept.sort();
        assert_eq!(kept, ["a", "b"]);
        assert!(Arc::ptr_eq(&held, &again));
    }

    #[test]
    fn budgets_have_a_quota() {
        let budgets = RateBudgets::default();
        for n in 0..MAX_BUDGETS + 10 {
            budgets.of("forge", &n.to_string()).record(RateLimitReport::default());
        }
        let kept = budgets.snapshot();
        assert_eq!(kept.len(), MAX_BUDGETS);
        assert!(!kept.iter().any(|budget| budget.credential == "0"));
    }

    #[tokio::test]
    async fn calls_wait_in_line_and_each_credential_has_its_own() {
        let budgets = RateBudgets::default();
        let (one, other) = (budgets.of("forge", "a"), budgets.of("forge", "b"));
        let mut turns = Vec::new();
        for n in 0..MAX_CALLS_AT_ONCE {
            turns.push(one.reserve(Purpose::Step, &format!("namespace-{n}/app")).await.unwrap());
        }
        let order = Mutex::new(Vec::new());
        let wait = async |pipeline: &'static str| {
            let turn = one.reserve(Purpose::Step, pipeline).await.unwrap();
            order.lock().unwrap().push(pipeline);
            drop(turn);
        };
        let release = async {
            drop(other.reserve(Purpose::Step, "other").await.unwrap());
            let line = budgets
                .snapshot()
                .iter()
                .map(|p| (p.credential.clone(), p.waiting))
                .collect::<HashMap<_, _>>();
            assert_eq!((line["a"], line["b"]), (4, 0));
            turns.pop();
        };
        // Polled in this order.
        tokio::join!(biased; wait("busy"), wait("busy"), wait("busy"), wait("one"), release);
        assert_eq!(*order.lock().unwrap(), ["busy", "one", "busy", "busy"]);
    }
}
