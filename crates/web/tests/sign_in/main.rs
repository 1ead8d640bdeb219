//! The ways to sign in: a token of the hub, an identity provider, and a proxy in front of the pages.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say it by failing")]

#[path = "../support/browser.rs"]
mod browser;
mod oidc;
mod provider;
mod proxy;
#[path = "../support/world.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod world;

use axum::Router;
use sluice_core::fleet::index::Fleet;
use sluice_web::{Api, SignInOptions, router};
use world::{World, every_state};

/// The pages of a world in which everything happens, with these ways to sign in.
fn pages(world: &World, options: SignInOptions) -> Router {
    router(Api::new(Fleet::default(), world.clone(), true).with_sign_in(options))
}

/// A world in which everything happens.
fn world() -> World {
    World::new(every_state())
}
