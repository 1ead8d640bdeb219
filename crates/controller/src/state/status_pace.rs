//! When a status that differs from the stored one is written: immediately as a rule, and a moment later if more is about
//! to change, so that one step of a promotion is one write. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sluice_api::pipeline::{EnvironmentStatus, Health, PipelineStatus, TargetStatus};
use sluice_api::promotion::Phase;

/// The pause between two writes of one pipeline's status: what happens in between is written once.
pub const SPACING: Duration = Duration::from_millis(700);
/// How long a status waits for what is about to follow. People see it within a second.
pub const PROMPT: Duration = Duration::from_millis(800);
/// How long it waits for a side effect where it tells nothing of health: the promotion's own record
/// tells the rest at once. A fetch, a push and the calls that make a change request take a forge on the
/// other side of an ocean about four seconds, and a busy one next door two.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What decides when a status is due.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Since when it differs.
    pub differs: Instant,
    /// When the last one was sent.
    pub sent: Option<Instant>,
    /// It is not sent before then: it tells only of health, which changes again and again.
    pub damped: Option<Instant>,
    /// A side effect is under way, and will change it again.
    pub busy: bool,
    /// It tells of a target's health.
    pub health: bool,
    /// It tells that a promotion was delivered: Flux is about to move.
    pub delivered: bool,
}

impl Pace {
    /// When it is due.
    pub fn due(&self) -> Instant {
        let patience = match (self.busy, self.health, self.delivered) {
            (true, false, _) => PATIENCE,
            (true, true, _) | (false, _, true) => PROMPT,
            (false, _, false) => Duration::ZERO,
        };
        let spaced = self.sent.map_or(self.differs, |sent| sent + SPACING);
        spaced.max(self.differs + patience).max(self.damped.unwrap_or(self.differs))
    }
}

/// Slows down the writes of a pipeline's status that tell only of health: each one that follows shortly
/// after another doubles the interval to the next. The first change after a quiet time is not delayed, nor is
/// a target that fails, unless its failure was told lately.
#[derive(Debug, Default)]
pub struct Damping {
    interval: Duration,
    sent: Option<Instant>,
    /// The targets that were told to be Failed within [`Damping::LATELY`], with when.
    failed: BTreeMap<TargetId, Instant>,
}

/// A target, by environment and name.
pub type TargetId = (String, String);

impl Damping {
    /// The interval after the second write in a row.
    const SHORTEST: Duration = Duration::from_secs(1);
    /// The longest interval.
    const LONGEST: Duration = Duration::from_secs(30);
    /// So long after the last write the next one is the first of a row.
    const QUIET: Duration = Duration::from_secs(60);
    /// How long a target's failure counts as told.
    const LATELY: Duration = Duration::from_secs(120);

    /// When a status that tells only of health may be written; `None` for at once. `failed` are the targets
    /// that are Failed in it, and were not in the last one.
    pub fn until(&self, failed: &[TargetId], now: Instant) -> Option<Instant> {
        let told = |place| self.failed.get(place).is_some_and(|at| now.duration_since(*at) < Self::LATELY);
        let sent = self.sent.filter(|at| now.duration_since(*at) < Self::QUIET)?;
        failed.iter().all(told).then_some(sent + self.interval)
    }

    /// Counts a status that tells only of health.
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

/// Whether nothing has changed but how targets do and what is said about that: what they run, what they have
/// proven and what is promoted is as before.
pub fn tells_only_of_health(before: &PipelineStatus, now: &PipelineStatus) -> bool {
    let is_same_target = |(a, b): (&TargetStatus, &TargetStatus)| {
        (&a.name, &a.revision, &a.verified, &a.proofs, &a.promotion)
            == (&b.name, &b.revision, &b.verified, &b.proofs, &b.promotion)
    };
    let is_same = |((one, a), (other, b)): ((&String, &EnvironmentStatus), (&String, &EnvironmentStatus))| {
        (one, &a.revision, &a.waiting_approval, &a.promotion)
            == (other, &b.revision, &b.waiting_approval, &b.promotion)
            && a.targets.len() == b.targets.len()
            && a.targets.iter().zip(&b.targets).all(is_same_target)
    };
    before.observed_generation == now.observed_generation
        && before.lost_clusters == now.lost_clusters
        && before.environments.len() == now.environments.len()
        && before.environments.iter().zip(&now.environments).all(is_same)
}

/// The targets that are newly Failed, in a status that tells only of health; `None` where it tells more.
pub fn of_health_alone(before: &PipelineStatus, now: &PipelineStatus) -> Option<Vec<TargetId>> {
    tells_only_of_health(before, now).then(|| newly_failed(before, now))
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

/// Whether a target does otherwise than before, or cannot be read for another reason.
pub fn tells_of_health(before: &PipelineStatus, now: &PipelineStatus) -> bool {
    let does = |status: &PipelineStatus| -> Vec<_> {
        let targets = status.environments.values().flat_map(|e| &e.targets);
        targets.map(|t| (t.name.clone(), t.health, t.error.clone())).collect()
    };
    does(before) != does(now)
}

/// Whether a promotion has just been delivered.
pub fn tells_of_delivery(before: &PipelineStatus, now: &PipelineStatus) -> bool {
    let delivered = |status: &PipelineStatus, environment: &str| {
        let promotion = status.environments.get(environment).and_then(|e| e.promotion.as_ref());
        promotion.filter(|p| p.phase == Phase::Delivered).map(|p| p.name.clone())
    };
    now.environments.keys().any(|e| delivered(now, e).is_some() && delivered(now, e) != delivered(before, e))
}
