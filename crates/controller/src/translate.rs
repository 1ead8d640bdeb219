//! Converts the types of `api` to those of `core`, with defaults filled in, and back. Pure.

use std::collections::{BTreeMap, HashSet};

use kube::ResourceExt;
use sluice_api::pipeline::{self as api, IntOrPercent, Strategy};
use sluice_api::promotion::{self, Callback, CallbackState, Promotion as ApiPromotion, RecordedRequestState};
use sluice_core::Time;
use sluice_core::evidence::{Evidence, Proof};
use sluice_core::pipeline::{Environment, MinReady, Pipeline, Policy};
use sluice_core::promotion::{
    CALLBACK_FAILED, Gate, GateKind, Phase, Promotion, ReceiverReport, RecordedRequest,
};
use sluice_core::revision::Revision;
use sluice_core::value_check::is_unsafe;
use sluice_delivery::{ForgeKind, may_have_arrived};

use crate::act::{resumption, strategy};

/// Converts a pipeline.
pub fn pipeline(object: &api::Pipeline) -> Pipeline {
    let spec = &object.spec;
    let environments = spec.environments.iter().enumerate().map(|(at, environment)| Environment {
        name: environment.name.clone(),
        targets: environment.target_names(),
        depends_on: spec.after(at).into_iter().map(String::from).collect(),
        policy: spec.policy(environment).map(policy),
        only_target: None,
    });
    Pipeline {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        suspended: spec.suspend,
        // The API server has rejected other words.
        tracks: spec.tracks.iter().filter_map(|t| t.parse().ok()).collect(),
        environments: environments.collect(),
    }
}

fn policy(policy: &api::PromotionPolicy) -> Policy {
    let min_ready = match &policy.min_ready_targets {
        None => MinReady::Count(1),
        Some(IntOrPercent::Count(n)) => MinReady::Count(*n),
        Some(IntOrPercent::Percent(p)) => MinReady::Percent(p.trim_end_matches('%').parse().unwrap_or(100)),
    };
    let strategy = policy.strategy.clone().unwrap_or_default();
    let Strategy { pull_request, commit, notification, webhook, .. } = &strategy;
    let is_empty = pull_request.is_none() && commit.is_none() && notification.is_none() && webhook.is_none();
    Policy {
        manual: policy.manual,
        min_ready,
        allow_downgrade: policy.allow_downgrade,
        per_target: strategy.pull_request.as_ref().is_some_and(|s| s.per == api::Per::Target),
        timeout: policy.timeout(),
        writes_to: strategy.repository(),
        commits: commit.is_some(),
        refused: if is_empty { Some(without_strategy(policy)) } else { refusal(&strategy) },
    }
}

/// What to write instead of a policy without a strategy: of an older form, or empty. The API server refuses both, but the
/// predecessor's definition accepted them.
fn without_strategy(policy: &api::PromotionPolicy) -> String {
    let forms = [
        ("pull-request", "pull-request", policy.pull_request_without_strategy.is_some()),
        ("pullRequest", "pull-request", policy.pull_request.is_some()),
        ("notification", "notification", policy.notification.is_some()),
        ("webhook", "webhook", policy.webhook.is_some()),
    ];
    match forms.into_iter().find(|(_, _, is_set)| *is_set) {
        Some((older, today, _)) => {
            format!("promotion.{older} is an older form: write promotion: {{strategy: {{{today}: {{...}}}}}}")
        }
        None => NO_STRATEGY.into(),
    }
}

/// The message about an empty strategy.
const NO_STRATEGY: &str = "promotion.strategy is empty: write one of pull-request, commit, notification and webhook \
    in it, or remove promotion to only show this environment";

/// Why this version cannot carry out a strategy, so that the status says so before anything is delivered.
fn refusal(strategy: &Strategy) -> Option<String> {
    match &strategy.pull_request {
        Some(s) if ForgeKind::from_name(&s.forge).is_none() => {
            let known: Vec<&str> = ForgeKind::ALL.iter().map(|kind| kind.name()).collect();
            Some(format!(
                "this version of Sluice cannot open change requests on {} yet: use one of the types {}, or the \
                 commit strategy",
                s.forge,
                known.join(", ")
            ))
        }
        Some(s) => strategy::settings(s).check().err().map(|error| error.to_string()),
        None => None,
    }
}

/// Converts the record of a promotion; `None` if its facets cannot be read.
pub fn promotion(pipeline: &api::Pipeline, object: &ApiPromotion) -> Option<Promotion> {
    let spec = &object.spec;
    let status = object.status.clone().unwrap_or_default();
    let outdated = strategy::is_outdated(pipeline, object);
    let has_moved = status.phase == Phase::Failed && strategy::has_moved(pipeline, object);
    let retry = spec.retry.clone().filter(|token| status.retried.as_ref() != Some(token));
    Some(Promotion {
        name: object.name_any(),
        environment: spec.environment.clone(),
        target: spec.target.clone(),
        revision: Revision::from_strings(&spec.facets)?,
        run: spec.run,
        arrival: spec.arrival,
        sequence: spec.sequence,
        trigger: spec.trigger.as_ref().map(|trigger| trigger.key.clone()),
        phase: status.phase,
        approved: spec.approval_now(&status).is_some(),
        retries: status.retries,
        rejected: spec
            .rejection_now(&status)
            .map(|r| format!("rejected by {}: {}", one_line(&r.by), one_line(&r.reason)))
            .or_else(|| resumption::rejected_by_closing(&status)),
        gates: status
            .gates
            .iter()
            .filter_map(|g| {
                let kind = GateKind::named(&g.name)?;
                let newer = g.newer.iter().filter_map(Revision::from_strings).collect();
                let unreported = g.unreported.clone();
                Some(Gate { open: g.open, newer, unreported, ..Gate::closed(kind, g.message.clone()) })
            })
            .collect(),
        retry,
        next_attempt: status.next_attempt.map(|at| *at),
        resumes: resumption::resumes(&status, has_moved),
        delivered: status.entered(Phase::Delivered).map(|at| *at),
        request: status.change_request.as_ref().map(|r| RecordedRequest {
            number: r.number,
            open: r.state == RecordedRequestState::Open,
            outdated,
        }),
        is_checked: false,
        report: None,
        reason: status.reason.clone(),
        message: status.message.clone(),
    })
}

