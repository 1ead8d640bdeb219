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
            Seen::Listed(objects) => {
                let there: HashSet<(PipelineKey, String)> =
                    objects.iter().map(|o| (pipeline_of(o), o.name_any())).collect();
                let mut lost = Vec::new();
                for (key, records) in &mut self.promotions {
                    let before = records.len();
                    records.retain(|name, r| !r.stored || there.contains(&(key.clone(), name.clone())));
                    lost.extend((records.len() < before).then(|| key.clone()));
                }
                lost.iter().for_each(|key| self.touch(key));
                if went_back(&mut self.newest.1, objects.iter().map(|o| &o.metadata)) {
                    let records = self.promotions.values_mut().flat_map(BTreeMap::values_mut);
                    records.for_each(|record| record.version = 0);
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
        self.polling.forget(&gone.name);
        self.readable::<ApiPromotion>(gone);
        let here = |(key, records): (&PipelineKey, &mut BTreeMap<String, Record>)| {
            let held = key.namespace == gone.namespace && records.remove(&gone.name).is_some();
            held.then(|| key.clone())
        };
        let of = self.promotions.iter_mut().find_map(here);
        of.iter().for_each(|key| self.touch(key));
    }

    /// Takes in a record. People change its spec; its status is written by the replica that acts for its
    /// pipeline, which knows better than a watch that lags behind.
    pub(crate) fn put_promotion(&mut self, mut object: ApiPromotion) {
        let (key, name) = (pipeline_of(&object), object.name_any());
        self.readable::<ApiPromotion>(&named(&object.metadata));
        let mut version = version_of(&object.metadata);
        let ours = self.shards.permit(&key).is_some();
        let writing = self.writer.is_writing(&StatusOf::Promotion(key.clone(), name.clone()));
        let records = self.promotions.entry(key.clone()).or_default();
        let first = ours && records.get(&name).is_some_and(|r| r.first);
        if let Some(known) = records.get(&name).filter(|known| known.stored) {
            if version <= known.version {
                return;
            }
            let as_it_was = object.status == known.object.status;
            // Not as it was, and not by this replica: then somebody else has written it, and knows why.
            if ours && writing && !as_it_was {
                object.status.clone_from(&known.object.status);
                version = known.version;
            }
            if as_it_was && known.object.spec == object.spec {
                if let Some(known) = records.get_mut(&name) {
                    known.version = version;
                }
                return;
            }
        }
        records.insert(name, Record { object: Arc::new(object), stored: true, first, version });
        self.touch(&key);
    }
}
