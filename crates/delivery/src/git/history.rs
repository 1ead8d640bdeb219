//! Looks for a promotion's commit in what a branch got lately: only when an earlier try may have
//! pushed it. In a cache of its own, commits without files, so that the other stays as short as it is.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use jiff::Timestamp;

use super::run::Call;
use super::{Access, Cache, Commit, Git, GitError, TRAILER, carried};
use crate::stats::Counters;

/// How many commits back an earlier try is searched.
const DEPTH: usize = 200;
/// Where the newest commits of a branch are, in a repository of their own.
pub(super) const NEWEST: &str = "refs/sluice/log";
/// With more promotions than this it is read anew.
const LARGEST: usize = 1000;

/// What a branch has carried lately, up to one commit. After a restart many look for an earlier try
/// of theirs at once, and one fetch serves them all.
#[derive(Debug)]
pub(super) struct History {
    tip: String,
    /// The commits that name each promotion, the newest first.
    commits: HashMap<String, Vec<String>>,
}

/// The most names of promotions that are kept of a branch, the newest first.
const MAX_NAMES: usize = 50_000;

/// How many commits that name one promotion are looked at: anybody can name it in a message.
const NAMED: usize = 8;

/// Adds an older commit to those that name a promotion.
fn add(commits: &mut HashMap<String, Vec<String>>, promotion: &str, id: &str) {
    let named = commits.entry(promotion.to_string()).or_default();
    if named.len() < NAMED {
        named.push(id.to_string());
    }
}

/// The commits of a log that name promotions.
fn named(log: &str) -> HashMap<String, Vec<String>> {
    let records = log.split('\0').filter_map(|record| record.trim_start().split_once('\n'));
    let names = records.flat_map(|(id, message)| carried(message).map(move |promotion| (promotion, id)));
    let mut commits = HashMap::new();
    names.take(MAX_NAMES).for_each(|(promotion, id)| add(&mut commits, promotion, id));
    commits
}

impl History {
    /// Goes on to a commit; `None` when more has happened in between than this commit tells.
    pub(super) fn onto(mut self, commit: &Commit) -> Option<History> {
        if commit.id != self.tip {
            if commit.parents != [self.tip.as_str()] || self.commits.len() > LARGEST {
                return None;
            }
            self.tip.clone_from(&commit.id);
            for promotion in carried(&commit.message) {
                let named = self.commits.entry(promotion.to_string()).or_default();
                named.insert(0, commit.id.clone());
                named.truncate(NAMED);
            }
        }
        Some(self)
    }
}

impl Cache {
    /// The commits of the branch that say that they carry what is known by this, the newest first; `tip` is
    /// what the branch was fetched at. What they hold is for the caller to look at.
    pub(crate) async fn find_promotion(
        &mut self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        (branch, tip): (&str, &Commit),
        known_by: &str,
    ) -> Result<Vec<String>, GitError> {
        let history = match self.history.take().and_then(|history| history.onto(tip)) {
            Some(history) => history,
            None => {
                let commits = self.read_history(git, access, counters, branch).await?;
                History { tip: tip.id.clone(), commits }
            }
        };
        let found = history.commits.get(known_by).cloned().unwrap_or_default();
        self.history = Some(history);
        Ok(found)
    }

    /// Whether the history of a branch lacks a commit, and every other commit that carries what is known by
    /// `known_by`. `false` where the history that is read does not reach back to `since`, when neither was made
    /// yet.
    pub(crate) async fn has_lost(
        &self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        branch: &str,
        (commit, known_by): (&str, &str),
        since: Timestamp,
    ) -> Result<bool, GitError> {
        let args = ["log", "--format=%H %ct %P%n%B%x00", NEWEST];
        let log = self.with_history(git, access, counters, branch, &args).await?;
        let log = String::from_utf8_lossy(&log);
        let mut parents = HashMap::new();
        let mut next = None;
        for (head, message) in log.split('\0').filter_map(|record| record.trim_start().split_once('\n')) {
            let mut words = head.split_whitespace();
            let (id, time) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if id == commit || carried(message).any(|promotion| promotion == known_by) {
                return Ok(false);
            }
            next = next.or(Some(id));
            parents.insert(id, (time.parse().unwrap_or(i64::MAX), words.next()));
        }
        // Along the first parents: what is merged in may be as old as it likes.
        let (mut length, mut oldest) = (0, i64::MAX);
        while let Some((time, parent)) = next.and_then(|id| parents.remove(id)) {
            (length, oldest, next) = (length + 1, time, parent);
        }
        Ok(length > 0 && (length < DEPTH || oldest < since.as_second()))
    }

