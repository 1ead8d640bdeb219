//! ACT: makes orders for delivery from decisions, and changes of records from the ends of side effects. Pure.

pub(crate) mod backoff;
mod check_reads;
pub mod order;
pub(crate) mod outcome;
pub(crate) mod resumption;
pub mod schedule;
pub mod strategy;

use sluice_api::pipeline::Strategy;
use sluice_delivery::{ChangeRequestLook, ChangeRequestStatus, Delivered, DeliveryError, Retry};

use crate::pipeline_key::PipelineKey;
use crate::secret::{SecretNotAllowed, SecretVersion};

/// The reason of a failure whose pause a forge asked for.
pub(crate) const RATE_LIMITED: &str = "RateLimited";

/// A job that has ended.
#[derive(Debug)]
pub struct EndedJob {
    /// The pipeline.
    pub pipeline: PipelineKey,
    /// The environment, or the target that is promoted on its own.
    pub place: String,
    /// The promotion's name.
    pub promotion: String,
    /// The promotion's uid. The end says nothing about another promotion of the same name.
    pub uid: Option<String>,
    /// The strategy that the job used.
    pub strategy: Strategy,
    /// The version of the Secret that the job used; `None` if it used none, or ended before it read one.
    pub secret: Option<SecretVersion>,
    /// How the job ended.
    pub outcome: JobOutcome,
}

/// How a job ended, by its kind.
#[derive(Debug)]
pub enum JobOutcome {
    /// A delivery.
    Delivery(Result<Delivered, ActError>),
    /// A poll of a change request.
    Follow(Result<ChangeRequestLook, ActError>),
    /// The closing of a change request.
    Withdrawal(Result<ChangeRequestStatus, ActError>),
    /// A check whether a delivered commit is still in its branch; the commit if it is gone.
    Check(Result<Option<String>, ActError>),
    /// A look for a delivery that is not recorded.
    Find(Result<Option<Delivered>, ActError>),
}

/// Why a side effect failed.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// The Secret with the credentials does not exist, or the controller may not read it.
    #[error("{0}")]
    NoSecret(String),
    /// The API server did not return the Secret with the credentials.
    #[error("{0}")]
    SecretNotRead(String),
    /// The Secret must not be used for this strategy.
    #[error(transparent)]
    SecretNotAllowed(#[from] SecretNotAllowed),
    /// A panic in Sluice.
    #[error("Sluice itself failed ({0}); it will be retried: please report it with the controller's log")]
    Internal(String),
    /// The event that announces a promotion could not be written.
    #[error("the event that announces this promotion cannot be written: {0}")]
    Event(String),
    /// Git, a forge or a receiver failed.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
}

impl ActError {
    /// The reason, as conditions, events and metrics show it.
    pub fn reason(&self) -> &'static str {
        match self {
            ActError::NoSecret(_) | ActError::SecretNotRead(_) => "SecretUnreadable",
            ActError::SecretNotAllowed(_) => "SecretLocked",
            ActError::Internal(_) => "InternalError",
            ActError::Event(_) => "EventNotWritten",
            ActError::Delivery(error) => error.reason(),
        }
    }

    /// Returns the message of a promotion. If the error is about a value of the Secret that the strategy names, the message
    /// names the Secret.
    pub(crate) fn message(&self, secret: Option<&str>) -> String {
        const REASONS: [&str; 8] = [
            "AuthenticationFailed",
            "CertificateInvalid",
            "HostKeyUnknown",
            "IdentityInvalid",
            "MissingCredential",
            "RepositoryNotFound",
            "SecretInvalid",
            "SigningKeyInvalid",
        ];
        match (self, secret) {
            (ActError::Delivery(error), Some(secret)) if REASONS.contains(&error.reason()) => {
                format!("{error} (Secret {secret})")
            }
            _ => self.to_string(),
        }
    }

    /// Whether Sluice has no access to the repository or forge, so that a retry does not help.
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
