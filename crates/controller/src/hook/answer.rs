//! What is answered to a call, and what the call means for its pipeline. Pure.

use std::time::Duration;

use http::StatusCode;
use sluice_api::flux::{HELM_GROUP, KUSTOMIZE_GROUP};
use sluice_api::pipeline::{Pipeline, PromotionPolicy, Target};

use super::event::{Event, InvolvedObject, Meaning};

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pipeline is looked at again.
    Accepted,
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
            Answer::Accepted => StatusCode::ACCEPTED,
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
            Answer::Accepted => "accepted",
            Answer::NothingToDo => "ignored",
            Answer::Refused => "refused",
            Answer::Wrong(..) => "wrong",
            Answer::TooMany(_) => "limited",
            Answer::NotNow => "unavailable",
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
    pub fn text(&self) -> &str {
        match self {
            Answer::Accepted | Answer::NothingToDo => "",
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

/// The Secrets whose keys calls about an environment may be signed with: that of the environment, and
/// those of the environments that come after it. Each once.
pub fn secrets<'a>(pipeline: &'a Pipeline, environment: &'a str) -> Vec<&'a str> {
    let mut names: Vec<&str> = policies(pipeline, environment)
        .filter_map(|p| p.strategy.as_ref()?.secret_ref.as_ref())
        .map(|s| s.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether calls about an environment need no signature.
pub fn is_open(pipeline: &Pipeline, environment: &str) -> bool {
    policies(pipeline, environment).any(|p| p.strategy.as_ref().is_some_and(|s| s.allow_unsigned))
}

fn policies<'a>(pipeline: &'a Pipeline, environment: &'a str) -> impl Iterator<Item = &'a PromotionPolicy> {
    let spec = &pipeline.spec;
    let concerned = spec.environments.iter().enumerate();
    let concerned =
        concerned.filter(move |(at, e)| e.name == environment || spec.after(*at).contains(&environment));
    concerned.filter_map(move |(_, e)| spec.policy(e))
}

/// What an event means for an environment of a pipeline.
pub fn judge(pipeline: &Pipeline, environment: &str, event: &Event) -> Answer {
    let wrong = |why: String| Answer::Wrong(StatusCode::UNPROCESSABLE_ENTITY, why);
    let name = pipeline.metadata.name.as_deref().unwrap_or_default();
    let Some(of) = pipeline.spec.environments.iter().find(|e| e.name == environment) else {
        let known: Vec<_> = pipeline.spec.environments.iter().map(|e| e.name.as_str()).collect();
        return wrong(format!(
            "pipeline {name} has no environment {environment}: call with one of {}",
            known.join(", ")
        ));
    };
    let object = &event.involved_object;
    if !is_flux(object) {
        return Answer::NothingToDo;
    }
    if !of.targets.iter().any(|target| is_member(pipeline, target, event)) {
        return wrong(format!(
            "{} {}/{} is not part of environment {environment} of pipeline {name}: let the Alert's eventSources \
             name its HelmRelease or Kustomization, in the namespace of one of its targets",
            object.kind, object.namespace, object.name
        ));
    }
    if event.meaning() != Meaning::Deployed {
        return Answer::NothingToDo;
    }
    if event.revision().is_none() {
        return wrong(
            "the event has no revision in its metadata: only events of Flux's own controllers are taken"
                .into(),
        );
    }
    Answer::Accepted
}

/// Whether an event's object may be a member of a target. Where the pipeline names no member, labels
/// decide, and an event shows none.
fn is_member(pipeline: &Pipeline, target: &Target, event: &Event) -> bool {
    let object = &event.involved_object;
    let app = pipeline.spec.app_ref.iter().any(|a| a.kind == object.kind && a.name == object.name);
    let named = target.workloads.iter().any(|w| w.kind == object.kind && w.name == object.name);
    let by_label = pipeline.spec.app_ref.is_none() && target.workloads.is_empty();
    target.namespace == object.namespace && (app || named || by_label)
}

/// Whether an object is of a kind that members have; a source's news, for one, are none of ours.
fn is_flux(object: &InvolvedObject) -> bool {
    matches!(
        (object.kind.as_str(), object.group()),
        ("HelmRelease", HELM_GROUP) | ("Kustomization", KUSTOMIZE_GROUP)
    )
}
