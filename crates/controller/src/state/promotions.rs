//! Handles the watch of Promotions.

use std::collections::{BTreeMap, HashSet};

use kube::ResourceExt;
use sluice_api::promotion::Promotion;

use super::State;
use super::cached::Cached;
use super::effect::Effect;
use super::entries::Record;
use super::status_queue::StatusOwner;
use crate::pipeline_key::{PipelineKey, PromotionKey};
use crate::record::pending_event::PendingEvent;
use crate::resource_version::{version_of, went_back};
use crate::watch::stream::ObjectEvent;

impl State {
    /// Takes in an event of the watch of Promotions.
    pub(super) fn promotion_event(&mut self, event: ObjectEvent<Promotion>) {
        match event {
            ObjectEvent::Listed(objects, version) => self.promotions_listed(objects, version),
            ObjectEvent::Applied(object) => {
                self.promotions_watched_to = self.promotions_watched_to.max(version_of(&object.metadata));
                self.forget_former_pipeline(&object);
                self.put_promotion(object);
            }
            ObjectEvent::Deleted(metadata) => {
                self.promotions_watched_to = self.promotions_watched_to.max(version_of(&metadata));
                // The watch may report the deletion after this replica has created a successor of the same name.
                let gone = PipelineKey::named(&metadata);
                if !self.is_succeeded(&gone, metadata.uid.as_deref()) {
                    self.forget_promotion(&gone);
                }
            }
            // The object still has its name, so the promotion is not created a second time.
            ObjectEvent::Unreadable(bad) => {
                self.forget_promotion(&PipelineKey::named(&bad.metadata));
                self.note_unreadable::<Promotion>(bad);
            }
            ObjectEvent::LeftOut(..) => {}
            ObjectEvent::Failed(error) => {
                tracing::warn!(%error, "cannot watch Promotions: check that the CRDs are installed (sluice crds | kubectl apply -f -), and that the controller has get, list and watch on promotions")
            }
        }
    }

    fn promotions_listed(&mut self, objects: Vec<Promotion>, version: u64) {
        let back = went_back(&mut self.listed_at.1, version);
        self.promotions_watched_to = version;
        let listed: HashSet<(PipelineKey, String)> =
            objects.iter().map(|object| (PipelineKey::of_promotion(object), object.name_any())).collect();
        // A record that was written after the list was read may exist; the watch that follows reports if it is
        // deleted. A record that is being created may be created later.
        let may_exist = |record: &Record| match record.cached.status_at() {
            0 => !record.is_stored,
            written => !back && written > version,
        };
        let records = self.promotions.iter().flat_map(|(key, records)| records.iter().map(move |r| (key, r)));
        let gone = records.filter(|(key, (name, record))| {
            !may_exist(record) && !listed.contains(&((*key).clone(), (*name).clone()))
        });
        let gone: Vec<(PipelineKey, String)> =
            gone.map(|(key, (name, _))| (key.clone(), name.clone())).collect();
        gone.iter().for_each(|(key, name)| self.forget_record(key, name));
        if back {
            let records = self.promotions.values_mut().flat_map(BTreeMap::values_mut);
            records.for_each(|record| record.cached.restored());
        }
        objects.into_iter().for_each(|object| self.put_promotion(object));
        self.listed.1 = true;
    }

    /// Forgets a record, whichever pipeline it belongs to.
    pub(super) fn forget_promotion(&mut self, gone: &PipelineKey) {
        self.note_readable::<Promotion>(gone);
        if let Some(key) = self.holder(gone).cloned() {
            self.forget_record(&key, &gone.name);
        }
    }

    /// Forgets a record under the pipeline that it belonged to before. Only a cluster without the rules of the CRDs and
    /// the admission policy lets somebody change that.
    fn forget_former_pipeline(&mut self, object: &Promotion) {
        let key = PipelineKey::of_promotion(object);
        if self.record(&key, &object.name_any()).is_some() {
            return;
        }
        let former = self.holder(&PipelineKey::named(&object.metadata)).cloned();
        if let Some(former) = former {
            self.forget_record(&former, &object.name_any());
        }
    }

