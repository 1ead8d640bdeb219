//! Why a delivery failed, with one word for the reason and the time of the next try.

use crate::address::AddressError;
use crate::credentials::CredentialsError;
use crate::edit::error::EditError;
use crate::forge::error::ForgeError;
use crate::git::error::GitError;
use crate::notification::error::NotificationError;
use crate::retry::Retry;
use crate::template::TemplateError;
use crate::webhook::error::WebhookError;

/// The result of a step of a delivery.
pub(crate) type DeliveryResult<T> = Result<T, DeliveryError>;

/// Why a delivery failed.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The address of the repository cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The Secret holds a value that cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The files cannot be set.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// Git failed.
    #[error(transparent)]
    Git(GitError),
    /// A text for change requests cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The forge failed, or rejected a call.
    #[error(transparent)]
    Forge(ForgeError),
    /// The receiver of events did not accept an event.
    #[error(transparent)]
    Notification(#[from] NotificationError),
    /// The receiver of a webhook did not accept the call.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// The folder for caches, or the one for credentials, cannot be used.
    #[error("cannot use the cache folder {path}: {source}; check that it exists and can be written")]
    CacheFolder {
        /// The folder.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The fencing token was revoked during the delivery.
    #[error(
        "delivery stopped: the pipeline was suspended or does not want the promotion any more, or another replica acts for it"
    )]
    Revoked,
}

impl From<GitError> for DeliveryError {
    fn from(error: GitError) -> Self {
        match error {
            GitError::Revoked => DeliveryError::Revoked,
            error => DeliveryError::Git(error),
        }
    }
}

impl From<ForgeError> for DeliveryError {
    fn from(error: ForgeError) -> Self {
        match error {
            ForgeError::Revoked => DeliveryError::Revoked,
            ForgeError::Address(error) => DeliveryError::Address(error),
            error => DeliveryError::Forge(error),
        }
    }
}

impl DeliveryError {
    /// Returns one word for the condition, the event and the metric.
    pub fn reason(&self) -> &'static str {
        match self {
            DeliveryError::Address(e) => e.reason(),
            DeliveryError::Credentials(e) => e.reason(),
            DeliveryError::Edit(e) => e.reason(),
            DeliveryError::Git(e) => e.reason(),
            DeliveryError::Template(e) => e.reason(),
            DeliveryError::Forge(e) => e.reason(),
            DeliveryError::Notification(e) => e.reason(),
            DeliveryError::Webhook(e) => e.reason(),
            DeliveryError::CacheFolder { .. } => "CacheUnusable",
            DeliveryError::Revoked => "Stopped",
        }
    }

    /// Returns when to try again.
    pub fn retry(&self) -> Retry {
        match self {
            DeliveryError::Address(_) | DeliveryError::Edit(_) | DeliveryError::Template(_) => {
                Retry::OnChange
            }
            DeliveryError::Git(e) => e.retry(),
            DeliveryError::Forge(e) => e.retry(),
            DeliveryError::Notification(e) => e.retry(),
            DeliveryError::Webhook(e) => e.retry(),
            DeliveryError::Credentials(_) | DeliveryError::CacheFolder { .. } | DeliveryError::Revoked => {
                Retry::Soon
            }
        }
    }
}
