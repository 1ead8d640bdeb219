//! An API server with one Pipeline and its Promotions, and the events of its watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use sluice_api::pipeline::{Pipeline, PipelineStatus};
use sluice_api::promotion::Promotion;

use crate::resource_version::version_of;
use crate::state::cached::HasHookFields;
use crate::state::status_queue::{StatusOwner, StatusWrite, StoredObject, StoredVersion, WriteOutcome};

/// An event of the hub's watches.
#[derive(Clone)]
pub(super) enum HubEvent {
    Pipeline(Arc<Pipeline>),
    PipelineDeleted(Arc<Pipeline>),
    Promotion(Arc<Promotion>),
    Deleted(Arc<Promotion>),
}

/// The pipelines and promotions of a list, its version, and the length of the log.
pub(super) type HubList = (Vec<Arc<Pipeline>>, Vec<Arc<Promotion>>, u64, usize);

/// The API server of the hub.
#[derive(Default)]
pub(super) struct SimulatedHub {
    pub version: u64,
    pub pipeline: Option<Arc<Pipeline>>,
    pub promotions: BTreeMap<String, Arc<Promotion>>,
    /// Every Promotion that was ever created.
    pub created: BTreeSet<String>,
    pub log: Vec<HubEvent>,
    /// How many events of the log were delivered.
    pub delivered: usize,
    /// A list that was read and not delivered yet.
    pub listed: Option<HubList>,
    /// The versions that status writes of earlier processes stored.
    pub written_late: BTreeSet<u64>,
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
        let object = Arc::new(object);
        self.log.push(HubEvent::Pipeline(object.clone()));
        self.pipeline = Some(object);
    }

    pub(super) fn store_promotion(&mut self, mut object: Promotion) -> Arc<Promotion> {
        object.metadata.resource_version = self.next_version();
        let object = Arc::new(object);
        self.log.push(HubEvent::Promotion(object.clone()));
        self.promotions.insert(object.name_any(), object.clone());
        object
    }

    /// Lists all objects.
    pub(super) fn list(&mut self) {
        let (pipelines, promotions) =
            (self.pipeline.iter().cloned().collect(), self.promotions.values().cloned().collect());
        self.listed = Some((pipelines, promotions, self.version, self.log.len()));
    }

    /// Whether the watches have something to deliver.
    pub(super) fn has_news(&self) -> bool {
        self.listed.is_some() || self.delivered < self.log.len()
    }

    /// Stores a status write of a process that has ended, if its object still has the version that it names.
    pub(super) fn write_late(&mut self, write: StatusWrite) {
        let version = match &write.owner {
            StatusOwner::Pipeline(_) => self.pipeline.as_ref().and_then(|object| object.resource_version()),
            StatusOwner::Promotion(_, name) => self.promotions.get(name).and_then(|o| o.resource_version()),
        };
        if version == Some(write.version.to_string()) {
            self.write(write);
            self.written_late.insert(self.version);
        }
    }

    /// Whether this status is from an earlier process, and no watch has reported it yet.
    pub(super) fn is_unreported(&self, object: &Promotion) -> bool {
        let version = version_of(&object.metadata);
        let is_it = |event: &HubEvent| matches!(event, HubEvent::Promotion(other) if version_of(&other.metadata) == version);
        self.written_late.contains(&version) && self.log[self.delivered..].iter().any(is_it)
    }

    /// Writes a status as `runtime/status_writer.rs` and the API server do.
    pub(super) fn write(&mut self, write: StatusWrite) -> WriteOutcome {
        if write.fencing_token.check().is_err() {
            return WriteOutcome::Withheld;
        }
        let mut is_over_edit = write.version == 0;
        let expected: Vec<&str> =
            write.may_be_stored.iter().chain([&write.status]).map(|status| status.get()).collect();
        match &write.owner {
            StatusOwner::Pipeline(_) => {
                let Some(object) = self.pipeline.clone() else { return WriteOutcome::Gone };
                if object.uid() != write.uid {
                    return WriteOutcome::Gone;
                }
                let is_known =
                    write.version == 0 || object.resource_version() == Some(write.version.to_string());
                is_over_edit |= !is_known;
                let is_expected = || {
                    let stored = serde_json::to_string(&loop_fields(object.status.clone())).unwrap();
                    expected.contains(&stored.as_str())
                };
                if !is_known && object.status.is_some() && !is_expected() {
                    let found = StoredObject::Pipeline(Arc::unwrap_or_clone(object));
                    return WriteOutcome::Conflict(Box::new(found));
                }
                let status = Some(serde_json::from_str(write.status.get()).unwrap());
                let (metadata, spec) = (object.metadata.clone(), object.spec.clone());
                self.store_pipeline(Pipeline { metadata, spec, status });
            }
            StatusOwner::Promotion(_, name) => {
                let Some(object) = self.promotions.get(name).cloned() else { return WriteOutcome::Gone };
                if object.uid() != write.uid {
                    return WriteOutcome::Gone;
                }
                let is_known =
                    write.version == 0 || object.resource_version() == Some(write.version.to_string());
                is_over_edit |= !is_known;
                let is_other = || {
                    let stored = object.status.as_ref().map(|stored| serde_json::to_string(stored).unwrap());
                    stored.is_some_and(|stored| !expected.contains(&stored.as_str()))
                };
                if is_over_edit {
                    let found = StoredObject::Promotion(object.as_ref().clone());
                    if !is_known && is_other() || write.is_overruled(&found) {
                        return WriteOutcome::Conflict(Box::new(found));
                    }
                }
                let status = Some(serde_json::from_str(write.status.get()).unwrap());
                let (metadata, spec) = (object.metadata.clone(), object.spec.clone());
                self.store_promotion(Promotion { metadata, spec, status });
            }
        }
        WriteOutcome::Stored(StoredVersion { version: self.version, is_over_edit })
    }
}

/// A status without what hook calls store.
pub(super) fn loop_fields(status: Option<PipelineStatus>) -> PipelineStatus {
    let mut status = status.unwrap_or_default();
    status.take_hook_fields();
    status
}
