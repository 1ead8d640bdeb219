//! Finds the commits of a promotion among the newest commits of a branch. They are fetched without files into a
//! repository of their own, so that the cache stays shallow.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use jiff::Timestamp;

use super::branch_history::BranchHistory;
use super::commit::Commit;
use super::error::GitResult;
use super::repository::LockedRepository;
use super::run::GitRun;
use crate::read_trailers::{PROMOTION, promotions};

/// How many commits of a branch are searched.
const MAX_COMMITS: usize = 200;
/// The ref of the newest commits of the branch, in the repository of their own.
const NEWEST: &str = "refs/sluice/log";

impl LockedRepository<'_> {
    /// The commits of a branch whose messages name a promotion, the newest first. `tip` is the newest commit of the
    /// branch. The caller must compare the files: anybody can write such a message.
    pub(crate) async fn find_promotion(
        &mut self,
        (branch, tip): (&str, &Commit),
        known_by: &str,
    ) -> GitResult<Vec<String>> {
        let history = match self.history.take().and_then(|history| history.advanced_to(tip)) {
            Some(history) => history,
            None => BranchHistory::from_log(tip, &self.log_of_promotions(branch).await?),
        };
        let found = history.commits_of(known_by);
        self.history = Some(history);
        Ok(found)
    }

    /// Whether the history of a branch has neither a commit nor another commit that names the promotion. `false` if
    /// the history that is read does not reach back to `since`, when neither existed.
    pub(crate) async fn has_lost(
        &self,
        branch: &str,
        (commit, known_by): (&str, &str),
        since: Timestamp,
    ) -> GitResult<bool> {
        let log = self.with_history(branch, &["log", "--format=%H %ct %P%n%B%x00", NEWEST]).await?;
        let log = String::from_utf8_lossy(&log);
        let mut parents = HashMap::new();
        let mut next = None;
        for (head, message) in log.split('\0').filter_map(|record| record.trim_start().split_once('\n')) {
            let mut words = head.split_whitespace();
            let (id, time) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if id == commit || promotions(message).any(|promotion| promotion == known_by) {
                return Ok(false);
            }
            next = next.or(Some(id));
            parents.insert(id, (time.parse().unwrap_or(i64::MAX), words.next()));
        }
        // Along the first parents: a commit that was merged in can have any age.
        let (mut length, mut oldest) = (0, i64::MAX);
        while let Some((time, parent)) = next.and_then(|id| parents.remove(id)) {
            (length, oldest, next) = (length + 1, time, parent);
        }
        Ok(length > 0 && (length < MAX_COMMITS || oldest < since.as_second()))
    }

    /// Whether a commit is among the newest commits of a branch. An older commit counts as absent.
    pub(crate) async fn is_in_branch(&self, branch: &str, commit: &str) -> GitResult<bool> {
        let newest = self.with_history(branch, &["rev-list", NEWEST]).await?;
        Ok(newest.split(|byte| *byte == b'\n').any(|id| id == commit.as_bytes()))
    }

    async fn log_of_promotions(&self, branch: &str) -> GitResult<String> {
        let grep = format!("--grep={PROMOTION}: ");
        let args = ["log", "--fixed-strings", &grep, "--format=%H%n%B%x00", NEWEST];
        Ok(String::from_utf8_lossy(&self.with_history(branch, &args).await?).into_owned())
    }

    /// Runs git on the newest commits of a branch, which are fetched to [`NEWEST`] for this run.
    async fn with_history(&self, branch: &str, args: &[&str]) -> GitResult<Vec<u8>> {
        let mut dir = self.dir.as_os_str().to_owned();
        dir.push("-history");
        let dir = PathBuf::from(dir);
        // Made again each time: it is small, and then cannot be outdated, locked or broken.
        let _ = std::fs::remove_dir_all(&dir);
        let found = async {
            self.git.run(GitRun::local(&dir, &self.access, INIT)).await?;
            let (refspec, depth) =
                (format!("+refs/heads/{branch}:{NEWEST}"), format!("--depth={MAX_COMMITS}"));
            self.counters.fetches.fetch_add(1, Ordering::Relaxed);
            let fetch = FETCH.into_iter().chain([&depth, "origin", &refspec]);
            self.git.run(GitRun::remote(&dir, &self.access, fetch)).await?;
            self.git.run(GitRun::local(&dir, &self.access, args)).await
        }
        .await;
        let _ = std::fs::remove_dir_all(&dir);
        found
    }
}

const INIT: [&str; 4] = ["init", "--quiet", "--bare", "--template="];
const FETCH: [&str; 6] =
    ["fetch", "--quiet", "--filter=tree:0", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"];
