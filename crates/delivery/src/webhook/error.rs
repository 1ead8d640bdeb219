//! Why a webhook was not delivered, and what to do about it. Messages name the receiver by its host alone: the rest of an
//! address is often secret.

use std::time::Duration;

use jiff::Timestamp;

use crate::retry::Retry;

/// Why a webhook was not delivered.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum WebhookError {
    #[error("{place} is not a valid address: write https://host/path, without user, password and fragment")]
    InvalidAddress { place: &'static str },

    #[error(
        "{to}: the address has no encryption: write https://, or run the controller with \
         --insecure-webhook-http"
    )]
    Unencrypted { to: String },

    #[error(
        "{to}: leads to a private, loopback or link-local address: name a public one, or run the controller \
         with --insecure-webhook-private-addresses"
    )]
    NotPublic { to: String },

    #[error("the Secret of the webhook cannot be used: {what}")]
    BadSecret { what: String },

    #[error(
        "{to}: refused with status {status}: {says}; fix the receiver or the Secret: Sluice calls again within 5 minutes"
    )]
    Refused { to: String, status: u16, says: String },

    #[error(
        "{to}: the receiver answered with status {status}: {says}; fix the receiver: Sluice calls again within 5 minutes"
    )]
    Unavailable { to: String, status: u16, says: String },

    #[error("{to}: the receiver asked for a call after {until}")]
    RateLimited { to: String, until: Timestamp },

    #[error(
        "{to}: the receiver redirects to another address (status {status}), which Sluice does not follow; write that address"
    )]
    Redirected { to: String, status: u16 },

    #[error(
        "{to}: cannot be reached: {says}; check that the receiver runs, its address, DNS and the network"
    )]
    Unreachable { to: String, says: String },

    #[error("{to}: did not answer within {} seconds; check the receiver and the network", after.as_secs_f32())]
    Timeout { to: String, after: Duration },

    #[error(
        "{to}: the server's certificate is not trusted ({says}); put the certificate of its authority into \
         the Secret as ca.crt"
    )]
    Certificate { to: String, says: String },
}

/// Returns true if a call that failed for this reason may have reached the receiver.
pub fn may_have_arrived(reason: &str) -> bool {
    matches!(reason, "WebhookRefused" | "Unreachable" | "RateLimited" | "Redirected" | "Timeout")
}

impl WebhookError {
    /// Returns one word for the condition, the event and the metric.
    pub fn reason(&self) -> &'static str {
        match self {
            WebhookError::InvalidAddress { .. } => "InvalidAddress",
            WebhookError::Unencrypted { .. } | WebhookError::NotPublic { .. } => "AddressRefused",
            WebhookError::BadSecret { .. } => "SecretInvalid",
            WebhookError::Refused { .. } => "WebhookRefused",
            WebhookError::Unavailable { .. } | WebhookError::Unreachable { .. } => "Unreachable",
            WebhookError::RateLimited { .. } => "RateLimited",
            WebhookError::Redirected { .. } => "Redirected",
            WebhookError::Timeout { .. } => "Timeout",
            WebhookError::Certificate { .. } => "CertificateInvalid",
        }
    }

    /// Returns when to try again.
    pub fn retry(&self) -> Retry {
        match self {
            WebhookError::InvalidAddress { .. }
            | WebhookError::Unencrypted { .. }
            | WebhookError::NotPublic { .. }
            | WebhookError::Redirected { .. } => Retry::OnChange,
            WebhookError::RateLimited { until, .. } => Retry::At(*until),
            // A receiver that is deployed or configured later answers 404, 401 or 403 until then, and Sluice does not
            // notice when that changes.
            WebhookError::Refused { .. }
            | WebhookError::BadSecret { .. }
            | WebhookError::Unavailable { .. }
            | WebhookError::Unreachable { .. }
            | WebhookError::Timeout { .. }
            | WebhookError::Certificate { .. } => Retry::Soon,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a call that failed so was sent. A new error needs an answer here.
    fn was_sent(error: &WebhookError) -> bool {
        match error {
            WebhookError::Refused { .. }
            | WebhookError::Unavailable { .. }
            | WebhookError::RateLimited { .. }
            | WebhookError::Redirected { .. }
            | WebhookError::Unreachable { .. }
            | WebhookError::Timeout { .. } => true,
            WebhookError::InvalidAddress { .. }
            | WebhookError::Unencrypted { .. }
            | WebhookError::NotPublic { .. }
            | WebhookError::BadSecret { .. }
            | WebhookError::Certificate { .. } => false,
        }
    }

    #[test]
    fn the_reason_of_an_error_says_whether_its_call_may_have_arrived() {
        let (to, says) = (|| "https://ci.example.com".to_string(), || "no".to_string());
        for error in [
            WebhookError::InvalidAddress { place: "spec.promotion.strategy.webhook.url" },
            WebhookError::Unencrypted { to: to() },
            WebhookError::NotPublic { to: to() },
            WebhookError::BadSecret { what: says() },
            WebhookError::Refused { to: to(), status: 404, says: says() },
            WebhookError::Unavailable { to: to(), status: 503, says: says() },
            WebhookError::RateLimited { to: to(), until: Timestamp::UNIX_EPOCH },
            WebhookError::Redirected { to: to(), status: 301 },
            WebhookError::Unreachable { to: to(), says: says() },
            WebhookError::Timeout { to: to(), after: Duration::from_secs(1) },
            WebhookError::Certificate { to: to(), says: says() },
        ] {
            assert_eq!(may_have_arrived(error.reason()), was_sent(&error), "{error:?}");
        }
    }
}
