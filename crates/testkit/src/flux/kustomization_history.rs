//! The history in the status of a Kustomization: the reconciliations, newest first.

use super::condition::now;
use super::go_duration::format_duration;
use serde_json::{Value, json};
use std::time::Duration;

/// The number of records in the history of a Kustomization.
const MAX_RECORDS: usize = 5;

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

#[cfg(test)]
mod tests {
    use super::*;

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
