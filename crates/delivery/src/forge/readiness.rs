//! Whether a change request can be merged: its checks and approvals, and what it waits for. Pure.

use serde_json::Value;

pub(crate) use crate::check_state::CheckState;
use crate::foreign_text::clean;

/// What stands between a change request and its merge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Readiness {
    /// The head that the rest is about.
    pub(crate) head: String,
    pub(crate) checks: Vec<Check>,
    /// Checks that do not count here, because another check sums them up or because they may fail. People see them, too.
    pub(crate) other_checks: Vec<Check>,
    /// Whether the token may not read the checks.
    pub(crate) are_checks_hidden: bool,
    /// What else it waits for, a few words each, such as `1 approval`.
    pub(crate) waits: Vec<String>,
    /// Whether the forge merges only heads on top of the current base, and this head is not.
    pub(crate) behind: bool,
    /// Whether it is in the merge queue.
    pub(crate) queued: bool,
    /// What the adapter needs for the merge.
    pub(crate) merge_options: Value,
}

/// The most characters of the name of a check that are kept, and of a foreign text that are shown.
const MAX_NAME_CHARS: usize = 512;
/// The most bytes of an address that are kept.
const MAX_URL_BYTES: usize = 2048;
const MAX_SHOWN_CHARS: usize = 120;

/// A check of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) state: CheckState,
    /// Whether the forge does not merge without it.
    pub(crate) required: bool,
    /// The page with its details, as the forge returns it.
    pub(crate) url: Option<String>,
}

impl Check {
    pub(crate) fn new(name: impl Into<String>, state: CheckState, required: bool) -> Self {
        let name: String = name.into().chars().take(MAX_NAME_CHARS).collect();
        Check { name, state, required, url: None }
    }

    /// Adds the page with its details.
    pub(crate) fn with_url(self, url: &Value) -> Self {
        let url = url.as_str().filter(|url| url.len() <= MAX_URL_BYTES).map(String::from);
        Check { url, ..self }
    }
}

impl Readiness {
    /// Whether a check that counts has failed.
    pub(crate) fn has_failed(&self) -> bool {
        let required = self.checks.iter().any(|check| check.required);
        self.checks.iter().any(|c| c.state == CheckState::Failed && (c.required || !required))
    }

    /// Why this head cannot be merged now; `None` if it can. If the forge requires checks, only these count, otherwise
    /// each check that has reported.
    pub(crate) fn obstacle(&self, head: &str) -> Option<String> {
        if self.head != head {
            return Some(moved(&self.head, head));
        }
        let required = self.checks.iter().any(|check| check.required);
        let of = |state: CheckState| {
            let counts = |c: &&Check| c.state == state && (c.required || !required);
            self.checks.iter().filter(counts).map(|c| c.name.as_str()).collect::<Vec<_>>()
        };
        let (failed, pending) = (of(CheckState::Failed), of(CheckState::Pending));
        let mut all = Vec::new();
        if !failed.is_empty() {
            all.push(format!("checks failed: {}", listed(&failed)));
        }
        if !pending.is_empty() {
            all.push(format!("waits for checks: {} pending", listed(&pending)));
        }
        if !self.waits.is_empty() {
            let waits: Vec<String> =
                self.waits.iter().take(MAX_LISTED).map(|wait| clean(wait, MAX_SHOWN_CHARS)).collect();
            all.push(format!("waits for {}", waits.join(" and ")));
        }
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Why a change request cannot be merged whose branch is not at the commit that Sluice pushed.
pub(crate) fn moved(head: &str, pushed: &str) -> String {
    let short = |id: &str| id.chars().take(8).collect::<String>();
    format!("its branch is at {}, and Sluice pushed {}", short(head), short(pushed))
}

/// The most names in one message.
const MAX_LISTED: usize = 5;

/// The first names, and the number of the others.
fn listed(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_LISTED).map(|name| clean(name, MAX_SHOWN_CHARS)).collect();
    let mut text = shown.join(", ");
    if names.len() > MAX_LISTED {
        text.push_str(&format!(" and {} more", names.len() - MAX_LISTED));
    }
    text
}

/// A number of approvals, in words.
pub(crate) fn approvals(missing: u64) -> String {
    if missing == 1 { "1 approval".into() } else { format!("{missing} approvals") }
}

#[cfg(test)]
mod tests {
    use super::CheckState::{Failed, Green, Pending};
    use super::*;

    #[test]
    fn required_checks_count_or_else_all_that_have_reported() {
        let of = |checks: &[(&str, CheckState, bool)], waits: &[&str]| {
            let checks = checks.iter().map(|(name, state, required)| Check::new(*name, *state, *required));
            let waits = waits.iter().map(|w| w.to_string()).collect();
            let readiness =
                Readiness { head: "a".into(), checks: checks.collect(), waits, ..Default::default() };
            readiness.obstacle("a").unwrap_or_default()
        };
        assert_eq!(of(&[], &[]), "");
        assert_eq!(of(&[("ci", Green, true), ("extra", Failed, false)], &[]), "");
        assert_eq!(of(&[("ci", Green, false), ("extra", Failed, false)], &[]), "checks failed: extra");
        assert_eq!(of(&[("ci", Pending, true), ("x", Green, true)], &[]), "waits for checks: ci pending");
        assert_eq!(
            of(&[("a", Failed, true), ("b", Pending, true)], &["1 approval", "a rebase"]),
            "checks failed: a; waits for checks: b pending; waits for 1 approval and a rebase"
        );
        let many: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].map(|name| (name, Failed, false)).into();
        assert_eq!(of(&many, &[]), "checks failed: a, b, c, d, e and 2 more");
        assert_eq!((approvals(1), approvals(2)), ("1 approval".into(), "2 approvals".into()));
    }

    #[test]
    fn another_head_is_never_merged() {
        let readiness = Readiness { head: "a".repeat(40), ..Default::default() };
        let obstacle = readiness.obstacle(&"b".repeat(40)).unwrap();
        assert_eq!(obstacle, "its branch is at aaaaaaaa, and Sluice pushed bbbbbbbb");
        assert!(readiness.obstacle("").is_some());
    }
}
