//! What the watch of Pipelines tells.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use sluice_api::pipeline::{Observe, Pipeline as ApiPipeline, PipelineStatus, Target};

use super::{PipelineKey, key_of, named, version_of, went_back};
use crate::act::retry;
use crate::engine::{Engine, Entry, Told};
use crate::predecessor;
use crate::record::pace::Damping;
use crate::record::writer::{StatusOf, spell};
use crate::translate;
use crate::watch::stream::Seen;

impl Engine {
    pub(crate) fn pipelines_seen(&mut self, seen: Seen<ApiPipeline>) {
        match seen {
            Seen::Listed(objects, version) => {
                let there: HashSet<PipelineKey> = objects.iter().map(key_of).collect();
                let gone: Vec<_> = self.pipelines.keys().filter(|k| !there.contains(*k)).cloned().collect();
                gone.iter().for_each(|key| self.forget(key));
                if went_back(&mut self.listed_at.0, version) {
                    self.pipelines.values_mut().for_each(|entry| (entry.version, entry.read_at) = (0, 0));
                }
                objects.into_iter().for_each(|object| self.put_pipeline(object));
                (self.listed.0, self.moved) = (true, true);
                self.directory.complete();
            }
            Seen::Applied(object) => self.put_pipeline(object),
            Seen::Deleted(metadata) => self.forget(&named(&metadata)),
            // Nothing is done by an older version of it that its owner has replaced.
            Seen::Unreadable(bad) => {
                self.forget(&named(&bad.metadata));
                self.unreadable::<ApiPipeline>(bad);
            }
            Seen::Failed(error) => {
                tracing::warn!(%error, "cannot watch Pipelines: are the CRDs installed (sluice crds | kubectl apply -f -), and may the controller read them?")
            }
        }
        // Most of what is seen are our own statuses, and moves nothing.
        if std::mem::take(&mut self.moved) {
            self.settle_fleet();
        }
    }

    pub(crate) fn put_pipeline(&mut self, mut object: ApiPipeline) {
        let key = key_of(&object);
        if object.metadata.deletion_timestamp.is_some() {
            return self.forget(&key);
        }
        self.readable::<ApiPipeline>(&key);
        let version = version_of(&object.metadata);
        let mut status = object.status.take().unwrap_or_default();
        let told = Told::of(&mut status);
        // Its status is this replica's to write, and what is being written comes back, late.
        let ours = self.shards.permit(&key).is_some();
        let writing = self.writer.is_writing(&StatusOf::Pipeline(key.clone()));
        let known = self.pipelines.get_mut(&key);
        // A late word about an object that was deleted and created again since.
        if known.as_ref().is_some_and(|e| e.object.metadata.uid != object.metadata.uid && version < e.read_at)
        {
            return;
        }
        let Some(entry) = known.filter(|e| e.object.metadata.uid == object.metadata.uid) else {
            return self.new_pipeline(key, object, told, &status, version);
        };
        // Three parts, each with its own order. The spec and what calls have left are as new as the newest
        // object that was read. The status is as new as the last write that was acknowledged, which may be
        // ahead of the watch: it must not hide an edit that the watch has yet to deliver.
        let is_latest_read = version >= entry.read_at;
        let edited = is_latest_read && entry.object.metadata.generation != object.metadata.generation;
        let as_it_was = status == entry.stands();
        let is_status_news = version > entry.version;
        if is_status_news && (as_it_was || !writing) {
            entry.version = version;
        }
        // What somebody else has written there is put right again.
        let overwritten = is_status_news && !as_it_was && !writing;
        if overwritten {
            entry.status = spell(&status).ok();
        }
        if is_status_news && !ours && !as_it_was {
            entry.evidence = translate::evidence(Some(&status));
        }
        entry.read_at = entry.read_at.max(version);
        if edited {
            entry.model = translate::pipeline(&object);
            entry.edited = true;
            let before = std::mem::replace(&mut entry.object, Arc::new(object));
            // What is under way was begun for what the owner wanted before.
            self.stop(&key);
            self.displace(&key, &before);
            self.place(&key);
        }
        let heard = is_latest_read && self.hear(&key, &told);
        if edited || overwritten || heard {
            self.touch(&key);
        }
    }

