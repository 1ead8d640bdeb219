//! The proxies in front of the hook server.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// The proxies whose `X-Forwarded-For` is trusted.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Vec<Network>);

/// A range of addresses, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

/// The error for a text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address range: write one such as 10.0.0.0/8 or fd00::/8")]
pub struct NotANetwork(String);

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let wrong = || NotANetwork(text.into());
        // ipnet's own parser would read 010.0.0.0, which other programs take as octal, as 10.0.0.0.
        let (address, prefix) = text.split_once('/').unzip();
        let address: IpAddr = address.unwrap_or(text).trim().parse().map_err(|_| wrong())?;
        let Some(prefix) = prefix else { return Ok(Network(address.into())) };
        let prefix = prefix.trim().parse().map_err(|_| wrong())?;
        IpNet::new(address, prefix).map(Network).map_err(|_| wrong())
    }
}

impl Network {
    /// Returns true if the range contains an address. An IPv4 address is also in the IPv6 ranges with its mapped form.
    fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let mapped = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
            v6 => v6,
        };
        self.0.contains(&address) || self.0.contains(&mapped)
    }
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
}
