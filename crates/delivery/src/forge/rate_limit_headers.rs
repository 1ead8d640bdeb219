//! What an answer says about the rate limit: in its headers, and by rejecting the call.

use jiff::Timestamp;
use reqwest::header::HeaderMap;

use super::rate_limit::RateLimitReport;
use crate::retry_after::retry_after;

/// Reads the rate limit from an answer. `names_rate_limit` says whether the message of a rejection is about it.
pub(super) fn report(
    status: u16,
    headers: &HeaderMap,
    names_rate_limit: impl FnOnce() -> bool,
    now: Timestamp,
) -> RateLimitReport {
    let mut report = budget(headers, now);
    report.refused = matches!(status, 403 | 429 | 503)
        && (report.after.is_some() || report.left == Some(0) || status == 429 || names_rate_limit());
    if !report.refused && !(200..300).contains(&status) {
        // `Retry-After` of a failed call is about that failure.
        report.after = None;
    }
    report
}

/// Reads the rate limit from the headers of an answer.
fn budget(headers: &HeaderMap, now: Timestamp) -> RateLimitReport {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    let either = |name: &str| number(&format!("x-{name}")).or_else(|| number(name));
    let count = |name: &str| either(name).map(|n| u64::try_from(n).unwrap_or(0));
    // A time by the clock of the forge, which may differ from ours.
    let there = date(headers).unwrap_or(now);
    let ours = |at: Timestamp| now.checked_add(at.duration_since(there)).ok();
    let report = RateLimitReport {
        left: count("ratelimit-remaining"),
        limit: count("ratelimit-limit"),
        reset: either("ratelimit-reset").and_then(|at| Timestamp::from_second(at).ok()).and_then(ours),
        after: retry_after(headers, now),
        refused: false,
    };
    // GitHub counts the calls of its GraphQL API separately. A successful answer reports that none are left. The number
    // that is left says nothing about all other calls.
    let other = headers.get("x-ratelimit-resource").is_some_and(|resource| resource != "core");
    match report.left {
        Some(1..) if other => RateLimitReport { after: report.after, ..RateLimitReport::default() },
        _ => report,
    }
}

/// The time of the answer, by the clock of the forge.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get("date")?.to_str().ok()?;
    jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let read = |text: &'static str| {
            let headers =
                HeaderMap::from_iter([(reqwest::header::RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&headers, now).map(|t| t.to_string())
        };
        assert_eq!(read("60").as_deref(), Some("2026-01-02T03:05:05Z"));
        assert_eq!(read("Wed, 21 Oct 2026 07:28:00 GMT").as_deref(), Some("2026-10-21T07:28:00Z"));
        assert_eq!(read("Wed, 21 Oct 2026 07:28:00 UTC").as_deref(), Some("2026-10-21T07:28:00Z"));
        assert_eq!(read("soon"), None);
    }

    #[test]
    fn the_limit_of_another_api_is_not_the_limit_of_this_one() {
        let now = Timestamp::constant(1_800_000_000, 0);
        let limits = |left: &'static str, resource: &'static str| {
            let headers = [("remaining", left), ("resource", resource), ("limit", "5000")];
            let name = |name| reqwest::header::HeaderName::try_from(format!("x-ratelimit-{name}")).unwrap();
            let headers = headers.map(|(key, value)| (name(key), HeaderValue::from_static(value)));
            let report = budget(&HeaderMap::from_iter(headers), now);
            (report.left, report.limit)
        };
        assert_eq!(limits("17", "core"), (Some(17), Some(5000)));
        assert_eq!(limits("17", "graphql"), (None, None));
        assert_eq!(limits("0", "graphql"), (Some(0), Some(5000)));
    }
}