    /// Takes in what calls have left in the newest object that was read, and says whether it is new. An older
    /// object is not asked: a target would come back to what it has left.
    fn hear(&mut self, key: &PipelineKey, told: &Told) -> bool {
        let Some(entry) = self.pipelines.get_mut(key).filter(|entry| entry.told != *told) else {
            return false;
        };
        let before = std::mem::replace(&mut entry.told, told.clone());
        if before.forge_called != told.forge_called {
            let records = self.promotions.get(key).into_iter().flatten();
            for (name, record) in records {
                self.polling.look_soon(name, Instant::now());
                if retry::may_hurry(&record.object) {
                    self.polling.try_soon(name, Instant::now());
                }
            }
        }
        true
    }

    fn new_pipeline(
        &mut self,
        key: PipelineKey,
        object: ApiPipeline,
        told: Told,
        status: &PipelineStatus,
        version: u64,
    ) {
        if self.pipelines.contains_key(&key) {
            self.forget(&key);
        }
        if let Some(differences) = predecessor::differences(&object, status) {
            tracing::info!(pipeline = %key, differences, "taken over from pipeline-controller; see docs/coming-from-weave.md");
        }
        let entry = Entry {
            model: translate::pipeline(&object),
            edited: object.metadata.generation.is_some_and(|now| now != status.observed_generation),
            object: Arc::new(object),
            told,
            read_at: version,
            evidence: translate::evidence(Some(status)),
            status: spell(status).ok(),
            version,
            differs: None,
            sent: None,
            damping: Damping::default(),
            touched: None,
            cluster_events: BTreeMap::new(),
            unrecorded: BTreeMap::new(),
            hook_secret: None,
        };
        self.pipelines.insert(key.clone(), entry);
        self.place(&key);
        self.touch(&key);
    }

    /// Notes where a pipeline has its targets.
    fn place(&mut self, key: &PipelineKey) {
        let Some(object) = self.pipelines.get(key).map(|e| e.object.clone()) else { return };
        self.directory.put(key.clone(), object.clone());
        for target in read_of(&object) {
            let cluster = translate::cluster_of(target, &key.namespace);
            let places = self.places.entry(cluster).or_default();
            places.entry(target.namespace.clone()).or_default().insert(key.clone());
        }
        self.moved = true;
    }

    /// Forgets where a pipeline had its targets.
    fn displace(&mut self, key: &PipelineKey, object: &ApiPipeline) {
        for target in read_of(object) {
            let cluster = translate::cluster_of(target, &key.namespace);
            let Some(places) = self.places.get_mut(&cluster) else { continue };
            if let Some(pipelines) = places.get_mut(&target.namespace) {
                pipelines.remove(key);
                if pipelines.is_empty() {
                    places.remove(&target.namespace);
                }
            }
        }
        self.moved = true;
    }

    pub(crate) fn forget(&mut self, key: &PipelineKey) {
        // What is under way for it is nobody's wish any more.
        self.stop(key);
        if let Some(entry) = self.pipelines.remove(key) {
            self.displace(key, &entry.object);
        }
        self.readable::<ApiPipeline>(key);
        self.writer.forget(&StatusOf::Pipeline(key.clone()));
        self.directory.remove(key);
        self.due.remove(key);
        self.no_wake(key);
    }

    /// Takes back the leave to do what is under way for a pipeline.
    pub(crate) fn stop(&self, key: &PipelineKey) {
        self.under_way.iter().filter(|((of, _), _)| of == key).for_each(|(_, permit)| permit.revoke());
    }
}

