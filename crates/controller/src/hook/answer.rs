//! What is answered to a call. Pure.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use kube::{Resource, ResourceExt};
use serde_json::json;
use sluice_api::{Pipeline, Promotion};

use super::route::Endpoint;
use crate::key::PipelineKey;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pipeline is looked at again.
    Accepted(PipelineKey),
    /// What was asked for is recorded.
    Recorded(Box<Recorded>),
    /// It is well, and nothing follows from it.
    NothingToDo,
    /// Not known here, or not shown to be of who may: the same answer for both.
    Refused,
    /// The call shows a key of the pipeline that is for something else. The caller gets the same answer as for
    /// [`Answer::Refused`]; the metrics tell them apart.
    WrongKey,
    /// What it says is kept.
    Heard,
    /// What is wrong with it, and what to send instead.
    Wrong(Wrong, String),
    /// One too many: come again after this.
    TooMany(Duration),
    /// It cannot be judged now: come again soon.
    NotNow,
}

/// What may be wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Its path names nothing.
    Nowhere,
    /// It is no POST.
    Method,
    /// Its body is longer than any event.
    Huge,
    /// Its body takes too long to come.
    Slow,
    /// Its body broke off, is no JSON, or no event.
    Malformed,
    /// Its body does not fit the pipeline.
    Unfit,
    /// Something else stands already.
    Conflict,
    /// Nothing is wrong with the call: an object that decides about it cannot be read.
    Unreadable,
}

impl Wrong {
    fn status(self) -> StatusCode {
        match self {
            Wrong::Nowhere => StatusCode::NOT_FOUND,
            Wrong::Method => StatusCode::METHOD_NOT_ALLOWED,
            Wrong::Huge => StatusCode::PAYLOAD_TOO_LARGE,
            Wrong::Slow => StatusCode::REQUEST_TIMEOUT,
            Wrong::Malformed => StatusCode::BAD_REQUEST,
            Wrong::Unfit => StatusCode::UNPROCESSABLE_ENTITY,
            Wrong::Conflict => StatusCode::CONFLICT,
            Wrong::Unreadable => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Wrong::Nowhere => "nowhere",
            Wrong::Method => "method",
            Wrong::Huge => "huge",
            Wrong::Slow => "slow",
            Wrong::Malformed => "malformed",
            Wrong::Unfit => "unfit",
            Wrong::Conflict => "conflict",
            Wrong::Unreadable => "unreadable",
        }
    }
}

/// What was asked for: one promotion, or one for each target where each is promoted into separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// It, or one of them, was not there before.
    pub new: bool,
    /// The namespace of all.
    pub namespace: String,
    /// Their pipeline.
    pub pipeline: String,
    /// Where the revision goes.
    pub environment: String,
    /// What it is.
    pub revision: String,
    /// The promotion of the environment, or those of its targets.
    pub promotions: Vec<Asked>,
}

/// One promotion that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its name.
    pub name: String,
    /// The target that it is of; none for the environment as a whole.
    pub target: Option<String>,
    /// Where it is by now.
    pub phase: String,
}

impl Recorded {
    /// The one promotion of an environment that is promoted into as a whole.
    fn alone(&self) -> Option<&Asked> {
        self.promotions.first().filter(|first| first.target.is_none())
    }

    /// As JSON, with the command that watches it.
    fn text(&self) -> String {
        let mut text = json!({
            "namespace": self.namespace,
            "pipeline": self.pipeline,
            "environment": self.environment,
            "revision": self.revision,
        });
        let which = if let Some(Asked { name, phase, .. }) = self.alone() {
            (text["name"], text["phase"]) = (json!(name), json!(phase));
            name.clone()
        } else {
            let shown = |one: &Asked| json!({"name": one.name, "target": one.target, "phase": one.phase});
            text["promotions"] = self.promotions.iter().map(shown).collect();
            format!("--pipeline {}", self.pipeline)
        };
        text["watch"] = json!(format!("sluice get promotions {which} -n {} --watch", self.namespace));
        text.to_string()
    }

    /// The path of what is to be watched: the promotion, or the pipeline where there are several.
    fn path(&self) -> String {
        match self.alone() {
            Some(one) => path::<Promotion>(&self.namespace, &one.name),
            None => path::<Pipeline>(&self.namespace, &self.pipeline),
        }
    }
}

/// Where the API server has an object.
fn path<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> String {
    format!("{}/{name}", K::url_path(&(), Some(namespace)))
}

/// When to come again that cannot be judged now. Flux's five tries fit into its 15 seconds then.
const SOON: Duration = Duration::from_secs(3);

impl Answer {
    /// Promotions of a pipeline that are recorded, all of one revision into one environment. `new`: one of them was
    /// not there before.
    pub fn recorded(pipeline: &PipelineKey, promotions: &[Promotion], new: bool) -> Self {
        let shown = |promotion: &Promotion| Asked {
            name: promotion.name_any(),
            target: promotion.spec.target.clone(),
            phase: promotion.status.as_ref().map(|s| s.phase).unwrap_or_default().to_string(),
        };
        let spec = promotions.first().map(|first| first.spec.clone()).unwrap_or_default();
        Answer::Recorded(Box::new(Recorded {
            new,
            namespace: pipeline.namespace.clone(),
            pipeline: pipeline.name.clone(),
            environment: spec.environment,
            revision: spec.revision,
            promotions: promotions.iter().map(shown).collect(),
        }))
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        match self {
            Answer::Accepted(_) => StatusCode::ACCEPTED,
            Answer::Recorded(recorded) if recorded.new => StatusCode::ACCEPTED,
            Answer::Recorded(_) => StatusCode::OK,
            // notification-controller takes 204 for a failure before 1.7.0.
            Answer::NothingToDo => StatusCode::OK,
            Answer::Heard => StatusCode::ACCEPTED,
            Answer::Refused | Answer::WrongKey => StatusCode::UNAUTHORIZED,
            Answer::Wrong(wrong, _) => wrong.status(),
            Answer::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Answer::NotNow => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// One word for metrics.
    pub fn result(&self) -> &'static str {
        match self {
            Answer::Accepted(_) | Answer::Recorded(_) | Answer::Heard => "accepted",
            Answer::NothingToDo => "ignored",
            Answer::Refused => "refused",
            Answer::WrongKey => "wrong_key",
            Answer::Wrong(wrong, _) => wrong.word(),
            Answer::TooMany(_) => "limited",
            Answer::NotNow => "unavailable",
        }
    }

    /// Where to look at what follows: a path of the API server.
    pub fn location(&self) -> Option<String> {
        match self {
            Answer::Accepted(of) => Some(path::<Pipeline>(&of.namespace, &of.name)),
            Answer::Recorded(of) => Some(of.path()),
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

    /// What it says to who called this.
    pub fn text(&self, called: Option<&Endpoint>) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Answer::Recorded(recorded) => return Cow::Owned(recorded.text()),
            Answer::Accepted(_) | Answer::Heard | Answer::NothingToDo => "",
            Answer::Refused | Answer::WrongKey => called.map_or("", refusal),
            Answer::Wrong(_, why) => why,
            Answer::TooMany(_) => "too many calls: wait as long as Retry-After says",
            Answer::NotNow => "the call cannot be judged now: wait as long as Retry-After says",
        })
    }
}

/// What to show at an endpoint. The text is the same whether the pipeline is there or not.
fn refusal(called: &Endpoint) -> &'static str {
    match called {
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
            "this call is not accepted: there is no such promotion, or the token is not that of the call. Send \
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
