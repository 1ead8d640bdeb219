//! For which pipelines this replica acts: the one question that the loop asks of shards.

use std::collections::BTreeMap;
use std::time::Instant;

use sluice_delivery::{Permit, Term};
use tokio::sync::mpsc::UnboundedSender;

use super::{Order, shard_of};
use crate::intake::PipelineKey;

/// How far a shard is with this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has the shard, and does not know what the last holder has left.
    New,
    /// That is being read.
    Reading,
    /// It acts.
    Acting,
    /// It begins nothing more, and records how what is under way ends, until then at most.
    Closing(Instant),
}

/// A shard that this replica has.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) term: Term,
    pub(crate) stage: Stage,
}

/// The shards that this replica has.
#[derive(Debug)]
pub struct Shards {
    /// How many there are, and who is told what was closed; `None` where this is the only replica, and
    /// has everything.
    split: Option<(u32, UnboundedSender<Order>)>,
    pub(crate) held: BTreeMap<u32, Tenure>,
}

impl Shards {
    /// Everything, for good.
    pub fn all() -> Self {
        Self { split: None, held: BTreeMap::new() }
    }

    /// None yet of so many; who keeps the Leases is told what is closed.
    pub fn of_many(count: u32, keeper: UnboundedSender<Order>) -> Self {
        Self { split: Some((count, keeper)), held: BTreeMap::new() }
    }

    pub(super) fn count(&self) -> u32 {
        self.split.as_ref().map_or(1, |(count, _)| *count)
    }

    /// The shard of a pipeline.
    pub fn of(&self, key: &PipelineKey) -> u32 {
        shard_of(key, self.count())
    }

    /// Whether anything may be begun for a pipeline now.
    pub fn acts(&self, key: &PipelineKey) -> bool {
        let acting = |tenure: &Tenure| tenure.stage == Stage::Acting && tenure.term.runs();
        self.split.is_none() || self.held.get(&self.of(key)).is_some_and(acting)
    }

    /// Leave to write down what came of what was begun for a pipeline; `None` where another does by
    /// now, or this one has not caught up yet.
    pub fn permit(&self, key: &PipelineKey) -> Option<Permit> {
        if self.split.is_none() {
            return Some(Permit::default());
        }
        let tenure = self.held.get(&self.of(key))?;
        let term = Some(&tenure.term)
            .filter(|term| !matches!(tenure.stage, Stage::New | Stage::Reading) && term.runs());
        term.cloned().map(Permit::within)
    }

    /// When the next shard is to be handed back, whatever is under way.
    pub(crate) fn closing(&self) -> Option<Instant> {
        let until = |tenure: &Tenure| match tenure.stage {
            Stage::Closing(until) => Some(until),
            _ => None,
        };
        self.held.values().filter_map(until).min()
    }

    /// Nothing is done for a shard any more: it may be handed back.
    pub(super) fn closed(&self, shard: u32) {
        if let Some((_, keeper)) = &self.split {
            // Without a keeper the Lease runs out by itself.
            let _ = keeper.send(Order::Closed(shard));
        }
    }
}
