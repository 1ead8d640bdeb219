//! Events of Flux: who may send them, what they mean for an environment, and what is done about them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sluice_api::flux::{HELM_GROUP, KUSTOMIZE_GROUP};
use sluice_api::pipeline::{Observe, Pipeline, PromotionPolicy, Target};

use super::answer::{Answer, Wrong};
use super::call::{Call, Shown};
use super::event::{Event, InvolvedObject, Meaning, NO_REVISION, Origin};
use super::hmac_keys::{Purpose, Unavailable, secrets_of};
use super::report;
use super::server::HookServer;
use super::store::Stands;

impl HookServer {
    /// A call that tells of an event in an environment.
    pub(super) async fn event(&self, call: Call<'_>, environment: &str) -> Result<Answer, Unavailable> {
        let secrets = call.pipeline.map(|p| secrets(p, environment)).unwrap_or_default();
        let open = call.pipeline.is_some_and(|p| is_open(p, environment));
        let origin: Origin = call.read().unwrap_or_default();
        let wanted = wanted(call.pipeline, environment, origin.cluster());
        let shown = self.signed(&call, &secrets, &wanted).await;
        let signed = shown.as_ref().is_ok_and(Shown::is_key);
        // If everybody may call, it takes no key to have Sluice look.
        let Some(pipeline) = call.pipeline.filter(|_| open || signed) else {
            return shown.map(|shown| self.refuse(&call, &shown, &wanted));
        };
        if let Err(answer) = self.take(&call.place.pipeline, signed) {
            return Ok(answer);
        }
        let event: Event = match call.read() {
            Ok(event) => event,
            Err(error) => {
                let why = format!("the body is not an event of Flux: {error}");
                return Ok(Answer::Wrong(Wrong::Malformed, why));
            }
        };
        let wrong = |why: String| Answer::Wrong(Wrong::Unfit, why);
        match judge(pipeline, environment, &event) {
            Verdict::Look => {
                let is_report = |shown: &Shown| matches!(shown, Shown::Key(Purpose::Report(_), _));
                match shown.ok().filter(is_report) {
                    Some(Shown::Key(of_cluster, _)) if !open => {
                        Ok(self.refuse(&call, &Shown::Wrong(of_cluster), &[Purpose::Event]))
                    }
                    _ => Ok(self.look(&call.place.pipeline)),
                }
            }
            Verdict::Nothing => Ok(Answer::NothingToDo),
            Verdict::Wrong(why) => Ok(wrong(why)),
            Verdict::Report => match shown? {
                // All of it is read by now, and may name another cluster than the one whose key was looked for.
                Shown::Key(Purpose::Report(key), _)
                    if Some(&key)
                        == report::key(pipeline, environment, event.metadata("cluster")).as_ref() =>
                {
                    self.reported(&call, environment, pipeline, &event).await
                }
                // What nobody has signed proves nothing, and other keys are known on every cluster.
                Shown::Key(other, _) => {
                    let key =
                        report::key(pipeline, environment, event.metadata("cluster")).unwrap_or_default();
                    Ok(self.refuse(&call, &Shown::Wrong(other), &[Purpose::Report(key)]))
                }
                shown => Ok(self.refuse(&call, &shown, &wanted)),
            },
        }
    }

    /// Keeps what a cluster reports of its targets, signed with its own key.
    async fn reported(
        &self,
        call: &Call<'_>,
        environment: &str,
        pipeline: &Pipeline,
        event: &Event,
    ) -> Result<Answer, Unavailable> {
        let wrong = |why: String| Answer::Wrong(Wrong::Unfit, why);
        if let Err(why) = report::check(pipeline, environment, event, Timestamp::now()) {
            return Ok(wrong(why));
        }
        let _place = self.queue.enter(&call.place.pipeline).await?;
        Ok(match self.store.report(&call.place.pipeline, environment, event).await? {
            Stands::Written => Answer::Accepted(call.place.pipeline.clone()),
            Stands::AsBefore => Answer::NothingToDo,
            Stands::Refused(why) => wrong(why),
            Stands::Gone => Answer::Refused,
        })
    }
}

