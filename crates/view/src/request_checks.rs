//! The checks of a change request, in words.

use sluice_api::promotion::{CheckResult, RecordedChangeRequest, RecordedChecks};

use crate::progress::waits_for_person;

/// The most checks that a sentence names.
const MAX_NAMED: usize = 3;

/// Returns how many checks have which result: `1 failed, 2 pending, 12 passed`.
pub fn counts(checks: &RecordedChecks) -> String {
    let counts = [(checks.failed, "failed"), (checks.pending, "pending"), (checks.passed, "passed")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, result)| format!("{count} {result}")).collect::<Vec<_>>().join(", ")
}

/// Returns how many checks the record counts and does not name.
pub fn unnamed(checks: &RecordedChecks) -> u64 {
    let all = [checks.failed, checks.pending, checks.passed].into_iter().map(u64::from).sum::<u64>();
    all.saturating_sub(checks.items.len() as u64)
}

/// Returns the sentence about the checks of a change request that a person merges. If Sluice merges it, the message of the
/// promotion says what it waits for.
pub(crate) fn sentence(request: &RecordedChangeRequest) -> Option<String> {
    let checks = request.checks.as_ref().filter(|_| waits_for_person(request))?;
    let failed = checks.items.iter().filter(|check| check.result == CheckResult::Failed);
    let mut named: Vec<&str> = failed.map(|check| check.name.as_str()).take(MAX_NAMED).collect();
    if checks.failed as usize > named.len() && !named.is_empty() {
        named.push("…");
    }
    let of = if named.is_empty() { String::new() } else { format!("; failed: {}", named.join(", ")) };
    Some(format!("Its checks: {}{of}.", counts(checks)))
}
