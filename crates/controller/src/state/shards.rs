//! What the loop does when a shard comes or goes.

use std::time::{Duration, Instant};

use sluice_delivery::Term;

use super::held::{Stage, Tenure};
use super::standing::{self, Before, HELD, Known, Standing};
use crate::engine::{Engine, Record};
use crate::intake::{Input, PipelineKey, named};
use crate::record::writer::StatusOf;
use crate::translate;

/// A shard comes or goes.
#[derive(Clone, Debug)]
pub enum Turnover {
    /// It is this replica's, for a term.
    Gained(u32, Term),
    /// It is to be handed back as soon as nothing is under way for it.
    Closing(u32),
    /// It is this replica's no more.
    Lost(u32),
}

/// How long what is under way may take to end when a shard is handed back: then it is cut off, and
/// found by the next holder.
const LINGER: Duration = Duration::from_millis(500);

impl Engine {
    /// Takes note of a shard that comes or goes.
    pub(crate) fn turned_over(&mut self, news: Turnover) {
        match news {
            Turnover::Gained(shard, term) => {
                self.shards.held.insert(shard, Tenure { term, stage: Stage::New });
            }
            Turnover::Closing(shard) => {
                if let Some(tenure) = self.shards.held.get_mut(&shard) {
                    tenure.stage = Stage::Closing(Instant::now() + LINGER);
                }
            }
            Turnover::Lost(shard) => self.lost(shard),
        }
    }

    /// Has read what the last holders of new shards have left, and hands back those that are to be.
    pub(crate) fn settle_shards(&mut self, now: Instant) {
        if self.listed == (true, true) {
            self.read_standing();
        }
        let over: Vec<u32> = self
            .shards
            .held
            .iter()
            .filter_map(|(shard, tenure)| match tenure.stage {
                Stage::Closing(until) if until <= now || !self.is_busy(*shard) => Some(*shard),
                _ => None,
            })
            .collect();
        for shard in over {
            self.lost(shard);
            self.shards.closed(shard);
        }
    }

    /// Whether anything is under way for a shard.
    fn is_busy(&self, shard: u32) -> bool {
        let of = |key: &PipelineKey| self.shards.of(key) == shard;
        let recording = |(key, records): (&PipelineKey, &std::collections::BTreeMap<_, Record>)| {
            of(key) && records.values().any(|record| !record.stored)
        };
        self.under_way.keys().any(|(key, _)| of(key))
            || self.writer.objects().any(|object| of(object.pipeline()))
            || self.promotions.iter().any(recording)
    }

    fn read_standing(&mut self) {
        let new = self.shards.held.iter_mut().filter(|(_, tenure)| tenure.stage == Stage::New);
        let new: Vec<(u32, Term)> = new
            .map(|(shard, tenure)| {
                tenure.stage = Stage::Reading;
                (*shard, tenure.term.clone())
            })
            .collect();
        if new.is_empty() {
            return;
        }
        let known = self.known();
        let (client, tell) = (self.hub.clone(), self.tell.clone());
        let namespace = self.options.watch_namespace.clone();
        tokio::spawn(async move {
            if let Some(standing) = standing::read(client, namespace, known, new).await {
                let _ = tell.send(Input::Standing(Box::new(standing)));
            }
        });
    }

    /// The versions of all that is known. What this replica writes itself it knows best.
    fn known(&self) -> (Known, Known) {
        let ours =
            |key: &PipelineKey, version| if self.shards.permit(key).is_some() { HELD } else { version };
        let pipelines = self.pipelines.iter().map(|(key, entry)| (key.clone(), ours(key, entry.known_at())));
        let promotions = self.promotions.iter().flat_map(|(key, records)| {
            records.iter().map(move |(name, record)| {
                let named = PipelineKey { namespace: key.namespace.clone(), name: name.clone() };
                (named, ours(key, record.known_at()))
            })
        });
        (pipelines.collect(), promotions.collect())
    }

