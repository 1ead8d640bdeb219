//! What is asked of a forge, whichever it is: a few calls about change requests. Each adapter is
//! one file; how calls are made, counted and slowed down is the same for all.

mod answer;
mod azure_devops;
mod bitbucket;
mod bitbucket_server;
mod budget;
mod error;
mod gitea;
mod github;
pub(crate) mod github_app;
mod gitlab;
mod glob;
mod headers;
mod http;
mod pages;
mod pulls;
mod readiness;
mod scheme;
pub(crate) mod tls;
mod words;

use jiff::Timestamp;
use serde_json::Value;

use crate::address::Address;
use crate::commit_status::Status;
use crate::credentials::Credentials;
use crate::error::DeliveryError;
use crate::order::{ChangeRequest, ForgeKind, Merge, Order};
pub use error::ForgeError;
pub(crate) use headers::retry_after;
pub(crate) use http::Shared;
pub(crate) use readiness::Readiness;
pub(crate) use words::{clean, message};

/// A change request as a forge shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) request: ChangeRequest,
    pub(crate) base: String,
    pub(crate) title: String,
    pub(crate) body: String,
    pub(crate) state: State,
    /// The forge says that it cannot be merged as it is; it also says so while it still looks.
    pub(crate) conflicts: bool,
    /// It is not meant to be merged yet.
    pub(crate) is_draft: bool,
    /// What it has beside its text. Bitbucket Cloud's lists go without.
    pub(crate) has: Extras,
    pub(crate) created: Timestamp,
}

impl Found {
    /// Roughly the bytes of memory that it takes.
    fn weight(&self) -> usize {
        let lists = [&self.has.labels, &self.has.reviewers, &self.has.assignees];
        let extras: usize = lists.into_iter().flatten().map(|name| name.len() + 24).sum();
        let texts = [&self.request.url, &self.request.branch, &self.request.head_commit, &self.base];
        let texts: usize = texts.into_iter().chain([&self.title, &self.body]).map(String::len).sum();
        512 + extras + texts
    }

    /// The same, if its ids are those of commits and its page is one that can be shown and opened.
    fn checked(self) -> Option<Self> {
        let is_id = |id: &str| id.len() <= 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
        let merged = match &self.state {
            State::Merged { commit } => is_id(commit),
            State::Open | State::Closed => true,
        };
        let url = &self.request.url;
        let is_page = url.len() <= 2048
            && (url.starts_with("https://") || url.starts_with("http://"))
            && !url.chars().any(|c| c.is_control() || c.is_whitespace());
        (merged && is_page && is_id(&self.request.head_commit)).then_some(self)
    }
}

/// The names of what a change request has beside its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) labels: Vec<String>,
    pub(crate) reviewers: Vec<String>,
    pub(crate) assignees: Vec<String>,
}

/// One kind of what a change request can have beside its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    Label,
    Reviewer,
    Assignee,
}

/// Whether it is open, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    Merged { commit: String },
    Closed,
}

/// A commit, as the forge shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) message: String,
    pub(crate) parents: Vec<String>,
}

impl Commit {
    /// A commit from its message and its list of parents: ids, or what has them under `key`.
    fn read(message: &Value, parents: &Value, key: &str) -> Self {
        let ids = parents.as_array().into_iter().flatten().filter_map(|p| p.as_str().or(p[key].as_str()));
        Commit { message: text(message).unwrap_or_default(), parents: ids.map(String::from).collect() }
    }
}

/// The texts of a list, or those that the things in it have under `key`.
fn names(list: &Value, key: &str) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|one| text(one).or(text(&one[key]))).collect()
}

/// A title without what its forge knows drafts by, and whether it had that.
fn without_prefix<'a>(title: &'a str, prefixes: &[&str]) -> (&'a str, bool) {
    let begins = |prefix: &&&str| title.get(..prefix.len()).is_some_and(|t| t.eq_ignore_ascii_case(prefix));
    match prefixes.iter().find(begins) {
        Some(prefix) => (title[prefix.len()..].trim_start(), true),
        None => (title, false),
    }
}

/// Text out of an answer.
fn text(value: &Value) -> Option<String> {
    value.as_str().map(String::from)
}

/// What a change request is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) head: String,
    pub(crate) base: String,
    pub(crate) title: String,
    pub(crate) body: String,
    /// Opened, it is not meant to be merged yet; changed, it is left as it is.
    pub(crate) is_draft: bool,
}

impl Draft {
    /// Whether a change request says it already.
    pub(crate) fn is_said_by(&self, found: &Found) -> bool {
        let same = |a: &str, b: &str| a.replace("\r\n", "\n").trim() == b.replace("\r\n", "\n").trim();
        self.base == found.base && same(&self.title, &found.title) && same(&self.body, &found.body)
    }
}

/// The head that a merged change request had.
pub(crate) struct MergedHead {
    pub(crate) id: String,
    /// Where it is not, something that was pushed in the moment of the merge may be or be not in it.
    pub(crate) is_certain: bool,
}

