//! Looks for a promotion's commit in what a branch got lately: only when an earlier try may have
//! pushed it. In a cache of its own, commits without files, so that the other stays as short as it is.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::run::Call;
use super::{Access, Cache, Git, GitError, TRAILER, carries};
use crate::stats::Counters;

/// How many commits back an earlier try is searched.
const DEPTH: &str = "--depth=200";

impl Cache {
    /// The newest commit of the branch that says it carries the promotion.
    pub(crate) async fn find_promotion(
        &self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        branch: &str,
        promotion: &str,
    ) -> Result<Option<String>, GitError> {
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
            let grep = format!("--grep={TRAILER}: {promotion}");
            let args = ["log", "--fixed-strings", &grep, "--format=%H%n%B%x00", "refs/sluice/log"];
            git.run(Call::local(&dir, access, args)).await
        }
        .await;
        let _ = std::fs::remove_dir_all(&dir);
        let log = found?;
        let log = String::from_utf8_lossy(&log);
        let mut commits = log.split('\0').filter_map(|record| record.trim_start().split_once('\n'));
        Ok(commits.find(|(_, message)| carries(message, promotion)).map(|(id, _)| id.to_string()))
    }
}
