//! Decides which call meets which fault. The plan is a pure function of the call's number, so that a failure can be
//! repeated.

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The call is answered late.
    Slow,
    /// The call is answered with this status and has no effect. With 429, the answer has a `Retry-After` header.
    Refused(u16),
    /// The connection ends before the call has an effect.
    Dropped,
    /// The call has its effect, and the connection ends without an answer.
    Lost,
    /// The call has its effect, and a proxy answers 502.
    Hidden,
    /// The call has its effect, and the connection ends in the middle of the answer.
    Half,
    /// The call has its effect, and the answer is cut in half, with the length of the half as its length.
    Cut,
    /// The call has no effect and no answer.
    Silent,
}

impl Fault {
    /// All faults, with every status that servers are known to reject calls with.
    pub const ALL: [Fault; 16] = [
        Fault::Slow,
        Fault::Refused(401),
        Fault::Refused(403),
        Fault::Refused(404),
        Fault::Refused(409),
        Fault::Refused(422),
        Fault::Refused(429),
        Fault::Refused(500),
        Fault::Refused(502),
        Fault::Refused(503),
        Fault::Dropped,
        Fault::Lost,
        Fault::Hidden,
        Fault::Half,
        Fault::Cut,
        Fault::Silent,
    ];

    /// Returns true if the call has its effect despite the fault.
    pub fn takes_effect(self) -> bool {
        !matches!(self, Fault::Refused(_) | Fault::Dropped | Fault::Silent)
    }
}

/// Which calls meet a fault. Calls are numbered from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FaultPlan {
    /// No call.
    #[default]
    Quiet,
    /// Every call.
    Always(Fault),
    /// One call.
    Once {
        /// The number of the call.
        call: usize,
        /// Its fault.
        fault: Fault,
    },
    /// One of the calls that change something.
    Change {
        /// The number of the call among those.
        call: usize,
        /// Its fault.
        fault: Fault,
    },
    /// Random calls with random faults.
    Random {
        /// The same seed draws the same faults for the same numbers.
        seed: u64,
        /// The percentage of calls with a fault.
        percent: u64,
    },
}

impl FaultPlan {
    /// Returns the fault of a call. `change` is its number among the calls that change something.
    pub fn at(&self, number: usize, change: Option<usize>) -> Option<Fault> {
        match *self {
            FaultPlan::Quiet => None,
            FaultPlan::Always(fault) => Some(fault),
            FaultPlan::Once { call, fault } => (call == number).then_some(fault),
            FaultPlan::Change { call, fault } => (Some(call) == change).then_some(fault),
            FaultPlan::Random { seed, percent } => {
                let drawn = draw(seed, number as u64);
                let index = (drawn / 100) as usize % Fault::ALL.len();
                (drawn % 100 < percent).then(|| Fault::ALL[index])
            }
        }
    }
}

/// Returns the pseudorandom number at an index of a seed's sequence: splitmix64, after Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators".
pub fn draw(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_draws_every_fault_at_the_given_rate_and_repeatably() {
        let plan = FaultPlan::Random { seed: 7, percent: 20 };
        let drawn: Vec<_> = (1..=5000).map(|n| plan.at(n, None)).collect();
        let faults = drawn.iter().flatten().count();
        assert!((900..1100).contains(&faults), "{faults} of 5000");
        assert_eq!(drawn.iter().flatten().collect::<BTreeSet<_>>().len(), Fault::ALL.len());
        assert_eq!(drawn, (1..=5000).map(|n| plan.at(n, None)).collect::<Vec<_>>());
        let other = FaultPlan::Random { seed: 8, percent: 20 };
        assert!((1..=100).any(|n| plan.at(n, None) != other.at(n, None)));
    }
}