    /// Returns the pipeline that has a record of this name.
    fn holder(&self, named: &PipelineKey) -> Option<&PipelineKey> {
        let is_holder = |key: &PipelineKey, records: &BTreeMap<String, Record>| {
            key.namespace == named.namespace && records.contains_key(&named.name)
        };
        self.promotions.iter().find(|(key, records)| is_holder(key, records)).map(|(key, _)| key)
    }

    /// Whether the object with this uid has a successor of the same name.
    fn is_succeeded(&self, named: &PipelineKey, uid: Option<&str>) -> bool {
        let known = self.holder(named).and_then(|key| self.record(key, &named.name)?.object().uid());
        known.is_some_and(|known| uid != Some(known.as_str()))
    }

    /// Forgets a record of a pipeline.
    pub(super) fn forget_record(&mut self, key: &PipelineKey, name: &str) {
        let Some(gone) = self.promotions.get_mut(key).and_then(|records| records.remove(name)) else {
            return;
        };
        self.revoke_in_flight_of(key, gone.object());
        self.forget_times(&key.promotion(name));
        self.statuses.forget(&StatusOwner::Promotion(key.clone(), name.into()));
        self.enqueue(key);
    }

    /// Forgets all times of a promotion.
    pub(super) fn forget_times(&mut self, promotion: &PromotionKey) {
        self.schedule.forget(promotion);
        self.stored_times.forget(promotion);
    }

    /// Takes in a record. People change its spec; its status is written by the replica that acts for its pipeline.
    pub(super) fn put_promotion(&mut self, object: Promotion) {
        let (key, name) = (PipelineKey::of_promotion(&object), object.name_any());
        self.note_readable::<Promotion>(&PipelineKey::named(&object.metadata));
        match self.record(&key, &name) {
            Some(known) if known.is_stored && !known.cached.is_other(&object) => {
                self.update_promotion(&key, &name, object);
            }
            // A late event: of a record that was deleted and created again since, or of one whose creation is not answered.
            Some(known) if version_of(&object.metadata) < known.cached.read_at() => {}
            _ => self.new_promotion(key, name, object),
        }
    }

    /// Takes in a record that was not known, or known as another object, or is being created.
    fn new_promotion(&mut self, key: PipelineKey, name: String, object: Promotion) {
        let is_own = self.fencing_token(&key).is_some();
        let known = self.record(&key, &name);
        if let Some(other) = known.filter(|known| known.is_stored).map(|known| known.object().clone()) {
            self.statuses.forget(&StatusOwner::Promotion(key.clone(), name.clone()));
            self.revoke_in_flight_of(&key, &other);
        }
        let known = self.record(&key, &name);
        let is_new = known.is_none();
        // The answer to its creation says whether this replica created it.
        let is_stored = known.is_none_or(|known| known.is_stored);
        let is_first_try = is_own && known.is_some_and(|known| known.is_first_try);
        let record = Record { cached: Cached::new(object), is_stored, is_first_try, reported: None };
        // A hook call started it. For a promotion that this replica starts, the event is sent when it is created.
        let is_started_by_call =
            is_new && record.object().status.is_none() && record.object().spec.trigger.is_some();
        if let Some(entry) = self.pipelines.get(&key).filter(|_| is_own && is_started_by_call) {
            let started = PendingEvent::started(entry.object(), record.object());
            self.emit(Effect::SendEvent(started));
        }
        self.promotions.entry(key.clone()).or_default().insert(name, record);
        self.enqueue(&key);
    }

