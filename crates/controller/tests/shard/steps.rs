//! What happens when: the stories of few replicas, told in milliseconds.

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_controller::shard::claim::Name;

use crate::network::{PACE, Replica, Server};

/// Lets time pass on a good network: a message takes ten milliseconds.
fn pass(server: &mut Server, replicas: &mut [Replica], from: u64, to: u64) -> u64 {
    for now in (from..to).step_by(10) {
        replicas.iter_mut().for_each(|r| r.turn(server, now, || 10, || false));
    }
    to
}

/// The first moment at which it is as wanted.
fn until(
    server: &mut Server,
    replicas: &mut [Replica],
    from: u64,
    wanted: impl Fn(&[Replica], u64) -> bool,
) -> u64 {
    (from..from + 60_000)
        .step_by(10)
        .find(|now| {
            replicas.iter_mut().for_each(|r| r.turn(server, *now, || 10, || false));
            wanted(replicas, *now)
        })
        .expect("it never was so")
}

fn three(shards: u32) -> (Server, Vec<Replica>) {
    let replicas = ["a", "b", "c"].map(|name| Replica::new(name, shards, 1000, 7000));
    (Server::default(), replicas.into())
}

fn held(replicas: &[Replica], now: u64) -> Vec<Vec<u32>> {
    replicas.iter().map(|r| r.acts(now)).collect()
}

#[test]
fn one_alone_has_all_and_hands_over_what_is_too_much() {
    let (mut server, mut replicas) = three(6);
    let mut others = replicas.split_off(1);
    let now = until(&mut server, &mut replicas, 0, |r, now| r[0].acts(now).len() == 6);
    assert!(now < 300, "{now}");
    replicas.append(&mut others);
    let now = until(&mut server, &mut replicas, now, |r, now| r.iter().all(|r| r.acts(now).len() == 2));
    // And there it stays.
    let before = held(&replicas, now);
    let transitions = |server: &Server| server.all().iter().map(|(_, c)| c.transitions).sum::<i32>();
    let moved = transitions(&server);
    let now = pass(&mut server, &mut replicas, now, now + 60_000);
    assert_eq!((held(&replicas, now), transitions(&server)), (before, moved));
}

#[test]
fn a_single_shard_stays_where_it_is_whoever_comes() {
    let (mut server, mut replicas) = three(1);
    let mut others = replicas.split_off(2);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    let before = server.holders(1);
    replicas.append(&mut others);
    let now = pass(&mut server, &mut replicas, now, now + 30_000);
    assert_eq!(server.holders(1), before);
    assert_eq!(held(&replicas, now).concat(), [0]);
}

#[test]
fn after_a_kill_others_begin_when_the_lease_has_run_out() {
    let (mut server, mut replicas) = three(3);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    replicas[0].dead = true;
    let all = |r: &[Replica], now| r[1].acts(now).len() + r[2].acts(now).len() == 3;
    let took = until(&mut server, &mut replicas, now, all) - now;
    assert!((8_000..13_000).contains(&took), "{took} ms");
    // What it has left is tidied up.
    let now = pass(&mut server, &mut replicas, now, now + 25_000);
    assert!(all(&replicas, now));
    assert_eq!(server.leases.len(), 3 + 2, "{:?}", server.leases.keys());
}

#[test]
fn one_that_leaves_hands_over_at_once() {
    let (mut server, mut replicas) = three(3);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    replicas[1].roster.leave();
    let all = |r: &[Replica], now| r[0].acts(now).len() + r[2].acts(now).len() == 3;
    let took = until(&mut server, &mut replicas, now, all) - now;
    assert!(took < 200, "{took} ms");
    assert!(replicas[1].roster.has_left());
    assert!(server.all().iter().all(|(_, c)| c.holder.as_deref() != Some("b")));
}

#[test]
fn one_that_is_dead_and_still_counts_holds_up_no_hand_over() {
    let (mut server, mut replicas) = three(3);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    replicas[0].dead = true;
    let all = |r: &[Replica], now| r[1..].iter().map(|r| r.acts(now).len()).sum::<usize>() == 3;
    let now = until(&mut server, &mut replicas, now, all);
    // It sees the dead one's Lease for the first time, and cannot know how old it is; and what is free falls
    // to it before the others.
    replicas.push(Replica::new("0", 3, 1000, 7000));
    let now = until(&mut server, &mut replicas, now, |r, now| r[3].acts(now).len() == 1);
    replicas[2].roster.leave();
    let rest = |r: &[Replica], now| r[1].acts(now).len() + r[3].acts(now).len() == 3;
    let took = until(&mut server, &mut replicas, now, rest) - now;
    assert!(took < 1000, "{took} ms");
}

