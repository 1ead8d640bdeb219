//! A real Gitea as the forge of the tests: with pull requests, reviews, merges and webhooks.

mod api;
mod repo;
mod server;

pub use repo::{ForgeRepo, GiteaPull};
pub use server::Gitea;
