//! A call to a stand-in, in a form that is the same for all forges.

use super::fault::CallKind;
use super::merge_style::Style;
use super::pull::{MetadataKind, PullChange};
use super::reported_status::ReportedStatus;
use super::request::PullSelector;

/// A parsed call.
pub(super) enum ParsedCall {
    List(ListQuery),
    Between {
        base: String,
        head: String,
    },
    Open {
        title: String,
        body: String,
        head: String,
        base: String,
        draft: bool,
    },
    /// Adds several names. If one of them is rejected, none is added.
    Add {
        number: u64,
        what: MetadataKind,
        names: Vec<String>,
        replaces: bool,
    },
    /// Reads a user by name.
    User(String),
    /// Lists the people who can be assigned.
    Assignable,
    /// Lists the labels of the repository.
    Labels {
        from: usize,
        size: usize,
    },
    NewLabel(String),
    /// Reads facts about a pull request that only a merge needs.
    Facts {
        what: &'static str,
        from: usize,
        of: PullSelector,
    },
    /// Merges a pull request. If the forge supports that, only at this head or version.
    Merge {
        number: u64,
        head: Option<String>,
        version: Option<u64>,
        /// The merge method; `None` for the default.
        style: Option<Style>,
        /// The message of the commit.
        message: Option<String>,
        queue: bool,
    },
    Read(u64),
    /// Reads the progress of a merge task.
    Task(u64),
    Update {
        number: u64,
        change: PullChange,
    },
    Close {
        number: u64,
        version: Option<u64>,
    },
    Comment {
        number: u64,
        text: String,
    },
    Commit(String),
    /// Reads the statuses of a commit that have this name.
    Statuses(String, String),
    Report(ReportedStatus),
    Repository,
}

impl ParsedCall {
    pub(super) fn kind(&self) -> CallKind {
        match self {
            ParsedCall::List(_) | ParsedCall::Between { .. } => CallKind::List,
            ParsedCall::Open { .. } => CallKind::Open,
            ParsedCall::Add { .. } => CallKind::Add,
            ParsedCall::User(_)
            | ParsedCall::Assignable
            | ParsedCall::Labels { .. }
            | ParsedCall::NewLabel(_) => CallKind::LookUp,
            ParsedCall::Facts { .. } | ParsedCall::Statuses(..) => CallKind::ReadFacts,
            ParsedCall::Merge { .. } => CallKind::Merge,
            ParsedCall::Read(_) => CallKind::Read,
            ParsedCall::Task(_) => CallKind::LookUp,
            ParsedCall::Update { .. } => CallKind::Update,
            ParsedCall::Close { .. } => CallKind::Close,
            ParsedCall::Comment { .. } => CallKind::Comment,
            ParsedCall::Commit(_) => CallKind::Commit,
            ParsedCall::Report(_) => CallKind::Report,
            ParsedCall::Repository => CallKind::Repository,
        }
    }
}

/// The parameters of a list.
#[derive(Default)]
pub(super) struct ListQuery {
    pub(super) head: Option<String>,
    /// Whether to list only pull requests whose branch is in this repository.
    pub(super) own: bool,
    pub(super) open: bool,
    pub(super) from: usize,
    pub(super) size: usize,
}
