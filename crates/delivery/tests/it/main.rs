//! Deliveries against real git over HTTP and SSH, real Gitea, and a stand-in that speaks as
//! each forge does, where one must fail on demand or cannot be had; and against a receiver of
//! webhooks and events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests say it by failing"
)]

mod cache;
mod commit;
mod contract;
mod crash;
mod fire;
mod fixture;
mod forge_trouble;
mod forge_words;
mod forged;
mod git_trouble;
mod github_app;
mod hostile;
mod hostile_forge;
mod landing;
mod lost;
mod merging;
mod merging_at;
mod notification;
mod queue;
mod receiver;
mod rights;
mod signing;
mod ssh;
mod standin;
mod statuses;
mod tls;
mod update;
mod webhook;
mod world;
mod zombies;
