//! The pipelines and promotions in memory, each with what this process alone knows of it.

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
use crate::hook::condition::Problem;
use crate::observe::facts::ClusterKey;

/// A pipeline.
pub(super) struct PipelineEntry {
    /// The object.
    pub cached: Cached<CachedPipeline>,
    /// The object as `core` sees it.
    pub model: Pipeline,
    /// What its targets have proven.
    pub evidence: Evidence,
    /// Since when a status that differs from the stored one waits to be written.
    pub differs: Option<Instant>,
    /// When a status was last sent.
    pub sent: Option<Instant>,
    /// Slows down the writes of health that changes again and again.
    pub damping: Damping,
    /// Its owner has edited it since a status was composed for it.
    pub edited: bool,
    /// When the first event happened that it was not reconciled for.
    pub enqueued: Option<Instant>,
    /// When an event about each of its clusters was last sent.
    pub cluster_events: BTreeMap<ClusterKey, Instant>,
    /// By their names, the promotions that could not be recorded.
    pub unrecorded: BTreeMap<String, Unrecorded>,
    /// What is wrong with its Secrets with hook keys; `None` until they were read.
    pub hook_secret: Option<Option<Problem>>,
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
    /// Recording it is not tried again before.
    pub until: Instant,
    /// The pause after the last failure.
    pub pause: Duration,
}

impl Unrecorded {
    /// One that has not failed yet.
    pub fn new(now: Instant) -> Self {
        Self { why: String::new(), until: now, pause: Duration::ZERO }
    }
}

/// A promotion's record.
pub(super) struct Record {
    /// The object, as it is stored or being written.
    pub cached: Cached<CachedPromotion>,
    /// It exists on the server: only then may anything be done about it.
    pub is_stored: bool,
    /// This process made it, and has not tried to deliver it yet.
    pub is_first_try: bool,
    /// What this process has last reported on its commit.
    pub reported: Option<Reported>,
}

/// The commit status that was last reported of a promotion, or is being reported.
#[derive(Clone, Debug)]
pub(super) struct Reported {
    pub progress: PromotionProgress,
    pub round: u32,
    /// Revoked when there is a newer one to report.
    pub fencing_token: FencingToken,
}

impl Record {
    /// One that this process is creating.
    pub fn being_created(object: Promotion) -> Self {
        let cached = Cached::being_created(object);
        Self { cached, is_stored: false, is_first_try: true, reported: None }
    }

    /// The object.
    pub fn object(&self) -> &Arc<Promotion> {
        &self.cached.parts.0
    }

    /// The status, empty if nothing was written yet.
    pub fn status(&self) -> PromotionStatus {
        self.object().status.clone().unwrap_or_default()
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        self.object().status.as_ref().map(|status| status.phase).unwrap_or_default()
    }

    /// Whether it belongs to this very pipeline, and not to an earlier one of the same name.
    pub fn belongs_to(&self, pipeline: &ApiPipeline) -> bool {
        let owners = self.object().metadata.owner_references.iter().flatten();
        let mut owners = owners.filter(|owner| owner.kind == "Pipeline").peekable();
        owners.peek().is_none() || owners.any(|owner| Some(&owner.uid) == pipeline.metadata.uid.as_ref())
    }
}

/// Whether a promotion waits for a retry that may come sooner. A forge that asked for a pause gets it.
pub(super) fn may_retry_early(object: &Promotion) -> bool {
    object.status.as_ref().is_some_and(|status| {
        status.phase == Phase::Promoting && status.next_attempt.is_some() && status.reason != "RateLimited"
    })
}
