//! The calls that Sluice makes to a forge, whichever it is.

use std::pin::Pin;

use jiff::Timestamp;
use sluice_core::pipeline::MergeMode;

use super::change_request::{
    ChangeRequestList, ChangeRequestState, ForgeChangeRequest, ForgeCommit, MergeMessage, MergedHead,
    MetadataKind, Proposal,
};
use super::commit_status::CommitStatus;
use super::error::ForgeResult;
use super::readiness::Readiness;

/// The result of a call to a forge, when it comes.
pub(crate) type ForgeFuture<'a, T> = Pin<Box<dyn Future<Output = ForgeResult<T>> + Send + 'a>>;

/// Which change request to merge, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeCall<'a> {
    pub(crate) found: &'a ForgeChangeRequest,
    /// The merge is for the head of this readiness, and for no other.
    pub(crate) readiness: &'a Readiness,
    pub(crate) mode: MergeMode,
    /// Not used for a queue, or for a merge without a commit of its own.
    pub(crate) message: &'a MergeMessage,
}

/// Which labels or people to add to which change request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddCall<'a> {
    pub(crate) found: &'a ForgeChangeRequest,
    pub(crate) kind: MetadataKind,
    pub(crate) names: &'a [String],
}

/// Which change requests from a branch are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListFilter {
    /// The open one.
    Open,
    /// All that were opened since this time.
    Since(Timestamp),
}

/// One repository at a forge.
pub(crate) trait Forge: Send + Sync {
    /// The change requests from the branch `head` to the branch `base` that the filter selects, the newest first.
    fn list<'a>(
        &'a self,
        head: &'a str,
        base: &'a str,
        filter: ListFilter,
    ) -> ForgeFuture<'a, ChangeRequestList>;

    /// Opens a change request.
    fn open<'a>(&'a self, proposal: &'a Proposal) -> ForgeFuture<'a, ForgeChangeRequest>;

    /// Changes the text and the base of a change request.
    fn update<'a>(&'a self, number: u64, proposal: &'a Proposal) -> ForgeFuture<'a, ForgeChangeRequest>;

    /// Adds labels, reviewers or assignees to an open change request, and returns those that it has then; none is
    /// removed. Fails as a whole if the forge rejects one of the names.
    fn add<'a>(&'a self, call: AddCall<'a>) -> ForgeFuture<'a, Vec<String>>;

    /// Closes a change request without merging it.
    fn close<'a>(&'a self, number: u64) -> ForgeFuture<'a, ()>;

    /// A change request by its number, as cheap as the forge can; `None` if it is gone. The body may be missing.
    fn get<'a>(&'a self, number: u64) -> ForgeFuture<'a, Option<ForgeChangeRequest>>;

    /// What stands between an open change request and its merge in this mode. With [`MergeMode::Never`], only the head and
    /// its checks count, and calls for anything else are left out.
    fn readiness<'a>(&'a self, found: &'a ForgeChangeRequest, mode: MergeMode) -> ForgeFuture<'a, Readiness>;

    /// Merges a change request, or puts it into the merge queue.
    fn merge<'a>(&'a self, call: &'a MergeCall<'a>) -> ForgeFuture<'a, ()>;

    /// Writes a comment.
    fn comment<'a>(&'a self, number: u64, text: &'a str) -> ForgeFuture<'a, ()>;

    /// A commit; `None` if it is gone.
    fn commit<'a>(&'a self, id: &'a str) -> ForgeFuture<'a, Option<ForgeCommit>>;

    /// Sets a status of a commit. It replaces the status of the same name.
    fn report<'a>(&'a self, commit: &'a str, status: &'a CommitStatus<'a>) -> ForgeFuture<'a, ()>;

    /// The open change request between these branches. If the list is too large to be read to its end and has none so far,
    /// there counts as none. Forges reject a second change request.
    fn find_open<'a>(&'a self, head: &'a str, base: &'a str) -> ForgeFuture<'a, Option<ForgeChangeRequest>> {
        Box::pin(async { Ok(self.list(head, base, ListFilter::Open).await?.found.into_iter().next()) })
    }

    /// The user of the credentials, at forges where users with the permission to read can open and close change requests
    /// between the branches of a repository. `None` at other forges, and if the credentials may not read the user.
    ///
    /// Other forges require more than the permission to read:
    /// - GitHub: the permission to write to the head branch, or to be a member of the organization (docs.github.com,
    ///   "Creating a pull request")
    /// - GitLab: the role Developer (docs.gitlab.com, "Roles and permissions")
    ///
    /// Bitbucket Data Center does not, but documents no call that returns the user of a token.
    fn own_user(&self) -> ForgeFuture<'_, Option<String>> {
        Box::pin(async { Ok(None) })
    }

    /// The head that a merged change request had when it was merged, as far as its forge returns it.
    ///
    /// GitHub, GitLab (`sha`, of the last version of the differences), both Bitbuckets and Azure DevOps
    /// (`lastMergeSourceCommit`, "at the time of the last pull request merge") keep it.
    /// Gitea and Forgejo do not: they return the branch as it is now.
    fn merged_head<'a>(&'a self, found: &'a ForgeChangeRequest) -> ForgeFuture<'a, Option<MergedHead>> {
        let id = found.request.head_commit.clone();
        Box::pin(async { Ok(Some(MergedHead { id, is_certain: true })) })
    }

    /// The same change request, read once more if it is closed: that ends a promotion, and Gitea reads whether it
    /// was merged before it reads whether it is closed (`GetPullRequestByIndex` and `ToAPIPullRequest` of 1.25), so
    /// that one which is merged in between looks like one that was not.
    fn confirmed(&self, found: ForgeChangeRequest) -> ForgeFuture<'_, ForgeChangeRequest> {
        Box::pin(async move {
            if found.state != ChangeRequestState::Closed {
                return Ok(found);
            }
            Ok(self.get(found.request.number).await?.unwrap_or(found))
        })
    }
}

/// Implements [`Forge`] for an adapter by boxing its methods of the same names; further methods of the trait can follow.
macro_rules! impl_forge {
    ($adapter:ty $(, $($more:item)*)?) => {
        impl $crate::forge::api::Forge for $adapter {
            $crate::forge::api::boxed! { $adapter;
                list(head: &'a str, base: &'a str, filter: ListFilter) -> ChangeRequestList;
                open(proposal: &'a Proposal) -> ForgeChangeRequest;
                update(number: u64, proposal: &'a Proposal) -> ForgeChangeRequest;
                add(call: AddCall<'a>) -> Vec<String>;
                readiness(found: &'a ForgeChangeRequest, mode: MergeMode) -> Readiness;
                merge(call: &'a MergeCall<'a>) -> ();
                comment(number: u64, text: &'a str) -> ();
                commit(id: &'a str) -> Option<ForgeCommit>;
                report(commit: &'a str, status: &'a CommitStatus<'a>) -> ();
                close(number: u64) -> ();
                get(number: u64) -> Option<ForgeChangeRequest>;
            }
            $($($more)*)?
        }
    };
}

/// Boxes methods of an adapter for [`impl_forge`].
macro_rules! boxed {
    ($adapter:ty; $($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name<'a>(&'a self, $($arg: $type),*) -> $crate::forge::api::ForgeFuture<'a, $out> {
            Box::pin(<$adapter>::$name(self, $($arg),*))
        })*
    };
}

pub(super) use {boxed, impl_forge};
