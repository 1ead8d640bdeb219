//! Durations in Go's format, as statuses and specs of Flux have them.

use std::time::Duration;

/// Formats a duration like Go.
pub(crate) fn format_duration(took: Duration) -> String {
    match took.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds}s"),
        seconds => format!("{}ms", seconds * 1000.0),
    }
}

/// Formats a timeout like Go: `5m0s`.
pub(crate) fn format_timeout(timeout: Duration) -> String {
    match (timeout.as_secs() / 60, timeout.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// Parses a duration in Go's format: `1m30s`, `500ms`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number.parse::<f64>().ok()? * scale).ok()?;
        rest = tail;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_format_of_go() {
        assert_eq!(format_timeout(Duration::from_secs(300)), "5m0s");
        assert_eq!(format_timeout(Duration::from_secs(20)), "20s");
        assert_eq!(parse_duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("soon"), None);
    }
}
