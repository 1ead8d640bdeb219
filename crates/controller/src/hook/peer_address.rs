//! The peer of a call: the address that limits count the call for. The peer is the address of the connection or, behind a
//! trusted proxy, an address of `X-Forwarded-For`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::proxies::Proxies;

/// The length of the network prefix that identifies an IPv6 peer, in bits. Networks usually give each customer at least a
/// /64, so one peer can use all addresses of a /64.
const IPV6_PEER_PREFIX_BITS: u32 = 64;

/// Parses one entry of `X-Forwarded-For`. Some proxies write IPv6 addresses in brackets, and some add the port.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|at: SocketAddr| at.ip()))
}

impl Proxies {
    /// Returns the peer of a call: the address of the connection, or if that is a proxy, the last address in
    /// `X-Forwarded-For` that is no proxy. Of an IPv6 address, only the first [`IPV6_PEER_PREFIX_BITS`] are returned.
    pub fn peer<'a>(
        &self,
        connection: IpAddr,
        forwarded: impl DoubleEndedIterator<Item = &'a str>,
    ) -> IpAddr {
        let mut peer = connection;
        let mut hops = forwarded.flat_map(|line| line.split(',')).rev();
        while self.contains(peer) {
            let Some(before) = hops.next().and_then(parse_hop) else { break };
            peer = before;
        }
        match peer.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(
                u128::from(v6) & (u128::MAX << (Ipv6Addr::BITS - IPV6_PEER_PREFIX_BITS)),
            )),
            v4 => v4,
        }
    }
}
