//! ACT. From a decision to an order for delivery, and from the end of a side effect to what the promotion's record
//! says about it. Pure.

pub mod backoff;
pub mod order;
pub(crate) mod outcome;
pub mod strategy;

use sluice_api::pipeline::Strategy;
use sluice_delivery::{ChangeRequestStatus, Delivered, DeliveryError, Retry};

use crate::key::PipelineKey;
use crate::secret::SecretNotAllowed;

/// A side effect that has ended.
#[derive(Debug)]
pub struct EndedJob {
    /// The pipeline.
    pub pipeline: PipelineKey,
    /// The environment, or the target that is promoted on its own.
    pub place: String,
    /// The promotion's name.
    pub promotion: String,
    /// The strategy.
    pub strategy: Strategy,
    /// What it was, and how it ended.
    pub what: JobOutcome,
}

/// What a side effect was, and how it ended.
#[derive(Debug)]
pub enum JobOutcome {
    /// A delivery.
    Delivery(Result<Delivered, ActError>),
    /// A poll of a change request.
    Follow(Result<ChangeRequestStatus, ActError>),
    /// The closing of a change request.
    Withdrawal(Result<ChangeRequestStatus, ActError>),
    /// A check whether a delivered commit is still in its branch; the commit if it is gone.
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
    SecretNotRead(String),
    /// The Secret is there, and not for this strategy.
    #[error(transparent)]
    SecretNotAllowed(#[from] SecretNotAllowed),
    /// A fault in Sluice itself.
    #[error("Sluice itself failed ({0}): please report it with the controller's log; it is tried again")]
    Internal(String),
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
            ActError::NoSecret(_) | ActError::SecretNotRead(_) => "SecretUnreadable",
            ActError::SecretNotAllowed(_) => "SecretLocked",
            ActError::Internal(_) => "InternalError",
            ActError::Event(_) => "EventNotWritten",
            ActError::Delivery(error) => error.reason(),
        }
    }

    /// Whether Sluice may not use the repository or forge at all, as opposed to failing there.
    pub fn is_lost_access(&self) -> bool {
        const REASONS: [&str; 4] =
            ["AuthenticationFailed", "PermissionDenied", "MissingCredential", "RepositoryNotFound"];
        match self {
            ActError::NoSecret(_) | ActError::SecretNotAllowed(_) => true,
            ActError::SecretNotRead(_) | ActError::Internal(_) | ActError::Event(_) => false,
            ActError::Delivery(error) => {
                DeliveryError::retry(error) == Retry::OnChange || REASONS.contains(&error.reason())
            }
        }
    }
}