    /// Takes in a newer or older version of a known record.
    fn update_promotion(&mut self, key: &PipelineKey, name: &str, object: Promotion) {
        let is_own = self.fencing_token(key).is_some();
        let writing = self.statuses.is_writing(&StatusOwner::Promotion(key.clone(), name.into()));
        let Some(record) = self.record_mut(key, name) else { return };
        let before = record.object().clone();
        let (changes, hook) = record.cached.take_in(object, is_own && writing);
        record.is_first_try &= is_own;
        let is_new = |approval: &&_| record.cached.hook_fields.key_approval.as_ref() != Some(*approval);
        let by_key = hook.key_approval.as_ref().filter(is_new).map(|approval| approval.by());
        let is_called = changes.is_latest && record.cached.hook_fields != hook;
        if is_called {
            record.cached.hook_fields = hook;
        }
        let record = record.object().clone();
        let approver = approver(&before, &record, by_key).filter(|_| changes.is_latest);
        if let (Some(by), Some(entry)) = (approver, self.pipelines.get(key).filter(|_| is_own)) {
            tracing::info!(pipeline = %key, promotion = name, by, "the promotion was approved");
            let approved = PendingEvent::approved(entry.object(), &record, &by);
            self.emit(Effect::SendEvent(approved));
        }
        // The side effect in flight was started before someone rejected the promotion.
        if changes.is_latest && before.spec.rejection != record.spec.rejection {
            self.revoke_in_flight_of(key, &record);
        }
        if changes.spec || changes.status || is_called {
            self.enqueue(key);
        }
    }
}

