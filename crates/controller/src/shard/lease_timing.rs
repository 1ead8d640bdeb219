//! The settings of the election: how many shards there are, and when Leases are renewed, given up and taken over.

use std::time::Duration;

/// How replicas share the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionOptions {
    /// The number of shards that pipelines are split over. All replicas must have the same.
    pub shards: u32,
    /// The namespace of the Leases.
    pub namespace: String,
    /// The prefix of the Leases' names. It tells the Leases of two installations in one namespace apart.
    pub name: String,
    /// When Leases are renewed, given up and taken over.
    pub timing: LeaseTiming,
}

/// When a Lease is renewed, given up and taken over. Each time is longer than the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long other replicas leave a Lease that does not change to its holder.
    pub lease_duration: Duration,
    /// How long a holder acts after it sent its last successful renewal.
    pub renew_deadline: Duration,
    /// The time between two renewals, and the pause after a failed one.
    pub retry_period: Duration,
}
