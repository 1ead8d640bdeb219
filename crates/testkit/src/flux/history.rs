//! The records that Flux keeps in a status: what was reconciled or released, newest first.

use super::condition::now;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// How many records of a Kustomization are kept.
const KEPT: usize = 5;

/// A digest as Flux prints it.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A Kustomization's history with one more reconciliation of what has this digest.
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
        "lastReconciledDuration": duration(took),
        "lastReconciledStatus": status,
        "metadata": {"revision": revision},
        "totalReconciliations": old["totalReconciliations"].as_i64().unwrap_or_default() + 1,
    });
    records.insert(0, record);
    records.truncate(KEPT);
    Value::Array(records)
}

/// A duration as Go prints it.
pub(crate) fn duration(took: Duration) -> String {
    match took.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds}s"),
        seconds => format!("{}ms", seconds * 1000.0),
    }
}

/// A timeout as Go prints it: `5m0s`.
pub(crate) fn timeout(of: Duration) -> String {
    match (of.as_secs() / 60, of.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// Reads a duration as Go writes it: `1m30s`, `500ms`.
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
    fn durations_are_those_of_go() {
        assert_eq!(timeout(Duration::from_secs(300)), "5m0s");
        assert_eq!(timeout(Duration::from_secs(20)), "20s");
        assert_eq!(parse_duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("soon"), None);
    }

    #[test]
    fn the_same_manifests_are_counted_and_others_are_added() {
        let second = Duration::from_secs(1);
        let once = reconciled(&Value::Null, "sha256:a", "main@sha1:1", "ReconciliationSucceeded", second);
        let twice = reconciled(&once, "sha256:a", "main@sha1:1", "ReconciliationSucceeded", second);
        assert_eq!(twice[0]["totalReconciliations"], 2);
        let other = reconciled(&twice, "sha256:b", "main@sha1:2", "HealthCheckFailed", second);
        assert_eq!((other.as_array().unwrap().len(), &other[0]["digest"]), (2, &json!("sha256:b")));
    }
}
