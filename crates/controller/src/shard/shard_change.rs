//! What the state learns about shards.

use sluice_api::{Pipeline, Promotion};
use sluice_delivery::LeaseTerm;

use crate::pipeline_key::PipelineKey;

/// This replica gains or loses a shard.
#[derive(Clone, Debug)]
pub enum ShardChange {
    /// This replica holds the shard, for a term.
    Gained(u32, LeaseTerm),
    /// This replica hands the shard back as soon as nothing is in flight for it.
    Closing(u32),
    /// This replica does not hold the shard any more.
    Lost(u32),
}

/// What is stored on the hub when this replica gains shards: the objects whose versions differ from the known
/// ones. The watches of a replica may lag behind what the last holder wrote.
#[derive(Debug, Default)]
pub struct StoredState {
    /// The new shards, each with its term.
    pub shards: Vec<(u32, LeaseTerm)>,
    /// Pipelines with another version than the known one.
    pub pipelines: Vec<(Pipeline, StoredBefore)>,
    /// Pipelines that do not exist any more, with the version at which they were known.
    pub pipelines_gone: Vec<(PipelineKey, u64)>,
    /// Promotions with another version than the known one.
    pub promotions: Vec<(Promotion, StoredBefore)>,
    /// Promotions that do not exist any more, by namespace and name, with the version at which they were known.
    pub promotions_gone: Vec<(PipelineKey, u64)>,
}

/// Whether an object was known before everything was read. An object that was known then, but is not known when
/// the result is taken in, was removed in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredBefore {
    /// Known at an earlier version.
    Known,
    /// Not known.
    Unknown,
}
