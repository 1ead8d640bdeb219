//! The address that limits count a call for: that of the connection or, behind a trusted proxy, of `X-Forwarded-For`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::proxies::Proxies;

/// Parses one entry of `X-Forwarded-For`. Some proxies write IPv6 addresses in brackets, and some add the port.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|at: SocketAddr| at.ip()))
}

impl Proxies {
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
