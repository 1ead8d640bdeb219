//! The shards that this replica holds, and for which pipelines it acts. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_delivery::{FencingToken, LeaseTerm};

use super::shard_of_pipeline::shard_of;
use crate::pipeline_key::PipelineKey;

/// What this replica may do for a shard that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardStage {
    /// Nothing: it does not know what the last holder wrote.
    New,
    /// Nothing: it reads what the last holder wrote.
    Reading,
    /// Everything.
    Acting,
    /// It starts nothing more, and records the end of in-flight side effects, until this time at most.
    Closing(Instant),
}

/// A shard that this replica holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldShard {
    pub(crate) term: LeaseTerm,
    pub(crate) stage: ShardStage,
}

/// The shards that this replica holds.
#[derive(Debug)]
pub struct Shards {
    /// How many shards there are; `None` if this is the only replica, which acts for all pipelines.
    count: Option<u32>,
    pub(crate) held: BTreeMap<u32, HeldShard>,
}

impl Shards {
    /// The shards of the only replica: it acts for all pipelines, without an end.
    pub fn all() -> Self {
        Self { count: None, held: BTreeMap::new() }
    }

    /// The shards of a replica that holds none yet. `count` is the number of all shards.
    pub fn none_of(count: u32) -> Self {
        Self { count: Some(count), held: BTreeMap::new() }
    }

    /// The shard of a pipeline.
    pub fn shard_of(&self, key: &PipelineKey) -> u32 {
        shard_of(key, self.count.unwrap_or(1))
    }

    /// Whether side effects may be started for a pipeline at a time since boot.
    pub fn acts(&self, key: &PipelineKey, now: Duration) -> bool {
        let acting = |shard: &HeldShard| shard.stage == ShardStage::Acting && shard.term.runs_at(now);
        self.count.is_none() || self.held.get(&self.shard_of(key)).is_some_and(acting)
    }

    /// The fencing token for writes about a pipeline. `None` if another replica holds its shard, or if this
    /// replica has not read yet what the last holder wrote.
    pub fn fencing_token(&self, key: &PipelineKey, now: Duration) -> Option<FencingToken> {
        if self.count.is_none() {
            return Some(FencingToken::default());
        }
        let shard = self.held.get(&self.shard_of(key))?;
        let may_write =
            !matches!(shard.stage, ShardStage::New | ShardStage::Reading) && shard.term.runs_at(now);
        may_write.then(|| FencingToken::within(shard.term.clone()))
    }

    /// When the next closing shard is handed back, even if something is in flight for it.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        let until = |shard: &HeldShard| match shard.stage {
            ShardStage::Closing(until) => Some(until),
            _ => None,
        };
        self.held.values().filter_map(until).min()
    }
}
