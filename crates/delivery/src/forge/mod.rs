//! Forges: one trait for all of them, and one file for each adapter. How calls are made, counted and slowed down is the
//! same for all.

mod api;
mod authorization;
mod azure_devops;
mod bitbucket;
mod bitbucket_server;
mod change_request;
mod check_pattern;
mod commit_status;
mod connect;
mod connection;
pub(crate) mod error;
mod gitea;
mod gitea_deletion;
mod github;
mod github_app;
mod gitlab;
mod http;
mod json;
mod pager;
mod pulls_of_github_and_gitea;
mod rate_limit;
mod rate_limit_headers;
mod readiness;
mod reported_checks;
mod response;
mod shared;

pub(crate) use api::{AddCall, Forge, ListFilter, MergeCall};
pub(crate) use change_request::{
    ChangeRequestState, ForgeChangeRequest, MergeMessage, MergedHead, MetadataKind, Proposal,
};
pub(crate) use commit_status::CommitStatus;
pub use commit_status::PromotionProgress;
pub(crate) use connect::connect;
pub(crate) use connection::ForgeConnection;
pub use error::ForgeError;
pub(crate) use error::ForgeResult;
pub(crate) use github_app::AppTokens;
pub(crate) use readiness::{Readiness, moved};
pub(crate) use reported_checks::reported;
pub(crate) use shared::ForgeShared;