    /// Takes in what the last holders of shards have left, and begins to act for them.
    pub(crate) fn stands(&mut self, standing: Standing) {
        // The watches may have told more since than was read: what has been made anew or removed.
        for (key, version) in &standing.pipelines_gone {
            if self.pipelines.get(key).is_some_and(|entry| entry.known_at() == *version) {
                self.forget(key);
            }
        }
        for (name, version) in &standing.promotions_gone {
            if self.promotion_named(name).is_some_and(|record| record.known_at() == *version) {
                self.lose_promotion(name);
            }
        }
        for (pipeline, before) in standing.pipelines {
            if before == Before::Unknown || self.pipelines.contains_key(&named(&pipeline.metadata)) {
                self.put_pipeline(pipeline);
            }
        }
        for (promotion, before) in standing.promotions {
            if before == Before::Unknown || self.promotion_named(&named(&promotion.metadata)).is_some() {
                self.put_promotion(promotion);
            }
        }
        if std::mem::take(&mut self.moved) {
            self.settle_fleet();
        }
        for (shard, term) in standing.shards {
            // It may have been lost since, and may even have come back: then it is read anew.
            let Some(tenure) = self.shards.held.get_mut(&shard).filter(|t| t.stage == Stage::Reading) else {
                continue;
            };
            if term.runs() {
                tenure.stage = Stage::Acting;
                self.begin(shard);
            }
        }
    }

    /// A promotion's record, whichever pipeline it is of.
    fn promotion_named(&self, named: &PipelineKey) -> Option<&Record> {
        let mut here = self.promotions.iter().filter(|(key, _)| key.namespace == named.namespace);
        here.find_map(|(_, records)| records.get(&named.name))
    }

    fn begin(&mut self, shard: u32) {
        let keys: Vec<PipelineKey> =
            self.pipelines.keys().filter(|key| self.shards.of(key) == shard).cloned().collect();
        tracing::info!(shard, pipelines = keys.len(), "acting for shard");
        for key in &keys {
            if let Some(entry) = self.pipelines.get_mut(key) {
                // What happened while others acted has waited for nobody here.
                entry.touched = None;
            }
            self.touch(key);
        }
        self.tell_unreadable(shard);
    }

    /// Stops acting for a shard. What is known of it is from now on what the server says.
    fn lost(&mut self, shard: u32) {
        let Some(tenure) = self.shards.held.remove(&shard) else { return };
        tenure.term.end();
        tracing::info!(shard, "acting for shard no more");
        let of = |key: &PipelineKey| super::shard_of(key, self.shards.count()) == shard;
        self.under_way.iter().filter(|((key, _), _)| of(key)).for_each(|(_, permit)| permit.revoke());
        let unsure: Vec<StatusOf> = self.writer.objects().filter(|o| of(o.pipeline())).cloned().collect();
        for (_, entry) in self.pipelines.iter_mut().filter(|(key, _)| of(key)) {
            entry.evidence = translate::evidence(Some(&entry.stands()));
            entry.differs = None;
            entry.unrecorded.clear();
        }
        for (_, records) in self.promotions.iter_mut().filter(|(key, _)| of(key)) {
            // What is being made is the next one's, unless it has been seen to stand.
            records.retain(|_, record| record.stored || record.version > 0);
            records.values_mut().for_each(|record| (record.stored, record.first) = (true, false));
        }
        for object in unsure {
            self.writer.forget(&object);
            self.unsure(&object);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_api::Pipeline;
    use sluice_testkit::Scratch;

    use super::*;
    use crate::engine::tests::engine;

    fn pipeline(version: u64) -> Pipeline {
        let uid = if version < 9 { "old" } else { "new" };
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]}});
        serde_json::from_value(object).unwrap()
    }

    #[tokio::test]
    async fn what_was_removed_or_made_anew_while_it_was_read_stays_so() {
        let scratch = Scratch::new("standing").unwrap();
        let mut engine = engine(&scratch);
        let key = named(&pipeline(4).metadata);
        // It was edited, then read, then removed; the watch has told all of that.
        let read = Standing { pipelines: vec![(pipeline(5), Before::Known)], ..Standing::default() };
        engine.put_pipeline(pipeline(4));
        engine.forget(&key);
        engine.stands(read);
        assert!(!engine.pipelines.contains_key(&key));
        // It was removed, then read, then made anew.
        engine.put_pipeline(pipeline(9));
        engine.stands(Standing { pipelines_gone: vec![(key.clone(), 4)], ..Standing::default() });
        assert!(engine.pipelines.contains_key(&key));
        engine.stands(Standing { pipelines_gone: vec![(key.clone(), 9)], ..Standing::default() });
        assert!(!engine.pipelines.contains_key(&key));
        engine.stands(Standing { pipelines: vec![(pipeline(5), Before::Unknown)], ..Standing::default() });
        assert!(engine.pipelines.contains_key(&key));
    }
}