/// The text of a person, on one line.
fn one_line(text: &str) -> String {
    text.split(is_unsafe).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The report of a webhook's receiver, if it is about the current try of the promotion, and a call of this try may have
/// reached the receiver.
pub fn receiver_report(
    callback: &Callback,
    pipeline: &api::Pipeline,
    object: &ApiPromotion,
) -> Option<ReceiverReport> {
    let status = object.status.as_ref()?;
    let is_current = status.is_of_this_try(callback.round, callback.retries);
    let was_called = status.entered(Phase::Delivered).is_some() || may_have_arrived(&status.reason);
    let has_failed = status.reason == CALLBACK_FAILED;
    let message = callback.message.clone();
    (is_current && was_called && strategy::calls_receiver(pipeline, object)).then_some(match callback.state {
        CallbackState::Accepted => ReceiverReport::Accepted(message),
        CallbackState::Done if has_failed => ReceiverReport::Fixed(message),
        CallbackState::Done => ReceiverReport::Done(message),
        CallbackState::Failed => ReceiverReport::Failed(message),
    })
}

/// The verified revisions that a status has stored.
pub fn evidence(status: Option<&api::PipelineStatus>) -> Evidence {
    let mut evidence = Evidence::default();
    // Targets that have run the same share it.
    let mut known: HashSet<Revision> = HashSet::new();
    let mut shared =
        |facets: &BTreeMap<String, String>| Some(Revision::from_strings(facets)?.shared_in(&mut known));
    for (status, (environment, stored)) in
        status.iter().flat_map(|s| s.environments.iter().map(move |e| (s, e)))
    {
        for target in &stored.targets {
            let verified = status.verified_by(target);
            let proofs = verified.iter().filter_map(|v| {
                Some(Proof { revision: shared(&v.facets)?, arrival: v.arrival, run: v.run, at: *v.at })
            });
            evidence.insert(environment, &target.name, proofs.collect());
            let unproven = status.unverified_at(target).as_ref().and_then(&mut shared);
            if let Some(revision) = unproven {
                evidence.insert_unproven(environment, &target.name, revision);
            }
        }
    }
    evidence
}

/// Converts verified revisions to the type of `api`.
pub fn verified(proofs: &[Proof]) -> Vec<api::Verified> {
    let one = |p: &Proof| api::Verified {
        facets: p.revision.to_strings(),
        arrival: p.arrival,
        run: p.run,
        at: Time::to_second(p.at),
    };
    proofs.iter().map(one).collect()
}

/// Converts the gates of a promotion to the type of `api`.
pub fn gates(gates: &[Gate]) -> Vec<promotion::GateStatus> {
    let one = |g: &Gate| promotion::GateStatus {
        name: g.kind.name().into(),
        open: g.open,
        message: g.message.clone(),
        newer: g.newer.iter().map(Revision::to_strings).collect(),
        unreported: g.unreported.clone(),
    };
    gates.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_stored_report_counts_only_after_a_call_of_its_own_try() {
        let counts = |strategy: Value, callback: Value, mut status: Value| {
            status["retries"] = json!(1);
            let pipeline = json!({"apiVersion": "v1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
                "spec": {"promotion": {"strategy": strategy}, "environments": [{"name": "prod", "targets": []}]}});
            let promotion = json!({"apiVersion": "v1", "kind": "Promotion", "metadata": {"name": "p"},
                "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {}},
                "status": status});
            let (pipeline, promotion) =
                (serde_json::from_value(pipeline).unwrap(), serde_json::from_value(promotion).unwrap());
            receiver_report(&serde_json::from_value(callback).unwrap(), &pipeline, &promotion).is_some()
        };
        let webhook = json!({"webhook": {"url": "https://ci.example.com/x"}});
        let commit = json!({"commit": {"url": "https://git.example.com/fleet.git"}});
        let report = |retries: Value| json!({"round": 0, "retries": retries, "state": "accepted", "at": "2026-11-21T10:00:00Z"});
        let delivered =
            json!({"phase": "Delivered", "reason": "Called", "times": {"Delivered": "2026-11-21T10:00:00Z"}});
        let failed = |reason: &str| json!({"phase": "Promoting", "reason": reason});
        for (strategy, retries, status, expected) in [
            (&webhook, json!(1), delivered.clone(), true),
            (&webhook, json!(1), failed("Timeout"), true),
            (&webhook, json!(1), failed("SecretInvalid"), false),
            (&webhook, json!(1), json!({"phase": "Pending", "reason": "WaitingForGate"}), false),
            (&webhook, json!(0), delivered.clone(), false),
            (&webhook, json!(0), failed("Timeout"), false),
            // An earlier version stored it, which did not say the try.
            (&webhook, Value::Null, delivered.clone(), true),
            (&webhook, Value::Null, failed("Timeout"), false),
            (&commit, json!(1), delivered, false),
            (&commit, json!(1), failed("Timeout"), false),
        ] {
            let counts = counts(strategy.clone(), report(retries.clone()), status.clone());
            assert_eq!(counts, expected, "{strategy} {retries} {status}");
        }
    }
}
