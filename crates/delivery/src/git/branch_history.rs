//! The promotions that the newest commits of a branch carry, by the trailers of those commits. Pure.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::commit::Commit;
use crate::read_trailers::promotions;

/// How many promotions are remembered before the history is read again. Anybody who may push can name as many in messages, with
/// names of any length. With those of 500 repositories they take at most 100 MB.
const MAX_PROMOTIONS: usize = 1000;
/// How many commits that name one promotion are checked: anybody can write the name of a promotion into a message.
const MAX_COMMITS_OF_PROMOTION: usize = 8;

/// The promotions of a branch, up to one commit. After a restart many deliveries look for an earlier try at the same
/// time, and one fetch serves all of them.
#[derive(Debug)]
pub(super) struct BranchHistory {
    tip: String,
    /// The commits that name each promotion, the newest first, by the hash of the name. They are only hints, so that two names
    /// with the same hash do no harm.
    commits: HashMap<u64, Vec<String>>,
}

fn hash(promotion: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    promotion.hash(&mut hasher);
    hasher.finish()
}

impl BranchHistory {
    /// The history of a branch at `tip`, from a log with records of the form `<id> LF <message> NUL`.
    pub(super) fn from_log(tip: &Commit, log: &str) -> Self {
        BranchHistory { tip: tip.id.clone(), commits: named(log) }
    }

    /// The commits that carry a promotion, the newest first.
    pub(super) fn commits_of(&self, known_by: &str) -> Vec<String> {
        self.commits.get(&hash(known_by)).cloned().unwrap_or_default()
    }

    /// Extends the history by one commit; `None` if there are commits in between that are not known.
    pub(super) fn advanced_to(mut self, commit: &Commit) -> Option<BranchHistory> {
        if commit.id != self.tip {
            if commit.parents != [self.tip.as_str()] || self.commits.len() > MAX_PROMOTIONS {
                return None;
            }
            self.tip.clone_from(&commit.id);
            for promotion in promotions(&commit.message) {
                let named = self.commits.entry(hash(promotion)).or_default();
                named.insert(0, commit.id.clone());
                named.truncate(MAX_COMMITS_OF_PROMOTION);
            }
        }
        Some(self)
    }
}

/// The commits of a log that name promotions.
fn named(log: &str) -> HashMap<u64, Vec<String>> {
    let records = log.split('\0').filter_map(|record| record.trim_start().split_once('\n'));
    let names = records.flat_map(|(id, message)| promotions(message).map(move |promotion| (promotion, id)));
    let mut commits: HashMap<u64, Vec<String>> = HashMap::new();
    for (promotion, id) in names.take(MAX_PROMOTIONS) {
        let named = commits.entry(hash(promotion)).or_default();
        if named.len() < MAX_COMMITS_OF_PROMOTION {
            named.push(id.to_string());
        }
    }
    commits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_trailers::PROMOTION;

    fn commit(id: &str, parents: &[&str], promotion: &str) -> Commit {
        let parents = parents.iter().map(|p| p.to_string()).collect();
        let message = format!("Promote\n\n{PROMOTION}: {promotion}\n");
        Commit { id: id.into(), parents, message, raw: Vec::new() }
    }

    #[test]
    fn a_history_keeps_a_limited_number_of_promotions() {
        let log = |commits: usize, each: usize| {
            let message = |at| (0..each).map(|n| format!("{PROMOTION}: {at}-{n}\n")).collect::<String>();
            (0..commits).map(|at| format!("id\nPromote\n\n{}\0\n", message(at))).collect::<String>()
        };
        assert_eq!(named(&log(2, 10)).len(), 20);
        let commits = named(&log(6_000, 10));
        let is_newest_kept = commits.contains_key(&hash("0-0"));
        assert_eq!((commits.len(), is_newest_kept), (MAX_PROMOTIONS, true), "the newest come first");
    }

    #[test]
    fn a_history_advances_by_single_commits_only() {
        let start =
            || BranchHistory { tip: "1".into(), commits: HashMap::from([(hash("a"), vec!["1".into()])]) };
        assert!(start().advanced_to(&commit("1", &["0"], "a")).is_some());
        let next = start().advanced_to(&commit("2", &["1"], "b")).unwrap();
        let next = next.advanced_to(&commit("3", &["2"], "a")).unwrap();
        assert_eq!(
            (next.commits_of("a"), next.commits_of("b")),
            (vec!["3".into(), "1".into()], vec!["2".into()])
        );
        // Another writer was faster, merged commits that are not known here, or rewrote the branch.
        for parents in [&["2"][..], &["1", "x"], &["0"], &[]] {
            assert!(start().advanced_to(&commit("3", parents, "b")).is_none(), "{parents:?}");
        }
    }
}
