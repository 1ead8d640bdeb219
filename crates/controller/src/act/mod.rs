//! ACT. Starts what was decided, each thing in a task of its own, and tells the loop how it ended.
//! For one environment of a pipeline, or one target that is promoted into by itself, only one thing is
//! under way at a time.

mod callback;
pub mod jobs;
pub mod notification;
pub mod order;
pub(crate) mod outcome;
pub mod polling;
mod prune;
mod recording;
pub(crate) mod report;
pub(crate) mod retry;

use sluice_api::pipeline::Strategy;
use sluice_delivery::{Delivered, DeliveryError, Followed};

use crate::intake::PipelineKey;
use crate::secret::Locked;

/// A side effect that has ended.
#[derive(Debug)]
pub struct Done {
    /// Of which pipeline.
    pub pipeline: PipelineKey,
    /// Into which environment, or which target of it.
    pub place: String,
    /// Of which promotion.
    pub promotion: String,
    /// By which strategy.
    pub strategy: Strategy,
    /// What it was and how it ended.
    pub what: Ended,
}

/// What a side effect was, and how it ended.
#[derive(Debug)]
pub enum Ended {
    /// A delivery.
    Delivery(Result<Delivered, ActError>),
    /// A look at a change request.
    Follow(Result<Followed, ActError>),
    /// The closing of a change request.
    Withdrawal(Result<Followed, ActError>),
    /// A look for a delivered commit in its branch; the commit if it is gone.
    Check(Result<Option<String>, ActError>),
}

/// Why a side effect failed.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// There is no Secret with the credentials, or it may not be read.
    #[error("{0}")]
    NoSecret(String),
    /// The Secret with the credentials could not be read this time.
    #[error("{0}")]
    Secret(String),
    /// The Secret is there, and not for this strategy.
    #[error(transparent)]
    Locked(#[from] Locked),
    /// A fault in Sluice itself.
    #[error("Sluice itself failed ({0}): please report it with the controller's log; it is tried again")]
    Died(String),
    /// The event that announces a promotion could not be written.
    #[error("the event that announces this promotion cannot be written: {0}")]
    Event(String),
    /// Anything on the way to git, the forge or others.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
}

impl ActError {
    /// One word for the condition, the event and the metric alike.
    pub fn reason(&self) -> &'static str {
        match self {
            ActError::NoSecret(_) | ActError::Secret(_) => "SecretUnreadable",
            ActError::Locked(_) => "SecretLocked",
            ActError::Died(_) => "InternalError",
            ActError::Event(_) => "EventNotWritten",
            ActError::Delivery(error) => error.reason(),
        }
    }
}
