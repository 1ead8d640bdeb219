//! Many replicas. Pipelines are split over shards; each shard is a Lease, and its holder acts for its pipelines.
//! `roster` decides what to hold (pure), `keeper` writes the Leases, and `held_shards` says what this replica has.

mod assignment;
mod change;
pub mod claim;
mod held_shards;
mod keeper;
mod lease_timing;
mod metrics;
pub mod roster;

pub use assignment::shard_of;
pub use change::{ShardChange, StoredBefore, StoredState};
pub use held_shards::Shards;
pub(crate) use held_shards::{HeldShard, Stage};
pub use keeper::{Keeper, Order};
pub use lease_timing::{Election, Pace};
pub use metrics::ShardMetrics;
