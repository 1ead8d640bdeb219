//! Why a delivery failed: the sum of what its parts say, with one word for it and when to try again.

use crate::address::AddressError;
use crate::credentials::CredentialsError;
use crate::edit::error::EditError;
use crate::forge::error::ForgeError;
use crate::git::error::GitError;
use crate::notification::error::NotificationError;
use crate::retry::Retry;
use crate::template::TemplateError;
use crate::webhook::error::WebhookError;

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
    /// The repository.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A text for change requests.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The forge.
    #[error(transparent)]
    Forge(ForgeError),
    /// The place that events are sent to.
    #[error(transparent)]
    Notification(#[from] NotificationError),
    /// The other side of a webhook.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// The folder for caches.
    #[error("cannot use the cache folder {path}: {source}; check that it exists and can be written")]
    CacheFolder {
        /// Which.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The leave to do it was taken back on the way.
    #[error(
        "stopped on the way: the pipeline was suspended or wants it no more, or another replica acts for it"
    )]
    Revoked,
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
    /// One word for the condition, the event and the metric alike.
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

    /// When it is worth another try.
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
