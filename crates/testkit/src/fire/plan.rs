//! Which call meets which fault: a pure function of the call's number, so that what went wrong once
//! goes wrong again.

/// What befalls one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// It is answered late.
    Slow,
    /// It is answered with this status, and nothing is done. 429 says when to come again.
    Refused(u16),
    /// The connection ends before anything is done.
    Dropped,
    /// It is done, and the connection ends without an answer.
    Lost,
    /// It is done, and a proxy on the way says 502.
    Hidden,
    /// It is done, and the connection ends in the middle of the answer.
    Half,
    /// It is done, and what comes is half of the answer, as though it were the whole.
    Cut,
    /// Nothing is done, and no answer ever comes.
    Silent,
}

impl Fault {
    /// Every one of them, with every status that servers are known to refuse with.
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

    /// Whether what was asked for is done all the same.
    pub fn takes_effect(self) -> bool {
        !matches!(self, Fault::Refused(_) | Fault::Dropped | Fault::Silent)
    }
}

/// Which call meets which fault. Calls are numbered from one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Plan {
    /// None does.
    #[default]
    Quiet,
    /// Every one meets this.
    Always(Fault),
    /// One call does.
    Once {
        /// Its number.
        call: usize,
        /// What it meets.
        fault: Fault,
    },
    /// One call of those that change something does.
    Change {
        /// Its number among those.
        call: usize,
        /// What it meets.
        fault: Fault,
    },
    /// So many of a hundred do, drawn from a seed.
    Random {
        /// The same seed draws the same faults for the same numbers.
        seed: u64,
        /// How many of a hundred.
        percent: u64,
    },
}

impl Plan {
    /// What the call of this number meets, which has this number among those that change something.
    pub fn at(&self, number: usize, change: Option<usize>) -> Option<Fault> {
        match *self {
            Plan::Quiet => None,
            Plan::Always(fault) => Some(fault),
            Plan::Once { call, fault } => (call == number).then_some(fault),
            Plan::Change { call, fault } => (Some(call) == change).then_some(fault),
            Plan::Random { seed, percent } => {
                let drawn = draw(seed, number as u64);
                let which = (drawn / 100) as usize % Fault::ALL.len();
                (drawn % 100 < percent).then(|| Fault::ALL[which])
            }
        }
    }
}

/// The number that a seed has at a place: splitmix64, after Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators".
pub fn draw(seed: u64, place: u64) -> u64 {
    let mut z = seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_draws_every_fault_as_often_as_it_should_and_always_the_same() {
        let plan = Plan::Random { seed: 7, percent: 20 };
        let drawn: Vec<_> = (1..=5000).map(|n| plan.at(n, None)).collect();
        let faults = drawn.iter().flatten().count();
        assert!((900..1100).contains(&faults), "{faults} of 5000");
        assert_eq!(drawn.iter().flatten().collect::<BTreeSet<_>>().len(), Fault::ALL.len());
        assert_eq!(drawn, (1..=5000).map(|n| plan.at(n, None)).collect::<Vec<_>>());
        let other = Plan::Random { seed: 8, percent: 20 };
        assert!((1..=100).any(|n| plan.at(n, None) != other.at(n, None)));
    }
}
