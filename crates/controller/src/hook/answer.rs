//! What is answered to a call. Pure.

use std::time::Duration;

use http::StatusCode;
use kube::Resource;
use sluice_api::Pipeline;

use crate::intake::PipelineKey;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pipeline is looked at again.
    Accepted(PipelineKey),
    /// It is well, and nothing follows from it.
    NothingToDo,
    /// Not known here, or not signed by who may: the same answer for both.
    Refused,
    /// What is wrong with it, and what to send instead.
    Wrong(StatusCode, String),
    /// One too many: come again after this.
    TooMany(Duration),
    /// It cannot be judged now: come again soon.
    NotNow,
}

/// When to come again that cannot be judged now. Flux's five tries fit into its 15 seconds then.
const SOON: Duration = Duration::from_secs(3);

impl Answer {
    /// Its status.
    pub fn status(&self) -> StatusCode {
        match self {
            Answer::Accepted(_) => StatusCode::ACCEPTED,
            Answer::NothingToDo => StatusCode::NO_CONTENT,
            Answer::Refused => StatusCode::UNAUTHORIZED,
            Answer::Wrong(status, _) => *status,
            Answer::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Answer::NotNow => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// One word for metrics.
    pub fn result(&self) -> &'static str {
        match self {
            Answer::Accepted(_) => "accepted",
            Answer::NothingToDo => "ignored",
            Answer::Refused => "refused",
            Answer::Wrong(..) => "wrong",
            Answer::TooMany(_) => "limited",
            Answer::NotNow => "unavailable",
        }
    }

    /// Where to look at what follows: a path of the API server.
    pub fn location(&self) -> Option<String> {
        match self {
            Answer::Accepted(of) => {
                Some(format!("{}/{}", Pipeline::url_path(&(), Some(&of.namespace)), of.name))
            }
            _ => None,
        }
    }

    /// The form of what it says.
    pub fn form(&self) -> &'static str {
        "text/plain; charset=utf-8"
    }

    /// When to come again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Answer::TooMany(pause) => Some(*pause),
            Answer::NotNow => Some(SOON),
            _ => None,
        }
    }

    /// What it says.
    pub fn text(&self) -> &str {
        match self {
            Answer::Accepted(_) | Answer::NothingToDo => "",
            Answer::Refused => {
                "this call is not accepted: there is no such pipeline, or the body is not signed with its key. Send \
                 X-Signature: sha256=<hex HMAC of the body>, made with the key hmac-key of the Secret that \
                 promotion.strategy.secretRef names (Flux: a Provider of type generic-hmac with the same key as token)"
            }
            Answer::Wrong(_, why) => why,
            Answer::TooMany(_) => "too many calls: wait as long as Retry-After says",
            Answer::NotNow => "the call cannot be judged now: wait as long as Retry-After says",
        }
    }
}
