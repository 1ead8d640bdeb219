//! What the watch of Pipelines tells.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sluice_api::pipeline::{Pipeline as ApiPipeline, PipelineStatus};

use super::{PipelineKey, key_of, named, version_of, went_back};
use crate::engine::{Engine, Entry};
use crate::record::writer::{StatusOf, spell};
use crate::translate;
use crate::watch::stream::Seen;

impl Engine {
    pub(crate) fn pipelines_seen(&mut self, seen: Seen<ApiPipeline>) {
        match seen {
            Seen::Listed(objects) => {
                let there: HashSet<PipelineKey> = objects.iter().map(key_of).collect();
                let gone: Vec<_> = self.pipelines.keys().filter(|k| !there.contains(*k)).cloned().collect();
                gone.iter().for_each(|key| self.forget(key));
                if went_back(&mut self.newest.0, objects.iter().map(|o| &o.metadata)) {
                    self.pipelines.values_mut().for_each(|entry| entry.version = 0);
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
        let status = object.status.take().unwrap_or_default();
        // Its status is this replica's to write, and what is being written comes back, late.
        let ours = self.shards.permit(&key).is_some();
        let writing = self.writer.is_writing(&StatusOf::Pipeline(key.clone()));
        let Some(entry) =
            self.pipelines.get_mut(&key).filter(|e| e.object.metadata.uid == object.metadata.uid)
        else {
            return self.new_pipeline(key, object, &status, version);
        };
        if version <= entry.version {
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
            let before = std::mem::replace(&mut entry.object, Arc::new(object));
            // What is under way was begun for what the owner wanted before.
            self.stop(&key);
            self.displace(&key, &before);
            self.place(&key);
        }
        if edited || overwritten {
            self.touch(&key);
        }
    }

    fn new_pipeline(&mut self, key: PipelineKey, object: ApiPipeline, status: &PipelineStatus, version: u64) {
        if self.pipelines.contains_key(&key) {
            self.forget(&key);
        }
        let entry = Entry {
            model: translate::pipeline(&object),
            object: Arc::new(object),
            evidence: translate::evidence(Some(status)),
            status: spell(status).ok(),
            version,
            differs: None,
            sent: None,
            touched: None,
            unrecorded: BTreeMap::new(),
            unrecorded_until: None,
        };
        self.pipelines.insert(key.clone(), entry);
        self.place(&key);
        self.touch(&key);
    }

    /// Notes where a pipeline has its targets.
    fn place(&mut self, key: &PipelineKey) {
        let Some(object) = self.pipelines.get(key).map(|e| e.object.clone()) else { return };
        self.directory.put(key.clone(), object.clone());
        for target in object.spec.environments.iter().flat_map(|e| &e.targets) {
            let cluster = translate::cluster_of(target, &key.namespace);
            let places = self.places.entry(cluster).or_default();
            places.entry(target.namespace.clone()).or_default().insert(key.clone());
        }
        self.moved = true;
    }

    /// Forgets where a pipeline had its targets.
    fn displace(&mut self, key: &PipelineKey, object: &ApiPipeline) {
        for target in object.spec.environments.iter().flat_map(|e| &e.targets) {
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
