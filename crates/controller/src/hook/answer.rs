//! What is answered to a call. Pure.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use kube::Resource;
use serde_json::json;
use sluice_api::{Pipeline, Promotion};

use crate::intake::PipelineKey;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pipeline is looked at again.
    Accepted(PipelineKey),
    /// What was asked for is recorded.
    Recorded(Box<Recorded>),
    /// It is well, and nothing follows from it.
    NothingToDo,
    /// Not known here, or not signed by who may: the same answer for both.
    Refused,
    /// Not known here, or without the token of the call that it answers: the same answer for both.
    BadToken,
    /// What it says is kept.
    Heard,
    /// What is wrong with it, and what to send instead.
    Wrong(StatusCode, String),
    /// One too many: come again after this.
    TooMany(Duration),
    /// It cannot be judged now: come again soon.
    NotNow,
}

/// A promotion that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// It was not there before.
    pub new: bool,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its pipeline.
    pub pipeline: String,
    /// Where the revision goes.
    pub environment: String,
    /// What it is.
    pub revision: String,
    /// Where it is by now.
    pub phase: String,
}

impl Recorded {
    /// As JSON, with the command that watches it.
    fn text(&self) -> String {
        json!({
            "namespace": self.namespace,
            "name": self.name,
            "pipeline": self.pipeline,
            "environment": self.environment,
            "revision": self.revision,
            "phase": self.phase,
            "watch": format!("sluice get promotions {} -n {} --watch", self.name, self.namespace),
        })
        .to_string()
    }
}

/// When to come again that cannot be judged now. Flux's five tries fit into its 15 seconds then.
const SOON: Duration = Duration::from_secs(3);

impl Answer {
    /// Its status.
    pub fn status(&self) -> StatusCode {
        match self {
            Answer::Accepted(_) => StatusCode::ACCEPTED,
            Answer::Recorded(recorded) if recorded.new => StatusCode::ACCEPTED,
            Answer::Recorded(_) => StatusCode::OK,
            Answer::NothingToDo => StatusCode::NO_CONTENT,
            Answer::Heard => StatusCode::ACCEPTED,
            Answer::Refused | Answer::BadToken => StatusCode::UNAUTHORIZED,
            Answer::Wrong(status, _) => *status,
            Answer::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Answer::NotNow => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// One word for metrics.
    pub fn result(&self) -> &'static str {
        match self {
            Answer::Accepted(_) | Answer::Recorded(_) | Answer::Heard => "accepted",
            Answer::NothingToDo => "ignored",
            Answer::Refused | Answer::BadToken => "refused",
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
            Answer::Recorded(of) => {
                Some(format!("{}/{}", Promotion::url_path(&(), Some(&of.namespace)), of.name))
            }
            _ => None,
        }
    }

    /// The form of what it says.
    pub fn form(&self) -> &'static str {
        match self {
            Answer::Recorded(_) => "application/json",
            _ => "text/plain; charset=utf-8",
        }
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
    pub fn text(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Answer::Recorded(recorded) => return Cow::Owned(recorded.text()),
            Answer::Accepted(_) | Answer::Heard | Answer::NothingToDo => "",
            Answer::Refused => {
                "this call is not accepted: there is no such pipeline, or the body is not signed with its key. Send \
                 X-Signature: sha256=<hex HMAC of the body>, made with the key hmac-key of the Secret that \
                 promotion.strategy.secretRef names (Flux: a Provider of type generic-hmac with the same key as token)"
            }
            Answer::BadToken => {
                "this call is not accepted: there is no such promotion, or the token is not that of the call. Send \
                 Authorization: Bearer <callbackToken of the message>"
            }
            Answer::Wrong(_, why) => why,
            Answer::TooMany(_) => "too many calls: wait as long as Retry-After says",
            Answer::NotNow => "the call cannot be judged now: wait as long as Retry-After says",
        })
    }
}