    /// The commits of the branch that name promotions.
    async fn read_history(
        &self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        branch: &str,
    ) -> Result<HashMap<String, Vec<String>>, GitError> {
        let grep = format!("--grep={TRAILER}: ");
        let args = ["log", "--fixed-strings", &grep, "--format=%H%n%B%x00", NEWEST];
        let log = self.with_history(git, access, counters, branch, &args).await?;
        Ok(named(&String::from_utf8_lossy(&log)))
    }

    /// Runs git on the newest commits of a branch, which are fetched without their files to [`NEWEST`] in a
    /// repository of their own.
    pub(super) async fn with_history(
        &self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        branch: &str,
        args: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        let mut dir = self.dir().as_os_str().to_owned();
        dir.push("-history");
        let dir = PathBuf::from(dir);
        // Made anew each time: it is small, and then cannot be stale, locked or broken.
        let _ = std::fs::remove_dir_all(&dir);
        let found = async {
            git.run(Call::local(&dir, access, ["init", "--quiet", "--bare", "--template="])).await?;
            let refspec = format!("+refs/heads/{branch}:{NEWEST}");
            let depth = format!("--depth={DEPTH}");
            let fetch = [
                "fetch",
                "--quiet",
                &depth,
                "--filter=tree:0",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-auto-maintenance",
                "origin",
                &refspec,
            ];
            counters.fetches.fetch_add(1, Ordering::Relaxed);
            git.run(Call::remote(&dir, access, fetch)).await?;
            git.run(Call::local(&dir, access, args)).await
        }
        .await;
        let _ = std::fs::remove_dir_all(&dir);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(id: &str, parents: &[&str], promotion: &str) -> Commit {
        let parents = parents.iter().map(|p| p.to_string()).collect();
        let message = format!("Promote\n\n{TRAILER}: {promotion}\n");
        Commit { id: id.into(), parents, message, raw: Vec::new() }
    }

    #[test]
    fn a_limited_number_of_names_is_kept() {
        let log = |commits: usize, each: usize| {
            let message = |at| (0..each).map(|n| format!("{TRAILER}: {at}-{n}\n")).collect::<String>();
            (0..commits).map(|at| format!("id\nPromote\n\n{}\0\n", message(at))).collect::<String>()
        };
        assert_eq!(named(&log(2, 10)).len(), 20);
        let commits = named(&log(6_000, 10));
        assert_eq!((commits.len(), commits.contains_key("0-0")), (MAX_NAMES, true), "the newest come first");
    }

    #[test]
    fn it_goes_on_by_single_commits_only() {
        let start = || History { tip: "1".into(), commits: HashMap::from([("a".into(), vec!["1".into()])]) };
        assert!(start().onto(&commit("1", &["0"], "a")).is_some());
        let next = start().onto(&commit("2", &["1"], "b")).unwrap();
        let next = next.onto(&commit("3", &["2"], "a")).unwrap();
        assert_eq!(
            (&next.commits["a"][..], &next.commits["b"][..]),
            (&["3".into(), "1".into()][..], &["2".into()][..])
        );
        // Somebody was faster, has merged what is not known here, or has rewritten the branch.
        for parents in [&["2"][..], &["1", "x"], &["0"], &[]] {
            assert!(start().onto(&commit("3", parents, "b")).is_none(), "{parents:?}");
        }
    }
}
