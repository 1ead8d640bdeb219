//! What the watch of Pipelines tells.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use sluice_api::pipeline::{Observe, Pipeline as ApiPipeline, PipelineStatus, Target};

use super::{PipelineKey, key_of, named, version_of, went_back};
use crate::engine::{Engine, Entry, Told};
use crate::predecessor;
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
                    self.pipelines.values_mut().for_each(|entry| (entry.version, entry.told_at) = (0, 0));
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
        let heard = self.hear(&key, &told, version);
        // Its status is this replica's to write, and what is being written comes back, late.
        let ours = self.shards.permit(&key).is_some();
        let writing = self.writer.is_writing(&StatusOf::Pipeline(key.clone()));
        let Some(entry) =
            self.pipelines.get_mut(&key).filter(|e| e.object.metadata.uid == object.metadata.uid)
        else {
            return self.new_pipeline(key, object, told, &status, version);
        };
        if version <= entry.version {
            if heard {
                self.touch(&key);
            }
            return;
        }
        let as_it_was = status == entry.stands();
        let edited = entry.object.metadata.generation != object.metadata.generation;
        if as_it_was || !writing {
            entry.version = version;
        }
        // What somebody else has written there is put right again.
        let overwritten = !as_it_was && !writing;
        if overwritten {
            entry.status = spell(&status).ok();
        }
        if !ours && !as_it_was {
            entry.evidence = translate::evidence(Some(&status));
        }
        if edited {
            entry.model = translate::pipeline(&object);
            entry.edited = true;
            let before = std::mem::replace(&mut entry.object, Arc::new(object));
            // What is under way was begun for what the owner wanted before.
            self.stop(&key);
            self.displace(&key, &before);
            self.place(&key);
        }
        if edited || overwritten || heard {
            self.touch(&key);
        }
    }

    /// Takes in what calls have left, which a watch tells in its order, however late it is with what was
    /// written here; but not what was so before something that was read anew: time would go back, and a
    /// target come back to what it has left. Says whether there is something new.
    fn hear(&mut self, key: &PipelineKey, told: &Told, version: u64) -> bool {
        let Some(entry) = self.pipelines.get_mut(key).filter(|entry| entry.told_at <= version) else {
            return false;
        };
        entry.told_at = version;
        if entry.told == *told {
            return false;
        }
        let before = std::mem::replace(&mut entry.told, told.clone());
        if before.forge_called != told.forge_called {
            let records = self.promotions.get(key).into_iter().flatten();
            records.for_each(|(name, _)| self.polling.hasten(name, Instant::now()));
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
            told_at: version,
            evidence: translate::evidence(Some(status)),
            status: spell(status).ok(),
            version,
            differs: None,
            sent: None,
            touched: None,
            clusters: BTreeMap::new(),
            unrecorded: BTreeMap::new(),
            unrecorded_until: None,
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
    use serde_json::json;
    use sluice_testkit::Scratch;

    use crate::engine::tests::engine;

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
}
