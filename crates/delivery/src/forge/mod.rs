//! What is asked of a forge, whichever it is: a few calls about change requests. Each adapter is
//! one file; how calls are made, counted and slowed down is the same for all.

mod azure_devops;
mod bitbucket;
mod bitbucket_server;
mod budget;
mod error;
mod gitea;
mod github;
pub(crate) mod github_app;
mod gitlab;
mod http;
mod pages;
mod pulls;
pub(crate) mod tls;

use jiff::Timestamp;
use serde_json::Value;

use crate::address::Address;
use crate::credentials::Credentials;
use crate::error::DeliveryError;
use crate::order::{ChangeRequest, ForgeKind};
use crate::permit::Permit;
pub use error::ForgeError;
pub(crate) use http::{Shared, retry_after};

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
    pub(crate) created: Timestamp,
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
}

impl Draft {
    /// Whether a change request says it already.
    pub(crate) fn is_said_by(&self, found: &Found) -> bool {
        let same = |a: &str, b: &str| a.replace("\r\n", "\n").trim() == b.replace("\r\n", "\n").trim();
        self.base == found.base && same(&self.title, &found.title) && same(&self.body, &found.body)
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
    /// Closes it unmerged.
    async fn close(&self, number: u64) -> Result<(), ForgeError>;
    /// One by its number, as cheap as the forge can; `None` where it is gone. Its body may be left out.
    async fn get(&self, number: u64) -> Result<Option<Found>, ForgeError>;
    /// Says something below it.
    async fn comment(&self, number: u64, text: &str) -> Result<(), ForgeError>;
    /// A commit; `None` where it is gone.
    async fn commit(&self, id: &str) -> Result<Option<Commit>, ForgeError>;
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
    pub(crate) fn new(
        kind: ForgeKind,
        address: &Address,
        credentials: &Credentials,
        shared: &std::sync::Arc<Shared>,
    ) -> Result<Self, DeliveryError> {
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
    /// Has it change things only while a permit stands: also after a wait in the line.
    pub(crate) fn under(mut self, permit: &Permit) -> Self {
        let http = match &mut self {
            AnyForge::GitHub(forge) => &mut forge.0.http,
            AnyForge::Gitea(forge) => &mut forge.0.http,
            AnyForge::GitLab(forge) => &mut forge.http,
            AnyForge::Bitbucket(forge) => &mut forge.http,
            AnyForge::BitbucketServer(forge) => &mut forge.http,
            AnyForge::AzureDevOps(forge) => &mut forge.http,
        };
        http.permit = permit.clone();
        self
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
    async fn close(&self, number: u64) -> Result<(), ForgeError>;
    async fn get(&self, number: u64) -> Result<Option<Found>, ForgeError>;
    async fn comment(&self, number: u64, text: &str) -> Result<(), ForgeError>;
    async fn commit(&self, id: &str) -> Result<Option<Commit>, ForgeError>;
}
