//! A fact that a check has read or could not read, and a finding.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the check could read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    /// The value.
    Known(T),
    /// There is no such object, or the API server does not serve its kind.
    Absent,
    /// The caller lacks a right, such as `get on secrets in namespace apps`.
    Forbidden(String),
    /// The API server has answered with this error.
    Failed(String),
}

impl<T> Reading<T> {
    /// Returns the value, if it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Reading::Known(value) => Some(value),
            Reading::Absent | Reading::Forbidden(_) | Reading::Failed(_) => None,
        }
    }

    /// Returns the finding that something was not checked, if the fact could not be read.
    pub fn unread(&self, topic: Topic, what: &str) -> Option<Finding> {
        match self {
            Reading::Known(_) | Reading::Absent => None,
            Reading::Forbidden(right) => {
                Some(Finding::warning(topic, format!("not checked: {what}; you lack {right}")).fix(
                    "run the check as somebody with this right, or ask the cluster's administrator for it",
                ))
            }
            Reading::Failed(error) => Some(Finding::warning(
                topic,
                format!("not checked: {what}; the API server answered: {error}"),
            )),
        }
    }

    /// Returns the fact with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Known(value) => Reading::Known(change(value)),
            Reading::Absent => Reading::Absent,
            Reading::Forbidden(right) => Reading::Forbidden(right),
            Reading::Failed(error) => Reading::Failed(error),
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// It is as it should be.
    Ok,
    /// It may be intended, or could not be checked.
    Warning,
    /// Something does not work until it is fixed.
    Error,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Topic {
    /// The custom resource definitions and the admission policy.
    Definitions,
    /// The controller.
    Controller,
    /// The caller's rights.
    Rights,
    /// The clusters that pipelines name.
    Clusters,
    /// Flux on the hub and on the other clusters.
    Flux,
    /// The Secrets that pipelines name.
    Secrets,
    /// The objects of Flux on the hub that call Sluice, or that a forge calls.
    Hooks,
    /// The pipelines.
    Pipelines,
    /// The values in a checkout that promotions set.
    Values,
    /// The clocks.
    Clocks,
}

impl Topic {
    /// Returns the heading.
    pub fn heading(self) -> &'static str {
        match self {
            Topic::Definitions => "Definitions",
            Topic::Controller => "Controller",
            Topic::Rights => "Your rights",
            Topic::Clusters => "Clusters",
            Topic::Flux => "Flux",
            Topic::Secrets => "Secrets",
            Topic::Hooks => "Hooks",
            Topic::Pipelines => "Pipelines",
            Topic::Values => "Values in the checkout",
            Topic::Clocks => "Clocks",
        }
    }
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What it is about.
    pub topic: Topic,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, as one sentence without a full stop.
    pub message: String,
    /// What to do: a command, or a page of the documentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// Returns a finding that all is well.
    pub(super) fn ok(topic: Topic, message: impl Into<String>) -> Finding {
        Finding { topic, severity: Severity::Ok, message: message.into(), fix: None }
    }

    /// Returns a warning.
    pub(super) fn warning(topic: Topic, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, ..Finding::ok(topic, message) }
    }

    /// Returns an error.
    pub(super) fn error(topic: Topic, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Error, ..Finding::ok(topic, message) }
    }

    /// Returns the finding with what to do.
    pub(super) fn fix(mut self, fix: impl Into<String>) -> Finding {
        self.fix = Some(fix.into());
        self
    }
}

/// Returns a number of seconds in words, as `90 s`, `10 minutes` or `3 hours`.
pub(super) fn span(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} minutes", seconds / 60),
        _ => format!("{} hours", seconds / 3600),
    }
}

/// Returns `1 pipeline`, `2 pipelines`.
pub(super) fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}
