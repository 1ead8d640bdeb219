//! When the status of a pipeline is written, and what it says: the last step of a reconciliation.

use std::time::Instant;

use kube::ResourceExt;
use sluice_api::pipeline::PipelineStatus;
use sluice_api::promotion::Promotion as ApiPromotion;
use sluice_core::decide::Decision;
use sluice_core::record_retention;
use sluice_delivery::FencingToken;

use super::State;
use super::actions::pause_until;
use super::effect::Effect;
use super::entries::{PipelineEntry, Record};
use super::reconcile::LoadedFacts;
use super::status_pace::{self, Pace};
use super::status_queue::{Basis, StatusOwner, serialize_status};
use crate::hook::secret_condition::HookSecretProblem;
use crate::hook::secret_names;
use crate::pipeline_key::PipelineKey;
use crate::record::status;

impl State {
    /// RECORD: the status if it has changed, commit statuses, and the removal of old records.
    pub(super) fn record_outcome(&mut self, key: &PipelineKey, facts: &LoadedFacts, decision: &Decision) {
        self.report_commit_statuses(key, &facts.tampered);
        self.prune(key, &record_retention::surplus(&facts.promotions, self.settings.history_limit));
        if let Some(time) = decision.requeue_at {
            self.requeue_at(key, self.now.instant + pause_until(time, self.now.wall));
        }
        let Some(fencing_token) = self.fencing_token(key) else { return };
        let Some(before) = self.pipelines.get(key).map(|entry| entry.cached.parts.status()) else { return };
        let Some(status) = self.compose_status(key, facts, decision, &before) else { return };
        let is_busy = self.is_pipeline_busy(key);
        let now = self.now.instant;
        let Some(entry) = self.pipelines.get_mut(key) else { return };
        if status == before {
            entry.differs = None;
            return;
        }
        let failed = status_pace::newly_failed_if_only_health_changed(&before, &status);
        let due = entry.status_due(&before, &status, failed.as_deref(), is_busy, now);
        if due > now {
            return self.requeue_at(key, due);
        }
        failed.into_iter().for_each(|failed| entry.damping.sent(failed, now));
        self.write_pipeline_status(key, &before, &status, fencing_token);
    }

    /// Whether a promotion of the pipeline is being recorded, or a side effect is in flight.
    fn is_pipeline_busy(&self, key: &PipelineKey) -> bool {
        let mut records = self.promotions.get(key).into_iter().flatten();
        records.any(|(_, record)| !record.is_stored) || self.in_flight.keys().any(|(of, _)| of == key)
    }

    /// Composes the status of a pipeline.
    fn compose_status(
        &mut self,
        key: &PipelineKey,
        facts: &LoadedFacts,
        decision: &Decision,
        before: &PipelineStatus,
    ) -> Option<PipelineStatus> {
        let entry = self.pipelines.get(key)?;
        let records = self.promotions.get(key).into_iter().flatten();
        let is_own = |(name, record): &(&String, &Record)| {
            record.belongs_to(entry.object()) && !facts.tampered.contains_key(*name)
        };
        let promotions: Vec<&ApiPromotion> =
            records.filter(is_own).map(|(_, record)| record.object().as_ref()).collect();
        let lost = entry.lost_clusters(&self.index, &before.lost_clusters, self.now.instant);
        let status = status::compose(&status::StatusFacts {
            object: entry.object(),
            before,
            pipeline: &entry.model,
            observed: &facts.observed,
            unanswered: &facts.unanswered,
            reports: &entry.cached.hook_fields.reports,
            hook_secret: hook_secret(entry, self.settings.serves_hooks),
            evidence: &entry.evidence,
            decision,
            promotions: &promotions,
            lost_clusters: lost.names,
            now: self.now.wall,
        });
        if let Some(at) = lost.held_until {
            self.requeue_at(key, at);
        }
        Some(status)
    }

    /// Requests the write of a pipeline's status, and announces the clusters that the status newly names as lost
    /// or back.
    fn write_pipeline_status(
        &mut self,
        key: &PipelineKey,
        before: &PipelineStatus,
        status: &PipelineStatus,
        fencing_token: FencingToken,
    ) {
        let serialized = match serialize_status(status) {
            Ok(serialized) => serialized,
            Err(error) => return tracing::error!(pipeline = %key, %error, "cannot serialize a status"),
        };
        let now = self.now.instant;
        let Some(entry) = self.pipelines.get_mut(key) else { return };
        let basis = Basis {
            version: entry.cached.basis_version(),
            status: entry.cached.parts.status.replace(serialized.clone()),
            uid: entry.object().uid(),
        };
        (entry.differs, entry.sent) = (None, Some(now));
        let lost = (&before.lost_clusters[..], &status.lost_clusters[..]);
        let events = entry.new_cluster_events(&self.index, lost, now);
        self.write_status(StatusOwner::Pipeline(key.clone()), serialized, basis, fencing_token);
        self.effects.extend(events.into_iter().map(Effect::SendEvent));
    }
}

impl PipelineEntry {
    /// When a status that differs from the last one is written.
    fn status_due(
        &mut self,
        before: &PipelineStatus,
        status: &PipelineStatus,
        failed: Option<&[status_pace::TargetId]>,
        is_busy: bool,
        now: Instant,
    ) -> Instant {
        let pace = Pace {
            differs: *self.differs.get_or_insert(now),
            sent: self.sent,
            damped: failed.and_then(|failed| self.damping.until(failed, now)),
            busy: is_busy,
            health: status_pace::has_health_changed(before, status),
            delivered: status_pace::is_newly_delivered(before, status),
        };
        pace.due()
    }
}

/// The problem with the Secrets that hold a pipeline's hook keys, if there is one. The outer `Option` is `None`
/// while that is not known.
fn hook_secret(entry: &PipelineEntry, serves_hooks: bool) -> Option<Option<&HookSecretProblem>> {
    if !serves_hooks || secret_names::hook_secrets(entry.object()).is_empty() {
        return Some(None);
    }
    entry.hook_secret.as_ref().map(Option::as_ref)
}
