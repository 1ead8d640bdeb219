use std::net::IpAddr;
use std::time::{Duration, Instant};

use sluice_controller::hook::rate::{NoticeThrottle, RateLimits};
use sluice_controller::hook::{Network, Proxies};

#[test]
fn the_calls_of_ten_seconds_may_come_at_the_same_time_and_further_calls_at_the_rate() {
    let (mut limits, start) = (RateLimits::new(2), Instant::now());
    for _ in 0..20 {
        assert_eq!(limits.count_call("a", start), Ok(()));
    }
    assert_eq!(limits.count_call("a", start), Err(Duration::from_secs(1)));
    assert_eq!(limits.count_call("b", start), Ok(()), "each has its own");
    let at = |millis| start + Duration::from_millis(millis);
    assert_eq!(limits.count_call("a", at(499)), Err(Duration::from_secs(1)));
    assert_eq!(limits.count_call("a", at(1000)), Ok(()));
    assert_eq!(limits.count_call("a", at(1000)), Ok(()));
    assert!(limits.count_call("a", at(1000)).is_err());
    // A clock that steps back permits no further call, and makes no caller wait longer.
    assert!(limits.count_call("a", start).is_err());
    assert_eq!(limits.count_call("a", at(2000)), Ok(()));
    // After a long pause as many calls may come at the same time as in the beginning.
    for _ in 0..20 {
        assert_eq!(limits.count_call("a", at(3_600_000)), Ok(()));
    }
    assert!(limits.count_call("a", at(3_600_000)).is_err());
}

#[test]
fn a_rate_of_zero_is_no_limit() {
    let (mut limits, start) = (RateLimits::new(0), Instant::now());
    assert!((0..100_000).all(|_| limits.count_call("a", start).is_ok()));
}

#[test]
fn a_caller_with_many_addresses_blocks_no_other_caller() {
    let (mut limits, start) = (RateLimits::new(1), Instant::now());
    let (victim, greedy) = (u32::MAX, u32::MAX - 1);
    (0..10).for_each(|_| assert_eq!(limits.count_call(greedy, start), Ok(())));
    for peer in 0..300_000u32 {
        assert_eq!(limits.count_call(peer, start), Ok(()), "a new peer is limited by other peers");
        // A peer that keeps calling stays limited, since the buckets that were used last are kept.
        if peer % 10_000 == 0 {
            assert!(limits.count_call(greedy, start).is_err(), "after {peer} peers");
        }
    }
    assert_eq!(limits.count_call(victim, start), Ok(()));
    assert!(limits.count() <= 100_000, "{} buckets in memory", limits.count());
}

#[test]
fn each_notice_is_due_once_in_ten_minutes() {
    let (mut notices, start) = (NoticeThrottle::default(), Instant::now());
    assert!(notices.is_due("a", start) && notices.is_due("b", start));
    assert!(!notices.is_due("a", start + Duration::from_secs(599)));
    assert!(notices.is_due("a", start + Duration::from_secs(600)));
    assert!(!notices.is_due("a", start + Duration::from_secs(700)));
}

#[test]
fn the_peer_is_the_last_address_that_is_no_trusted_proxy() {
    let networks = ["10.0.0.0 / 8", "fd00::/8", " 192.0.2.7"].map(|n| n.parse::<Network>().unwrap());
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
    for (connection, forwarded, peer) in table {
        let address: IpAddr = connection.parse().unwrap();
        let found = proxies.peer(address, forwarded.iter().copied());
        assert_eq!(found.to_string(), peer, "{connection} {forwarded:?}");
    }
    for bad in ["10.0.0.0/33", "::/129", "10.0.0", "", "a/8", "10.0.0.0/-1", "010.0.0.0/8"] {
        let error = bad.parse::<Network>().unwrap_err().to_string();
        assert!(error.contains("write one such as"), "{error}");
    }
}
