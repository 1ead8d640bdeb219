//! Decides which looks at a change request also read its checks although no merge needs them, so that people see them: a
//! few soon after a push, then fewer, and none once all checks have passed. Pure.

use std::time::{Duration, Instant};

use sluice_delivery::ReportedChecks;

/// The longest pause between two reads.
const MAX_PAUSE: Duration = Duration::from_secs(600);
/// How long after the first look at a head its checks are read, without a report of the forge.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// The reads of the checks of one head.
#[derive(Debug)]
pub(super) struct CheckReads {
    head: String,
    first: Instant,
    last: Option<Instant>,
    /// When the checks are read next; `None` if only a report of the forge causes another read.
    due: Option<Instant>,
    /// The pause after the next read.
    pause: Duration,
    /// The least pause, also after a report of the forge.
    min_pause: Duration,
}

impl CheckReads {
    /// Reads the checks of a head at the next look.
    pub(super) fn of(head: &str, min_pause: Duration, now: Instant) -> Self {
        CheckReads { head: head.into(), first: now, last: None, due: Some(now), pause: min_pause, min_pause }
    }

    /// Whether they are about this head.
    pub(super) fn is_of(&self, head: &str) -> bool {
        self.head == head
    }

    /// Whether a look that starts now also reads the checks. Then the next read comes after a doubled pause.
    pub(super) fn starts(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.last = Some(now);
        self.due = Some(now + self.pause).filter(|_| now.duration_since(self.first) < MAX_AGE);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }

    /// Notes the answer. Checks that have all passed are not read again, and neither is a head for which none has reported
    /// for a while.
    pub(super) fn ended(&mut self, checks: &ReportedChecks) {
        let has_none = checks.failed + checks.pending + checks.passed == 0;
        let is_over = match has_none {
            true => self.pause >= MAX_PAUSE,
            false => checks.failed + checks.pending == 0,
        };
        if is_over {
            self.due = None;
        }
    }

    /// Reads the checks soon: the forge has reported a change.
    pub(super) fn hurry(&mut self, now: Instant) {
        let soon = self.last.map_or(now, |last| now.max(last + self.min_pause));
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn found(failed: usize, pending: usize, passed: usize) -> ReportedChecks {
        ReportedChecks { failed, pending, passed, ..ReportedChecks::default() }
    }

    /// Looks every 30 s for two days, and returns when checks were read, in seconds.
    fn reads(checks: impl Fn(u64) -> ReportedChecks) -> Vec<u64> {
        let start = Instant::now();
        let mut reads = CheckReads::of("a", 30 * SECOND, start + 30 * SECOND);
        let at_looks = (1..2 * 24 * 120).map(|look| look * 30);
        at_looks
            .filter(|at| {
                let starts = reads.starts(start + Duration::from_secs(*at));
                if starts {
                    reads.ended(&checks(*at));
                }
                starts
            })
            .collect()
    }

    #[test]
    fn checks_are_read_less_often_until_all_have_passed() {
        let passes = |at: u64| if at < 400 { found(0, 1, 3) } else { found(0, 0, 4) };
        assert_eq!(reads(passes), [30, 60, 120, 240, 480]);
        // A person may start a failed check again.
        let fails = reads(|_| found(1, 0, 3));
        assert_eq!(fails[..8], [30, 60, 120, 240, 480, 960, 1560, 2160]);
        assert!(fails.len() < 160 && fails.last().is_some_and(|last| *last < 25 * 3600), "{}", fails.len());
        // Many repositories have no checks.
        assert_eq!(reads(|_| found(0, 0, 0)), [30, 60, 120, 240, 480]);
    }

    #[test]
    fn many_reports_of_the_forge_cause_few_reads() {
        let start = Instant::now();
        let mut reads = CheckReads::of("a", 30 * SECOND, start);
        let mut count = 0;
        for second in 0..600 {
            let now = start + second * SECOND;
            reads.hurry(now);
            if reads.starts(now) {
                reads.ended(&found(0, 0, 1));
                count += 1;
            }
        }
        assert_eq!(count, 20);
    }
}
