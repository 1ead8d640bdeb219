//! The pipelines and promotions in memory, with facts that only this process has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_api::pipeline::Pipeline as ApiPipeline;
use sluice_api::promotion::{Phase, Promotion, PromotionStatus};
use sluice_core::evidence::Evidence;
use sluice_core::pipeline::Pipeline;
use sluice_delivery::{FencingToken, PromotionProgress};

use super::cached::{Cached, CachedPipeline, CachedPromotion};
use super::status_pace::Damping;
use crate::act::RATE_LIMITED;
use crate::hook::secret_condition::HookSecretProblem;
use sluice_core::fleet::ClusterKey;

/// A pipeline.
pub(super) struct PipelineEntry {
    /// The object.
    pub cached: Cached<CachedPipeline>,
    /// The object as `core` sees it.
    pub model: Pipeline,
    /// The revisions that its targets have verified.
    pub evidence: Evidence,
    /// Since when a changed status waits to be written.
    pub differs: Option<Instant>,
    /// When a status was last sent.
    pub sent: Option<Instant>,
    /// Slows down the writes of health that changes again and again.
    pub damping: Damping,
    /// Its owner has edited it since a status was composed for it.
    pub edited: bool,
    /// This process has reconciled it.
    pub is_reconciled: bool,
    /// When it was queued; `None` if it is not queued.
    pub enqueued: Option<Instant>,
    /// Until when it is not reconciled again, because the last time took long; `None` if it may be.
    pub rests_until: Option<Instant>,
    /// When an event about each of its clusters was last sent.
    pub cluster_events: BTreeMap<ClusterKey, Instant>,
    /// The promotions that could not be recorded, by name.
    pub unrecorded: BTreeMap<String, Unrecorded>,
    /// The problem with its Secrets with hook keys, if there is one; `None` until they were read.
    pub hook_secret: Option<Option<HookSecretProblem>>,
}

impl PipelineEntry {
    /// Metadata and spec.
    pub fn object(&self) -> &Arc<ApiPipeline> {
        &self.cached.parts.object
    }
}

/// A promotion that could not be recorded.
#[derive(Debug)]
pub(super) struct Unrecorded {
    /// What failed, and what to do.
    pub why: String,
    /// When recording it is retried at the earliest.
    pub until: Instant,
    /// The pause after the last failure.
    pub pause: Duration,
}

impl Unrecorded {
    /// A promotion whose first failure is about to be noted.
    pub fn new(now: Instant) -> Self {
        Self { why: String::new(), until: now, pause: Duration::ZERO }
    }
}

/// A promotion's record.
pub(super) struct Record {
    /// The object, as it is stored or being written.
    pub cached: Cached<CachedPromotion>,
    /// It is stored on the hub. Side effects start only then.
    pub is_stored: bool,
    /// This process created it, and has not tried to deliver it yet.
    pub is_first_try: bool,
    /// The last commit status that this process reported.
    pub reported: Option<Reported>,
}

/// The commit status that was last reported of a promotion, or is being reported.
#[derive(Clone, Debug)]
pub(super) struct Reported {
    pub progress: PromotionProgress,
    pub round: u32,
    /// Revoked when a newer commit status is reported.
    pub fencing_token: FencingToken,
}

impl Record {
    /// A record that this process is creating.
    pub fn being_created(object: Promotion) -> Self {
        let cached = Cached::being_created(object);
        Self { cached, is_stored: false, is_first_try: true, reported: None }
    }

    /// The object.
    pub fn object(&self) -> &Arc<Promotion> {
        &self.cached.parts.0
    }

    /// The status; empty if none was written yet.
    pub fn status(&self) -> PromotionStatus {
        self.object().status.clone().unwrap_or_default()
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        self.object().phase()
    }

    /// Whether it belongs to this pipeline, and not to an earlier one of the same name.
    pub fn belongs_to(&self, pipeline: &ApiPipeline) -> bool {
        let owners = self.object().metadata.owner_references.iter().flatten();
        let mut owners = owners.filter(|owner| owner.kind == "Pipeline").peekable();
        owners.peek().is_none() || owners.any(|owner| Some(&owner.uid) == pipeline.metadata.uid.as_ref())
    }
}

/// Whether a promotion waits for a retry that may come earlier. If a forge asked for the pause, it may not.
pub(super) fn may_retry_early(object: &Promotion) -> bool {
    object.status.as_ref().is_some_and(|status| {
        status.phase == Phase::Promoting && status.next_attempt.is_some() && status.reason != RATE_LIMITED
    })
}
