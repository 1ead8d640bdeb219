//! The addresses of pages, as links.

use axum::http::Uri;
use sluice_api::Promotion;

/// Returns the address of the sign-in that leads back to a page.
pub(super) fn sign_in(from: &Uri) -> String {
    let to = from.path_and_query().map(|path| path.as_str()).filter(|path| *path != "/").unwrap_or_default();
    if to.is_empty() { "/sign-in".into() } else { format!("/sign-in?to={}", escaped(to)) }
}

/// Escapes a text for a query.
pub(super) fn escaped(text: &str) -> String {
    let byte = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Returns the address of a pipeline's page.
pub(super) fn pipeline(namespace: &str, name: &str) -> String {
    format!("/pipelines/{namespace}/{name}")
}

/// Returns the address of a pipeline's history.
pub(super) fn history(namespace: &str, name: &str) -> String {
    format!("/pipelines/{namespace}/{name}/history")
}

/// Returns the address of a promotion's page.
pub(super) fn promotion(promotion: &Promotion) -> String {
    let namespace = promotion.metadata.namespace.as_deref().unwrap_or_default();
    format!("/promotions/{namespace}/{}", promotion.metadata.name.as_deref().unwrap_or_default())
}
