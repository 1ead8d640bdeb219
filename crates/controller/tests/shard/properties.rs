//! Properties of random histories: two replicas never act for one shard; and when the faults stop, all shards are
//! held, evenly.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::network::{Replica, Server};

/// Something that happens to a replica, for the given number of milliseconds.
#[derive(Clone, Debug)]
enum ReplicaFault {
    Stopped(u64),
    WatchSilent(u64),
    SlowNetwork(u64),
    LostAnswers(u64),
    Killed,
    Restarted { shards: u32 },
    Leaves,
}

fn fault() -> impl Strategy<Value = ReplicaFault> {
    let shards = prop_oneof![5 => Just(3u32), 1 => Just(1u32), 1 => Just(5u32)];
    prop_oneof![
        (100u64..40_000).prop_map(ReplicaFault::Stopped),
        (100u64..40_000).prop_map(ReplicaFault::WatchSilent),
        (100u64..30_000).prop_map(ReplicaFault::SlowNetwork),
        (100u64..30_000).prop_map(ReplicaFault::LostAnswers),
        Just(ReplicaFault::Killed),
        shards.prop_map(|shards| ReplicaFault::Restarted { shards }),
        Just(ReplicaFault::Leaves),
    ]
}

/// The rates and offsets of the clocks. They differ by a tenth: a hundred times as much as bad clocks do.
fn clocks() -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((950u64..1050, 0u64..1_000_000), 3)
}

const STEP: u64 = 100;

/// Checks that no two replicas act for one shard, and that those that act have the same number of shards.
fn check(replicas: &[Replica], now: u64) -> Result<(), TestCaseError> {
    let mut acting: BTreeMap<u32, &str> = BTreeMap::new();
    let mut shards: Option<u32> = None;
    for replica in replicas {
        for shard in replica.acts(now) {
            if let Some(other) = acting.insert(shard, &replica.name) {
                prop_assert!(false, "{other} and {} act for shard {shard} at {now}", replica.name);
            }
            prop_assert_eq!(*shards.get_or_insert(replica.shards), replica.shards, "at {}", now);
        }
    }
    Ok(())
}

struct Network {
    server: Server,
    replicas: Vec<Replica>,
    /// Until when the messages of each replica are slow.
    slow: Vec<u64>,
    /// Until when each replica loses answers.
    lossy: Vec<u64>,
    random: u64,
    started: usize,
}

impl Network {
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 33
    }

    fn apply_fault(&mut self, index: usize, fault: &ReplicaFault, now: u64) {
        match fault {
            ReplicaFault::Stopped(time) => self.replicas[index].stopped = now + time,
            ReplicaFault::WatchSilent(time) => self.replicas[index].watch_silent = now + time,
            ReplicaFault::SlowNetwork(time) => self.slow[index] = now + time,
            ReplicaFault::LostAnswers(time) => self.lossy[index] = now + time,
            ReplicaFault::Killed => self.replicas[index].dead = true,
            ReplicaFault::Leaves => self.replicas[index].election.leave(),
            ReplicaFault::Restarted { shards } => {
                self.started += 1;
                let (rate, offset) = (960 + self.random() % 80, self.random() % 100_000);
                let mut new = Replica::new(&format!("r{}", self.started), *shards, rate, offset);
                std::mem::swap(&mut new, &mut self.replicas[index]);
                // The requests that the old one has sent still arrive.
                new.dead = true;
                self.replicas.push(new);
                self.slow.push(0);
                self.lossy.push(0);
            }
        }
    }

    fn pass(&mut self, now: u64) {
        for i in 0..self.replicas.len() {
            let (is_slow, is_lossy) = (self.slow[i] > now, self.lossy[i] > now);
            let mut random = self.random();
            let mut next = move || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                random >> 33
            };
            let mut again = next;
            let delay = move || if is_slow { next() % 15_000 } else { next() % 100 };
            let is_lost = move || is_lossy && again() % 2 == 0;
            self.replicas[i].advance(&mut self.server, now, delay, is_lost);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn no_two_replicas_act_for_one_shard_and_in_the_end_all_shards_are_held(
        clocks in clocks(),
        faults in proptest::collection::vec((0u64..20_000, 0usize..3, fault()), 0..14),
        random in any::<u64>(),
    ) {
        let replicas: Vec<Replica> = clocks.iter().enumerate()
            .map(|(i, (rate, offset))| Replica::new(&format!("r{i}"), 3, *rate, *offset)).collect();
        let (slow, lossy) = (vec![0; 3], vec![0; 3]);
        let server = Server::default();
        let mut network = Network { server, replicas, slow, lossy, random, started: 10 };
        let mut now = 0;
        for (pause, index, fault) in &faults {
            let next = now + pause;
            while now < next {
                network.pass(now);
                check(&network.replicas, now)?;
                now += STEP;
            }
            network.apply_fault(*index, fault, now);
        }
        // All replicas are restarted with the same number of shards: then only time is needed.
        for index in 0..3 {
            network.apply_fault(index, &ReplicaFault::Restarted { shards: 3 }, now);
        }
        let end = now + 120_000;
        while now < end {
            network.pass(now);
            check(&network.replicas, now)?;
            now += STEP;
        }
        let mut held: Vec<usize> = network.replicas[..3].iter().map(|r| r.acts(now).len()).collect();
        held.sort_unstable();
        prop_assert_eq!(held, vec![1, 1, 1], "{:?} {:?}", network.server.holders(3), network.server.all());
    }
}
