//! The answers of the hook server. Pure.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use kube::{Resource, ResourceExt};
use serde_json::json;
use sluice_api::{Pipeline, Promotion};

use super::hmac_keys::Unavailable;
use super::route::Endpoint;
use crate::pipeline_key::PipelineKey;

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAnswer {
    /// The pipeline will be reconciled.
    Accepted(PipelineKey),
    /// The promotions that the call asks for, or approves, are recorded.
    Recorded(Box<RecordedPromotions>),
    /// The call is correct, and changes nothing.
    NothingToDo,
    /// There is no such pipeline, or the call does not show its key. Both get the same answer, so that it does not
    /// reveal which pipelines exist.
    Refused,
    /// The call shows a key of the pipeline for another purpose. The caller gets the same answer as for
    /// [`HookAnswer::Refused`]; the metrics tell them apart.
    WrongKey,
    /// The report of the receiver of a webhook is stored.
    Stored,
    /// The call failed: the kind of the error, and a text that says what to send instead.
    Error(CallError, String),
    /// The call is over a limit. The caller may call again after this time.
    RateLimited(Duration),
    /// The call cannot be answered now. The caller may send it again soon.
    Unavailable,
}

impl From<Unavailable> for HookAnswer {
    fn from(why: Unavailable) -> Self {
        match why {
            Unavailable::RetryLater => HookAnswer::Unavailable,
            Unavailable::Unreadable(why) => HookAnswer::Error(CallError::Unreadable, why),
        }
    }
}

/// The kind of a call's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The path names nothing.
    UnknownPath,
    /// The method is not POST.
    Method,
    /// The body is longer than any event.
    TooLarge,
    /// The body took too long to arrive.
    TooSlow,
    /// The body is incomplete, no JSON, or no event.
    Malformed,
    /// The body does not fit the pipeline.
    Invalid,
    /// The call contradicts what is already recorded.
    Conflict,
    /// The call is correct, but an object that decides about it cannot be read.
    Unreadable,
}

impl CallError {
    fn status(self) -> StatusCode {
        match self {
            CallError::UnknownPath => StatusCode::NOT_FOUND,
            CallError::Method => StatusCode::METHOD_NOT_ALLOWED,
            CallError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            CallError::TooSlow => StatusCode::REQUEST_TIMEOUT,
            CallError::Malformed => StatusCode::BAD_REQUEST,
            CallError::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            CallError::Conflict => StatusCode::CONFLICT,
            CallError::Unreadable => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn metric_label(self) -> &'static str {
        match self {
            CallError::UnknownPath => "nowhere",
            CallError::Method => "method",
            CallError::TooLarge => "huge",
            CallError::TooSlow => "slow",
            CallError::Malformed => "malformed",
            CallError::Invalid => "unfit",
            CallError::Conflict => "conflict",
            CallError::Unreadable => "unreadable",
        }
    }
}

/// The promotions that a call asks for or approves: one, or one for each target if the pipeline promotes into each
/// target separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPromotions {
    /// Whether this call recorded at least one of them.
    pub new: bool,
    /// The namespace of the pipeline and its promotions.
    pub namespace: String,
    /// The name of the pipeline.
    pub pipeline: String,
    /// The environment that is promoted into.
    pub environment: String,
    /// The revision, in the form of `spec.revision`.
    pub revision: String,
    /// The promotion of the environment, or those of its targets.
    pub promotions: Vec<RecordedPromotion>,
}

/// A promotion in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPromotion {
    /// The name of the Promotion.
    pub name: String,
    /// The target that is promoted into; `None` for the environment as a whole.
    pub target: Option<String>,
    /// The phase at the time of the answer.
    pub phase: String,
}

impl RecordedPromotions {
    /// Returns the promotion of an environment that is promoted into as a whole.
    fn single(&self) -> Option<&RecordedPromotion> {
        self.promotions.first().filter(|first| first.target.is_none())
    }

    /// Returns the promotions as JSON, with the command that watches them.
    fn to_json(&self) -> String {
        let mut text = json!({
            "namespace": self.namespace,
            "pipeline": self.pipeline,
            "environment": self.environment,
            "revision": self.revision,
        });
        let arguments = if let Some(RecordedPromotion { name, phase, .. }) = self.single() {
            (text["name"], text["phase"]) = (json!(name), json!(phase));
            name.clone()
        } else {
            let summary =
                |p: &RecordedPromotion| json!({"name": p.name, "target": p.target, "phase": p.phase});
            text["promotions"] = self.promotions.iter().map(summary).collect();
            format!("--pipeline {}", self.pipeline)
        };
        text["watch"] = json!(format!("sluice get promotions {arguments} -n {} --watch", self.namespace));
        text.to_string()
    }

    /// Returns the path of the object to watch: the promotion, or the pipeline if there are several promotions.
    fn path(&self) -> String {
        match self.single() {
            Some(promotion) => api_path::<Promotion>(&self.namespace, &promotion.name),
            None => api_path::<Pipeline>(&self.namespace, &self.pipeline),
        }
    }
}

/// Returns the path of an object on the API server.
fn api_path<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> String {
    format!("{}/{name}", K::url_path(&(), Some(namespace)))
}

/// The `Retry-After` of [`HookAnswer::Unavailable`]. Flux tries five times within 15 seconds, so all of its tries
/// fit.
const UNAVAILABLE_RETRY_AFTER: Duration = Duration::from_secs(3);

