//! How Leases are held: how many there are, and when each is renewed, given up and taken over.

use std::time::Duration;

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
