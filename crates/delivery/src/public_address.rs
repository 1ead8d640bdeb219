//! Public network addresses, and a resolver that returns no others.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Whether an address is public. An IPv6 address that stands for an IPv4 address counts as that.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b, c) {
        (0 | 10 | 127 | 224.., ..) => true,
        // Between a provider and its customers; some clouds serve credentials there.
        (100, 64..=127, _) => true,
        (169, 254, _) | (192, 168, _) | (172, 16..=31, _) => true,
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18 | 19, _) => true,
        (198, 51, 100) | (203, 0, 113) => true,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b) {
        // Mapped, and as routers translate it.
        (0, 0) if (c, d, e, f) == (0, 0, 0, 0xffff) => v4(g, h),
        (0x64, 0xff9b) if (c, d, e, f) == (0, 0, 0, 0) => v4(g, h),
        // 6to4.
        (0x2002, _) => v4(b, c),
        // Only 2000::/3 is given out; of that not: protocols (Teredo too), documentation.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff) => false,
        _ => (0x2000..0x4000).contains(&a),
    }
}

/// Resolves names to public addresses only. The client connects to the addresses that were checked.
#[derive(Clone, Debug)]
pub(crate) struct PublicResolver;

/// A name leads to an address that is not public.
#[derive(Debug, thiserror::Error)]
#[error("the name leads to an address that is not public")]
struct PrivateAddressError;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // A single address that is not public among others is an attack, or a mistake.
            if !found.iter().all(|address| is_public(address.ip())) {
                return Err(PrivateAddressError.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether a call failed because its name resolved to an address that is not public.
pub(crate) fn is_private_address_error(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<PrivateAddressError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_special_addresses_are_not_public() {
        let public = "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.167.0.1 192.1.0.1 \
            198.20.0.1 223.255.255.254 2606:4700::1111 2001:4860:4860::8888 ::ffff:8.8.8.8 \
            64:ff9b::8.8.8.8 2002:808:808::1";
        let inside = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 \
            169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.2.1 192.88.99.1 192.168.1.1 \
            198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 \
            :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.1.2.3 ::ffff:169.254.169.254 \
            ::ffff:0:127.0.0.1 64:ff9b::10.0.0.1 64:ff9b:1::1 2002:7f00:1::1 2002:a9fe:a9fe::1 \
            2001::1 2001:db8::1 3fff::1 100::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 5f00::1";
        for text in public.split_whitespace() {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
        for text in inside.split_whitespace() {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }
}
