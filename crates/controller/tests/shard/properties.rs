//! What holds whatever happens: nobody acts for what another acts for; and when the faults stop,
//! everything is held, evenly.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::network::{Replica, Server};

/// Something that goes wrong, at a replica.
#[derive(Clone, Debug)]
enum Fault {
    Stopped(u64),
    Deaf(u64),
    Slow(u64),
    Lost(u64),
    Killed,
    Restarted { shards: u32 },
    Leaves,
}

fn fault() -> impl Strategy<Value = Fault> {
    let shards = prop_oneof![5 => Just(3u32), 1 => Just(1u32), 1 => Just(5u32)];
    prop_oneof![
        (100u64..40_000).prop_map(Fault::Stopped),
        (100u64..40_000).prop_map(Fault::Deaf),
        (100u64..30_000).prop_map(Fault::Slow),
        (100u64..30_000).prop_map(Fault::Lost),
        Just(Fault::Killed),
        shards.prop_map(|shards| Fault::Restarted { shards }),
        Just(Fault::Leaves),
    ]
}

/// Clocks go apart by a tenth: a hundred times as much as a bad one does.
fn clocks() -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((950u64..1050, 0u64..1_000_000), 3)
}

const STEP: u64 = 100;

/// Nobody acts for what another acts for, nor beside one who splits pipelines otherwise.
fn check(replicas: &[Replica], now: u64) -> Result<(), TestCaseError> {
    let mut acting: BTreeMap<u32, &str> = BTreeMap::new();
    let mut splits: Option<u32> = None;
    for replica in replicas {
        for shard in replica.acts(now) {
            if let Some(other) = acting.insert(shard, &replica.name) {
                prop_assert!(false, "{other} and {} act for shard {shard} at {now}", replica.name);
            }
            prop_assert_eq!(*splits.get_or_insert(replica.shards), replica.shards, "at {}", now);
        }
    }
    Ok(())
}

struct World {
    server: Server,
    replicas: Vec<Replica>,
    slow: Vec<u64>,
    lost: Vec<u64>,
    noise: u64,
    started: usize,
}

impl World {
    fn random(&mut self) -> u64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.noise >> 33
    }

    fn befalls(&mut self, place: usize, fault: &Fault, now: u64) {
        match fault {
            Fault::Stopped(time) => self.replicas[place].stopped = now + time,
            Fault::Deaf(time) => self.replicas[place].deaf = now + time,
            Fault::Slow(time) => self.slow[place] = now + time,
            Fault::Lost(time) => self.lost[place] = now + time,
            Fault::Killed => self.replicas[place].dead = true,
            Fault::Leaves => self.replicas[place].roster.leave(),
            Fault::Restarted { shards } => {
                self.started += 1;
                let (rate, offset) = (960 + self.random() % 80, self.random() % 100_000);
                let mut new = Replica::new(&format!("r{}", self.started), *shards, rate, offset);
                std::mem::swap(&mut new, &mut self.replicas[place]);
                // What the old one has sent arrives all the same.
                new.dead = true;
                self.replicas.push(new);
                self.slow.push(0);
                self.lost.push(0);
            }
        }
    }

    fn pass(&mut self, now: u64) {
        for i in 0..self.replicas.len() {
            let (slow, lost) = (self.slow[i] > now, self.lost[i] > now);
            let mut noise = self.random();
            let mut next = move || {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                noise >> 33
            };
            let mut again = next;
            let delay = move || if slow { next() % 15_000 } else { next() % 100 };
            let lost = move || lost && again() % 2 == 0;
            self.replicas[i].turn(&mut self.server, now, delay, lost);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn never_two_and_in_the_end_all(
        clocks in clocks(),
        faults in proptest::collection::vec((0u64..20_000, 0usize..3, fault()), 0..14),
        noise in any::<u64>(),
    ) {
        let replicas: Vec<Replica> = clocks.iter().enumerate()
            .map(|(i, (rate, offset))| Replica::new(&format!("r{i}"), 3, *rate, *offset)).collect();
        let (slow, lost) = (vec![0; 3], vec![0; 3]);
        let mut observed = World { server: Server::default(), replicas, slow, lost, noise, started: 10 };
        let mut now = 0;
        for (pause, place, fault) in &faults {
            let next = now + pause;
            while now < next {
                observed.pass(now);
                check(&observed.replicas, now)?;
                now += STEP;
            }
            observed.befalls(*place, fault, now);
        }
        // Everybody who is gone comes back, in one way: then it is only time that is needed.
        for place in 0..3 {
            observed.befalls(place, &Fault::Restarted { shards: 3 }, now);
        }
        let end = now + 120_000;
        while now < end {
            observed.pass(now);
            check(&observed.replicas, now)?;
            now += STEP;
        }
        let mut held: Vec<usize> = observed.replicas[..3].iter().map(|r| r.acts(now).len()).collect();
        held.sort_unstable();
        prop_assert_eq!(held, vec![1, 1, 1], "{:?} {:?}", observed.server.holders(3), observed.server.all());
    }
}
