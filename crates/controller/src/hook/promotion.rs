//! The endpoint `/promotion`: which keys may sign an event of Flux, what the event means for an environment, and
//! how it is handled.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sluice_api::flux::{HELM_GROUP, KUSTOMIZE_GROUP};
use sluice_api::pipeline::{Observe, Pipeline, PromotionPolicy, Target};

use super::answer::{CallError, HookAnswer};
use super::authorization::ShownKey;
use super::call::HookCall;
use super::event::{EventOrigin, InvolvedObject, Meaning, NO_REVISION, ReceivedEvent};
use super::hmac_keys::{Purpose, secrets_of};
use super::report;
use super::server::HookServer;
use super::store::ChangeOutcome;

impl HookServer {
    /// Handles an event of Flux in an environment.
    pub(super) async fn handle_event(
        &self,
        call: HookCall<'_>,
        environment: &str,
    ) -> Result<HookAnswer, HookAnswer> {
        let secrets = call.pipeline.map(|p| signing_secrets(p, environment)).unwrap_or_default();
        let unsigned_allowed = call.pipeline.is_some_and(|p| accepts_unsigned(p, environment));
        let origin: EventOrigin = call.parse_body().unwrap_or_default();
        let accepted = accepted_purposes(call.pipeline, environment, origin.cluster());
        let shown = self.signing_key(&call, &secrets, &accepted).await;
        let signed = shown.as_ref().is_ok_and(ShownKey::is_accepted);
        // If unsigned calls are allowed, errors of reading the keys matter for reports only.
        let Some(pipeline) = call.pipeline.filter(|_| unsigned_allowed || signed) else {
            return Ok(self.refuse(&call, &shown?, &accepted));
        };
        self.count_call(&call.route.pipeline, signed)?;
        let event: ReceivedEvent = call.parse_body().map_err(|error| {
            HookAnswer::Error(CallError::Malformed, format!("the body is not an event of Flux: {error}"))
        })?;
        match classify(pipeline, environment, &event) {
            EventVerdict::Reconcile => {
                let is_report = |shown: &ShownKey| matches!(shown, ShownKey::Accepted(Purpose::Report(_), _));
                match shown.ok().filter(is_report) {
                    Some(ShownKey::Accepted(report_key, _)) if !unsigned_allowed => {
                        Ok(self.refuse(&call, &ShownKey::Other(report_key), &[Purpose::Event]))
                    }
                    _ => Ok(self.request_reconcile(&call.route.pipeline)),
                }
            }
            EventVerdict::Ignored => Ok(HookAnswer::NothingToDo),
            EventVerdict::Invalid(why) => Ok(HookAnswer::Error(CallError::Invalid, why)),
            EventVerdict::Report => {
                // The whole event may name another cluster than `EventOrigin`, which chose the accepted keys.
                let key = report::key_name(pipeline, environment, event.metadata("cluster"));
                match shown? {
                    ShownKey::Accepted(Purpose::Report(shown), _) if Some(&shown) == key.as_ref() => {
                        self.store_report(&call, environment, pipeline, &event).await
                    }
                    // Other keys are known on every cluster, so they prove nothing about this one.
                    ShownKey::Accepted(other, _) => {
                        let report_key = Purpose::Report(key.unwrap_or_default());
                        Ok(self.refuse(&call, &ShownKey::Other(other), &[report_key]))
                    }
                    shown => Ok(self.refuse(&call, &shown, &accepted)),
                }
            }
        }
    }

    /// Stores the report of a cluster about its targets, which the cluster's own key has signed.
    async fn store_report(
        &self,
        call: &HookCall<'_>,
        environment: &str,
        pipeline: &Pipeline,
        event: &ReceivedEvent,
    ) -> Result<HookAnswer, HookAnswer> {
        let invalid = |why: String| HookAnswer::Error(CallError::Invalid, why);
        report::check(pipeline, environment, event, Timestamp::now()).map_err(invalid)?;
        let _permit = self.queue.acquire(&call.route.pipeline).await?;
        Ok(match self.store.record_report(&call.route.pipeline, environment, event).await? {
            ChangeOutcome::Written => HookAnswer::Accepted(call.route.pipeline.clone()),
            ChangeOutcome::Unchanged => HookAnswer::NothingToDo,
            ChangeOutcome::Rejected(why) => invalid(why),
            ChangeOutcome::Gone => HookAnswer::Refused,
        })
    }
}

/// Returns the purposes of the keys that may sign an event: `hmac-key`, then the key of the cluster that the event
/// names. The name is not verified yet, and only decides which keys are tried.
fn accepted_purposes(pipeline: Option<&Pipeline>, environment: &str, cluster: Option<&str>) -> Vec<Purpose> {
    let mut purposes = vec![Purpose::Event];
    if cluster.is_some() {
        let key = pipeline.and_then(|pipeline| report::key_name(pipeline, environment, cluster));
        purposes.push(Purpose::Report(key.unwrap_or_default()));
    }
    purposes
}

