//! Brings one commit by its id, to look at its files.

use std::sync::atomic::Ordering;

use super::run::Call;
use super::{Access, Cache, Git, GitError};
use crate::stats::Counters;

impl Cache {
    /// Brings a commit without what was before it. Every server that speaks protocol 2 gives out one that is
    /// in a branch (git-scm.com/docs/protocol-v2, "fetch": `want <oid>`).
    pub(crate) async fn bring(
        &mut self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        commit: &str,
    ) -> Result<(), GitError> {
        self.open(git, access, counters).await?;
        let refspec = format!("+{commit}:refs/sluice/one");
        let args = [
            "fetch",
            "--quiet",
            "--depth=1",
            "--filter=blob:limit=64k",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "origin",
            &refspec,
        ];
        counters.fetches.fetch_add(1, Ordering::Relaxed);
        git.run(Call::remote(self.dir(), access, args)).await.map(drop)
    }
}
