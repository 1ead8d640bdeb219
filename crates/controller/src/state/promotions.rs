//! What the watch of Promotions tells.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kube::ResourceExt;
use sluice_api::promotion::Promotion as ApiPromotion;

use super::{PipelineKey, named, pipeline_of, version_of, went_back};
use crate::engine::{Engine, Record};
use crate::record::writer::StatusOf;
use crate::watch::stream::Seen;

impl Engine {
    pub(crate) fn promotions_seen(&mut self, seen: Seen<ApiPromotion>) {
        match seen {
            Seen::Listed(objects, version) => {
                let back = went_back(&mut self.listed_at.1, version);
                let there: HashSet<(PipelineKey, String)> =
                    objects.iter().map(|o| (pipeline_of(o), o.name_any())).collect();
                let mut lost = Vec::new();
                for (key, records) in &mut self.promotions {
                    let before = records.len();
                    // What was written since the list was read stands all the same; what becomes of it
                    // is told by the watch that follows.
                    let since = |r: &Record| !r.stored || (!back && r.version > version);
                    records.retain(|name, r| since(r) || there.contains(&(key.clone(), name.clone())));
                    lost.extend((records.len() < before).then(|| key.clone()));
                }
                lost.iter().for_each(|key| self.touch(key));
                if back {
                    let records = self.promotions.values_mut().flat_map(BTreeMap::values_mut);
                    records.for_each(|record| (record.version, record.read_at) = (0, 0));
                }
                objects.into_iter().for_each(|object| self.put_promotion(object));
                self.listed.1 = true;
            }
            Seen::Applied(object) => self.put_promotion(object),
            Seen::Deleted(metadata) => self.lose_promotion(&named(&metadata)),
            // Its name stays taken, so that what it stands for is not begun a second time.
            Seen::Unreadable(bad) => {
                self.lose_promotion(&named(&bad.metadata));
                self.unreadable::<ApiPromotion>(bad);
            }
            Seen::Failed(error) => {
                tracing::warn!(%error, "cannot watch Promotions: are the CRDs installed (sluice crds | kubectl apply -f -), and may the controller read them?")
            }
        }
    }

    /// Forgets a record, whichever pipeline it was of.
    pub(crate) fn lose_promotion(&mut self, gone: &PipelineKey) {
        self.readable::<ApiPromotion>(gone);
        let here = |(key, records): (&PipelineKey, &mut BTreeMap<String, Record>)| {
            let held = key.namespace == gone.namespace && records.remove(&gone.name).is_some();
            held.then(|| key.clone())
        };
        let of = self.promotions.iter_mut().find_map(here);
        // One of the same name in another namespace is another one.
        if let Some(key) = &of {
            self.polling.forget(&gone.name);
            self.stored_times.forget(&gone.name);
            self.writer.forget(&StatusOf::Promotion(key.clone(), gone.name.clone()));
        }
        of.iter().for_each(|key| self.touch(key));
    }

    /// Takes in a record. People change its spec; its status is written by the replica that acts for its
    /// pipeline, which knows better than a watch that lags behind.
    pub(crate) fn put_promotion(&mut self, mut object: ApiPromotion) {
        let (key, name) = (pipeline_of(&object), object.name_any());
        self.readable::<ApiPromotion>(&named(&object.metadata));
        let version = version_of(&object.metadata);
        let said = object.status.as_mut().and_then(|status| status.callback.take());
        let key_approval = object.status.as_mut().and_then(|status| status.key_approval.take());
        let ours = self.shards.permit(&key).is_some();
        let writing = self.writer.is_writing(&StatusOf::Promotion(key.clone(), name.clone()));
        let records = self.promotions.entry(key.clone()).or_default();
        let before = records.get(&name);
        let is_known = before.is_some();
        let first = ours && before.is_some_and(|r| r.first);
        // Of one that is being made the answer tells whose it is: another try may have left it.
        let stored = before.is_none_or(|r| r.stored);
        let is_same = |known: &Record| known.object.metadata.uid == object.metadata.uid;
        if let Some(other) = before.filter(|known| known.stored && !is_same(known)) {
            // A late word about a record that was deleted and created again since.
            if version < other.read_at {
                return;
            }
            self.writer.forget(&StatusOf::Promotion(key.clone(), name.clone()));
        }
        let Some(known) = records.get_mut(&name).filter(|known| known.stored && is_same(known)) else {
            // One that a call has started; of those that this replica starts it says so itself.
            let is_new = !is_known && object.status.is_none() && object.spec.trigger.is_some();
            if let Some(entry) = self.pipelines.get(&key).filter(|_| ours && is_new) {
                self.events.started(&entry.object, &object);
            }
            let object = Arc::new(object);
            let (read_at, reported) = (version, None);
            let record = Record { object, stored, said, key_approval, first, read_at, version, reported };
            records.insert(name, record);
            return self.touch(&key);
        };
        let approver = approver(known, &object, key_approval.is_some()).filter(|_| version >= known.read_at);
        if let (Some(by), Some(entry)) = (approver, self.pipelines.get(&key).filter(|_| ours)) {
            self.events.approved(&entry.object, &object, &by);
        }
        // What is under way was begun before somebody rejected it.
        if version >= known.read_at && known.object.spec.rejection != object.spec.rejection {
            let place = (key.clone(), object.spec.place());
            self.under_way.get(&place).into_iter().for_each(sluice_delivery::Permit::revoke);
        }
        // Not as it was, and not by this replica: then somebody else has written it, and knows why.
        let keeps_status = ours && writing && object.status != known.object.status;
        let mut news = known.take_in(&mut object, version, keeps_status);
        if version >= known.read_at && (known.said != said || known.key_approval != key_approval) {
            (known.said, known.key_approval, news) = (said, key_approval, true);
        }
        known.first = first;
        if news {
            self.touch(&key);
        }
    }
}

