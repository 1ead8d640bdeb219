//! When a changed status of a pipeline is written: usually immediately, and later if more is about to change, so
//! that one step of a promotion causes one write. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sluice_api::pipeline::{EnvironmentStatus, Health, PipelineStatus, TargetStatus};
use sluice_api::promotion::Phase;
use sluice_core::Revision;

/// The least time between two writes of one pipeline's status.
pub const MIN_WRITE_PAUSE: Duration = Duration::from_millis(700);
/// How long a status waits for a change that is about to follow. People still see the status within a second.
pub const SHORT_WAIT: Duration = Duration::from_millis(800);
/// How long a status without changes of health waits for a side effect in flight; the promotion's record shows the
/// rest immediately. A fetch, a push and the calls that open a change request take about four seconds with a
/// distant forge, and two with a busy one nearby.
pub const SIDE_EFFECT_WAIT: Duration = Duration::from_secs(5);

/// The facts that decide when a status is due.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Since when the status differs from the stored one.
    pub differs: Instant,
    /// When the last status was sent.
    pub sent: Option<Instant>,
    /// The earliest time, if only health has changed and changes often.
    pub damped: Option<Instant>,
    /// A side effect is in flight, and will change the status again.
    pub busy: bool,
    /// The health of a target has changed.
    pub health: bool,
    /// A promotion was delivered, so Flux is about to apply it.
    pub delivered: bool,
}

impl Pace {
    /// When the status is due.
    pub fn due(&self) -> Instant {
        let wait = match (self.busy, self.health, self.delivered) {
            (true, false, _) => SIDE_EFFECT_WAIT,
            (true, true, _) | (false, _, true) => SHORT_WAIT,
            (false, _, false) => Duration::ZERO,
        };
        let spaced = self.sent.map_or(self.differs, |sent| sent + MIN_WRITE_PAUSE);
        spaced.max(self.differs + wait).max(self.damped.unwrap_or(self.differs))
    }
}

/// Slows down the writes of a pipeline's status in which only health has changed. Each write shortly after another
/// doubles the interval to the next. The first write after a quiet time is not delayed, nor is a target that
/// fails, unless its failure was written lately.
#[derive(Debug, Default)]
pub struct Damping {
    interval: Duration,
    sent: Option<Instant>,
    /// The targets that were written as Failed within [`Damping::LATELY`], with the time.
    failed: BTreeMap<TargetId, Instant>,
}

/// A target, by environment and name.
pub type TargetId = (String, String);

impl Damping {
    /// The interval after the second write in a row.
    const SHORTEST: Duration = Duration::from_secs(1);
    /// The longest interval.
    const LONGEST: Duration = Duration::from_secs(30);
    /// How long after the last write the next one counts as the first of a row.
    const QUIET: Duration = Duration::from_secs(60);
    /// How long a target's failure counts as written lately.
    const LATELY: Duration = Duration::from_secs(120);

    /// When a status in which only health has changed may be written; `None` for immediately. `failed` are the
    /// targets that are Failed in it, and were not in the last one.
    pub fn until(&self, failed: &[TargetId], now: Instant) -> Option<Instant> {
        let is_written =
            |place| self.failed.get(place).is_some_and(|at| now.duration_since(*at) < Self::LATELY);
        let sent = self.sent.filter(|at| now.duration_since(*at) < Self::QUIET)?;
        failed.iter().all(is_written).then_some(sent + self.interval)
    }

    /// Counts the write of a status in which only health has changed.
    pub fn sent(&mut self, failed: Vec<TargetId>, now: Instant) {
        let in_a_row = self.sent.is_some_and(|at| now.duration_since(at) < Self::QUIET);
        self.interval = match in_a_row {
            true => (self.interval * 2).clamp(Self::SHORTEST, Self::LONGEST),
            false => Duration::ZERO,
        };
        self.sent = Some(now);
        self.failed.retain(|_, at| now.duration_since(*at) < Self::LATELY);
        self.failed.extend(failed.into_iter().map(|place| (place, now)));
    }
}

/// Whether nothing has changed but the health of targets and messages about it. What the targets run and have
/// verified, and the promotions, are as before. A target that cannot be read may run what it ran before.
pub fn has_only_health_changed(before: &PipelineStatus, now: &PipelineStatus) -> bool {
    let runs_the_same = |a: &TargetStatus, b: &TargetStatus| {
        let verified = || Revision::from_strings(&b.verified.last()?.facets);
        let is_last_verified = || b.revision == verified().map(|revision| revision.to_string());
        a.revision == b.revision || b.revision.is_none() || a.revision.is_none() && is_last_verified()
    };
    let is_same_target = |(a, b): (&TargetStatus, &TargetStatus)| {
        (&a.name, &a.verified, &a.unverified) == (&b.name, &b.verified, &b.unverified)
            && (&a.proofs, &a.promotion) == (&b.proofs, &b.promotion)
            && runs_the_same(a, b)
    };
    // The targets say more about it.
    let may_be_same = |a: &Option<String>, b: &Option<String>| a == b || a.is_none() || b.is_none();
    let is_same = |((one, a), (other, b)): ((&String, &EnvironmentStatus), (&String, &EnvironmentStatus))| {
        (one, &a.waiting_approval, &a.promotion) == (other, &b.waiting_approval, &b.promotion)
            && may_be_same(&a.revision, &b.revision)
            && a.targets.len() == b.targets.len()
            && a.targets.iter().zip(&b.targets).all(is_same_target)
    };
    before.observed_generation == now.observed_generation
        && before.lost_clusters == now.lost_clusters
        && before.environments.len() == now.environments.len()
        && before.environments.iter().zip(&now.environments).all(is_same)
}

/// The targets that are newly Failed if only health has changed; `None` if more has changed.
pub fn newly_failed_if_only_health_changed(
    before: &PipelineStatus,
    now: &PipelineStatus,
) -> Option<Vec<TargetId>> {
    has_only_health_changed(before, now).then(|| newly_failed(before, now))
}

/// The targets that are Failed now and were not before.
pub fn newly_failed(before: &PipelineStatus, now: &PipelineStatus) -> Vec<TargetId> {
    let failed = |status: &PipelineStatus| -> BTreeSet<TargetId> {
        let all = status.environments.iter().flat_map(|(name, e)| e.targets.iter().map(move |t| (name, t)));
        let failed = all.filter(|(_, t)| t.health == Health::Failed);
        failed.map(|(name, t)| (name.clone(), t.name.clone())).collect()
    };
    let before = failed(before);
    failed(now).into_iter().filter(|place| !before.contains(place)).collect()
}

/// Whether the health or the error of a target has changed.
pub fn has_health_changed(before: &PipelineStatus, now: &PipelineStatus) -> bool {
    let health = |status: &PipelineStatus| -> Vec<_> {
        let targets = status.environments.values().flat_map(|e| &e.targets);
        targets.map(|t| (t.name.clone(), t.health, t.error.clone())).collect()
    };
    health(before) != health(now)
}

/// Whether a promotion was delivered since the status before.
pub fn is_newly_delivered(before: &PipelineStatus, now: &PipelineStatus) -> bool {
    let delivered = |status: &PipelineStatus, environment: &str| {
        let promotion = status.environments.get(environment).and_then(|e| e.promotion.as_ref());
        promotion.filter(|p| p.phase == Phase::Delivered).map(|p| p.name.clone())
    };
    now.environments.keys().any(|e| delivered(now, e).is_some() && delivered(now, e) != delivered(before, e))
}
