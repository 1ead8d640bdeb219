//! An object of the hub in memory. Three parts of it change independently and are known as of different versions:
//! the spec and what hook calls stored in its status are as new as the newest object that was read; the rest of
//! its status is as new as the last acknowledged write, which may be ahead of the watch.

use std::sync::Arc;

use kube::Resource;
use sluice_api::pipeline::{Pipeline, PipelineStatus};
use sluice_api::promotion::{Callback, KeyApproval, Promotion, PromotionStatus};
use sluice_core::Time;

use crate::observe::reported::Reports;
use crate::resource_version::version_of;
use crate::state::status_queue::{SerializedStatus, StoredVersion, may_be_opened, serialize_status};
use crate::state::unread_metadata::without_unread;

/// The parts of an object that are kept in memory, without its hook fields.
pub(crate) trait CachedParts: Sized {
    /// The kind.
    type Object: Resource<DynamicType = ()>;
    /// The fields of the status that hook calls write, on any replica. The loop never writes them.
    type HookFields: PartialEq;

    /// Splits an object that was read.
    fn split(object: Self::Object) -> (Self, Self::HookFields);

    /// Returns the object, for its metadata and spec.
    fn object(&self) -> &Self::Object;

    /// Takes metadata and spec of a newer object. `hook_fields` are the known ones and those of the newer object. Returns
    /// whether its owner has changed the spec.
    fn take_spec(&mut self, newer: &Self, hook_fields: [&Self::HookFields; 2]) -> bool;

    /// Whether both have the same status.
    fn has_status_of(&self, other: &Self) -> bool;

    /// Takes the status of a newer object.
    fn take_status(&mut self, newer: &Self);
}

/// An object of the hub in memory.
#[derive(Debug)]
pub(crate) struct Cached<K: CachedParts> {
    /// Spec and status.
    pub parts: K,
    /// The fields of the status that hook calls write.
    pub hook_fields: K::HookFields,
    /// The version of the newest object that was read, by watch, list or get.
    read_at: u64,
    /// The version of the object that had the status which is kept here; 0 if it is not known.
    status_at: u64,
    /// The newest version that may have an edit that was not read when a status was written.
    edited_at: u64,
}

/// What has changed in an object that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// No newer object was read before, so its spec and hook fields count.
    pub is_latest: bool,
    /// Its owner has edited the spec.
    pub spec: bool,
    /// Another writer has changed the status, and it was taken.
    pub status: bool,
    /// The status is newer than the known one, and differs from it.
    pub foreign_status: bool,
}

impl<K: CachedParts> Cached<K> {
    /// An object that is read for the first time.
    pub fn new(object: K::Object) -> Self {
        let version = version_of(object.meta());
        let (parts, hook_fields) = K::split(object);
        Self { parts, hook_fields, read_at: version, status_at: version, edited_at: 0 }
    }

    /// An object that is being created: it has no version yet.
    pub fn being_created(object: K::Object) -> Self {
        Self { read_at: 0, status_at: 0, ..Self::new(object) }
    }

    /// The version of the newest object that was read.
    pub fn read_at(&self) -> u64 {
        self.read_at
    }

    /// The version of the object that had the status which is kept here; 0 if it is not known.
    pub fn status_at(&self) -> u64 {
        self.status_at
    }

    /// The version for which a new status is composed. If the stored object may have an edit that was not read yet, it is an
    /// earlier one, so that the write is compared with the edit.
    pub fn basis_version(&self) -> u64 {
        if self.edited_at > self.read_at { self.known_at() } else { self.status_at }
    }

    /// The newest version at which both spec and status are known.
    pub fn known_at(&self) -> u64 {
        self.read_at.min(self.status_at)
    }

    /// Whether an object that was read is another one, which was deleted or created under the same name.
    pub fn is_other(&self, read: &K::Object) -> bool {
        self.parts.object().meta().uid != read.meta().uid
    }

