//! Where a webhook may go. Whoever may write a Pipeline names the address, and the controller, which
//! stands inside the network, calls it: without a bound he would reach what only the controller can.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

use super::WebhookError;

/// What the operator allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Addresses without encryption.
    pub http: bool,
    /// Addresses that are not public.
    pub private: bool,
}

/// An address that may be called, and how messages name it.
#[derive(Debug)]
pub(super) struct Callee {
    pub(super) url: Url,
    pub(super) name: String,
}

/// Reads an address. That of a Secret is called so: all of it is secret.
pub(super) fn read(text: &str, in_secret: bool, allowed: Allowed) -> Result<Callee, WebhookError> {
    let place = if in_secret { "the address in the webhook's Secret" } else { "the webhook's url" };
    let invalid = || WebhookError::InvalidAddress { place };
    // What reads addresses drops line ends and tabs silently.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(invalid());
    }
    let url = Url::parse(text).map_err(|_| invalid())?;
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    if !matches!(url.scheme(), "https" | "http") || !plain {
        return Err(invalid());
    }
    let host = url.host().ok_or_else(invalid)?;
    let public = match &host {
        Host::Ipv4(address) => is_public(IpAddr::V4(*address)),
        Host::Ipv6(address) => is_public(IpAddr::V6(*address)),
        // Looked at when it is resolved, each time.
        Host::Domain(_) => true,
    };
    let name = match (in_secret, url.port()) {
        (true, _) => place.to_string(),
        (false, Some(port)) => format!("{host}:{port}"),
        (false, None) => host.to_string(),
    };
    if !public && !allowed.private {
        return Err(WebhookError::NotPublic { to: name });
    }
    if url.scheme() == "http" && !allowed.http {
        return Err(WebhookError::Unencrypted { to: name });
    }
    Ok(Callee { url, name })
}

/// Whether everybody may know the way to an address. Where an IPv6 address stands for an IPv4
/// address, that one counts.
pub(super) fn is_public(address: IpAddr) -> bool {
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

/// Resolves names, and hands out public addresses only: what was looked at is what is called.
#[derive(Clone, Debug)]
pub(crate) struct PublicOnly;

/// A name leads to an address that is not public.
#[derive(Debug, thiserror::Error)]
#[error("the name leads to an address that is not public")]
pub(super) struct LeadsInside;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One that is not public among others is a trick, or a mistake.
            if !found.iter().all(|address| is_public(address.ip())) {
                return Err(LeadsInside.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether a call failed because of where its name leads.
pub(crate) fn leads_inside(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LeadsInside>() {
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
    fn only_what_everybody_may_reach_is_public() {
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

    #[test]
    fn addresses_are_read_as_they_would_be_called() {
        let read = |text: &str| read(text, false, Allowed::default()).map(|callee| callee.name);
        assert_eq!(read("https://ci.example.com/hooks/s3cret?x=1").unwrap(), "ci.example.com");
        assert_eq!(read("https://ci.example.com:8443/").unwrap(), "ci.example.com:8443");
        for inside in [
            "https://127.0.0.1/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://0177.0.0.1/",
            "https://127.1/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://169.254.169.254/latest/meta-data",
            "http://10.0.0.1/",
            "https://１２７.0.0.1/",
        ] {
            assert!(matches!(read(inside), Err(WebhookError::NotPublic { .. })), "{inside}");
        }
        assert!(matches!(read("http://ci.example.com/"), Err(WebhookError::Unencrypted { .. })));
        for wrong in [
            "",
            "ci.example.com/x",
            "ftp://ci.example.com/",
            "file:///etc/passwd",
            "https://",
            "https://me:hunter2@ci.example.com/",
            "https://me@ci.example.com/",
            "https://ci.example.com/#x",
            "https://ci.example.com/\n",
            "ht\ntps://ci.example.com/",
        ] {
            let error = read(wrong).unwrap_err();
            assert_eq!(error.reason(), "InvalidAddress", "{wrong}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
