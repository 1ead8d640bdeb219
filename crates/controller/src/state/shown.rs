//! What the state shows to readers outside of the loop.

use std::sync::Arc;

use sluice_api::promotion::Promotion;
use sluice_api::snapshot::{Snapshot, StoredPipeline};

use super::State;
use super::cached::PromotionHookFields;
use super::entries::Record;

impl State {
    /// Returns the Pipelines and Promotions as they are stored, or being written.
    pub fn snapshot(&self) -> Snapshot {
        let pipelines = self.pipelines.iter().map(|(key, entry)| {
            let parts = &entry.cached.parts;
            let stored = StoredPipeline { object: parts.object.clone(), status: parts.status.clone() };
            ((key.namespace.clone(), key.name.clone()), stored)
        });
        let promotions = self.promotions.iter().map(|(key, records)| {
            let stored = records.values().filter(|record| record.is_stored).map(shown).collect();
            ((key.namespace.clone(), key.name.clone()), stored)
        });
        Snapshot {
            is_complete: self.is_ready(),
            pipelines: pipelines.collect(),
            promotions: promotions.collect(),
        }
    }
}

/// Returns a promotion with the fields that hook calls write, which few promotions have.
fn shown(record: &Record) -> Arc<Promotion> {
    let PromotionHookFields { report, key_approval } = &record.cached.hook_fields;
    if report.is_none() && key_approval.is_none() {
        return record.object().clone();
    }
    let mut promotion = record.object().as_ref().clone();
    let status = promotion.status.get_or_insert_default();
    status.callback.clone_from(report);
    status.key_approval.clone_from(key_approval);
    Arc::new(promotion)
}