#[test]
fn what_a_dead_one_does_not_take_it_is_not_offered_again() {
    let (mut server, mut replicas) = three(3);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    // It dies with its shard handed back and its own Lease there: of all it has the fewest.
    replicas[0].roster.leave();
    let there = |server: &Server| server.leases.contains_key(&Name::Replica("a".into()));
    let now = (now..now + 1000)
        .step_by(10)
        .find(|now| {
            replicas.iter_mut().for_each(|r| r.turn(&mut server, *now, || 10, || false));
            replicas[0].acts(*now).is_empty()
        })
        .unwrap();
    replicas[0].dead = true;
    assert!(there(&server));
    let transitions = |server: &Server| server.all().iter().map(|(_, c)| c.transitions).sum::<i32>();
    let (moved, mut without) = (transitions(&server), 0);
    for now in (now..now + 9_000).step_by(10) {
        replicas.iter_mut().for_each(|r| r.turn(&mut server, now, || 10, || false));
        without += u64::from(held(&replicas, now).concat().len() < 3) * 10;
    }
    assert!(there(&server));
    assert!(without < 1000, "{without} ms without somebody who acts");
    let moved = transitions(&server) - moved;
    assert!((1..=3).contains(&moved), "{moved} times");
}

#[test]
fn one_that_was_stopped_does_not_act_when_it_goes_on_and_comes_back_as_another() {
    let (mut server, mut replicas) = three(3);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    replicas[0].stopped = now + 30_000;
    let mut now = now;
    while now < 35_000 {
        replicas.iter_mut().for_each(|r| r.turn(&mut server, now, || 10, || false));
        let acting = held(&replicas, now).concat();
        assert_eq!(acting.len(), acting.iter().collect::<BTreeSet<_>>().len(), "at {now}");
        now += 10;
    }
    // The very moment before it takes its first turn again.
    assert!(replicas[0].acts(now).is_empty());
    let now = until(&mut server, &mut replicas, now, |r, now| r[0].acts(now).len() == 1);
    assert_eq!(held(&replicas, now).concat().len(), 3);
    assert_eq!(replicas[0].roster.me(), "a-2");
}

#[test]
fn when_nobody_can_be_reached_nobody_acts() {
    let (mut server, mut replicas) = three(1);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    let end = now + PACE.renew_deadline.as_millis() as u64;
    for now in (now..end + 20_000).step_by(10) {
        replicas.iter_mut().for_each(|r| r.turn(&mut server, now, || 1_000_000, || true));
    }
    assert!(held(&replicas, end).concat().is_empty());
}

#[test]
fn those_who_split_otherwise_wait_until_the_others_are_gone() {
    let (mut server, mut replicas) = three(1);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    replicas.push(Replica::new("d", 4, 1000, 0));
    let now = pass(&mut server, &mut replicas, now, now + 20_000);
    assert!(replicas[3].acts(now).is_empty());
    let (name, shards) = replicas[3].roster.stands_by_for().unwrap();
    assert_eq!((name, shards), ("a", 1));
    replicas[0].roster.leave();
    replicas[1].dead = true;
    let now = pass(&mut server, &mut replicas, now, now + 30_000);
    assert_eq!((replicas[2].acts(now), replicas[3].acts(now)), (vec![0], vec![]));
    replicas[2].roster.leave();
    let now = pass(&mut server, &mut replicas, now, now + 5_000);
    assert_eq!(replicas[3].acts(now), [0, 1, 2, 3]);
}

#[test]
fn a_lease_that_is_removed_by_hand_is_not_taken_before_its_holder_has_stopped() {
    let (mut server, mut replicas) = three(1);
    let mut now = pass(&mut server, &mut replicas, 0, 5000);
    let end = now + 30_000;
    server.leases.retain(|name, _| matches!(name, Name::Replica(_)));
    server.version += 1;
    while now < end {
        now = pass(&mut server, &mut replicas, now, now + 10);
        assert!(held(&replicas, now).concat().len() <= 1, "at {now}");
    }
    assert_eq!(held(&replicas, now).concat(), [0]);
}

#[test]
fn a_lease_of_a_stranger_with_a_duration_of_years_stops_nobody_for_long() {
    let (mut server, mut replicas) = three(1);
    replicas.truncate(2);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    server.version += 1;
    let version = server.version.to_string();
    let lease = server.leases.get_mut(&Name::Shard(0)).unwrap();
    (lease.holder, lease.duration) = (Some("stranger".into()), Duration::from_secs(i32::MAX as u64));
    lease.version = version;
    // Nobody writes a Lease of another holder, however wrong it looks, before its time is over.
    let stopped = pass(&mut server, &mut replicas, now, now + 60_000);
    assert!(held(&replicas, stopped).concat().is_empty());
    let mut now = stopped;
    while held(&replicas, now).concat().is_empty() {
        now = pass(&mut server, &mut replicas, now, now + 1000);
        assert!(now < stopped + 300_000, "nobody acts");
    }
}
