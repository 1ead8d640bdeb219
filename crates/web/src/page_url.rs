//! The external address of the pages.

use std::str::FromStr;

use axum::http::Uri;

/// The address at which browsers reach the pages: `https`, or `http` on the person's own machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageUrl {
    /// The scheme, host and port, without a slash at the end.
    origin: String,
}

impl PageUrl {
    /// Returns whether browsers reach the pages over TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.origin.starts_with("https://")
    }

    /// Returns the origin, as browsers send it.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the address of a page.
    pub(crate) fn of(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }
}

impl FromStr for PageUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<PageUrl, String> {
        let wrong = "write the address of the pages without a path, such as https://sluice.example.com: https, or http on \
                     localhost";
        let uri: Uri = text.parse().map_err(|_| wrong)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong.into());
        };
        let is_local = matches!(authority.host(), "localhost" | "127.0.0.1" | "[::1]");
        let is_allowed = scheme == "https" || scheme == "http" && is_local;
        let has_path = uri.path() != "/" || uri.query().is_some() || text.contains('#');
        if !is_allowed || has_path || authority.as_str().contains('@') {
            return Err(wrong.into());
        }
        // Browsers leave out the default port, and write the host in small letters.
        let default_port = if scheme == "https" { ":443" } else { ":80" };
        let host = authority.as_str().to_ascii_lowercase();
        let host = host.strip_suffix(default_port).unwrap_or(&host);
        Ok(PageUrl { origin: format!("{scheme}://{host}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_pages_is_an_origin() {
        for (text, origin) in [
            ("https://Sluice.example.com:443/", "https://sluice.example.com"),
            ("https://sluice.example.com:8443", "https://sluice.example.com:8443"),
            ("http://127.0.0.1:8083", "http://127.0.0.1:8083"),
            ("http://localhost:80", "http://localhost"),
        ] {
            assert_eq!(text.parse::<PageUrl>().unwrap().origin(), origin);
        }
        for text in [
            "",
            "sluice.example.com",
            "http://sluice.example.com",
            "https://example.com/sluice",
            "https://jane@example.com",
            "https://example.com?a",
            "https://example.com#a",
            "ftp://localhost",
            "http://localhost.evil.example",
        ] {
            assert!(text.parse::<PageUrl>().is_err(), "{text}");
        }
    }
}
