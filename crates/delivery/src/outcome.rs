//! Results of a delivery, and what became of a change request: plain values for the controller.

use crate::check_state::CheckState;

/// A change request at a forge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeRequest {
    /// Its number in its repository.
    pub number: u64,
    /// The page where people find it.
    pub url: String,
    /// The head branch.
    pub branch: String,
    /// The newest commit of the head branch.
    pub head_commit: String,
    /// Labels and people that the forge rejected, a sentence each.
    pub notes: Vec<String>,
    /// Whether it was put into the merge queue with this head.
    pub queued: bool,
}

/// The result of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// A change request carries the revision.
    Proposed {
        /// The change request.
        request: ChangeRequest,
        /// Whether it has been merged already.
        merged: bool,
    },
    /// A commit carries the revision.
    Committed {
        /// The id of the commit.
        commit: String,
    },
    /// Every value is already that of the revision.
    AlreadySet {
        /// The commit with these values.
        commit: String,
    },
    /// The event was sent.
    Notified {
        /// The host that received it; `None` if there is no address for events.
        to: Option<String>,
    },
    /// The receiver of the webhook accepted the call.
    Called {
        /// The receiver.
        to: String,
        /// The status of its reply.
        status: u16,
    },
    /// A person closed this promotion's change request without merging it.
    Rejected {
        /// The change request.
        request: ChangeRequest,
    },
}

/// Why the commit of an open change request is outdated and must be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutdatedReason {
    /// The base branch has changed the same lines.
    Conflicts,
    /// The base branch has newer commits, and the forge merges only commits on top of them.
    Behind,
    /// It is not the commit that Sluice would make now: the pipeline sets other values, the base branch has changed
    /// their files or has lost the commit below, or others have replaced the commit.
    NotOwn,
    /// Its forge closed it, because an earlier branch of the same name was deleted. A new one must be opened.
    ClosedByForge,
    /// Its branch has a commit of Sluice that is not recorded: the delivery that pushed it was stopped.
    Unrecorded,
}

impl std::fmt::Display for OutdatedReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OutdatedReason::Conflicts => "it conflicts with its base",
            OutdatedReason::Behind => "its base has moved on",
            OutdatedReason::ClosedByForge => {
                "its forge closed it, because an earlier branch of the same name was deleted"
            }
            OutdatedReason::Unrecorded => "its branch has a later commit of Sluice",
            OutdatedReason::NotOwn => "its commit is not the one that Sluice would make now",
        })
    }
}

/// What a look at a change request has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequestLook {
    /// The status of the change request.
    pub status: ChangeRequestStatus,
    /// Its checks; `None` if they were not read.
    pub checks: Option<ReportedChecks>,
}

/// The status alone.
impl From<ChangeRequestStatus> for ChangeRequestLook {
    fn from(status: ChangeRequestStatus) -> Self {
        ChangeRequestLook { status, checks: None }
    }
}

/// The checks of a commit, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedChecks {
    /// The commit.
    pub head: String,
    /// How many have failed.
    pub failed: usize,
    /// How many have not reported a result.
    pub pending: usize,
    /// How many have passed.
    pub passed: usize,
    /// Some of them, those that block first.
    pub shown: Vec<ReportedCheck>,
}

/// A check of a commit, for people. Its texts are short and clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedCheck {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: CheckState,
    /// Whether the forge does not merge without it.
    pub required: bool,
    /// The page with its details, as a forge returned it; only https.
    pub url: Option<String>,
}

/// The status of a change request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeRequestStatus {
    /// It is open.
    Open {
        /// The newest commit of the head branch.
        head: String,
        /// Why it cannot be merged as it is, by the answer of the forge. Forges also return that for a moment while
        /// they compare a new commit, so only a repeated answer counts.
        stale: Option<OutdatedReason>,
    },
    /// It is open, and Sluice merges it as soon as possible.
    Waits {
        /// What it waits for.
        why: String,
        /// Whether a check has failed, so that a person must act.
        failed: bool,
        /// Whether it is in the merge queue.
        queued: bool,
    },
    /// It was merged.
    Merged {
        /// The commit of the merge.
        commit: String,
        /// The head that was merged: the promotion's own commit, or a commit of people on top of it.
        head: String,
        /// Whether the merge has delivered this very promotion. If not, it brought an earlier commit of the branch,
        /// and the caller must deliver again.
        ours: bool,
    },
    /// It was closed without a merge.
    Closed,
    /// It is open, and carries another promotion now.
    HandedOver,
    /// The forge does not have it any more.
    Gone,
    /// It is in another repository than that of the order, or from another branch.
    Elsewhere,
}
