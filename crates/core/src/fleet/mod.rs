//! The observed fleet: the objects of all clusters, built from what the watches report.

pub mod cluster_event;
pub mod fact;
pub mod index;
pub mod inventory;
pub mod object_key;
pub mod observed_cluster;
pub mod owned_check;
pub mod owned_read;
mod release_parts;
pub mod trigger_fact;
mod unread;
pub mod watched_kind;

pub use cluster_event::ClusterEvent;
pub use fact::{Fact, FluxFact, WorkloadFact};
pub use object_key::{ClusterKey, ObjectKey};
pub use watched_kind::Kind;
