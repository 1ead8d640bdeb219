//! The history in a status: the reconciliations or releases, newest first. And durations in Go's format.

use super::condition::now;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The number of records in the history of a Kustomization.
const MAX_RECORDS: usize = 5;

/// Returns a digest in Flux's format.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Returns a Kustomization's history with one more reconciliation of the manifests with this digest.
pub(crate) fn reconciled(
    history: &Value,
    digest: &str,
    revision: &str,
    status: &str,
    took: Duration,
) -> Value {
    let mut records = history.as_array().cloned().unwrap_or_default();
    let known = records.iter().position(|r| r["digest"] == digest && r["lastReconciledStatus"] == status);
    let old = known.map_or(Value::Null, |at| records.remove(at));
    let first = if old.is_null() { json!(now()) } else { old["firstReconciled"].clone() };
    let record = json!({
        "digest": digest,
        "firstReconciled": first,
        "lastReconciled": now(),
        "lastReconciledDuration": format_duration(took),
        "lastReconciledStatus": status,
        "metadata": {"revision": revision},
        "totalReconciliations": old["totalReconciliations"].as_i64().unwrap_or_default() + 1,
    });
    records.insert(0, record);
    records.truncate(MAX_RECORDS);
    Value::Array(records)
}

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

    #[test]
    fn the_same_manifests_are_counted_and_others_get_a_new_record() {
        let second = Duration::from_secs(1);
        let once = reconciled(&Value::Null, "sha256:a", "main@sha1:1", "ReconciliationSucceeded", second);
        let twice = reconciled(&once, "sha256:a", "main@sha1:1", "ReconciliationSucceeded", second);
        assert_eq!(twice[0]["totalReconciliations"], 2);
        let other = reconciled(&twice, "sha256:b", "main@sha1:2", "HealthCheckFailed", second);
        assert_eq!((other.as_array().unwrap().len(), &other[0]["digest"]), (2, &json!("sha256:b")));
    }
}