/// Returns the Secrets whose keys may sign calls about an environment: the environment's own, and those of the
/// environments that come after it, each once.
pub fn signing_secrets<'a>(pipeline: &'a Pipeline, environment: &'a str) -> Vec<&'a str> {
    secrets_of(policies(pipeline, environment).into_iter())
}

/// Returns true if calls about an environment need no signature.
pub fn accepts_unsigned(pipeline: &Pipeline, environment: &str) -> bool {
    let allows = |p: &PromotionPolicy| p.strategy.as_ref().is_some_and(|s| s.allow_unsigned);
    policies(pipeline, environment).into_iter().any(allows)
}

/// Returns the policies that decide which calls about an environment are accepted.
fn policies<'a>(pipeline: &'a Pipeline, environment: &str) -> Vec<&'a PromotionPolicy> {
    let spec = &pipeline.spec;
    // A caller with any key of the pipeline may learn that the pipeline has no such environment.
    if spec.environments.iter().all(|e| e.name != environment) {
        return spec.environments.iter().filter_map(|e| spec.policy(e)).collect();
    }
    spec.policies_about(environment)
}

/// What the hook server does with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventVerdict {
    /// Have the pipeline reconciled.
    Reconcile,
    /// Store the event as a report about a target with `observe: Push`.
    Report,
    /// Ignore the event.
    Ignored,
    /// Reject the event: what is wrong with it, and what to send instead.
    Invalid(String),
}

/// Decides what to do with an event for an environment of a pipeline.
pub fn classify(pipeline: &Pipeline, environment: &str, event: &ReceivedEvent) -> EventVerdict {
    let name = pipeline.metadata.name.as_deref().unwrap_or_default();
    let Some(spec) = pipeline.spec.environments.iter().find(|e| e.name == environment) else {
        let names: Vec<_> = pipeline.spec.environments.iter().map(|e| e.name.as_str()).collect();
        return EventVerdict::Invalid(format!(
            "pipeline {name} has no environment {environment}: call with one of {}",
            names.join(", ")
        ));
    };
    let object = &event.involved_object;
    if !is_workload(object) {
        return EventVerdict::Ignored;
    }
    if !report::names(pipeline, environment, event).is_empty() {
        return if event.meaning() == Meaning::Nothing {
            EventVerdict::Ignored
        } else {
            EventVerdict::Report
        };
    }
    let (watched, pushed): (Vec<&Target>, Vec<&Target>) =
        spec.targets.iter().partition(|target| target.observe == Observe::Watch);
    if !watched.iter().any(|target| may_be_member(pipeline, target, event)) {
        let pushed = pushed.iter().filter(|target| may_be_member(pipeline, target, event));
        let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
        let clusters: BTreeSet<String> =
            pushed.filter_map(|t| t.cluster_ref.as_ref()).map(|c| spec.name_of_cluster(c, home)).collect();
        if !clusters.is_empty() {
            return EventVerdict::Invalid(format!(
                "the event does not name the cluster of a target: set cluster: {} in the Alert's eventMetadata \
                 (sluice export alert writes it)",
                Vec::from_iter(clusters).join(" or ")
            ));
        }
        return EventVerdict::Invalid(format!(
            "{} {}/{} is not part of environment {environment} of pipeline {name}: name the environment's \
             HelmRelease or Kustomization, in the namespace of one of its targets, in the Alert's eventSources",
            object.kind, object.namespace, object.name
        ));
    }
    if event.meaning() != Meaning::Deployed {
        return EventVerdict::Ignored;
    }
    if event.revision().is_none() {
        return EventVerdict::Invalid(NO_REVISION.into());
    }
    EventVerdict::Reconcile
}

/// Returns true if an event's object may be a member of a target. If the pipeline names no members, labels select
/// them, and an event does not have the labels of its object.
fn may_be_member(pipeline: &Pipeline, target: &Target, event: &ReceivedEvent) -> bool {
    let object = &event.involved_object;
    let app = pipeline.spec.app_ref.iter().any(|a| a.kind == object.kind && a.name == object.name);
    let named = target.workloads.iter().any(|w| w.kind == object.kind && w.name == object.name);
    let by_label = pipeline.spec.app_ref.is_none() && target.workloads.is_empty();
    target.namespace == object.namespace && (app || named || by_label)
}

/// Returns true if an object is of a kind that members have. A source, for example, is not.
fn is_workload(object: &InvolvedObject) -> bool {
    matches!(
        (object.kind.as_str(), object.group()),
        ("HelmRelease", HELM_GROUP) | ("Kustomization", KUSTOMIZE_GROUP)
    )
}
