//! Results of a delivery, and what became of a change request: plain values for the controller.

/// A change request at a forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequest {
    /// Its number in its repository.
    pub number: u64,
    /// The page where people find it.
    pub url: String,
    /// The branch that it proposes.
    pub branch: String,
    /// The newest commit of that branch.
    pub head_commit: String,
    /// What was asked for and its forge did not take, a sentence each.
    pub notes: Vec<String>,
    /// It has been put into its forge's queue, with this head.
    pub queued: bool,
}

/// How a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// A change request carries the revision.
    Proposed {
        /// Which.
        request: ChangeRequest,
        /// Whether it has been merged already.
        merged: bool,
    },
    /// A commit carries the revision.
    Committed {
        /// Which.
        commit: String,
    },
    /// Nothing had to be done: every value is the revision's already.
    AlreadySet {
        /// The commit at which that was seen.
        commit: String,
    },
    /// It was announced; whoever listens has it.
    Notified {
        /// Where it was sent to, where there is such a place.
        to: Option<String>,
    },
    /// The other side took it.
    Called {
        /// Whom.
        to: String,
        /// With which status it answered.
        status: u16,
    },
    /// A person closed this promotion's change request without merging it.
    Rejected {
        /// Which.
        request: ChangeRequest,
    },
}

/// Why the commit of an open change request does not do, and another is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutdatedReason {
    /// Its base has changed the same lines.
    Conflicts,
    /// Its base has moved on, and the forge merges only what is on top of it.
    Behind,
}

impl std::fmt::Display for OutdatedReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OutdatedReason::Conflicts => "it conflicts with its base",
            OutdatedReason::Behind => "its base has moved on",
        })
    }
}

/// What has become of a change request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeRequestStatus {
    /// It is open.
    Open {
        /// The newest commit of its branch.
        head: String,
        /// Why it cannot be merged as it is, by what its forge says. Forges also say so for a moment
        /// while they look at a new commit: only what they say again and again is so.
        stale: Option<OutdatedReason>,
    },
    /// It is open, and Sluice merges it as soon as it may.
    Waits {
        /// What for.
        why: String,
        /// A check has failed: somebody has to look.
        failed: bool,
        /// It has been put into its forge's queue.
        queued: bool,
    },
    /// It was merged.
    Merged {
        /// The commit that the merge made.
        commit: String,
        /// The commit that was merged: the promotion's own, or what people have put on top of it.
        head: String,
        /// The merge has brought this very promotion, by whichever way it was made. Where it has not, it
        /// brought what the branch held before: deliver again, then the base says what is left to do.
        ours: bool,
    },
    /// It was closed and not merged.
    Closed,
    /// It is open, and carries another promotion by now: what becomes of it is that one's business.
    HandedOver,
    /// The forge does not know it any more.
    Gone,
    /// It is not in the repository that the order names, or not of its branch: it was made for
    /// another, and is none of this order's business.
    Elsewhere,
}
