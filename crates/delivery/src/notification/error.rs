//! Reasons why an event was not delivered, and what to do about them.

use jiff::Timestamp;

use crate::retry::Retry;

/// The reason of a promotion whose event may have arrived and that is tried again; the status stores this word.
pub const UNANSWERED: &str = "EventUnanswered";

/// Why an event did not arrive where the controller sends events.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NotificationError {
    #[error("the place that --events-addr names cannot be called: {says}")]
    BadAddress { says: String },

    #[error(
        "{to}: cannot be reached: {says}; look whether notification-controller runs, and at --events-addr"
    )]
    Unreachable { to: String, says: String },

    #[error("{to}: the event was sent and no answer came ({says}); it is sent again")]
    Unanswered { to: String, says: String },

    #[error("{to}: asks to send the event again after {until}")]
    RateLimited { to: String, until: Timestamp },

    #[error("{to}: refused the event with status {status}: {says}; look at --events-addr")]
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
