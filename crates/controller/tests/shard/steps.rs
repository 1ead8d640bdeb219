//! Scenarios of a few replicas: who acts for which shard, and after how many milliseconds.

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_controller::shard::lease::{LeaseName, LeaseRecord};

use crate::network::{Replica, Server, TIMING};

/// Lets time pass on a good network, where a message takes ten milliseconds. Returns the end.
fn pass(server: &mut Server, replicas: &mut [Replica], from: u64, to: u64) -> u64 {
    for now in (from..to).step_by(10) {
        replicas.iter_mut().for_each(|r| r.advance(server, now, || 10, || false));
    }
    to
}

/// Lets time pass until a condition holds. Returns that time.
fn pass_until(
    server: &mut Server,
    replicas: &mut [Replica],
    from: u64,
    condition: impl Fn(&[Replica], u64) -> bool,
) -> u64 {
    (from..from + 60_000)
        .step_by(10)
        .find(|now| {
            replicas.iter_mut().for_each(|r| r.advance(server, *now, || 10, || false));
            condition(replicas, *now)
        })
        .expect("the condition holds within a minute")
}

fn three_replicas(shards: u32) -> (Server, Vec<Replica>) {
    let replicas = ["a", "b", "c"].map(|name| Replica::new(name, shards, 1000, 7000));
    (Server::default(), replicas.into())
}

/// The shards that each replica acts for.
fn acting_for(replicas: &[Replica], now: u64) -> Vec<Vec<u32>> {
    replicas.iter().map(|r| r.acts(now)).collect()
}

#[test]
fn a_single_replica_holds_all_shards_and_hands_some_over_to_new_ones() {
    let (mut server, mut replicas) = three_replicas(6);
    let mut others = replicas.split_off(1);
    let now = pass_until(&mut server, &mut replicas, 0, |r, now| r[0].acts(now).len() == 6);
    assert!(now < 300, "{now}");
    replicas.append(&mut others);
    let now = pass_until(&mut server, &mut replicas, now, |r, now| r.iter().all(|r| r.acts(now).len() == 2));
    // Nothing moves any more.
    let before = acting_for(&replicas, now);
    let transitions = |server: &Server| server.all().iter().map(|(_, c)| c.transitions).sum::<i32>();
    let moved = transitions(&server);
    let now = pass(&mut server, &mut replicas, now, now + 60_000);
    assert_eq!((acting_for(&replicas, now), transitions(&server)), (before, moved));
}

#[test]
fn a_single_shard_stays_with_its_holder_when_replicas_join() {
    let (mut server, mut replicas) = three_replicas(1);
    let mut others = replicas.split_off(2);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    let before = server.holders(1);
    replicas.append(&mut others);
    let now = pass(&mut server, &mut replicas, now, now + 30_000);
    assert_eq!(server.holders(1), before);
    assert_eq!(acting_for(&replicas, now).concat(), [0]);
}

#[test]
fn after_a_kill_others_take_over_when_the_lease_has_expired() {
    let (mut server, mut replicas) = three_replicas(3);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    replicas[0].dead = true;
    let all = |r: &[Replica], now| r[1].acts(now).len() + r[2].acts(now).len() == 3;
    let took = pass_until(&mut server, &mut replicas, now, all) - now;
    assert!((8_000..13_000).contains(&took), "{took} ms");
    // The Lease of the dead replica is deleted.
    let now = pass(&mut server, &mut replicas, now, now + 25_000);
    assert!(all(&replicas, now));
    assert_eq!(server.leases.len(), 3 + 2, "{:?}", server.leases.keys());
}

#[test]
fn a_replica_that_leaves_hands_over_immediately() {
    let (mut server, mut replicas) = three_replicas(3);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    replicas[1].election.leave();
    let all = |r: &[Replica], now| r[0].acts(now).len() + r[2].acts(now).len() == 3;
    let took = pass_until(&mut server, &mut replicas, now, all) - now;
    assert!(took < 200, "{took} ms");
    assert!(replicas[1].election.has_left());
    assert!(server.all().iter().all(|(_, c)| c.holder.as_deref() != Some("b")));
}

