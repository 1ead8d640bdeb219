//! What starts a pipeline: everything that makes its first environments run a new revision, and every call that Sluice
//! takes for it.
//!
//! The command reads the objects of the hub itself, and the controller takes what it observes of all clusters. Both give
//! [`triggers`] the same [`TriggerObjects`].

mod first_targets;
mod objects;
mod observed;
mod read;
mod sentences;
mod way;

pub use first_targets::clusters;
pub use objects::{AppliedObject, SourceObject, TriggerObject, TriggerObjects};
pub use observed::{Related, all_related, related, unobserved};
pub use read::ReadObjects;
pub use sentences::{KnownObjects, TriggerView, Triggers, triggers};
