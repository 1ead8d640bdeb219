//! What forges document of their APIs: tables of facts, one file for each forge, with their sources, and a layer that
//! compares every call of a stand-in with them. The facts come from published descriptions, never from an adapter.

mod check;
mod description;
mod layer;
mod parse;

pub use description::{ApiDescription, Field};
pub use layer::{CallChecker, Injected};

/// The facts about GitHub Enterprise Server, REST and GraphQL.
pub const GITHUB: &str = include_str!("github.txt");
/// The facts about Gitea.
pub const GITEA: &str = include_str!("gitea.txt");
/// The facts about GitLab.
pub const GITLAB: &str = include_str!("gitlab.txt");
/// The facts about Bitbucket Cloud.
pub const BITBUCKET: &str = include_str!("bitbucket.txt");
/// The facts about Bitbucket Data Center.
pub const BITBUCKET_SERVER: &str = include_str!("bitbucket_server.txt");
/// The facts about Azure DevOps.
pub const AZURE_DEVOPS: &str = include_str!("azure_devops.txt");