#[test]
fn a_dead_replica_whose_lease_has_not_expired_delays_no_hand_over() {
    let (mut server, mut replicas) = three_replicas(3);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    replicas[0].dead = true;
    let all = |r: &[Replica], now| r[1..].iter().map(|r| r.acts(now).len()).sum::<usize>() == 3;
    let now = pass_until(&mut server, &mut replicas, now, all);
    // The new replica sees the Lease of the dead one for the first time, and cannot know how old it is. Having no
    // shard, it takes free shards before the others.
    replicas.push(Replica::new("0", 3, 1000, 7000));
    let now = pass_until(&mut server, &mut replicas, now, |r, now| r[3].acts(now).len() == 1);
    replicas[2].election.leave();
    let rest = |r: &[Replica], now| r[1].acts(now).len() + r[3].acts(now).len() == 3;
    let took = pass_until(&mut server, &mut replicas, now, rest) - now;
    assert!(took < 1000, "{took} ms");
}

#[test]
fn a_shard_that_a_dead_replica_does_not_take_is_not_left_to_it_again() {
    let (mut server, mut replicas) = three_replicas(3);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    // The replica dies when it has handed back its shard, and its own Lease exists: it has the fewest shards of
    // all.
    replicas[0].election.leave();
    let has_lease = |server: &Server| server.leases.contains_key(&LeaseName::Replica("a".into()));
    let now = (now..now + 1000)
        .step_by(10)
        .find(|now| {
            replicas.iter_mut().for_each(|r| r.advance(&mut server, *now, || 10, || false));
            replicas[0].acts(*now).is_empty()
        })
        .unwrap();
    replicas[0].dead = true;
    assert!(has_lease(&server));
    let transitions = |server: &Server| server.all().iter().map(|(_, c)| c.transitions).sum::<i32>();
    let (moved, mut gap) = (transitions(&server), 0);
    for now in (now..now + 9_000).step_by(10) {
        replicas.iter_mut().for_each(|r| r.advance(&mut server, now, || 10, || false));
        gap += u64::from(acting_for(&replicas, now).concat().len() < 3) * 10;
    }
    assert!(has_lease(&server));
    assert!(gap < 1000, "{gap} ms in which no replica acts");
    let moved = transitions(&server) - moved;
    assert!((1..=3).contains(&moved), "{moved} times");
}

#[test]
fn a_stopped_replica_does_not_act_when_it_continues_and_takes_another_identity() {
    let (mut server, mut replicas) = three_replicas(3);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    replicas[0].stopped = now + 30_000;
    let mut now = now;
    while now < 35_000 {
        replicas.iter_mut().for_each(|r| r.advance(&mut server, now, || 10, || false));
        let acting = acting_for(&replicas, now).concat();
        assert_eq!(acting.len(), acting.iter().collect::<BTreeSet<_>>().len(), "at {now}");
        now += 10;
    }
    // The moment before the replica continues.
    assert!(replicas[0].acts(now).is_empty());
    let now = pass_until(&mut server, &mut replicas, now, |r, now| r[0].acts(now).len() == 1);
    assert_eq!(acting_for(&replicas, now).concat().len(), 3);
    assert_eq!(replicas[0].election.identity(), "a-2");
}

#[test]
fn no_replica_acts_without_the_api_server() {
    let (mut server, mut replicas) = three_replicas(1);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    let end = now + TIMING.renew_deadline.as_millis() as u64;
    for now in (now..end + 20_000).step_by(10) {
        replicas.iter_mut().for_each(|r| r.advance(&mut server, now, || 1_000_000, || true));
    }
    assert!(acting_for(&replicas, end).concat().is_empty());
}