    /// Takes in an object that was read, except its hook fields, which are returned. While this replica is
    /// `writing` its status, a differing status is a late copy of an earlier write: the writer notices conflicts.
    pub fn take_in(&mut self, read: K::Object, writing: bool) -> (Changes, K::HookFields) {
        let version = version_of(read.meta());
        let (read, hook_fields) = K::split(read);
        let is_latest = version >= self.read_at;
        let is_news = version > self.status_at;
        let differs = !self.parts.has_status_of(&read);
        let spec = is_latest && self.parts.take_spec(&read, [&self.hook_fields, &hook_fields]);
        let takes_status = is_news && !(differs && writing);
        if takes_status {
            self.status_at = version;
            self.parts.take_status(&read);
        }
        self.read_at = self.read_at.max(version);
        let status = takes_status && differs;
        (Changes { is_latest, spec, status, foreign_status: is_news && differs }, hook_fields)
    }

    /// Replaces everything by the object that the API server returned when it was created.
    pub fn created(&mut self, object: K::Object) {
        *self = Self::new(object);
    }

    /// Notes that a status write was acknowledged.
    pub fn written(&mut self, StoredVersion { version, is_over_edit }: StoredVersion) {
        self.status_at = self.status_at.max(version);
        if is_over_edit {
            self.edited_at = self.edited_at.max(version);
        }
    }

    /// Notes that it is not known whether a status write took effect. The next object that is read shows it.
    pub fn mark_status_unknown(&mut self) {
        self.status_at = 0;
    }

    /// Notes that the API server was restored from a backup, so that versions start again from an earlier one.
    pub fn restored(&mut self) {
        (self.read_at, self.status_at, self.edited_at) = (0, 0, 0);
    }
}

/// A status with fields that hook calls write.
pub(crate) trait HasHookFields: Clone + Default + PartialEq {
    /// These fields.
    type HookFields: Default;
    /// Their names in JSON.
    const HOOK_FIELDS: &[&str];

    /// Takes the fields out of the status.
    fn take_hook_fields(&mut self) -> Self::HookFields;
}

/// The fields of a pipeline's status that hook calls write.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PipelineHookFields {
    /// The reports of targets that Sluice cannot read.
    pub reports: Reports,
    /// When a forge last reported a change of a change request.
    pub forge_called: Option<Time>,
}

impl HasHookFields for PipelineStatus {
    type HookFields = PipelineHookFields;
    const HOOK_FIELDS: &[&str] = &["reports", "forgeCalled"];

    fn take_hook_fields(&mut self) -> PipelineHookFields {
        PipelineHookFields {
            reports: std::mem::take(&mut self.reports),
            forge_called: self.forge_called.take(),
        }
    }
}

/// A Pipeline in memory. Thousands are kept, and the status as a tree takes ten times the memory of its JSON.
#[derive(Debug)]
pub(crate) struct CachedPipeline {
    /// Metadata and spec, as its owner wrote them.
    pub object: Arc<Pipeline>,
    /// The status that is stored, or is being written; `None` if the object has none, not even one of hook calls.
    pub status: Option<SerializedStatus>,
}

impl CachedPipeline {
    /// The status that is stored, or is being written.
    pub fn status(&self) -> PipelineStatus {
        self.status.as_ref().and_then(|s| serde_json::from_str(s.get()).ok()).unwrap_or_default()
    }
}

impl CachedParts for CachedPipeline {
    type Object = Pipeline;
    type HookFields = PipelineHookFields;

    fn split(object: Pipeline) -> (Self, PipelineHookFields) {
        let mut object = without_unread(object);
        let mut status = object.status.take();
        let hook = status.as_mut().map(HasHookFields::take_hook_fields);
        let status = status.and_then(|status| serialize_status(&status).ok());
        (Self { object: Arc::new(object), status }, hook.unwrap_or_default())
    }

    fn object(&self) -> &Pipeline {
        &self.object
    }

    fn take_spec(&mut self, newer: &Self, _: [&PipelineHookFields; 2]) -> bool {
        let is_edited = self.object.metadata.generation != newer.object.metadata.generation;
        if is_edited {
            self.object = newer.object.clone();
        }
        is_edited
    }

    fn has_status_of(&self, other: &Self) -> bool {
        self.status.as_ref().map(|s| s.get()) == other.status.as_ref().map(|s| s.get())
    }

    fn take_status(&mut self, newer: &Self) {
        self.status.clone_from(&newer.status);
    }
}

