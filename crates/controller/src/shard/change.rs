//! What the state is told about shards.

use sluice_api::{Pipeline, Promotion};
use sluice_delivery::LeaseTerm;

use crate::key::PipelineKey;

/// A shard comes or goes.
#[derive(Clone, Debug)]
pub enum ShardChange {
    /// This replica has it, for a term.
    Gained(u32, LeaseTerm),
    /// It is to be handed back as soon as nothing is in flight for it.
    Closing(u32),
    /// This replica has it no more.
    Lost(u32),
}

/// What was read for new shards: the objects whose versions differ from the known ones. The watches of a replica may lag
/// behind what the last holder wrote.
#[derive(Debug, Default)]
pub struct StoredState {
    /// The shards for which this was read, each with its term.
    pub shards: Vec<(u32, LeaseTerm)>,
    /// Pipelines with another version than the known one.
    pub pipelines: Vec<(Pipeline, StoredBefore)>,
    /// Pipelines that are gone, with the version at which they were known.
    pub pipelines_gone: Vec<(PipelineKey, u64)>,
    /// Promotions with another version than the known one.
    pub promotions: Vec<(Promotion, StoredBefore)>,
    /// Promotions that are gone, by namespace and name, with the version at which they were known.
    pub promotions_gone: Vec<(PipelineKey, u64)>,
}

/// Whether an object was known when the reading began: one that was, and is not any more when it is taken in, was
/// removed in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredBefore {
    /// At an earlier version.
    Known,
    /// Not at all.
    Unknown,
}
