//! Handles shards that this replica gains and loses.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sluice_delivery::LeaseTerm;

use super::State;
use super::effect::{Effect, OURS, Resync};
use super::entries::Record;
use super::status_queue::StatusOwner;
use crate::pipeline_key::PipelineKey;
use crate::shard::{HeldShard, ShardChange, ShardStage, StoredBefore, StoredState};
use crate::translate;

/// How long side effects in flight may take to end before a shard is handed back. After that they are cut off, and
/// the next holder finds their effects.
const CLOSING_TIMEOUT: Duration = Duration::from_millis(500);

impl State {
    /// Takes in that this replica gains or loses a shard.
    pub(super) fn shard_changed(&mut self, change: ShardChange) {
        match change {
            ShardChange::Gained(shard, term) => {
                self.shards.held.insert(shard, HeldShard { term, stage: ShardStage::New });
            }
            ShardChange::Closing(shard) => {
                if let Some(held) = self.shards.held.get_mut(&shard) {
                    held.stage = ShardStage::Closing(self.now.instant + CLOSING_TIMEOUT);
                }
            }
            ShardChange::Lost(shard) => self.shard_lost(shard),
        }
    }

    /// Reads what the last holders of new shards wrote, and hands back shards that are closing.
    pub(super) fn settle_shards(&mut self) {
        if self.is_ready() {
            self.resync();
        }
        let is_over = |(shard, held): (&u32, &HeldShard)| match held.stage {
            ShardStage::Closing(until) if until <= self.now.instant || !self.is_busy(*shard) => Some(*shard),
            _ => None,
        };
        let over: Vec<u32> = self.shards.held.iter().filter_map(is_over).collect();
        for shard in over {
            self.shard_lost(shard);
            self.emit(Effect::ReleaseShard(shard));
        }
    }

    /// Whether anything is in flight for a shard.
    fn is_busy(&self, shard: u32) -> bool {
        let of = |key: &PipelineKey| self.shards.shard_of(key) == shard;
        let recording = |(key, records): (&PipelineKey, &BTreeMap<String, Record>)| {
            of(key) && records.values().any(|record| !record.is_stored)
        };
        self.in_flight.keys().any(|(key, _)| of(key))
            || self.statuses.owners().any(|owner| of(owner.pipeline()))
            || self.promotions.iter().any(recording)
    }

    fn resync(&mut self) {
        let new = self.shards.held.iter_mut().filter(|(_, held)| held.stage == ShardStage::New);
        let shards: Vec<(u32, LeaseTerm)> = new
            .map(|(shard, held)| {
                held.stage = ShardStage::Reading;
                (*shard, held.term.clone())
            })
            .collect();
        if !shards.is_empty() {
            let (pipelines, promotions) = self.known_versions();
            self.emit(Effect::Resync(Resync { shards, pipelines, promotions }));
        }
    }

    /// The versions of all known objects, [`OURS`] for those that this replica writes.
    fn known_versions(&self) -> (HashMap<PipelineKey, u64>, HashMap<PipelineKey, u64>) {
        let known =
            |key: &PipelineKey, version| if self.fencing_token(key).is_some() { OURS } else { version };
        let pipelines =
            self.pipelines.iter().map(|(key, entry)| (key.clone(), known(key, entry.cached.known_at())));
        let promotions = self.promotions.iter().flat_map(|(key, records)| {
            records.iter().map(move |(name, record)| {
                let named = PipelineKey { namespace: key.namespace.clone(), name: name.clone() };
                (named, known(key, record.cached.known_at()))
            })
        });
        (pipelines.collect(), promotions.collect())
    }

    /// Takes in what the last holders of new shards wrote, and begins to act for the shards.
    pub(super) fn resynced(&mut self, stored: StoredState) {
        // The watches may have reported since that objects were created or deleted.
        for (key, version) in &stored.pipelines_gone {
            if self.pipelines.get(key).is_some_and(|entry| entry.cached.known_at() == *version) {
                self.forget_pipeline(key);
            }
        }
        for (name, version) in &stored.promotions_gone {
            if self.promotion_named(name).is_some_and(|record| record.cached.known_at() == *version) {
                self.forget_promotion(name);
            }
        }
        for (pipeline, before) in stored.pipelines {
            let key = PipelineKey::named(&pipeline.metadata);
            if before == StoredBefore::Unknown || self.pipelines.contains_key(&key) {
                self.put_pipeline(pipeline);
            }
        }
        for (promotion, before) in stored.promotions {
            let key = PipelineKey::named(&promotion.metadata);
            if before == StoredBefore::Unknown || self.promotion_named(&key).is_some() {
                self.put_promotion(promotion);
            }
        }
        self.update_changed_sessions();
        for (shard, term) in stored.shards {
            // A shard may have been lost and gained again since. Then another read is in progress for it.
            let held = self.shards.held.get_mut(&shard).filter(|held| held.stage == ShardStage::Reading);
            if let Some(held) = held.filter(|_| term.runs_at(self.now.boot)) {
                held.stage = ShardStage::Acting;
                self.begin(shard);
            }
        }
    }

