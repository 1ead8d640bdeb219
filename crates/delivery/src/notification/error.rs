//! Reasons why an event was not delivered, and what to do about them.

use jiff::Timestamp;

use crate::retry::Retry;

/// The reason of a promotion whose event may have arrived and that is tried again; the status stores this word.
pub const UNANSWERED: &str = "EventUnanswered";

/// Why an event did not arrive where the controller sends events.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NotificationError {
    #[error("the address in --events-addr cannot be called: {says}")]
    BadAddress { says: String },

    #[error(
        "{to}: cannot be reached: {says}; check that notification-controller runs, and check --events-addr"
    )]
    Unreachable { to: String, says: String },

    #[error("{to}: the event was sent, and there was no answer ({says}); it is sent again")]
    Unanswered { to: String, says: String },

    #[error("{to}: the receiver asked for the event after {until}")]
    RateLimited { to: String, until: Timestamp },

    #[error("{to}: refused the event with status {status}: {says}; check --events-addr")]
    Refused { to: String, status: u16, says: String },
}

impl NotificationError {
    /// Returns one word for the condition, the event and the metric.
    pub fn reason(&self) -> &'static str {
        match self {
            NotificationError::BadAddress { .. } | NotificationError::Refused { .. } => "EventsRefused",
            NotificationError::Unreachable { .. } => "Unreachable",
            NotificationError::Unanswered { .. } => UNANSWERED,
            NotificationError::RateLimited { .. } => "RateLimited",
        }
    }

    /// Returns when to try again: always, since Sluice does not notice when the cause is fixed.
    pub fn retry(&self) -> Retry {
        match self {
            NotificationError::RateLimited { until, .. } => Retry::At(*until),
            _ => Retry::Soon,
        }
    }
}
