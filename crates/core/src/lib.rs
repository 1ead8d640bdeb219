//! DECIDE. The whole of Sluice's judgement as pure functions over plain data: no async, no clock,
//! no I/O, no Kubernetes. What is to be done comes out as values that others carry out.

pub mod decide;
pub mod evidence;
pub mod history;
pub mod model;
pub mod revision;
pub mod setters;
pub mod value;
pub mod world;

pub use revision::{Facet, FacetKey, Revision};
