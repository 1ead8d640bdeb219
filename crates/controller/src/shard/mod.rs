//! Many replicas. Pipelines are split over shards. Each shard has a Lease, and the holder of the Lease acts for
//! the pipelines of the shard. [`Election`] decides which Leases to hold (pure), [`LeaseManager`] writes them, and
//! [`Shards`] says for which pipelines this replica acts.

pub mod election;
mod held_shards;
pub mod lease;
mod lease_manager;
mod lease_timing;
mod metrics;
mod shard_change;
mod shard_of_pipeline;

pub use election::Election;
pub use held_shards::Shards;
pub(crate) use held_shards::{HeldShard, ShardStage};
pub use lease_manager::{LeaseCommand, LeaseManager};
pub use lease_timing::{ElectionOptions, LeaseTiming};
pub use metrics::ShardMetrics;
pub use shard_change::{ShardChange, StoredBefore, StoredState};
pub use shard_of_pipeline::shard_of;
