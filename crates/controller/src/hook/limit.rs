//! How many calls are taken from one peer, and for one pipeline. Pure: the time comes in.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// So many calls a second on average, and ten seconds' worth at once.
#[derive(Debug)]
pub struct Limits<K> {
    rate: f64,
    buckets: HashMap<K, Bucket>,
    /// From so many buckets on, or so late, it is worth while to look for those that are full.
    sweep: (usize, Option<Instant>),
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// The number of buckets from which on those that are full again are thrown away.
const MANY: usize = 10_000;
/// The number of buckets that there may be.
const MOST: usize = 10 * MANY;
/// What may be saved up, in seconds.
const BURST: f64 = 10.0;

impl<K: Eq + Hash> Limits<K> {
    /// So many calls a second for each key; 0 for as many as come.
    pub fn new(rate: u32) -> Self {
        Self { rate: f64::from(rate), buckets: HashMap::new(), sweep: (MANY, None) }
    }

    /// Counts a call.
    ///
    /// # Errors
    /// How long to wait, in whole seconds, when it is one too many.
    pub fn take(&mut self, key: K, now: Instant) -> Result<(), Duration> {
        if self.rate == 0.0 {
            return Ok(());
        }
        let (rate, most) = (self.rate, self.rate * BURST);
        let (many, next) = self.sweep;
        if self.buckets.len() >= many && next.is_none_or(|next| now >= next) {
            let is_full =
                |b: &Bucket| b.left + now.saturating_duration_since(b.at).as_secs_f64() * rate >= most;
            self.buckets.retain(|_, bucket| !is_full(bucket));
            let many = (2 * self.buckets.len()).clamp(MANY, MOST);
            self.sweep = (many, Some(now + Duration::from_secs(1)));
        }
        // Whoever fills the table with as many peers has to wait for room in it.
        if self.buckets.len() >= MOST && !self.buckets.contains_key(&key) {
            return Err(Duration::from_secs(10));
        }
        let bucket = self.buckets.entry(key).or_insert(Bucket { left: most, at: now });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.left, bucket.at) = ((bucket.left + passed * rate).min(most), now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64(((1.0 - bucket.left) / rate).ceil().max(1.0)))
    }
}

/// The proxies whose word about the peer counts.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Vec<Network>);

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: u128,
    prefix: u32,
}

/// The text is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address range: write one such as 10.0.0.0/8 or fd00::/8")]
pub struct NotANetwork(String);

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let wrong = || NotANetwork(text.into());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let (shift, most) = if address.is_ipv4() { (96, 32) } else { (0, 128) };
        let prefix: u32 = prefix.map_or(Ok(most), |p| p.trim().parse().map_err(|_| wrong()))?;
        if prefix > most {
            return Err(wrong());
        }
        Ok(Network { address: bits(address), prefix: prefix + shift })
    }
}

impl Network {
    fn holds(&self, address: IpAddr) -> bool {
        let differs = self.address ^ bits(address);
        differs.leading_zeros() >= self.prefix
    }
}

/// Every address as one of IPv6.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// The address in a part of `X-Forwarded-For`. Some proxies write the port with it, and IPv6 in brackets.
fn hop(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|at: SocketAddr| at.ip()))
}

impl Proxies {
    /// These.
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// Whether an address is one of them.
    pub fn holds(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.holds(address))
    }

    /// Who calls: the peer, or where that is a proxy of ours, the last address that is none in the
    /// `X-Forwarded-For` that our proxies have added to. Addresses of IPv6 count by their /64.
    pub fn caller<'a>(&self, peer: IpAddr, forwarded: impl DoubleEndedIterator<Item = &'a str>) -> IpAddr {
        let mut caller = peer;
        let mut hops = forwarded.flat_map(|line| line.split(',')).rev();
        while self.holds(caller) {
            let Some(before) = hops.next().and_then(hop) else { break };
            caller = before;
        }
        match caller.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & (u128::MAX << 64))),
            v4 => v4,
        }
    }
}