#[test]
fn a_replica_with_another_number_of_shards_waits_until_the_others_are_gone() {
    let (mut server, mut replicas) = three_replicas(1);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    replicas.push(Replica::new("d", 4, 1000, 0));
    let now = pass(&mut server, &mut replicas, now, now + 20_000);
    assert!(replicas[3].acts(now).is_empty());
    let (name, shards) = replicas[3].election.incompatible_replica(replicas[3].clock(now)).unwrap();
    assert_eq!((name, shards), ("a", 1));
    replicas[0].election.leave();
    replicas[1].dead = true;
    let now = pass(&mut server, &mut replicas, now, now + 30_000);
    assert_eq!((replicas[2].acts(now), replicas[3].acts(now)), (vec![0], vec![]));
    replicas[2].election.leave();
    let now = pass(&mut server, &mut replicas, now, now + 5_000);
    assert_eq!(replicas[3].acts(now), [0, 1, 2, 3]);
}

#[test]
fn a_lease_that_a_person_deletes_is_not_taken_before_its_holder_has_stopped() {
    let (mut server, mut replicas) = three_replicas(1);
    let mut now = pass(&mut server, &mut replicas, 0, 5000);
    let end = now + 30_000;
    server.leases.retain(|name, _| matches!(name, LeaseName::Replica(_)));
    server.version += 1;
    while now < end {
        now = pass(&mut server, &mut replicas, now, now + 10);
        assert!(acting_for(&replicas, now).concat().len() <= 1, "at {now}");
    }
    assert_eq!(acting_for(&replicas, now).concat(), [0]);
}

#[test]
fn a_foreign_lease_with_a_duration_of_years_does_not_stop_the_replicas_for_long() {
    let (mut server, mut replicas) = three_replicas(1);
    replicas.truncate(2);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    server.version += 1;
    let version = server.version.to_string();
    let lease = server.leases.get_mut(&LeaseName::Shard(0)).unwrap();
    (lease.holder, lease.duration) = (Some("stranger".into()), Duration::from_secs(i32::MAX as u64));
    lease.version = version;
    // No replica takes the Lease of another holder before it has expired.
    let stopped = pass(&mut server, &mut replicas, now, now + 60_000);
    assert!(acting_for(&replicas, stopped).concat().is_empty());
    let mut now = stopped;
    while acting_for(&replicas, now).concat().is_empty() {
        now = pass(&mut server, &mut replicas, now, now + 1000);
        assert!(now < stopped + 300_000, "no replica acts");
    }
}

#[test]
fn a_foreign_lease_with_the_highest_number_of_transitions_is_taken_when_it_has_expired() {
    let (mut server, mut replicas) = three_replicas(1);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    server.version += 1;
    let version = server.version.to_string();
    let lease = server.leases.get_mut(&LeaseName::Shard(0)).unwrap();
    (lease.holder, lease.duration) = (Some("stranger".into()), Duration::from_secs(1));
    (lease.transitions, lease.version) = (i32::MAX, version);
    let now = pass(&mut server, &mut replicas, now, now + 10_000);
    assert_eq!(acting_for(&replicas, now).concat(), [0]);
}

#[test]
fn a_deleted_lease_of_an_incompatible_replica_that_a_finalizer_keeps_delays_no_replica() {
    let (mut server, mut replicas) = three_replicas(1);
    let evil = LeaseRecord {
        holder: Some("evil".into()),
        duration: Duration::from_secs(i32::MAX as u64),
        transitions: 0,
        shards: Some(7),
        version: "1".into(),
        is_terminating: true,
    };
    server.version = 1;
    server.leases.insert(LeaseName::Replica("evil".into()), evil);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    assert_eq!(acting_for(&replicas, now).concat(), [0]);
}

#[test]
fn the_lease_of_an_incompatible_replica_that_cannot_be_deleted_counts_until_it_has_expired() {
    let (mut server, mut replicas) = three_replicas(1);
    let now = pass(&mut server, &mut replicas, 0, 5000);
    assert_eq!(acting_for(&replicas, now).concat(), [0]);
    replicas.iter_mut().for_each(|replica| replica.dead = true);
    replicas.push(Replica::new("d", 4, 1000, 0));
    // The API server refuses to delete: the requests of this replica to do so fail.
    server.keeps_replicas = true;
    let now = pass(&mut server, &mut replicas, now, now + 30_000);
    assert_eq!(replicas[3].acts(now), [0, 1, 2, 3]);
}
