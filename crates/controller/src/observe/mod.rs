//! OBSERVE: turns watch events into the observed state of each target. This code is synchronous and calls no
//! server.

pub mod facts;
pub mod gave_up;
pub mod health;
mod not_applied;
mod observe_scope;
mod oci_revision;
pub mod reported;
pub mod target;

pub use observe_scope::ObserveScope;
