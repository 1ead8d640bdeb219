//! The shards that this replica has, and for which pipelines it acts. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_delivery::{FencingToken, LeaseTerm};

use super::assignment::shard_of;
use crate::key::PipelineKey;

/// How far a shard is with this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has the shard, and does not know what the last holder has left.
    New,
    /// That is being read.
    Reading,
    /// It acts.
    Acting,
    /// It begins nothing more, and records the end of side effects in flight, until then at most.
    Closing(Instant),
}

/// A shard that this replica has.
#[derive(Clone, Debug)]
pub(crate) struct HeldShard {
    pub(crate) term: LeaseTerm,
    pub(crate) stage: Stage,
}

/// The shards that this replica has.
#[derive(Debug)]
pub struct Shards {
    /// How many there are; `None` if this is the only replica, and has everything.
    count: Option<u32>,
    pub(crate) held: BTreeMap<u32, HeldShard>,
}

impl Shards {
    /// Everything, without an end.
    pub fn all() -> Self {
        Self { count: None, held: BTreeMap::new() }
    }

    /// None yet of so many.
    pub fn of_many(count: u32) -> Self {
        Self { count: Some(count), held: BTreeMap::new() }
    }

    /// The shard of a pipeline.
    pub fn of(&self, key: &PipelineKey) -> u32 {
        shard_of(key, self.count.unwrap_or(1))
    }

    /// Whether anything may be begun for a pipeline at a time since boot.
    pub fn acts(&self, key: &PipelineKey, now: Duration) -> bool {
        let acting = |shard: &HeldShard| shard.stage == Stage::Acting && shard.term.runs_at(now);
        self.count.is_none() || self.held.get(&self.of(key)).is_some_and(acting)
    }

    /// The fencing_token to record the end of what was begun for a pipeline; `None` if another replica does by now, or this
    /// one has not read yet what the last holder left.
    pub fn fencing_token(&self, key: &PipelineKey, now: Duration) -> Option<FencingToken> {
        if self.count.is_none() {
            return Some(FencingToken::default());
        }
        let shard = self.held.get(&self.of(key))?;
        let may_write = !matches!(shard.stage, Stage::New | Stage::Reading) && shard.term.runs_at(now);
        may_write.then(|| FencingToken::within(shard.term.clone()))
    }

    /// When the next shard is handed back, even if something is in flight.
    pub(crate) fn closing(&self) -> Option<Instant> {
        let until = |shard: &HeldShard| match shard.stage {
            Stage::Closing(until) => Some(until),
            _ => None,
        };
        self.held.values().filter_map(until).min()
    }
}
