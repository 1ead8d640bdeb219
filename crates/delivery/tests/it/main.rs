//! Deliveries against real git over HTTP and SSH, real Gitea, a receiver of webhooks and events, and stand-ins for forges
//! that must fail on demand or are not available.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests say it by failing"
)]

mod any_forge;
mod cache;
mod change_request;
mod chaos;
mod commit;
mod commit_statuses;
mod common_words;
mod contract;
mod crash;
mod file_change;
mod fixture;
mod forge_trouble;
mod forge_words;
mod forged;
mod git_trouble;
mod github_app;
mod hostile;
mod hostile_forge;
mod landing;
mod lost_commit;
mod merging;
mod merging_by_forge;
mod notification;
mod opened_by_reader;
mod queue;
mod receiver;
mod shared_branch;
mod shared_cache;
mod shown_checks;
mod signing;
mod ssh;
mod stalls;
mod standin;
mod tls;
mod update;
mod webhook;
mod zombies;
