//! Deliveries against real git over HTTP, real Gitea, and stand-ins that speak as GitHub and Gitea do
//! where a forge must fail on demand.

mod cache;
mod commit;
mod contract;
mod crash;
mod fixture;
mod forge_trouble;
mod git_trouble;
mod standin;
mod world;
