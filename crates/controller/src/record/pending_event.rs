//! The events that are to be sent. `promotion_events.rs` decides which changes of a promotion cause one.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Promotion, PromotionStatus};

use super::promotion::RecordChange;
use super::promotion_events::{Notice, notice};
use super::unwritten_status::UnwrittenStatus;
use crate::watch::parsed_object::UnreadableObject;

/// An event that is to be sent.
#[derive(Debug)]
pub enum PendingEvent {
    /// An event about a promotion of a pipeline.
    Promotion(Arc<Pipeline>, Arc<Promotion>, Notice),
    /// A cluster of a pipeline was lost, or is back.
    Cluster {
        /// The pipeline.
        pipeline: Arc<Pipeline>,
        /// The name of the cluster.
        cluster: String,
        /// Why the cluster is lost; `None` if it is back.
        lost: Option<String>,
    },
    /// An object of this kind cannot be read, so its status cannot say that.
    Unreadable(&'static str, Box<UnreadableObject>),
    /// The status of this object cannot be written until a person does something.
    StatusNotWritten(Box<ObjectReference>, UnwrittenStatus),
}

impl PendingEvent {
    /// Returns the event about a change of a promotion's record, or `None` if only the status shows the change.
    pub fn changed(
        pipeline: &Arc<Pipeline>,
        promotion: &Arc<Promotion>,
        before: &PromotionStatus,
        change: &RecordChange,
    ) -> Option<Self> {
        notice(before, change).map(|notice| Self::Promotion(pipeline.clone(), promotion.clone(), notice))
    }

    /// Returns the event that a promotion was started.
    pub fn started(pipeline: &Arc<Pipeline>, promotion: &Arc<Promotion>) -> Self {
        Self::Promotion(pipeline.clone(), promotion.clone(), Notice::started(pipeline, promotion))
    }

    /// Returns the event that someone approved a promotion.
    pub fn approved(pipeline: &Arc<Pipeline>, promotion: &Arc<Promotion>, by: &str) -> Self {
        Self::Promotion(pipeline.clone(), promotion.clone(), Notice::approved(by))
    }
}