/// The targets of a pipeline that are read: those that only report are on clusters that nobody reaches.
fn read_of(object: &ApiPipeline) -> impl Iterator<Item = &Target> {
    let targets = object.spec.environments.iter().flat_map(|e| &e.targets);
    targets.filter(|target| target.observe == Observe::Watch)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use sluice_testkit::Scratch;

    use crate::engine::tests::engine;
    use crate::record::writer::spell;

    #[tokio::test]
    async fn what_was_read_anew_is_not_forgotten_for_a_watch_that_lags_behind() {
        let scratch = Scratch::new("told").unwrap();
        let mut engine = engine(&scratch);
        let mut runs_after = |version: u64, reported: &str| {
            let report = json!({"time": "2026-11-21T10:00:00Z", "health": "Ready", "revision": reported});
            let object = json!({
                "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
                "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "generation": 1,
                    "resourceVersion": version.to_string()},
                "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]},
                "status": {"reports": {"dev/eu/HelmRelease/podinfo": report}}});
            engine.put_pipeline(serde_json::from_value(object).unwrap());
            let entry = engine.pipelines.values().next().unwrap();
            entry.told.reports.values().map(|report| report.revision.clone()).collect::<String>()
        };
        assert_eq!(runs_after(5, "6.1.8"), "6.1.8");
        // Read when a shard was taken over; the watch tells later what was before.
        assert_eq!(runs_after(9, "6.1.9"), "6.1.9");
        assert_eq!(runs_after(7, "6.1.8"), "6.1.9");
        // It really goes back.
        assert_eq!(runs_after(10, "6.1.8"), "6.1.8");
    }

    /// A Pipeline as the API server holds it at a version.
    fn stored(version: u64, generation: i64, suspend: bool) -> sluice_api::Pipeline {
        let object = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "generation": generation,
                "resourceVersion": version.to_string()},
            "spec": {"suspend": suspend, "environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]}});
        serde_json::from_value(object).unwrap()
    }

    #[tokio::test]
    async fn an_acknowledged_status_write_hides_no_edit_that_came_before_it() {
        let scratch = Scratch::new("edit-before-status").unwrap();
        let mut engine = engine(&scratch);
        engine.put_pipeline(stored(4, 1, false));
        let key = engine.pipelines.keys().next().unwrap().clone();
        // The user suspends at version 9. The status write that was in flight conflicts, is sent again and
        // is acknowledged at version 10, before the watch delivers the edit.
        engine.pipelines.get_mut(&key).unwrap().version = 10;
        engine.put_pipeline(stored(9, 2, true));
        let entry = &engine.pipelines[&key];
        assert!(entry.model.suspended, "the edit is lost");
        assert_eq!(entry.version, 10, "the status is still the one of version 10");
        // An older event, delivered late by a second watch, does not bring the old spec back.
        engine.put_pipeline(stored(4, 1, false));
        assert!(engine.pipelines[&key].model.suspended);
    }

    /// What an API server has stored of one Pipeline, version after version: someone edits it, a call leaves a
    /// word, and this replica's status is written over whatever is there.
    #[derive(Clone, Copy, Debug)]
    enum Change {
        Edit,
        Call,
        Status,
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![Just(Change::Edit), Just(Change::Call), Just(Change::Status)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        /// Acknowledgements overtake watch events, events come late, and objects are read in between: once all
        /// events were delivered in their order, every part is known as it is stored.
        #[test]
        fn no_part_of_a_pipeline_is_lost_however_events_and_answers_are_mixed(
            changes in proptest::collection::vec((change(), 0usize..12), 1..20),
            stale in proptest::collection::vec(any::<proptest::sample::Index>(), 0..4),
        ) {
            let scratch = Scratch::new("mixed").unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _guard = runtime.enter();
            let mut engine = engine(&scratch);
            // Every version of the object; and by version, after how many events its answer is there.
            let mut versions = vec![stored(1, 1, false)];
            let mut answers: Vec<(usize, usize, i64)> = Vec::new();
            let mut written = 0;
            for (n, (change, after)) in changes.iter().enumerate() {
                let mut next = versions[n].clone();
                next.metadata.resource_version = Some((n + 2).to_string());
                match change {
                    Change::Edit => {
                        next.spec.suspend = !next.spec.suspend;
                        next.metadata.generation = next.metadata.generation.map(|g| g + 1);
                    }
                    Change::Call => {
                        next.status.get_or_insert_default().forge_called = Some(format!("call {n}"));
                    }
                    Change::Status => {
                        written += 1;
                        next.status.get_or_insert_default().observed_generation = written;
                        // Answers come in the order of the writes, and may be ahead of every event.
                        let before = answers.last().map_or(0, |(at, ..)| *at);
                        answers.push(((n + 1).saturating_sub(*after).max(before), n + 2, written));
                    }
                }
                versions.push(next);
            }
            let last = versions.last().unwrap().clone();
            for (n, object) in versions.iter().enumerate() {
                engine.put_pipeline(object.clone());
                for (_, version, written) in answers.iter().filter(|(at, ..)| *at == n) {
                    let entry = engine.pipelines.values_mut().next().unwrap();
                    let status = sluice_api::PipelineStatus { observed_generation: *written, ..Default::default() };
                    entry.status = spell(&status).ok();
                    entry.version = entry.version.max(*version as u64);
                }
            }
            // Other ways of reading lag behind.
            stale.iter().for_each(|index| engine.put_pipeline(index.get(&versions).clone()));
            let entry = engine.pipelines.values().next().unwrap();
            prop_assert_eq!(entry.model.suspended, last.spec.suspend);
            prop_assert_eq!(entry.object.metadata.generation, last.metadata.generation);
            let status = last.status.unwrap_or_default();
            prop_assert_eq!(&entry.told.forge_called, &status.forge_called);
            prop_assert_eq!(entry.stands().observed_generation, status.observed_generation);
        }
    }
}
