//! What a stand-in stores.

use super::fault::FaultQueue;
use super::pull::Pull;
use super::reported_status::ReportedStatus;

#[derive(Default)]
pub struct ForgeState {
    pub pulls: Vec<Pull>,
    pub labels: Vec<String>,
    /// Branches or tags that are named like a commit, each with the commit that it points to.
    pub names: Vec<(String, String)>,
    /// The statuses that were reported on commits.
    pub statuses: Vec<ReportedStatus>,
    /// The newest pipeline of each commit, at GitLab.
    pub pipeline: u64,
    /// Whether a commit is pushed to the branch just before the next merge.
    pub pushes_before_merge: bool,
    /// The base branch to which a person changes a pull request, directly after the pull request is read.
    pub retargets: Option<String>,
    /// The base branch to which a person changes all pull requests when the repository is read.
    pub retargets_late: Option<String>,
    /// Whether a commit is pushed to the branch of a pull request after its checks were read.
    pub pushes_after_checks: bool,
    /// Whether the next answer shows merged pull requests as closed, as if the forge had read them during the merge.
    pub shows_merged_as_closed: bool,
    pub calls: Vec<String>,
    pub faults: FaultQueue,
    /// How often a merge task is reported as pending. If it is 0, merges need no task.
    pub merge_takes: usize,
    /// Whether the base has a merge queue.
    pub has_queue: bool,
    /// Headers of every answer.
    pub headers: Vec<(&'static str, String)>,
}

impl ForgeState {
    /// Returns the newest status with the same commit, name and pipeline.
    pub(super) fn status(&self, like: &ReportedStatus) -> Option<&ReportedStatus> {
        let key = |s: &ReportedStatus| (s.commit.clone(), s.context.clone(), s.pipeline);
        self.statuses.iter().rev().find(|status| key(status) == key(like))
    }
}
