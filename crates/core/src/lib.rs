//! Decisions of Sluice as pure functions over plain data: no async, no clock, no I/O, no Kubernetes. What to do comes
//! out as values, which the controller carries out.

pub mod access;
pub mod chart_version;
pub mod decide;
pub mod dns_name;
pub mod evidence;
pub mod fleet;
pub mod hex;
pub mod image;
pub mod lock;
pub mod manifest_path;
pub mod nearest;
pub mod observed;
pub mod pipeline;
pub mod planned_change;
pub mod promotion;
pub mod promotion_name;
mod proof;
pub mod proposed_file;
mod proven;
pub mod record_retention;
pub mod repository;
pub mod revision;
pub mod setters;
pub mod slots;
pub mod time;
pub mod tracks;
pub mod value_check;

pub use revision::{Facet, FacetKey, Revision};
pub use time::Time;
