//! The HTTP header `Retry-After`.

use jiff::{SignedDuration, Timestamp};
use reqwest::header::HeaderMap;

/// The time in `Retry-After`: seconds from now, or a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    match text.parse::<i64>() {
        Ok(seconds) => now.saturating_add(SignedDuration::from_secs(seconds)).ok(),
        // Servers in Go often write UTC, although the standard is GMT.
        Err(_) => jiff::fmt::rfc2822::parse(&text.replace(" UTC", " GMT")).ok().map(|date| date.timestamp()),
    }
}
