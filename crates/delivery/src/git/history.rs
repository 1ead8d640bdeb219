//! Looks for a promotion's commit in what a branch got lately: only when an earlier try may have
//! pushed it. In a cache of its own, commits without files, so that the other stays as short as it is.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::run::Call;
use super::{Access, Cache, Commit, Git, GitError, TRAILER, carried};
use crate::stats::Counters;

/// How many commits back an earlier try is searched.
const DEPTH: &str = "--depth=200";
/// With more promotions than this it is read anew.
const LARGEST: usize = 1000;

/// What a branch has carried lately, up to one commit. After a restart many look for an earlier try
/// of theirs at once, and one fetch serves them all.
#[derive(Debug)]
pub(super) struct History {
    tip: String,
    /// The newest commit of each promotion.
    commits: HashMap<String, String>,
}

impl History {
    /// Goes on to a commit; `None` when more has happened in between than this commit tells.
    pub(super) fn onto(mut self, commit: &Commit) -> Option<History> {
        if commit.id != self.tip {
            if commit.parents != [self.tip.as_str()] || self.commits.len() > LARGEST {
                return None;
            }
            self.tip.clone_from(&commit.id);
            let promotions = carried(&commit.message).map(|p| (p.to_string(), commit.id.clone()));
            self.commits.extend(promotions);
        }
        Some(self)
    }
}

impl Cache {
    /// The newest commit of the branch that says it carries what is known by this; `tip` is what the
    /// branch was fetched at.
    pub(crate) async fn find_promotion(
        &mut self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        (branch, tip): (&str, &Commit),
        known_by: &str,
    ) -> Result<Option<String>, GitError> {
        let history = match self.history.take().and_then(|history| history.onto(tip)) {
            Some(history) => history,
            None => {
                let commits = self.read_history(git, access, counters, branch).await?;
                History { tip: tip.id.clone(), commits }
            }
        };
        let found = history.commits.get(known_by).cloned();
        self.history = Some(history);
        Ok(found)
    }

    /// The newest commit of each promotion that the branch has carried lately.
    async fn read_history(
        &self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        branch: &str,
    ) -> Result<HashMap<String, String>, GitError> {
        let mut dir = self.dir().as_os_str().to_owned();
        dir.push("-history");
        let dir = PathBuf::from(dir);
        // Made anew each time: it is small, and then cannot be stale, locked or broken.
        let _ = std::fs::remove_dir_all(&dir);
        let found = async {
            git.run(Call::local(&dir, access, ["init", "--quiet", "--bare", "--template="])).await?;
            let refspec = format!("+refs/heads/{branch}:refs/sluice/log");
            let args = [
                "fetch",
                "--quiet",
                DEPTH,
                "--filter=tree:0",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-auto-maintenance",
                "origin",
                &refspec,
            ];
            counters.fetches.fetch_add(1, Ordering::Relaxed);
            git.run(Call::remote(&dir, access, args)).await?;
            let grep = format!("--grep={TRAILER}: ");
            let args = ["log", "--fixed-strings", &grep, "--format=%H%n%B%x00", "refs/sluice/log"];
            git.run(Call::local(&dir, access, args)).await
        }
        .await;
        let _ = std::fs::remove_dir_all(&dir);
        let log = found?;
        let log = String::from_utf8_lossy(&log);
        let mut commits = HashMap::new();
        for (id, message) in log.split('\0').filter_map(|record| record.trim_start().split_once('\n')) {
            for promotion in carried(message) {
                // The newest comes first.
                commits.entry(promotion.to_string()).or_insert_with(|| id.to_string());
            }
        }
        Ok(commits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(id: &str, parents: &[&str], promotion: &str) -> Commit {
        let parents = parents.iter().map(|p| p.to_string()).collect();
        let message = format!("Promote\n\n{TRAILER}: {promotion}\n");
        Commit { id: id.into(), parents, message, signed: false }
    }

    #[test]
    fn it_goes_on_by_single_commits_only() {
        let start = || History { tip: "1".into(), commits: HashMap::from([("a".into(), "1".into())]) };
        assert!(start().onto(&commit("1", &["0"], "a")).is_some());
        let next = start().onto(&commit("2", &["1"], "b")).unwrap();
        assert_eq!((next.commits["a"].as_str(), next.commits["b"].as_str()), ("1", "2"));
        // Somebody was faster, has merged what is not known here, or has rewritten the branch.
        for parents in [&["2"][..], &["1", "x"], &["0"], &[]] {
            assert!(start().onto(&commit("3", parents, "b")).is_none(), "{parents:?}");
        }
    }
}
