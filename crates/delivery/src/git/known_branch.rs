//! The known state of a branch, without another fetch, for each set of credentials that fetched it.

use std::collections::HashMap;
use std::time::Instant;

use super::commit::Commit;

/// A branch that was fetched, and the commits that were pushed to it since.
#[derive(Debug)]
pub(crate) struct KnownBranch {
    pub(super) name: String,
    pub(super) tip: Commit,
    /// What the server returned, by the fingerprint of the credentials. For all other credentials the branch counts
    /// as unknown.
    pub(super) fetches: HashMap<String, BranchFetch>,
}

/// What the server returned to one set of credentials.
#[derive(Debug)]
pub(super) struct BranchFetch {
    pub(super) at: Instant,
    /// The tips of the head branches in the same fetch, until a delivery takes each.
    pub(super) heads: HashMap<String, Option<Commit>>,
}

impl KnownBranch {
    /// The fetch of this branch with these credentials since then.
    pub(super) fn fetch_since(
        &mut self,
        fingerprint: &str,
        branch: &str,
        since: Instant,
    ) -> Option<&mut BranchFetch> {
        self.fetches.get_mut(fingerprint).filter(|fetch| self.name == branch && fetch.at >= since)
    }

    /// The same branch at a commit that Sluice pushed. Head branches must be fetched again.
    pub(super) fn at(mut self, tip: Commit) -> Self {
        self.fetches.values_mut().for_each(|fetch| fetch.heads.clear());
        self.tip = tip;
        self
    }
}