impl Record {
    /// Takes in the object as it was read, part by part, and says whether anything is new. Each part has its
    /// own order: the spec is as new as the newest object that was read; the status is as new as the last
    /// write that was acknowledged, which may be ahead of the watch and must not hide an approval that the
    /// watch has yet to deliver.
    fn take_in(&mut self, object: &mut ApiPromotion, version: u64, keeps_status: bool) -> bool {
        let is_latest_read = version >= self.read_at;
        let takes_status = version > self.version && !keeps_status;
        let mut status = self.object.status.clone();
        let overwritten = takes_status && status != object.status;
        if takes_status {
            (self.version, status) = (version, object.status.take());
        }
        let edited = is_latest_read && self.object.spec != object.spec;
        let base = if is_latest_read { &*object } else { self.object.as_ref() };
        if takes_status || is_latest_read {
            self.object = Arc::new(ApiPromotion { status, ..base.clone() });
        }
        self.read_at = self.read_at.max(version);
        overwritten || edited
    }
}

/// Who has approved a promotion since it was `known`.
fn approver(known: &Record, object: &ApiPromotion, by_key: bool) -> Option<String> {
    let approval = object.spec.approval.as_ref();
    let person = approval.filter(|approval| known.object.spec.approval.as_ref() != Some(approval));
    match person {
        Some(approval) => Some(approval.by.clone()),
        None => (by_key && known.key_approval.is_none()).then(|| "the approval key".into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_api::promotion::Approval;
    use sluice_testkit::Scratch;

    use super::*;
    use crate::engine::tests::engine;
    use crate::silence::{PATIENCE, silent};

    fn promotion(version: u64) -> ApiPromotion {
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "podinfo-prod", "namespace": "apps", "resourceVersion": version.to_string()},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8",
                "facets": {"tag": "6.1.8"}}});
        serde_json::from_value(object).unwrap()
    }

    fn key() -> PipelineKey {
        pipeline_of(&promotion(1))
    }

    /// It is being made, and nobody has answered yet.
    fn making(engine: &mut Engine) {
        let object = Arc::new(promotion(0));
        let guess = Record::being_made(object);
        engine.promotions.entry(key()).or_default().insert("podinfo-prod".into(), guess);
    }

    /// Whether it stands, and is this process's own first try.
    fn known(engine: &Engine) -> Option<(bool, bool)> {
        engine.promotions.get(&key())?.get("podinfo-prod").map(|r| (r.stored, r.first))
    }

    #[tokio::test]
    async fn what_was_made_since_a_list_was_read_is_not_forgotten() {
        let scratch = Scratch::new("listed").unwrap();
        let mut engine = engine(&scratch);
        making(&mut engine);
        engine.created(&key(), "podinfo-prod", Ok(Some(Box::new(promotion(7)))));
        assert_eq!(known(&engine), Some((true, true)));
        engine.promotions_seen(Seen::Listed(Vec::new(), 6));
        assert_eq!(known(&engine), Some((true, true)));
        engine.promotions_seen(Seen::Listed(Vec::new(), 8));
        assert_eq!(known(&engine), None, "it was removed");

        engine.promotions_seen(Seen::Applied(promotion(9)));
        engine.promotions_seen(Seen::Listed(Vec::new(), 5));
        assert_eq!(known(&engine), None, "the server was restored from before");
    }

    #[tokio::test]
    async fn whose_a_record_is_says_the_answer_to_its_making() {
        let scratch = Scratch::new("made").unwrap();
        let made = || Ok(Some(Box::new(promotion(7))));
        let lost = || Err(silent(PATIENCE));
        for (answer, seen, alone) in [
            (made as fn() -> kube::Result<_>, Some((true, true)), Some((true, true))),
            // One of its name stands: another try's. It is read, where the watch has not told of it.
            (|| Ok(None), Some((true, false)), Some((false, false))),
            // Nobody knows whether it was made, but for the watch.
            (lost, Some((true, false)), None),
        ] {
            let mut engine = engine(&scratch);
            making(&mut engine);
            engine.promotions_seen(Seen::Applied(promotion(7)));
            assert_eq!(known(&engine), Some((false, true)), "nothing is done before the answer");
            engine.created(&key(), "podinfo-prod", answer());
            assert_eq!(known(&engine), seen);
            engine.promotions.clear();
            making(&mut engine);
            engine.created(&key(), "podinfo-prod", answer());
            assert_eq!(known(&engine), alone);
        }
    }

    #[tokio::test]
    async fn an_acknowledged_status_write_hides_no_approval_that_came_before_it() {
        let scratch = Scratch::new("approval-before-status").unwrap();
        let mut engine = engine(&scratch);
        engine.put_promotion(promotion(4));
        // The user approves at version 9; a status write is acknowledged at version 10 before the watch
        // delivers the approval.
        engine.promotions.get_mut(&key()).unwrap().get_mut("podinfo-prod").unwrap().version = 10;
        let mut approved = promotion(9);
        approved.spec.approval = Some(Approval { by: "ann".into(), ..Approval::default() });
        engine.put_promotion(approved);
        let record = &engine.promotions[&key()]["podinfo-prod"];
        assert!(record.object.spec.approval.is_some(), "the approval is lost");
        assert_eq!(record.version, 10, "the status is still the one of version 10");
        engine.put_promotion(promotion(4));
        assert!(engine.promotions[&key()]["podinfo-prod"].object.spec.approval.is_some());
    }
}
