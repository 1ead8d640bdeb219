//! Many replicas. Pipelines are split over shards; each shard is a Lease, and its holder acts for its pipelines.
//! `roster` decides what to hold (pure), `keeper` writes the Leases, and `held_shards` says what this replica has.

mod change;
pub mod claim;
mod held_shards;
mod keeper;
mod metrics;
pub mod roster;

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::key::PipelineKey;
pub use change::{ShardChange, StoredBefore, StoredState};
pub use held_shards::Shards;
pub(crate) use held_shards::{HeldShard, Stage};
pub use keeper::{Keeper, Order};
pub use metrics::ShardMetrics;

/// How shards are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Over how many shards pipelines are split. All replicas must say the same.
    pub shards: u32,
    /// Where the Leases are.
    pub namespace: String,
    /// What tells the Leases of one installation from those of another in that namespace.
    pub name: String,
    /// When what is done.
    pub pace: Pace,
}

/// When a Lease is renewed, given up and taken over. Each is longer than the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long a Lease that does not change is left to its holder.
    pub lease_duration: Duration,
    /// How long its holder acts after it asked for the last renewal that it got.
    pub renew_deadline: Duration,
    /// How often it asks, and how long it waits after a failure.
    pub retry_period: Duration,
}

/// The shard of a pipeline. Every replica of every version must say the same.
pub fn shard_of(key: &PipelineKey, shards: u32) -> u32 {
    let digest = Sha256::digest(format!("{}/{}", key.namespace, key.name));
    let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    u32::try_from(number % u64::from(shards.max(1))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_keeps_its_shard() {
        let key = |name: &str| PipelineKey { namespace: "apps".into(), name: name.into() };
        // Whoever changes these lets two replicas of different versions act for one pipeline.
        assert_eq!(["podinfo", "shop", "billing", "search"].map(|n| shard_of(&key(n), 4)), [1, 3, 2, 0]);
        let mut sizes = [0; 8];
        (0..8000).for_each(|i| sizes[shard_of(&key(&format!("app-{i}")), 8) as usize] += 1);
        assert!(sizes.iter().all(|n| (900..1100).contains(n)), "{sizes:?}");
        assert_eq!(shard_of(&key("podinfo"), 1), 0);
    }
}