/// Returns the approver of a promotion that was approved between two versions of it: a person, or else a key.
fn approver(before: &Promotion, after: &Promotion, by_key: Option<String>) -> Option<String> {
    let approval = after.spec.approval.as_ref();
    let person = approval.filter(|approval| before.spec.approval.as_ref() != Some(approval));
    person.map(|approval| approval.by.clone()).or(by_key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_api::promotion::{Approval, Trigger};
    use sluice_testkit::CapturedLog;

    use super::super::fixtures::state;
    use super::super::status_queue::StoredVersion;
    use super::*;
    use crate::timeout::{API_CALL_TIMEOUT, timed_out};

    fn promotion(version: u64) -> Promotion {
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "podinfo-prod", "namespace": "apps", "resourceVersion": version.to_string()},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8",
                "facets": {"tag": "6.1.8"}}});
        serde_json::from_value(object).unwrap()
    }

    fn key() -> PipelineKey {
        PipelineKey::of_promotion(&promotion(1))
    }

    /// Adds a record whose creation has not been answered.
    fn creating(state: &mut State) {
        let guess = Record::being_created(promotion(0));
        state.promotions.entry(key()).or_default().insert("podinfo-prod".into(), guess);
    }

    /// Whether the record is stored, and whether it is the first try.
    fn known(state: &State) -> Option<(bool, bool)> {
        state.promotions.get(&key())?.get("podinfo-prod").map(|r| (r.is_stored, r.is_first_try))
    }

    #[test]
    fn a_record_that_names_another_pipeline_is_forgotten_under_the_first() {
        let mut state = state();
        state.promotion_event(ObjectEvent::Applied(promotion(7)));
        let mut changed = promotion(8);
        changed.spec.pipeline = "other".into();
        let other = PipelineKey::of_promotion(&changed);
        state.promotion_event(ObjectEvent::Applied(changed));
        assert_eq!(known(&state), None);
        assert!(state.promotions[&other].contains_key("podinfo-prod"));
    }

    #[test]
    fn a_record_created_after_a_list_was_read_is_kept() {
        let mut state = state();
        creating(&mut state);
        state.created(&key(), "podinfo-prod", Ok(Some(Box::new(promotion(7)))));
        assert_eq!(known(&state), Some((true, true)));
        state.promotion_event(ObjectEvent::Listed(Vec::new(), 6));
        assert_eq!(known(&state), Some((true, true)));
        state.promotion_event(ObjectEvent::Listed(Vec::new(), 8));
        assert_eq!(known(&state), None, "it was deleted");

        state.promotion_event(ObjectEvent::Applied(promotion(9)));
        state.promotion_event(ObjectEvent::Listed(Vec::new(), 5));
        assert_eq!(known(&state), None, "the server was restored from before");
    }

    #[test]
    fn the_answer_to_the_creation_says_who_created_a_record() {
        let created = || Ok(Some(Box::new(promotion(7))));
        let lost = || Err(timed_out(API_CALL_TIMEOUT));
        for (answer, if_watched, if_not_watched) in [
            (created as fn() -> kube::Result<_>, Some((true, true)), Some((true, true))),
            // A record of this name exists, from another try. It is read if the watch has not reported it.
            (|| Ok(None), Some((true, false)), Some((false, false))),
            // Only the watch can say whether it was created.
            (lost, Some((true, false)), None),
        ] {
            let mut state = state();
            creating(&mut state);
            state.promotion_event(ObjectEvent::Applied(promotion(7)));
            assert_eq!(known(&state), Some((false, true)), "nothing is done before the answer");
            state.created(&key(), "podinfo-prod", answer());
            assert_eq!(known(&state), if_watched);
            let mut state = self::state();
            creating(&mut state);
            state.created(&key(), "podinfo-prod", answer());
            assert_eq!(known(&state), if_not_watched);
        }
    }

    #[test]
    fn a_late_answer_about_a_deleted_record_is_not_taken_for_its_successor() {
        let mut state = state();
        creating(&mut state);
        state.promotion_event(ObjectEvent::Applied(promotion(7)));
        state.promotion_event(ObjectEvent::Deleted(promotion(8).metadata));
        assert_eq!(known(&state), None);
        // Its successor is being created when the answer about the first one arrives.
        creating(&mut state);
        state.created(&key(), "podinfo-prod", Ok(Some(Box::new(promotion(7)))));
        assert_ne!(known(&state), Some((true, true)), "the deleted record counts as stored");
        state.promotion_event(ObjectEvent::Applied(promotion(9)));
        assert!(known(&state).is_some(), "the successor is known when the watch reports it");
    }

    #[test]
    fn a_late_event_does_not_hide_what_was_read_before_the_answer_to_the_creation() {
        let mut state = state();
        creating(&mut state);
        let rejection = json!({"by": "jane", "reason": "no", "revision": "6.1.8"});
        let mut rejected = promotion(9);
        rejected.spec.rejection = serde_json::from_value(rejection).unwrap();
        state.promotion_event(ObjectEvent::Listed(vec![rejected], 9));
        state.put_promotion(promotion(7));
        state.created(&key(), "podinfo-prod", Ok(Some(Box::new(promotion(7)))));
        assert_eq!(known(&state), Some((true, true)));
        assert!(state.promotions[&key()]["podinfo-prod"].object().spec.rejection.is_some());
    }

    #[test]
    fn a_late_deletion_does_not_forget_the_successor() {
        let with_uid = |version: u64, uid: &str| {
            let mut object = promotion(version);
            object.metadata.uid = Some(uid.into());
            object
        };
        let mut state = state();
        creating(&mut state);
        state.created(&key(), "podinfo-prod", Ok(Some(Box::new(with_uid(9, "second")))));
        state.promotion_event(ObjectEvent::Deleted(with_uid(8, "first").metadata));
        assert_eq!(known(&state), Some((true, true)), "it would be created and delivered again");
        state.promotion_event(ObjectEvent::Deleted(with_uid(10, "second").metadata));
        assert_eq!(known(&state), None);
    }

    /// Returns the reasons of the events that are to be sent since the last call.
    fn reasons(state: &mut State) -> Vec<String> {
        let sent = std::mem::take(&mut state.effects).into_iter().filter_map(|effect| match effect {
            Effect::SendEvent(PendingEvent::Promotion(_, _, notice)) => Some(notice.reason),
            _ => None,
        });
        sent.collect()
    }

    #[test]
    fn an_approval_by_key_is_an_event_of_each_try_that_names_the_key() {
        let mut state = state();
        state.put_pipeline(super::super::fixtures::pipeline());
        state.promotion_event(ObjectEvent::Applied(promotion(7)));
        state.effects.clear();
        let approved = |version: u64, key: &str, at: &str| {
            let key_approval = json!({"secret": "hook", "key": key, "signedAt": at, "at": at});
            let mut object = promotion(version);
            object.status = Some(
                serde_json::from_value(json!({"phase": "Pending", "keyApproval": key_approval})).unwrap(),
            );
            object
        };
        let first = approved(8, "3fa2b1", "2026-11-21T10:00:00Z");
        let later_try = approved(10, "77aa00", "2026-11-21T11:00:00Z");
        let log = CapturedLog::default();
        tracing::subscriber::with_default(log.clone(), || {
            for object in [first.clone(), Promotion { metadata: promotion(9).metadata, ..first }, later_try] {
                state.promotion_event(ObjectEvent::Applied(object));
            }
        });
        let sent = std::mem::take(&mut state.effects).into_iter().filter_map(|effect| match effect {
            Effect::SendEvent(PendingEvent::Promotion(_, _, notice)) => Some(notice.message),
            _ => None,
        });
        assert_eq!(
            sent.collect::<Vec<_>>(),
            ["approved by key 3fa2b1 of Secret hook", "approved by key 77aa00 of Secret hook"]
        );
        let line = |by: &str| {
            format!(
                "INFO message=the promotion was approved pipeline=apps/podinfo promotion=\"podinfo-prod\" by=\"{by}\" "
            )
        };
        assert_eq!(log.take(), ["key 3fa2b1 of Secret hook", "key 77aa00 of Secret hook"].map(line));
    }

    #[test]
    fn the_start_and_the_approval_of_a_promotion_are_reported_once() {
        let mut state = state();
        state.put_pipeline(super::super::fixtures::pipeline());
        creating(&mut state);
        state.promotion_event(ObjectEvent::Applied(promotion(7)));
        assert_eq!(reasons(&mut state), Vec::<String>::new(), "its creation has not been answered");
        state.created(&key(), "podinfo-prod", Ok(Some(Box::new(promotion(7)))));
        assert_eq!(reasons(&mut state), ["Started"]);
        let mut approved = promotion(8);
        approved.spec.approval = Some(Approval { by: "ann".into(), ..Approval::default() });
        let log = CapturedLog::default();
        tracing::subscriber::with_default(log.clone(), || {
            state.promotion_event(ObjectEvent::Applied(approved.clone()));
        });
        assert_eq!(reasons(&mut state), ["Approved"]);
        let [line] = &log.take()[..] else { panic!("not one line") };
        assert!(line.contains("the promotion was approved") && line.contains("by=\"ann\""), "{line}");
        // Late and repeated events report nothing again.
        for late in [promotion(7), approved] {
            state.promotion_event(ObjectEvent::Applied(late));
        }
        assert_eq!(reasons(&mut state), Vec::<String>::new());

        // A call of the hook server has created this one.
        let mut called = promotion(9);
        called.metadata.name = Some("podinfo-prod-called".into());
        called.spec.trigger = Some(Trigger { key: "build-1".into(), ..Trigger::default() });
        state.promotion_event(ObjectEvent::Applied(called));
        assert_eq!(reasons(&mut state), ["Started"]);
        // An earlier try has created this one, and has reported its start.
        state.promotions.clear();
        creating(&mut state);
        state.promotion_event(ObjectEvent::Applied(promotion(7)));
        state.created(&key(), "podinfo-prod", Ok(None));
        assert_eq!(reasons(&mut state), Vec::<String>::new());
    }

    #[test]
    fn an_acknowledged_status_write_hides_no_approval_that_came_before_it() {
        let mut state = state();
        state.put_promotion(promotion(4));
        // The user approves at version 9; a status write is acknowledged at version 10 before the watch
        // delivers the approval.
        state
            .record_mut(&key(), "podinfo-prod")
            .unwrap()
            .cached
            .written(StoredVersion { version: 10, is_over_edit: false });
        let mut approved = promotion(9);
        approved.spec.approval = Some(Approval { by: "ann".into(), ..Approval::default() });
        state.put_promotion(approved);
        let record = &state.promotions[&key()]["podinfo-prod"];
        assert!(record.object().spec.approval.is_some(), "the approval is lost");
        assert_eq!(record.cached.status_at(), 10, "the status is still the one of version 10");
        state.put_promotion(promotion(4));
        assert!(state.promotions[&key()]["podinfo-prod"].object().spec.approval.is_some());
    }
}