/// What the commit of a merge is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MergeMessage {
    /// Where the forge has no title of its own.
    pub(crate) title: String,
    /// By which the merge is known for the promotion's.
    pub(crate) trailers: String,
}

impl MergeMessage {
    /// Title and trailers.
    fn whole(&self) -> String {
        format!("{}\n\n{}", self.title, self.trailers)
    }
}

/// One repository at a forge.
pub(crate) trait Forge {
    /// The open change request that comes from this branch; `base` is where it should go to.
    async fn find_open(&self, head: &str, base: &str) -> Result<Option<Found>, ForgeError>;
    /// All change requests that came from this branch since then, newest first.
    async fn find(&self, head: &str, base: &str, since: Timestamp) -> Result<Vec<Found>, ForgeError>;
    /// Opens one.
    async fn open(&self, draft: &Draft) -> Result<Found, ForgeError>;
    /// Has it say something else.
    async fn update(&self, number: u64, draft: &Draft) -> Result<Found, ForgeError>;
    /// Adds what an open one lacks, and says what it has of this kind then; nothing is taken off it. Fails
    /// as a whole where the forge does not take one of the names.
    async fn add(&self, found: &Found, what: Extra, names: &[String]) -> Result<Vec<String>, ForgeError>;
    /// Closes it unmerged.
    async fn close(&self, number: u64) -> Result<(), ForgeError>;
    /// One by its number, as cheap as the forge can; `None` where it is gone. Its body may be left out.
    async fn get(&self, number: u64) -> Result<Option<Found>, ForgeError>;
    /// What stands between an open one and being merged in this way.
    async fn readiness(&self, found: &Found, merge: Merge) -> Result<Readiness, ForgeError>;
    /// Merges it, or puts it into the forge's queue, at the head that it was found to be ready at and at
    /// no other. A queue, and what makes no commit of its own, leaves the message out.
    async fn merge(
        &self,
        found: &Found,
        at: &Readiness,
        merge: Merge,
        message: &MergeMessage,
    ) -> Result<(), ForgeError>;
    /// Says something below it.
    async fn comment(&self, number: u64, text: &str) -> Result<(), ForgeError>;
    /// A commit; `None` where it is gone.
    async fn commit(&self, id: &str) -> Result<Option<Commit>, ForgeError>;
    /// Reports on a commit of the base; what is known by the same name there is replaced.
    async fn report(&self, commit: &str, status: &Status<'_>) -> Result<(), ForgeError>;
}

/// The forges that there are.
pub(crate) enum AnyForge {
    GitHub(github::GitHub),
    GitLab(gitlab::GitLab),
    Gitea(gitea::Gitea),
    Bitbucket(bitbucket::Bitbucket),
    BitbucketServer(bitbucket_server::BitbucketServer),
    AzureDevOps(azure_devops::AzureDevOps),
}

impl AnyForge {
    /// The repository at its forge. Fails here, before anything is pushed, when there are no rights.
    ///
    /// `api` is the address of its API, where that does not follow from the repository's.
    pub(crate) fn new(
        kind: ForgeKind,
        address: &Address,
        api: Option<&str>,
        credentials: &Credentials,
        shared: &std::sync::Arc<Shared>,
    ) -> Result<Self, DeliveryError> {
        let api = api.map(|api| shared.hosts.api(api)).transpose()?;
        let address = &address.clone().with_api(api);
        let (a, c, s) = (address, credentials, shared);
        Ok(match kind {
            ForgeKind::GitHub => AnyForge::GitHub(github::GitHub::new(a, c, s)?),
            ForgeKind::GitLab => AnyForge::GitLab(gitlab::GitLab::new(a, c, s)?),
            ForgeKind::Gitea | ForgeKind::Forgejo => AnyForge::Gitea(gitea::Gitea::new(kind, a, c, s)?),
            ForgeKind::Bitbucket => AnyForge::Bitbucket(bitbucket::Bitbucket::new(a, c, s)?),
            ForgeKind::BitbucketServer => {
                AnyForge::BitbucketServer(bitbucket_server::BitbucketServer::new(a, c, s)?)
            }
            ForgeKind::AzureDevOps => AnyForge::AzureDevOps(azure_devops::AzureDevOps::new(a, c, s)?),
        })
    }
}

impl AnyForge {
    /// Has it wait in the queue of the order's pipeline, and change things only while the order's permit
    /// stands: also after that wait.
    pub(crate) fn under(mut self, order: &Order) -> Self {
        let http = match &mut self {
            AnyForge::GitHub(forge) => &mut forge.0.http,
            AnyForge::Gitea(forge) => &mut forge.0.http,
            AnyForge::GitLab(forge) => &mut forge.http,
            AnyForge::Bitbucket(forge) => &mut forge.http,
            AnyForge::BitbucketServer(forge) => &mut forge.http,
            AnyForge::AzureDevOps(forge) => &mut forge.http,
        };
        (http.permit, http.owner) = (order.permit.clone(), order.owner());
        self
    }

