//! Decisions of Sluice as pure functions over plain data: no async, no clock, no I/O, no Kubernetes. What to do comes
//! out as values, which the controller carries out.

pub mod decide;
pub mod evidence;
pub mod history;
pub mod observed;
pub mod pipeline;
pub mod promotion;
pub mod promotion_name;
pub mod repository;
pub mod revision;
pub mod setters;
pub mod tracks;
pub mod value;

pub use revision::{Facet, FacetKey, Revision};

// until all crates use the new name
pub use observed as world;

/// The former home of the pipeline's and the promotion's types.
// until all crates use the new name
pub mod model {
    pub use crate::pipeline::{Environment, MinReady, Pipeline, Policy};
    pub use crate::promotion::{
        CALLBACK_FAILED, GATES, Gate, Phase, Promotion, ReceiverReport as Said, RecordedRequest as Request,
    };
    pub use crate::promotion_name::{promotion_name, trigger_name};
    pub use crate::repository::Repository;
    pub use crate::tracks::Track;
}
