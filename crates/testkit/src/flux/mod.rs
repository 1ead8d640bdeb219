//! A stand-in for Flux on one cluster. Flux itself needs its images and a place to run them; this
//! reads real git, applies to a real API server, and writes the status that the real controllers
//! write: same order, same fields, same field managers (seen in captured objects). It also plays
//! the part of the Deployment controller, since nobody runs pods here.
//!
//! It is not Flux. It knows no Helm templates (a release becomes one Deployment), no `patches` in
//! a kustomization file, no decryption, no remote clusters, no signatures, no OCI registry, and
//! never reconciles without a reason: nothing is written while nothing changes.

mod build;
mod chart;
mod checkout;
mod condition;
mod controllers;
mod deployment;
mod fault;
mod health;
mod helm;
mod history;
mod inventory;
mod kind;
mod kustomization;
mod options;
mod remote;
mod source;
mod stand_in;
mod world;

pub use fault::Failure;
pub use options::Options;
pub use stand_in::StandIn;
