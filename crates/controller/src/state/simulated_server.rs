//! An API server with one Pipeline and its Promotions, and the events of its watches.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use sluice_api::pipeline::{Pipeline, PipelineStatus};
use sluice_api::promotion::{Promotion, PromotionStatus};

use super::cached::PipelineHookFields;
use super::status_queue::{StatusOwner, StatusWrite, StoredObject, WriteOutcome};

/// An event of the hub's watches.
#[derive(Clone)]
pub(super) enum HubEvent {
    Pipeline(Pipeline),
    Promotion(Promotion),
    Deleted(Promotion),
}

/// The API server of the hub.
#[derive(Default)]
pub(super) struct SimulatedHub {
    pub version: u64,
    pub pipeline: Option<Pipeline>,
    pub promotions: BTreeMap<String, Promotion>,
    /// Every Promotion that was ever created.
    pub created: BTreeSet<String>,
    pub log: Vec<HubEvent>,
    /// How many events of the log were delivered.
    pub delivered: usize,
}

impl SimulatedHub {
    pub(super) fn nth(&self, index: usize) -> Option<String> {
        self.promotions.keys().nth(index % self.promotions.len().max(1)).cloned()
    }

    fn next_version(&mut self) -> Option<String> {
        self.version += 1;
        Some(self.version.to_string())
    }

    pub(super) fn store_pipeline(&mut self, mut object: Pipeline) {
        object.metadata.resource_version = self.next_version();
        self.log.push(HubEvent::Pipeline(object.clone()));
        self.pipeline = Some(object);
    }

    pub(super) fn store_promotion(&mut self, mut object: Promotion) -> Promotion {
        object.metadata.resource_version = self.next_version();
        self.log.push(HubEvent::Promotion(object.clone()));
        self.promotions.insert(object.name_any(), object.clone());
        object
    }

    /// Writes a status as `runtime/status_writer.rs` and the API server do.
    pub(super) fn write(&mut self, write: StatusWrite) -> WriteOutcome {
        if write.fencing_token.check().is_err() {
            return WriteOutcome::Withheld;
        }
        let expected: Vec<&str> =
            write.may_be_stored.iter().chain([&write.status]).map(|status| status.get()).collect();
        match &write.owner {
            StatusOwner::Pipeline(_) => {
                let Some(mut object) = self.pipeline.clone() else { return WriteOutcome::Gone };
                let stored = serde_json::to_string(&loop_fields(object.status.clone())).unwrap();
                if object.uid() != write.uid {
                    return WriteOutcome::Gone;
                }
                let is_known =
                    write.version == 0 || object.resource_version() == Some(write.version.to_string());
                if !is_known && object.status.is_some() && !expected.contains(&stored.as_str()) {
                    return WriteOutcome::Conflict(Box::new(StoredObject::Pipeline(object)));
                }
                object.status = Some(serde_json::from_str(write.status.get()).unwrap());
                self.store_pipeline(object);
            }
            StatusOwner::Promotion(_, name) => {
                let Some(mut object) = self.promotions.get(name).cloned() else { return WriteOutcome::Gone };
                if object.uid() != write.uid {
                    return WriteOutcome::Gone;
                }
                let stored = serde_json::to_string(&object.status.clone().unwrap_or_default()).unwrap();
                let is_known =
                    write.version == 0 || object.resource_version() == Some(write.version.to_string());
                if !is_known && object.status.is_some() && !expected.contains(&stored.as_str()) {
                    return WriteOutcome::Conflict(Box::new(StoredObject::Promotion(object)));
                }
                let status: PromotionStatus = serde_json::from_str(write.status.get()).unwrap();
                object.status = Some(status);
                self.store_promotion(object);
            }
        }
        WriteOutcome::Stored(self.version)
    }
}

/// A status without what hook calls store.
pub(super) fn loop_fields(status: Option<PipelineStatus>) -> PipelineStatus {
    let mut status = status.unwrap_or_default();
    let _ = PipelineHookFields::take(&mut status);
    status
}
