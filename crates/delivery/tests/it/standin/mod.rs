//! Stand-ins for forges in front of a real git server, with faults on demand. The state and the effects of calls are the
//! same for all forges. Each forge has a file with its documented paths, fields, states and errors. Calls that are not
//! documented are rejected. A test fails if a call or its answer differs from the published description.

mod accounts;
mod api_of_kind;
mod azure_devops;
mod bitbucket;
mod bitbucket_server;
mod check_outcome;
mod checks;
mod commit_statuses;
mod described;
mod every_forge;
mod fault;
mod forge_api;
mod forge_state;
mod git;
mod gitea;
mod github;
mod gitlab;
mod graphql;
mod merge_style;
mod parsed_call;
mod pull;
mod rejection;
mod reply;
mod reported_status;
mod request;
mod server;
mod stand_in;

pub use accounts::{author, joe};
pub use check_outcome::CheckOutcome;
pub use fault::{CallKind, ForgeFault};
pub use forge_api::TOKEN;
pub use merge_style::Style;
pub use pull::Pull;
pub use stand_in::StandIn;
