use std::net::IpAddr;
use std::time::{Duration, Instant};

use sluice_controller::hook::rate::{Limits, Pauses};
use sluice_controller::hook::{Network, Proxies};

#[test]
fn ten_seconds_worth_at_once_and_then_at_the_rate() {
    let (mut limits, start) = (Limits::new(2), Instant::now());
    for _ in 0..20 {
        assert_eq!(limits.take("a", start), Ok(()));
    }
    assert_eq!(limits.take("a", start), Err(Duration::from_secs(1)));
    assert_eq!(limits.take("b", start), Ok(()), "each has its own");
    let at = |millis| start + Duration::from_millis(millis);
    assert_eq!(limits.take("a", at(499)), Err(Duration::from_secs(1)));
    assert_eq!(limits.take("a", at(1000)), Ok(()));
    assert_eq!(limits.take("a", at(1000)), Ok(()));
    assert!(limits.take("a", at(1000)).is_err());
    // A clock that steps back lets nobody in twice, and nobody wait longer.
    assert!(limits.take("a", start).is_err());
    assert_eq!(limits.take("a", at(2000)), Ok(()));
    // After a long pause there is no more than there was in the beginning.
    for _ in 0..20 {
        assert_eq!(limits.take("a", at(3_600_000)), Ok(()));
    }
    assert!(limits.take("a", at(3_600_000)).is_err());
}

#[test]
fn no_rate_is_no_limit() {
    let (mut limits, start) = (Limits::new(0), Instant::now());
    assert!((0..100_000).all(|_| limits.take("a", start).is_ok()));
}

#[test]
fn a_caller_with_any_number_of_addresses_shuts_out_nobody() {
    let (mut limits, start) = (Limits::new(1), Instant::now());
    let (victim, greedy) = (u32::MAX, u32::MAX - 1);
    (0..10).for_each(|_| assert_eq!(limits.take(greedy, start), Ok(())));
    for peer in 0..300_000u32 {
        assert_eq!(limits.take(peer, start), Ok(()), "a new peer has its calls, whoever came before it");
        // A peer that keeps calling stays limited: what was used last is kept.
        if peer % 10_000 == 0 {
            assert!(limits.take(greedy, start).is_err(), "after {peer} peers");
        }
    }
    assert_eq!(limits.take(victim, start), Ok(()));
    assert!(limits.count() <= 100_000, "{} buckets in memory", limits.count());
}

#[test]
fn people_are_told_each_thing_once_in_ten_minutes() {
    let (mut pauses, start) = (Pauses::default(), Instant::now());
    assert!(pauses.is_due("a", start) && pauses.is_due("b", start));
    assert!(!pauses.is_due("a", start + Duration::from_secs(599)));
    assert!(pauses.is_due("a", start + Duration::from_secs(600)));
    assert!(!pauses.is_due("a", start + Duration::from_secs(700)));
}

#[test]
fn the_caller_is_who_our_own_proxies_say() {
    let networks = ["10.0.0.0/8", "fd00::/8", "192.0.2.7"].map(|n| n.parse::<Network>().unwrap());
    let proxies = Proxies::new(networks.to_vec());
    let table: [(&str, &[&str], &str); 17] = [
        ("203.0.113.5", &[], "203.0.113.5"),
        ("203.0.113.5", &["198.51.100.1"], "203.0.113.5"),
        ("10.1.2.3", &[], "10.1.2.3"),
        ("10.1.2.3", &["198.51.100.1"], "198.51.100.1"),
        ("10.1.2.3", &["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
        ("10.1.2.3", &["6.6.6.6", "198.51.100.1, 10.9.9.9"], "198.51.100.1"),
        ("192.0.2.7", &["nonsense"], "192.0.2.7"),
        ("192.0.2.8", &["198.51.100.1"], "192.0.2.8"),
        ("::ffff:10.1.2.3", &["198.51.100.1"], "198.51.100.1"),
        ("2001:db8:1:2:3:4:5:6", &[], "2001:db8:1:2::"),
        ("fd00::1", &["2001:db8:1:2:ffff::1"], "2001:db8:1:2::"),
        // With a port, and in brackets.
        ("10.1.2.3", &["198.51.100.7:4711"], "198.51.100.7"),
        ("10.1.2.3", &["6.6.6.6, 198.51.100.7:4711 , 10.9.9.9:80"], "198.51.100.7"),
        ("10.1.2.3", &["[2001:db8:1:2::1]"], "2001:db8:1:2::"),
        ("10.1.2.3", &["[2001:db8:1:2::1]:443"], "2001:db8:1:2::"),
        ("10.1.2.3", &["198.51.100.7:x"], "10.1.2.3"),
        ("10.1.2.3", &["[2001:db8:1:2::1"], "10.1.2.3"),
    ];
    for (peer, forwarded, caller) in table {
        let address: IpAddr = peer.parse().unwrap();
        let found = proxies.caller(address, forwarded.iter().copied());
        assert_eq!(found.to_string(), caller, "{peer} {forwarded:?}");
    }
    for bad in ["10.0.0.0/33", "::/129", "10.0.0", "", "a/8", "10.0.0.0/-1"] {
        let error = bad.parse::<Network>().unwrap_err().to_string();
        assert!(error.contains("write one such as"), "{error}");
    }
}
