//! Forms count only if they were sent from a page of this server.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, StatusCode};

use crate::page_url::PageUrl;
use crate::problem::Problem;

/// Checks that a form was sent from a page of this server, as far as the browser says. A proxy in front of the server may
/// have changed the header `Host`; `page_url` is the address in the browser.
pub(crate) fn check_origin(headers: &HeaderMap, page_url: Option<&PageUrl>) -> Result<(), Problem> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let site = text(&HeaderName::from_static("sec-fetch-site"));
    let same_site = site.is_none_or(|site| matches!(site, "same-origin" | "none"));
    let same_origin = text(&ORIGIN).is_none_or(|origin| {
        let host = origin.split_once("://").map(|(_, host)| host);
        host.is_some() && host == text(&HOST) || page_url.is_some_and(|page_url| page_url.origin() == origin)
    });
    if same_site && same_origin { Ok(()) } else { Err(not_from_here()) }
}

/// Returns what is answered to a form from elsewhere.
pub(crate) fn not_from_here() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "this form was not sent from a page of your session: open the page again, then send it from there",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_of_another_site_is_refused() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), axum::http::HeaderValue::from_static(value))
            };
            HeaderMap::from_iter(pairs.iter().map(pair))
        };
        let host = ("host", "127.0.0.1:8083");
        assert!(check_origin(&headers(&[host, ("origin", "http://127.0.0.1:8083")]), None).is_ok());
        assert!(check_origin(&headers(&[host, ("sec-fetch-site", "same-origin")]), None).is_ok());
        // Behind a proxy that does not pass on the header Host.
        let proxied = headers(&[host, ("origin", "https://sluice.example.com")]);
        let page_url = "https://sluice.example.com".parse().ok();
        assert!(check_origin(&proxied, page_url.as_ref()).is_ok());
        assert!(check_origin(&proxied, None).is_err());
        for other in [
            ("origin", "http://127.0.0.1:9999"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(check_origin(&headers(&[host, other]), page_url.as_ref()).is_err(), "{other:?}");
        }
    }
}