/// The fields of a promotion's status that hook calls write.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PromotionHookFields {
    /// The report of a webhook's receiver.
    pub report: Option<Callback>,
    /// The approval by key.
    pub key_approval: Option<Box<KeyApproval>>,
}

impl HasHookFields for PromotionStatus {
    type HookFields = PromotionHookFields;
    const HOOK_FIELDS: &[&str] = &["callback", "keyApproval"];

    fn take_hook_fields(&mut self) -> PromotionHookFields {
        PromotionHookFields { report: self.callback.take(), key_approval: self.key_approval.take() }
    }
}

/// A Promotion in memory, with its status.
#[derive(Debug)]
pub(crate) struct CachedPromotion(pub Arc<Promotion>);

impl CachedParts for CachedPromotion {
    type Object = Promotion;
    type HookFields = PromotionHookFields;

    fn split(object: Promotion) -> (Self, PromotionHookFields) {
        let mut object = without_unread(object);
        let hook = object.status.as_mut().map(HasHookFields::take_hook_fields);
        (Self(Arc::new(object)), hook.unwrap_or_default())
    }

    fn object(&self) -> &Promotion {
        &self.0
    }

    fn take_spec(&mut self, newer: &Self, [known, called]: [&PromotionHookFields; 2]) -> bool {
        let is_edited = self.0.spec != newer.0.spec;
        let mut status = self.0.status.clone();
        // The API server accepts a rejection of the stored try only. So a new one of an earlier try came before the next
        // try was stored, and counts.
        let rejection = newer.0.spec.rejection.as_ref();
        if let (Some(new), Some(status)) =
            (rejection.filter(|new| self.0.spec.rejection.as_ref() != Some(new)), &mut status)
        {
            status.retries = status.retries.min(new.retries);
        }
        let is_approved =
            self.0.spec.approval != newer.0.spec.approval || known.key_approval != called.key_approval;
        if let Some(status) = status.as_mut().filter(|status| is_approved && !status.phase.has_ended()) {
            let stored = newer.0.status.clone().unwrap_or_default();
            status.gates.retain(|gate| may_be_opened(&gate.name, &stored));
        }
        self.0 = Arc::new(Promotion { status, ..newer.0.as_ref().clone() });
        is_edited
    }

    fn has_status_of(&self, other: &Self) -> bool {
        self.0.status == other.0.status
    }

    fn take_status(&mut self, newer: &Self) {
        if !self.has_status_of(newer) {
            let status = newer.0.status.clone();
            self.0 = Arc::new(Promotion { status, ..self.0.as_ref().clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(version: u64, retries: u32, rejected: Option<u32>) -> Promotion {
        let rejection = rejected
            .map(|retries| json!({"by": "jane", "reason": "no", "revision": "1", "retries": retries}));
        let object = json!({"metadata": {"name": "podinfo-prod", "resourceVersion": version.to_string()},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {"tag": "1"},
                "rejection": rejection},
            "status": {"phase": "Failed", "retries": retries}});
        serde_json::from_value(object).unwrap()
    }

    fn counts(cached: &Cached<CachedPromotion>) -> bool {
        let promotion = &cached.parts.0;
        promotion.spec.rejection_now(promotion.status.as_ref().unwrap()).is_some()
    }

    #[test]
    fn a_rejection_that_is_accepted_before_the_next_try_is_stored_counts() {
        let mut cached = Cached::<CachedPromotion>::new(stored(1, 0, None));
        Arc::make_mut(&mut cached.parts.0).status.as_mut().unwrap().retries = 1;
        cached.take_in(stored(2, 0, Some(0)), true);
        assert!(counts(&cached));
    }

    #[test]
    fn a_rejection_of_an_earlier_try_does_not_count_again() {
        let mut cached = Cached::<CachedPromotion>::new(stored(1, 0, Some(0)));
        assert!(counts(&cached));
        Arc::make_mut(&mut cached.parts.0).status.as_mut().unwrap().retries = 1;
        cached.take_in(stored(2, 0, Some(0)), true);
        assert!(!counts(&cached));
        // Another replica has made the next try.
        let mut cached = Cached::<CachedPromotion>::new(stored(1, 0, None));
        cached.take_in(stored(5, 1, Some(0)), false);
        assert!(!counts(&cached));
    }
}
