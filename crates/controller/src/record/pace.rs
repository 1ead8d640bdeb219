//! When a status that differs from what stands is due: at once as a rule, a moment later where the
//! story is about to go on, so that one step of it is one write. Pure.

use std::time::{Duration, Instant};

use sluice_api::pipeline::PipelineStatus;
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
        spaced.max(self.differs + patience)
    }
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
