//! The answers of the API.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::problem::Problem;

/// Answers with server-sent events.
pub(crate) fn events(stream: impl Stream<Item = Event> + Send + 'static) -> Response {
    let stream = stream.map(Ok::<_, Infallible>);
    let mut response = Sse::new(stream).keep_alive(KeepAlive::default()).into_response();
    // Proxies must not hold events back.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Answers with JSON, or with nothing if the caller has the same already.
pub(crate) fn answer(headers: &HeaderMap, body: &impl Serialize) -> Result<Response, Problem> {
    let text = serde_json::to_vec(body)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let hash: String = Sha256::digest(&text).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{hash}\"");
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|known| known.to_str().ok());
    // A proxy that compresses answers makes the tag weak.
    let is_same = |known: &str| known.trim().trim_start_matches("W/") == tag;
    let mut response = match known.flat_map(|known| known.split(',')).any(is_same) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Response::new(Body::from(text)),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Each answer is for one caller.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}