impl HookAnswer {
    /// The answer with recorded promotions of a pipeline, all of one revision into one environment. `new` is true
    /// if this call recorded at least one of them.
    pub fn recorded(pipeline: &PipelineKey, promotions: &[Promotion], new: bool) -> Self {
        let summary = |promotion: &Promotion| RecordedPromotion {
            name: promotion.name_any(),
            target: promotion.spec.target.clone(),
            phase: promotion.phase().to_string(),
        };
        let spec = promotions.first().map(|first| first.spec.clone()).unwrap_or_default();
        HookAnswer::Recorded(Box::new(RecordedPromotions {
            new,
            namespace: pipeline.namespace.clone(),
            pipeline: pipeline.name.clone(),
            environment: spec.environment,
            revision: spec.revision,
            promotions: promotions.iter().map(summary).collect(),
        }))
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            HookAnswer::Accepted(_) => StatusCode::ACCEPTED,
            HookAnswer::Recorded(recorded) if recorded.new => StatusCode::ACCEPTED,
            HookAnswer::Recorded(_) => StatusCode::OK,
            // Not 204: notification-controller before 1.7.0 counts 204 as a failure.
            HookAnswer::NothingToDo => StatusCode::OK,
            HookAnswer::Stored => StatusCode::ACCEPTED,
            HookAnswer::Refused | HookAnswer::WrongKey => StatusCode::UNAUTHORIZED,
            HookAnswer::Error(error, _) => error.status(),
            HookAnswer::RateLimited(_) => StatusCode::TOO_MANY_REQUESTS,
            HookAnswer::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the label `result` of the metrics.
    pub fn metric_label(&self) -> &'static str {
        match self {
            HookAnswer::Accepted(_) | HookAnswer::Recorded(_) | HookAnswer::Stored => "accepted",
            HookAnswer::NothingToDo => "ignored",
            HookAnswer::Refused => "refused",
            HookAnswer::WrongKey => "wrong_key",
            HookAnswer::Error(error, _) => error.metric_label(),
            HookAnswer::RateLimited(_) => "limited",
            HookAnswer::Unavailable => "unavailable",
        }
    }

    /// Returns the header `Location`: the path, on the API server, of the object to watch.
    pub fn location(&self) -> Option<String> {
        match self {
            HookAnswer::Accepted(pipeline) => Some(api_path::<Pipeline>(&pipeline.namespace, &pipeline.name)),
            HookAnswer::Recorded(recorded) => Some(recorded.path()),
            _ => None,
        }
    }

    /// Returns the header `Content-Type`.
    pub fn content_type(&self) -> &'static str {
        match self {
            HookAnswer::Recorded(_) => "application/json",
            _ => "text/plain; charset=utf-8",
        }
    }

    /// Returns the header `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            HookAnswer::RateLimited(pause) => Some(*pause),
            HookAnswer::Unavailable => Some(UNAVAILABLE_RETRY_AFTER),
            _ => None,
        }
    }

    /// Returns the body of the answer to a call of an endpoint.
    pub fn text(&self, endpoint: Option<&Endpoint>) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            HookAnswer::Recorded(recorded) => return Cow::Owned(recorded.to_json()),
            HookAnswer::Accepted(_) | HookAnswer::Stored | HookAnswer::NothingToDo => "",
            HookAnswer::Refused | HookAnswer::WrongKey => endpoint.map_or("", refusal),
            HookAnswer::Error(_, why) => why,
            HookAnswer::RateLimited(_) => "too many calls: send it again after the time in Retry-After",
            HookAnswer::Unavailable => {
                "the call cannot be checked or stored now: send it again after the time in Retry-After"
            }
        })
    }
}

/// Returns the text of a refusal: how to show a key at this endpoint. The text is the same whether or not the
/// pipeline exists.
fn refusal(endpoint: &Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Promotion { .. } => {
            "this call is not accepted: there is no such pipeline, or the body is not signed with its key. Send \
             X-Signature: sha256=<hex HMAC of the body>, made with hmac-key (for a cluster with observe: Push: \
             report-key.<cluster>) of the Secret in promotion.strategy.secretRef of the environment or of one after \
             it (Flux: a Provider of type generic-hmac with the same key as token; sluice export alert prints it)"
        }
        Endpoint::Trigger => {
            "this call is not accepted: there is no such pipeline, or the body is not signed with its key. Send \
             X-Signature: sha256=<hex HMAC of the body>, made with trigger-key of the Secret in \
             promotion.strategy.secretRef of the first environment"
        }
        Endpoint::Approval { .. } => {
            "this call is not accepted: there is no such pipeline, or the body is not signed with its key. Send \
             X-Signature: sha256=<hex HMAC of the body>, made with approval-key of the Secret in \
             promotion.strategy.secretRef of the environment"
        }
        Endpoint::Callback { .. } => {
            "this call is not accepted: there is no such promotion, or the token is not for its current try. Send \
             Authorization: Bearer <callbackToken of the message>"
        }
        Endpoint::Forge => {
            "this call is not accepted: there is no such pipeline, it opens no change requests, or the call does not \
             show its key. Enter forge-key of the Secret in promotion.strategy.secretRef at the forge, which then \
             shows it: GitHub in X-Hub-Signature-256, \
             GitLab in X-Gitlab-Token, Gitea in X-Gitea-Signature, Forgejo in X-Forgejo-Signature, Bitbucket in \
             X-Hub-Signature with sha256, Azure DevOps as the password of basic authentication"
        }
    }
}
