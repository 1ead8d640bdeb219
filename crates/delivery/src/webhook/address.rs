//! Checks the addresses of webhooks. An author of a Pipeline chooses the address, and the controller calls it from inside
//! the network: without these checks, authors could reach services that only the controller can reach.

use std::net::IpAddr;

use reqwest::Url;
use url::Host;

use super::error::WebhookError;
use crate::public_address::is_public;

/// The addresses that the operator allows for webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllowedWebhooks {
    /// Whether addresses without encryption are allowed.
    pub http: bool,
    /// Whether addresses that are not public are allowed.
    pub private: bool,
}

/// The receiver of a webhook: an address that may be called, and its name in messages.
#[derive(Debug)]
pub(super) struct WebhookReceiver {
    pub(super) url: Url,
    pub(super) name: String,
}

/// Parses an address. Messages do not show an address from a Secret, since all of it is secret.
pub(super) fn parse(
    text: &str,
    in_secret: bool,
    allowed: AllowedWebhooks,
) -> Result<WebhookReceiver, WebhookError> {
    let place = if in_secret { "the address in the webhook's Secret" } else { "the webhook's url" };
    let invalid = || WebhookError::InvalidAddress { place };
    // `Url::parse` drops line ends and tabs silently.
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
        // Checked when it is resolved, each time.
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
    Ok(WebhookReceiver { url, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_as_they_would_be_called() {
        let parse =
            |text: &str| super::parse(text, false, AllowedWebhooks::default()).map(|receiver| receiver.name);
        assert_eq!(parse("https://ci.example.com/hooks/s3cret?x=1").unwrap(), "ci.example.com");
        assert_eq!(parse("https://ci.example.com:8443/").unwrap(), "ci.example.com:8443");
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
            assert!(matches!(parse(inside), Err(WebhookError::NotPublic { .. })), "{inside}");
        }
        assert!(matches!(parse("http://ci.example.com/"), Err(WebhookError::Unencrypted { .. })));
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
            let error = parse(wrong).unwrap_err();
            assert_eq!(error.reason(), "InvalidAddress", "{wrong}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
