//! Change requests and commits as forges return them, and what Sluice writes into a change request.

use jiff::Timestamp;
use serde_json::Value;

use super::error::ForgeError;
use super::json::text;
use crate::outcome::ChangeRequest;

/// A change request as a forge returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForgeChangeRequest {
    pub(crate) request: ChangeRequest,
    pub(crate) base: String,
    pub(crate) title: String,
    pub(crate) body: String,
    pub(crate) state: ChangeRequestState,
    /// Whether the forge reports conflicts with the base branch. Forges also do so while they still compare.
    pub(crate) conflicts: bool,
    pub(crate) is_draft: bool,
    /// The user who opened it, at a forge where the permission to read is enough for that (`Forge::own_user`).
    pub(crate) author: Option<String>,
    /// Empty in the lists of Bitbucket Cloud.
    pub(crate) metadata: Metadata,
    pub(crate) created: Timestamp,
}

impl ForgeChangeRequest {
    /// Roughly the bytes of memory that it takes.
    pub(super) fn weight(&self) -> usize {
        let lists = [&self.metadata.labels, &self.metadata.reviewers, &self.metadata.assignees];
        let metadata: usize = lists.into_iter().flatten().map(|name| name.len() + 24).sum();
        let texts = [&self.request.url, &self.request.branch, &self.request.head_commit, &self.base];
        let texts: usize = texts.into_iter().chain([&self.title, &self.body]).map(String::len).sum();
        512 + metadata + texts
    }

    /// The same, if its ids are those of commits and its page has an address that can be shown and opened.
    pub(super) fn checked(self) -> Option<Self> {
        let is_id = |id: &str| id.len() <= 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
        let merged = match &self.state {
            ChangeRequestState::Merged { commit } => is_id(commit),
            ChangeRequestState::Open | ChangeRequestState::Closed | ChangeRequestState::ClosedByForge => true,
        };
        let url = &self.request.url;
        let is_page = url.len() <= 2048
            && (url.starts_with("https://") || url.starts_with("http://"))
            && !url.chars().any(|c| c.is_control() || c.is_whitespace());
        (merged && is_page && is_id(&self.request.head_commit)).then_some(self)
    }
}

/// Change requests out of a list, the newest first.
#[derive(Debug, Default)]
pub(crate) struct ChangeRequestList {
    pub(crate) found: Vec<ForgeChangeRequest>,
    /// Why the older part of the list was not read, if it was not. It may have more of them.
    pub(crate) unread: Option<ForgeError>,
}

/// The labels, reviewers and assignees of a change request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) labels: Vec<String>,
    pub(crate) reviewers: Vec<String>,
    pub(crate) assignees: Vec<String>,
}

/// One of the lists of [`Metadata`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataKind {
    Label,
    Reviewer,
    Assignee,
}

/// Whether a change request is open, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeRequestState {
    Open,
    Merged {
        commit: String,
    },
    Closed,
    /// Closed by its forge, which processed the deletion of an earlier branch of the same name too late. Nobody has
    /// rejected it, and its branch exists.
    ClosedByForge,
}

/// A commit as a forge returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForgeCommit {
    pub(crate) message: String,
    pub(crate) parents: Vec<String>,
}

impl ForgeCommit {
    /// A commit from its message and the list of its parents: ids, or objects with the id under `key`.
    pub(super) fn parse(message: &Value, parents: &Value, key: &str) -> Self {
        let ids = parents.as_array().into_iter().flatten().filter_map(|p| p.as_str().or(p[key].as_str()));
        ForgeCommit { message: text(message).unwrap_or_default(), parents: ids.map(String::from).collect() }
    }
}

/// What a change request should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) head: String,
    pub(crate) base: String,
    pub(crate) title: String,
    pub(crate) body: String,
    /// Whether it is opened as a draft. An update does not change that.
    pub(crate) is_draft: bool,
}

impl Proposal {
    /// The title at a forge that recognizes drafts by this prefix.
    pub(super) fn title_with(&self, draft_prefix: &str) -> String {
        if self.is_draft { format!("{draft_prefix} {}", self.title) } else { self.title.clone() }
    }

    /// Whether a change request has this text already.
    pub(crate) fn is_same_text(&self, found: &ForgeChangeRequest) -> bool {
        let same = |a: &str, b: &str| a.replace("\r\n", "\n").trim() == b.replace("\r\n", "\n").trim();
        self.base == found.base && same(&self.title, &found.title) && same(&self.body, &found.body)
    }
}

/// The head that a merged change request had.
pub(crate) struct MergedHead {
    pub(crate) id: String,
    /// Otherwise a commit that was pushed in the moment of the merge may be part of it, or not.
    pub(crate) is_certain: bool,
}

/// The message of a merge commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MergeMessage {
    /// For a forge without a title of its own.
    pub(crate) title: String,
    /// The lines by which the merge is recognized as the promotion's.
    pub(crate) trailers: String,
}

impl MergeMessage {
    /// Title and trailers.
    pub(super) fn whole(&self) -> String {
        format!("{}\n\n{}", self.title, self.trailers)
    }
}
