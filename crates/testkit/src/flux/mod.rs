//! A stand-in for Flux on one cluster: Flux itself needs its images and nodes. The stand-in reads real git, applies to a
//! real API server, and writes the status of the real controllers, with the order, fields and field managers of captured
//! objects. It also writes the status of Deployments, because no pods run here.
//!
//! It does not support Helm templates (a release becomes one Deployment), `patches` in a kustomization file, decryption,
//! remote clusters, signatures and OCI registries. It writes nothing while nothing changes.

mod build;
mod chart;
mod checkout;
mod condition;
mod context;
mod controllers;
mod deployment;
mod digest;
mod go_duration;
mod health;
mod helm;
mod inventory;
mod kind;
mod kustomization;
mod kustomization_history;
mod options;
mod remote;
mod requested_failures;
mod source;
mod stand_in;
mod write_status;

pub use options::FluxOptions;
pub use requested_failures::FluxFailure;
pub use stand_in::FluxStandIn;
