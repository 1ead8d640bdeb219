//! Cookies that only this server reads.

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};

/// A sort of cookie.
pub(crate) struct CookieKind {
    /// The name over plain http, on the person's own machine.
    pub name: &'static str,
    /// The name over TLS, with the prefix `__Host-`. It keeps servers of the same site from setting the cookie, and requires
    /// the path `/`
    /// ([cookie name prefixes](https://httpwg.org/http-extensions/draft-ietf-httpbis-rfc6265bis.html#name-cookie-name-prefixes)).
    pub secure_name: &'static str,
    /// The pages that get it over plain http.
    pub path: &'static str,
    /// Which requests from other sites carry it.
    pub same_site: &'static str,
}

impl CookieKind {
    /// Returns the value of the header `Set-Cookie`. A cookie of no age is removed.
    pub(crate) fn set(&self, value: &str, max_age: u64, is_secure: bool) -> Option<HeaderValue> {
        let CookieKind { path, same_site, .. } = self;
        let (name, secure) = (self.name(is_secure), if is_secure { "; Secure" } else { "" });
        let path = if is_secure { "/" } else { path };
        let text =
            format!("{name}={value}; Path={path}; Max-Age={max_age}; HttpOnly; SameSite={same_site}{secure}");
        HeaderValue::from_str(&text).ok()
    }

    /// Returns the values of this name that a request carries. Another server of the machine may have set some of them.
    pub(crate) fn values<'a>(
        &self,
        headers: &'a HeaderMap,
        is_secure: bool,
    ) -> impl Iterator<Item = &'a str> {
        let name = self.name(is_secure);
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        cookies
            .flat_map(|value| value.split(';'))
            .filter_map(move |pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
    }

    fn name(&self, is_secure: bool) -> &'static str {
        if is_secure { self.secure_name } else { self.name }
    }
}
