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

/// The durations of replicas of one installation differ by this factor at most. A longer duration was written by
/// someone else. It is cut, because it would stop all replicas for that time.
const MAX_DURATION_FACTOR: u32 = 20;

impl Default for LeaseTiming {
    fn default() -> Self {
        LeaseTiming {
            lease_duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(8),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl LeaseTiming {
    /// How long a Lease that does not change belongs to its holder. That is the duration that is stored in the Lease,
    /// on which the holder relies, but at most [`MAX_DURATION_FACTOR`] times this replica's own duration.
    pub(super) fn accepted_duration(&self, stored: Duration) -> Duration {
        let own = self.lease_duration;
        if stored.is_zero() { own } else { stored.min(own * MAX_DURATION_FACTOR) }
    }

    /// Checks that a holder stops before another replica takes over.
    ///
    /// # Errors
    /// What to write instead, with the names of the flags.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.lease_duration.subsec_nanos() != 0 {
            return Err(
                "--leader-election-lease-duration: write whole seconds, such as 10s: a Lease has no fractions",
            );
        }
        if self.retry_period >= self.renew_deadline || self.renew_deadline >= self.lease_duration {
            return Err(
                "write --leader-election-retry-period shorter than --leader-election-renew-deadline, and that \
                shorter than --leader-election-lease-duration, so that a holder stops before another replica takes over",
            );
        }
        Ok(())
    }
}
