//! Answers of all stand-ins: headers, ETags and broken bodies.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response};
use serde_json::Value;

use super::server::StandInServer;

/// A body that ends with an error.
pub(super) fn broken() -> Body {
    Body::from_stream(futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]))
}

/// An endless body, one byte at a time.
pub(super) fn dripping() -> Body {
    Body::from_stream(futures::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b"[")), ()))
    }))
}

pub(super) fn reply(
    served: &StandInServer,
    status: u16,
    value: &Value,
    (path, request_headers): (&str, &HeaderMap),
) -> Response<Body> {
    let text = if value.is_null() { String::new() } else { value.to_string() };
    // Weak, like those of GitHub and GitLab.
    let etag =
        format!("W/\"{:x}\"", text.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into())));
    let is_unchanged =
        served.api.etags() && request_headers.get("if-none-match").is_some_and(|h| h == etag.as_str());
    let location = value["location"].as_str();
    let status =
        if is_unchanged { 304 } else { location.map_or(status, |_| if status == 202 { 202 } else { 302 }) };
    let body = if is_unchanged || matches!(status, 202 | 204) { Body::empty() } else { Body::from(text) };
    let mut answer = Response::builder().status(status);
    for (name, value) in served.api.budget(path) {
        answer = answer.header(name, value);
    }
    if let Some(to) = location {
        answer = answer.header("location", to);
    }
    if served.api.etags() {
        answer = answer.header("etag", etag);
    }
    for (name, value) in &served.forge_state.lock().unwrap().headers {
        answer = answer.header(*name, value);
    }
    answer.body(body).unwrap()
}
