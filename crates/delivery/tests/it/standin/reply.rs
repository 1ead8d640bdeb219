//! The answers of all stand-ins.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response};
use serde_json::Value;

use super::StandInServer;

/// A body that ends before it should.
pub(super) fn broken() -> Body {
    Body::from_stream(futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]))
}

/// A body that goes on for ever, a byte at a time.
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
    (path, asked): (&str, &HeaderMap),
) -> Response<Body> {
    let text = if value.is_null() { String::new() } else { value.to_string() };
    // A weak one, as GitHub and GitLab give.
    let etag =
        format!("W/\"{:x}\"", text.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into())));
    let same = served.shape.etags() && asked.get("if-none-match").is_some_and(|h| h == etag.as_str());
    let elsewhere = value["location"].as_str();
    let status = if same { 304 } else { elsewhere.map_or(status, |_| if status == 202 { 202 } else { 302 }) };
    let body = if same || matches!(status, 202 | 204) { Body::empty() } else { Body::from(text) };
    let mut answer = Response::builder().status(status);
    for (name, value) in served.shape.budget(path) {
        answer = answer.header(name, value);
    }
    if let Some(to) = elsewhere {
        answer = answer.header("location", to);
    }
    if served.shape.etags() {
        answer = answer.header("etag", etag);
    }
    for (name, value) in &served.book.lock().unwrap().headers {
        answer = answer.header(*name, value);
    }
    answer.body(body).unwrap()
}
