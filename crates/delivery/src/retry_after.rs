//! The HTTP header `Retry-After`.

use jiff::{SignedDuration, Timestamp};
use reqwest::header::HeaderMap;

/// `Retry-After`, in seconds or as a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    match text.parse::<i64>() {
        Ok(seconds) => now.saturating_add(SignedDuration::from_secs(seconds)).ok(),
        // What is written in Go often says UTC, where the rule is GMT.
        Err(_) => jiff::fmt::rfc2822::parse(&text.replace(" UTC", " GMT")).ok().map(|date| date.timestamp()),
    }
}