/// The purposes of the keys that may sign an event: `hmac-key`, then the key of the cluster that the event says it is
/// from. What the event says is not verified yet, and decides nothing but which keys are tried.
fn wanted(pipeline: Option<&Pipeline>, environment: &str, cluster: Option<&str>) -> Vec<Purpose> {
    let mut wanted = vec![Purpose::Event];
    if cluster.is_some() {
        let key = pipeline.and_then(|pipeline| report::key(pipeline, environment, cluster));
        wanted.push(Purpose::Report(key.unwrap_or_default()));
    }
    wanted
}

/// The Secrets whose keys calls about an environment may be signed with: that of the environment, and
/// those of the environments that come after it. Each once.
pub fn secrets<'a>(pipeline: &'a Pipeline, environment: &'a str) -> Vec<&'a str> {
    secrets_of(policies(pipeline, environment).into_iter())
}

/// Whether calls about an environment need no signature.
pub fn is_open(pipeline: &Pipeline, environment: &str) -> bool {
    let is_open = |p: &PromotionPolicy| p.strategy.as_ref().is_some_and(|s| s.allow_unsigned);
    policies(pipeline, environment).into_iter().any(is_open)
}

fn policies<'a>(pipeline: &'a Pipeline, environment: &str) -> Vec<&'a PromotionPolicy> {
    let spec = &pipeline.spec;
    // Whoever knows any key of the pipeline may be told that it has no such environment.
    if spec.environments.iter().all(|e| e.name != environment) {
        return spec.environments.iter().filter_map(|e| spec.policy(e)).collect();
    }
    spec.policies_about(environment)
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The pipeline is to be looked at.
    Look,
    /// It reports of a target that cannot be read.
    Report,
    /// Nothing.
    Nothing,
    /// It is not as it should be: what to send instead.
    Wrong(String),
}

/// What an event means for an environment of a pipeline.
pub fn judge(pipeline: &Pipeline, environment: &str, event: &Event) -> Verdict {
    let name = pipeline.metadata.name.as_deref().unwrap_or_default();
    let Some(of) = pipeline.spec.environments.iter().find(|e| e.name == environment) else {
        let known: Vec<_> = pipeline.spec.environments.iter().map(|e| e.name.as_str()).collect();
        return Verdict::Wrong(format!(
            "pipeline {name} has no environment {environment}: call with one of {}",
            known.join(", ")
        ));
    };
    let object = &event.involved_object;
    if !is_flux(object) {
        return Verdict::Nothing;
    }
    if !report::keys(pipeline, environment, event).is_empty() {
        return if event.meaning() == Meaning::Nothing { Verdict::Nothing } else { Verdict::Report };
    }
    let (read, told): (Vec<&Target>, Vec<&Target>) =
        of.targets.iter().partition(|target| target.observe == Observe::Watch);
    if !read.iter().any(|target| is_member(pipeline, target, event)) {
        let elsewhere = told.iter().filter(|target| is_member(pipeline, target, event));
        let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
        let clusters: BTreeSet<String> =
            elsewhere.filter_map(|t| t.cluster_ref.as_ref()).map(|c| of.name_of_cluster(c, home)).collect();
        if !clusters.is_empty() {
            return Verdict::Wrong(format!(
                "the event does not say that it is from the cluster of a target: let the Alert's eventMetadata name \
                 cluster: {} (sluice export alert writes it)",
                Vec::from_iter(clusters).join(" or ")
            ));
        }
        return Verdict::Wrong(format!(
            "{} {}/{} is not part of environment {environment} of pipeline {name}: let the Alert's eventSources \
             name its HelmRelease or Kustomization, in the namespace of one of its targets",
            object.kind, object.namespace, object.name
        ));
    }
    if event.meaning() != Meaning::Deployed {
        return Verdict::Nothing;
    }
    if event.revision().is_none() {
        return Verdict::Wrong(NO_REVISION.into());
    }
    Verdict::Look
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