    /// A promotion's record, whichever pipeline it belongs to.
    fn promotion_named(&self, named: &PipelineKey) -> Option<&Record> {
        let mut in_namespace = self.promotions.iter().filter(|(key, _)| key.namespace == named.namespace);
        in_namespace.find_map(|(_, records)| records.get(&named.name))
    }

    /// Begins to act for a shard.
    fn begin(&mut self, shard: u32) {
        let of_shard = self.pipelines.keys().filter(|key| self.shards.shard_of(key) == shard);
        let keys: Vec<PipelineKey> = of_shard.cloned().collect();
        tracing::info!(shard, pipelines = keys.len(), "acting for shard");
        for key in &keys {
            if let Some(entry) = self.pipelines.get_mut(key) {
                // The time while another replica acted is not counted as waiting.
                entry.enqueued = None;
            }
            self.enqueue(key);
        }
        self.send_unreadable_events(shard);
    }

    /// Stops acting for a shard. From then on the watches update its pipelines.
    fn shard_lost(&mut self, shard: u32) {
        let Some(held) = self.shards.held.remove(&shard) else { return };
        tracing::info!(shard, "no longer acting for shard");
        self.emit(Effect::EndTerm(held.term));
        let shards = &self.shards;
        let of = |key: &PipelineKey| shards.shard_of(key) == shard;
        let in_flight = self.in_flight.iter().filter(|((key, _), _)| of(key));
        self.effects.extend(in_flight.map(|(_, effect)| Effect::Revoke(effect.fencing_token.clone())));
        let writing = self.statuses.owners().filter(|owner| of(owner.pipeline()));
        let writing: Vec<StatusOwner> = writing.cloned().collect();
        for (_, entry) in self.pipelines.iter_mut().filter(|(key, _)| of(key)) {
            entry.evidence = translate::evidence(Some(&entry.cached.parts.status()));
            entry.differs = None;
            entry.unrecorded.clear();
        }
        for (key, records) in self.promotions.iter_mut().filter(|(key, _)| of(key)) {
            records.keys().for_each(|name| self.schedule.forget_last_check(&key.promotion(name)));
            // This replica forgets a record that is being created, unless the watch has reported it: the next
            // holder creates it.
            records.retain(|_, record| record.is_stored || record.cached.status_at() > 0);
            records.values_mut().for_each(|r| (r.is_stored, r.is_first_try) = (true, false));
        }
        for owner in writing {
            self.statuses.forget(&owner);
            self.mark_status_unknown(&owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_api::Pipeline;

    use super::super::fixtures::state;
    use super::*;

    fn pipeline(version: u64) -> Pipeline {
        let uid = if version < 9 { "old" } else { "new" };
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn objects_deleted_or_created_again_during_a_resync_stay_so() {
        let mut state = state();
        let key = PipelineKey::named(&pipeline(4).metadata);
        // It was edited, then read, then deleted; the watch has reported all of that.
        let read =
            StoredState { pipelines: vec![(pipeline(5), StoredBefore::Known)], ..StoredState::default() };
        state.put_pipeline(pipeline(4));
        state.forget_pipeline(&key);
        state.resynced(read);
        assert!(!state.pipelines.contains_key(&key));
        // It was deleted, then read, then created again.
        state.put_pipeline(pipeline(9));
        state.resynced(StoredState { pipelines_gone: vec![(key.clone(), 4)], ..StoredState::default() });
        assert!(state.pipelines.contains_key(&key));
        state.resynced(StoredState { pipelines_gone: vec![(key.clone(), 9)], ..StoredState::default() });
        assert!(!state.pipelines.contains_key(&key));
        state.resynced(StoredState {
            pipelines: vec![(pipeline(5), StoredBefore::Unknown)],
            ..StoredState::default()
        });
        assert!(state.pipelines.contains_key(&key));
    }
}
