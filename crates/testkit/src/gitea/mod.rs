//! Gitea as the forge that tests and the demo propose changes to: pull requests, reviews, merges
//! and webhooks as a company's own forge has them, with nothing imitated.

mod api;
mod repo;
mod server;

pub use repo::{ForgeRepo, Pull};
pub use server::Gitea;
