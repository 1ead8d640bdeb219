//! One pipeline on one screen: what each environment runs, how it does, what moves into it, and the one thing to look at
//! first.

use std::borrow::Borrow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::pipeline::{AppRef, Pipeline};
use sluice_api::promotion::{Phase, Promotion};
use sluice_core::Time;
use sluice_core::observed::Health;

use crate::explain::{Explanation, Situation, explain};
use crate::place::Place;

/// A pipeline on one screen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineScreen {
    /// The Pipeline's namespace.
    pub namespace: String,
    /// The Pipeline's name.
    pub name: String,
    /// The application that the Pipeline names; absent if labels choose its objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationName>,
    /// True if it is suspended.
    pub suspended: bool,
    /// The message of the Ready condition, if it is not True.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// What the status of the Pipeline leaves out because it would be too large, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summarized: Option<String>,
    /// The environments (or targets), in order.
    pub environments: Vec<EnvironmentLine>,
    /// Why the first environment that needs attention does not move, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Explanation>,
}

impl PipelineScreen {
    /// Returns the worst health of the environments.
    pub fn health(&self) -> Health {
        self.environments.iter().map(|line| line.health).max().unwrap_or_default()
    }
}

/// Returns what the status of a Pipeline with these conditions leaves out, if it does (`Summarized`). The views show no more
/// than the status has.
pub fn summarized(conditions: &[Condition]) -> Option<&str> {
    let summarized = conditions.iter().find(|condition| condition.type_ == "Summarized");
    summarized.filter(|condition| condition.status == "True").map(|condition| condition.message.as_str())
}

/// The application of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationName {
    /// `HelmRelease` or `Kustomization`.
    pub kind: String,
    /// The name that it has in each target.
    pub name: String,
}

/// One environment (or target).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentLine {
    /// The environment, or `environment/target`.
    pub environment: String,
    /// The environments before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The revision that all of its targets run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
    /// The worst health of its targets.
    pub health: Health,
    /// Since when the target that changed last has this health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// How many targets are ready, and how many there are.
    pub ready: (usize, usize),
    /// The revision that is promoted into it, with the phase of the promotion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incoming: Option<(String, Phase)>,
    /// What is going on.
    pub situation: Situation,
}

impl EnvironmentLine {
    /// Whether a target or a promotion has failed, and a person has to act. `is_suspended` is of the pipeline.
    pub fn is_stuck(&self, is_suspended: bool) -> bool {
        let is_of_promotion = self
            .incoming
            .as_ref()
            .is_some_and(|(_, phase)| has_failed(*phase) && (!is_suspended || phase.has_ended()));
        self.situation == Situation::Blocked && (self.health == Health::Failed || is_of_promotion)
    }
}

/// Whether a promotion in this phase that needs a person has failed. A delivery that failed stays in `Promoting`, and what
/// Flux cannot apply in `Delivered`.
pub fn has_failed(phase: Phase) -> bool {
    matches!(phase, Phase::Promoting | Phase::Delivered | Phase::Failed | Phase::Rejected)
}

/// Returns a pipeline on one screen. `promotions` are those of its namespace.
pub fn status<P: Borrow<Promotion>>(pipeline: &Pipeline, promotions: &[P], now: Timestamp) -> PipelineScreen {
    let explanations = explain(pipeline, promotions, now);
    let places = Place::all(pipeline);
    let environments =
        places.iter().zip(&explanations).map(|(place, explained)| line(place, explained, promotions));
    let attention =
        [Situation::Blocked, Situation::Unknown, Situation::Waiting, Situation::Moving, Situation::Differs];
    let cause = attention.iter().find_map(|wanted| explanations.iter().find(|e| e.situation == *wanted));
    let conditions = pipeline.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let application = |app: &AppRef| ApplicationName { kind: app.kind.clone(), name: app.name.clone() };
    PipelineScreen {
        namespace: pipeline.metadata.namespace.clone().unwrap_or_default(),
        name: pipeline.metadata.name.clone().unwrap_or_default(),
        application: pipeline.spec.app_ref.as_ref().map(application),
        suspended: pipeline.spec.suspend,
        summarized: summarized(conditions).map(String::from),
        trouble: ready.filter(|c| c.status != "True").map(|c| c.message.clone()),
        environments: environments.collect(),
        cause: cause.cloned(),
    }
}

fn line<P: Borrow<Promotion>>(
    place: &Place<'_>,
    explained: &Explanation,
    promotions: &[P],
) -> EnvironmentLine {
    let worst: Vec<_> = place.targets().filter(|target| target.health == explained.health).collect();
    EnvironmentLine {
        environment: place.name(),
        after: place.after.iter().map(|name| name.to_string()).collect(),
        runs: explained.runs.clone(),
        health: explained.health,
        since: worst.iter().filter_map(|target| target.since).max(),
        ready: (place.targets().filter(|target| target.ready).count(), place.targets().count()),
        incoming: place.current(promotions).map(|p| (p.spec.revision.clone(), p.phase())),
        situation: explained.situation,
    }
}
