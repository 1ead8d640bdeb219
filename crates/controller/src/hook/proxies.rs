//! The proxies in front of the hook server, and the addresses of callers behind them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The proxies whose `X-Forwarded-For` is trusted.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Vec<Network>);

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: u128,
    prefix: u32,
}

/// The error for a text that is no range of addresses.
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
    fn contains(&self, address: IpAddr) -> bool {
        let differs = self.address ^ bits(address);
        differs.leading_zeros() >= self.prefix
    }
}

/// Returns an address as the bits of an IPv6 address.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// Parses one entry of `X-Forwarded-For`. Some proxies write IPv6 addresses in brackets, and some add the port.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|at: SocketAddr| at.ip()))
}

impl Proxies {
    /// The proxies with an address in one of these ranges.
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// Returns true if an address is that of a proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Returns the address of the caller: the peer, or if the peer is a proxy, the last address in
    /// `X-Forwarded-For` that is no proxy. Of an IPv6 address, only the /64 network is returned.
    pub fn caller<'a>(&self, peer: IpAddr, forwarded: impl DoubleEndedIterator<Item = &'a str>) -> IpAddr {
        let mut caller = peer;
        let mut hops = forwarded.flat_map(|line| line.split(',')).rev();
        while self.contains(caller) {
            let Some(before) = hops.next().and_then(parse_hop) else { break };
            caller = before;
        }
        match caller.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & (u128::MAX << 64))),
            v4 => v4,
        }
    }
}