    /// The head that a merged one had when it was merged, as far as its forge tells.
    ///
    /// GitHub, GitLab (`sha`, of the last version of the differences), both Bitbuckets and Azure DevOps
    /// (`lastMergeSourceCommit`, "at the time of the last pull request merge") leave it at that.
    /// Gitea and Forgejo do not: they show the branch as it is now.
    pub(crate) async fn merged_head(&self, found: &Found) -> Result<Option<MergedHead>, ForgeError> {
        let (id, is_certain) = match self {
            AnyForge::Gitea(forge) => (forge.merged_head(found.request.number).await?, false),
            _ => (Some(found.request.head_commit.clone()), true),
        };
        Ok(id.map(|id| MergedHead { id, is_certain }))
    }

    /// The same, looked at once more where it shows that people have said no: that ends a promotion, and
    /// Gitea reads whether one was merged before it reads whether it is closed (`GetPullRequestByIndex` and
    /// `ToAPIPullRequest` of 1.25), so that one that is merged in between looks like one that was not.
    pub(crate) async fn confirmed(&self, found: Found) -> Result<Found, ForgeError> {
        if found.state != State::Closed {
            return Ok(found);
        }
        Ok(self.get(found.request.number).await?.unwrap_or(found))
    }
}

/// Hands a call on to the forge at hand.
macro_rules! hand_on {
    ($(async fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $out:ty;)*) => {
        impl Forge for AnyForge {
            $(async fn $name(&self $(, $arg: $type)*) -> $out {
                match self {
                    AnyForge::GitHub(forge) => forge.$name($($arg),*).await,
                    AnyForge::GitLab(forge) => forge.$name($($arg),*).await,
                    AnyForge::Gitea(forge) => forge.$name($($arg),*).await,
                    AnyForge::Bitbucket(forge) => forge.$name($($arg),*).await,
                    AnyForge::BitbucketServer(forge) => forge.$name($($arg),*).await,
                    AnyForge::AzureDevOps(forge) => forge.$name($($arg),*).await,
                }
            })*
        }
    };
}

hand_on! {
    async fn find_open(&self, head: &str, base: &str) -> Result<Option<Found>, ForgeError>;
    async fn find(&self, head: &str, base: &str, since: Timestamp) -> Result<Vec<Found>, ForgeError>;
    async fn open(&self, draft: &Draft) -> Result<Found, ForgeError>;
    async fn update(&self, number: u64, draft: &Draft) -> Result<Found, ForgeError>;
    async fn add(&self, found: &Found, what: Extra, names: &[String]) -> Result<Vec<String>, ForgeError>;
    async fn close(&self, number: u64) -> Result<(), ForgeError>;
    async fn get(&self, number: u64) -> Result<Option<Found>, ForgeError>;
    async fn readiness(&self, found: &Found, merge: Merge) -> Result<Readiness, ForgeError>;
    async fn merge(&self, found: &Found, at: &Readiness, merge: Merge, message: &MergeMessage) -> Result<(), ForgeError>;
    async fn comment(&self, number: u64, text: &str) -> Result<(), ForgeError>;
    async fn commit(&self, id: &str) -> Result<Option<Commit>, ForgeError>;
    async fn report(&self, commit: &str, status: &Status<'_>) -> Result<(), ForgeError>;
}

#[cfg(test)]
mod tests {
    /// What an adapter reads by name, out of its own source.
    fn read_by_name(source: &str) -> Vec<&str> {
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        let parts = source.split("[\"").skip(1).filter_map(|rest| rest.split_once("\"]"));
        let names = parts.filter(|(name, after)| {
            // A path of an address is not, nor what is written into a body.
            let written = after.trim_start().starts_with("= ");
            !written && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        });
        names.map(|(name, _)| name).collect()
    }

    #[test]
    fn what_an_adapter_reads_is_among_its_fields() {
        let adapters = [
            include_str!("github.rs"),
            include_str!("gitlab.rs"),
            include_str!("gitea.rs"),
            include_str!("bitbucket.rs"),
            include_str!("bitbucket_server.rs"),
            include_str!("azure_devops.rs"),
        ];
        for source in adapters {
            let (_, fields) = source.split_once("const FIELDS: &[&str] = &[").unwrap();
            let (fields, _) = fields.split_once("];").unwrap();
            let read = read_by_name(source);
            assert!(read.len() > 15, "{read:?}");
            for name in read {
                let known = fields.contains(&format!("\"{name}\""));
                let beside = ["message", "errors", "type", "path"].contains(&name) || PATHS.contains(&name);
                assert!(known || beside, "{name} is read and not among the fields");
            }
        }
    }

    /// Parts of addresses that stand alone in a list, as fields do, and fields of what adapters make themselves.
    const PATHS: [&str; 17] = [
        "completionOptions",
        "graphql",
        "OPEN",
        "comments",
        "conflicts",
        "decline",
        "merge",
        "pullrequests",
        "merge_requests",
        "users",
        "participants",
        "threads",
        "iterations",
        "pulls",
        "methods",
        "labels",
        "pull-requests",
    ];
}
