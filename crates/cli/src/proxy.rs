//! The clusters that are reached without the proxy of HTTPS_PROXY: those on this machine and those in NO_PROXY, by the
//! rules of kubectl.

use std::net::IpAddr;

/// Returns true if the environment variables exclude a host from the proxy.
pub(crate) fn direct_by_environment(host: &str) -> bool {
    let excepted = std::env::var("NO_PROXY").or_else(|_| std::env::var("no_proxy"));
    direct(host, &excepted.unwrap_or_default())
}

fn direct(host: &str, excepted: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|a| a.is_loopback()) {
        return true;
    }
    excepted.split(',').map(str::trim).filter(|e| !e.is_empty()).any(|entry| {
        match (address, entry.split_once('/')) {
            _ if entry == "*" || entry == host => true,
            (Some(address), Some((network, bits))) => holds(network, bits, address),
            (Some(_), None) | (None, Some(_)) => false,
            (None, None) => {
                let domain = entry.trim_start_matches("*.").trim_start_matches('.');
                host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
        }
    })
}

/// Returns true if a network contains an address.
fn holds(network: &str, bits: &str, address: IpAddr) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    let (a, b, width) = match (network, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    // A shift by the whole width overflows: a network of 0 bits contains every address.
    width >= bits && (a ^ b).checked_shr(width - bits).unwrap_or_default() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_and_excluded_hosts_need_no_proxy() {
        let table = [
            ("127.0.0.1", "", true),
            ("localhost", "", true),
            ("[::1]", "", true),
            ("k8s.example.com", "", false),
            ("k8s.example.com", "*", true),
            ("k8s.example.com", "a.org, example.com", true),
            ("k8s.example.com", ".example.com", true),
            ("notexample.com", "example.com", false),
            ("10.1.2.3", "10.0.0.0/8", true),
            ("11.1.2.3", "10.0.0.0/8", false),
            ("11.1.2.3", "0.0.0.0/0", true),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.0.0.0/99,nonsense/8", false),
            ("[fd00::1]", "fd00::/8", true),
        ];
        for (host, excepted, expected) in table {
            assert_eq!(direct(host, excepted), expected, "{host} with {excepted:?}");
        }
    }
}
