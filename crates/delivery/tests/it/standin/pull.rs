//! A change request at a stand-in, and how its forge merges it.

use jiff::Timestamp;
use sluice_delivery::ForgeKind;
use sluice_testkit::{Landing, Repo};

use super::check_outcome::CheckOutcome;
use super::merge_style::Style;

#[derive(Clone, Debug)]
pub struct Pull {
    pub number: u64,
    pub title: String,
    pub body: String,
    pub head: String,
    pub base: String,
    /// The head commit. After the pull request has ended, the head commit at that time.
    pub sha: String,
    /// The newest commit of the branch, also after the pull request has ended.
    pub tip: String,
    pub open: bool,
    pub merged: Option<String>,
    /// The allowed merge method.
    pub style: Style,
    pub comments: Vec<String>,
    pub labels: Vec<String>,
    pub reviewers: Vec<String>,
    pub assignees: Vec<String>,
    /// Whether the pull request is a draft, at forges that do not mark drafts in the title.
    pub draft: bool,
    pub conflicts: bool,
    /// How many more calls are answered before the forge has computed whether this head can be merged.
    pub unknown_for: usize,
    /// The head commit before the current one.
    pub before: String,
    /// Whether the base has newer commits, and the forge merges only heads on top of these.
    pub behind: bool,
    /// The checks: name, outcome and commit of each.
    pub checks: Vec<(String, CheckOutcome, String)>,
    /// Heads whose checks ran for the result of a merge, each with the commit of that merge.
    pub results: Vec<(String, String)>,
    /// The names of the required checks.
    pub requires: Vec<String>,
    /// The required number of approvals.
    pub needs: usize,
    /// The commits that were approved.
    pub approvals: Vec<String>,
    /// Checks that the base names but does not require.
    pub optional: Vec<(String, CheckOutcome)>,
    /// Statuses of the pull request itself: name, outcome, and the number of the push if the status is about one push.
    pub statuses: Vec<(String, CheckOutcome, Option<u64>)>,
    /// Whether it is in the merge queue.
    pub queued: bool,
    /// The running merge: its method, and the message from the call.
    pub merging: Option<(Style, Option<String>)>,
    /// Whether its branch is in a fork.
    pub fork: bool,
    /// Whether that fork belongs to the owner of the repository.
    pub same_owner: bool,
    /// The number of changes of the pull request.
    pub version: u64,
    pub created: Timestamp,
}

/// What people add to a pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataKind {
    Label,
    Reviewer,
    Assignee,
}

/// The changes of an update.
#[derive(Default)]
pub(super) struct PullChange {
    pub(super) title: Option<String>,
    pub(super) body: Option<String>,
    pub(super) base: Option<String>,
    pub(super) reviewers: Option<Vec<String>>,
    pub(super) version: Option<u64>,
}

impl Pull {
    pub(super) fn new(
        number: u64,
        title: String,
        body: String,
        head: String,
        base: String,
        sha: String,
    ) -> Pull {
        Pull {
            number,
            title,
            body,
            head,
            base,
            tip: sha.clone(),
            open: true,
            merged: None,
            style: Style::Squash,
            comments: vec![],
            labels: vec![],
            reviewers: vec!["jane".into()],
            assignees: vec![],
            draft: false,
            conflicts: false,
            unknown_for: 1,
            before: sha.clone(),
            behind: false,
            checks: vec![],
            results: vec![],
            requires: vec![],
            needs: 0,
            approvals: vec![],
            optional: vec![],
            statuses: vec![],
            queued: false,
            merging: None,
            fork: false,
            same_owner: false,
            version: 0,
            sha,
            created: Timestamp::now().round(jiff::Unit::Second).unwrap(),
        }
    }

    /// Merges the change request as the forge does with this method.
    pub(super) fn land(&mut self, kind: ForgeKind, repo: &Repo, style: Style, message: Option<String>) {
        let title = match style {
            Style::Merge => format!("Merge {} into {}", self.head, self.base),
            _ => format!("{} (#{})", self.title, self.number),
        };
        let message = match (kind, message) {
            (_, None) => title,
            // GitLab uses the message for a squash only.
            (ForgeKind::GitLab, Some(_)) if style == Style::Merge => title,
            (
                ForgeKind::GitHub | ForgeKind::Gitea | ForgeKind::Forgejo | ForgeKind::BitbucketServer,
                Some(more),
            ) => {
                format!("{title}\n\n{more}")
            }
            (_, Some(whole)) => whole,
        };
        let is_ahead = matches!(kind, ForgeKind::GitLab | ForgeKind::Bitbucket | ForgeKind::BitbucketServer);
        let how = match style {
            Style::Merge => Landing::Merge(&message),
            Style::Squash if kind == ForgeKind::GitLab => Landing::SquashAndMerge(&message),
            Style::Squash => Landing::Squash(&message),
            Style::Rebase if is_ahead => Landing::FastForward,
            Style::Rebase => Landing::Rebase,
        };
        (self.open, self.merged) = (false, Some(repo.land(&self.sha, &self.base, how).unwrap()));
    }
}
