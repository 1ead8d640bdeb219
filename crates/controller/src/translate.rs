//! From the kinds of the API to the values that `core` decides on, with every default filled in,
//! and back.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use sluice_api::pipeline::{self as api, IntOrPercent, Strategy, Target};
use sluice_api::promotion::{
    self, Callback, CallbackState, Phase as ApiPhase, Promotion as ApiPromotion, RecordedRequestState,
};
use sluice_core::evidence::{Evidence, Proof};
use sluice_core::observed::Health;
use sluice_core::pipeline::{Environment, MinReady, Pipeline, Policy};
use sluice_core::promotion::{
    CALLBACK_FAILED, Gate, GateKind, Phase, Promotion, ReceiverReport, RecordedRequest,
};
use sluice_core::repository::Repository;
use sluice_core::revision::Revision;
use sluice_core::value::is_unsafe;
use sluice_delivery::ForgeKind;

use crate::act::strategy;
use crate::observe::facts::ClusterKey;
use crate::record::size;

/// How long a delivered revision may take by default.
const TIMEOUT: SignedDuration = SignedDuration::from_mins(30);

/// The pipeline as `core` sees it.
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
        // The API server has refused what is no facet.
        tracks: spec.tracks.iter().filter_map(|t| t.parse().ok()).collect(),
        environments: environments.collect(),
    }
}

/// The cluster of a target.
pub fn cluster_of(target: &Target, pipeline_namespace: &str) -> ClusterKey {
    match &target.cluster_ref {
        None => ClusterKey::Local,
        Some(cluster) => ClusterKey::Remote {
            namespace: cluster.namespace.clone().unwrap_or_else(|| pipeline_namespace.into()),
            name: cluster.name.clone(),
        },
    }
}

fn policy(asked: &api::PromotionPolicy) -> Policy {
    let min_ready = match &asked.min_ready_targets {
        None => MinReady::Count(1),
        Some(IntOrPercent::Count(n)) => MinReady::Count(*n),
        Some(IntOrPercent::Percent(p)) => MinReady::Percent(p.trim_end_matches('%').parse().unwrap_or(100)),
    };
    let timeout = asked.timeout.as_ref().and_then(|t| t.parse().ok()).unwrap_or(TIMEOUT);
    let strategy = asked.strategy.clone().unwrap_or_default();
    let Strategy { pull_request, commit, notification, webhook, .. } = &strategy;
    let is_empty = pull_request.is_none() && commit.is_none() && notification.is_none() && webhook.is_none();
    Policy {
        manual: asked.manual,
        min_ready,
        allow_downgrade: asked.allow_downgrade,
        per_target: strategy.pull_request.as_ref().is_some_and(|s| s.per == api::Per::Target),
        timeout,
        writes_to: writes_to(&strategy),
        refused: if is_empty { Some(NO_STRATEGY.into()) } else { refused(&strategy) },
    }
}

/// The predecessor's definition let an empty strategy in, and such objects are stored.
const NO_STRATEGY: &str = "promotion.strategy is empty: write one of pull-request, commit, notification and webhook \
    in it, or take promotion out to only show this environment";

fn writes_to(strategy: &Strategy) -> Option<Repository> {
    let pull_request = strategy.pull_request.as_ref().map(|s| (&s.url, &s.base_branch));
    let commit = strategy.commit.as_ref().map(|s| (&s.url, &s.branch));
    pull_request.or(commit).map(|(url, branch)| Repository { url: url.clone(), branch: branch.clone() })
}

/// What this version cannot do yet, said before anybody waits for it.
fn refused(strategy: &Strategy) -> Option<String> {
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

/// The record of a promotion of a pipeline as `core` sees it. A record whose facets cannot be read is
/// none.
pub fn promotion(pipeline: &api::Pipeline, object: &ApiPromotion) -> Option<Promotion> {
    let spec = &object.spec;
    let status = object.status.clone().unwrap_or_default();
    let time = |text: &Option<String>| text.as_ref().and_then(|t| t.parse::<Timestamp>().ok());
    let outdated = strategy::is_outdated(pipeline, object);
    let asked_again = spec.retry.clone().filter(|token| status.retried.as_ref() != Some(token));
    Some(Promotion {
        name: object.name_any(),
        environment: spec.environment.clone(),
        target: spec.target.clone(),
        revision: Revision::from_strings(&spec.facets)?,
        run: spec.run,
        arrival: spec.arrival,
        sequence: spec.sequence,
        trigger: spec.trigger.as_ref().map(|trigger| trigger.key.clone()),
        phase: phase(status.phase),
        approved: spec.approval_now(&status).is_some(),
        retries: status.retries,
        rejected: spec
            .rejection_now(&status)
            .map(|r| format!("rejected by {}: {}", line(&r.by), line(&r.reason))),
        gates: status
            .gates
            .iter()
            .filter_map(|g| {
                let kind = GateKind::named(&g.name)?;
                Some(Gate { kind, open: g.open, message: g.message.clone() })
            })
            .collect(),
        retry: asked_again,
        next_attempt: time(&status.next_attempt),
        delivered: time(&status.times.get("Delivered").cloned()),
        request: status.change_request.as_ref().map(|r| RecordedRequest {
            number: r.number,
            open: r.state == RecordedRequestState::Open,
            outdated,
        }),
        report: None,
        message: status.message.clone(),
    })
}

/// What a person wrote, on one line.
fn line(text: &str) -> String {
    text.split(is_unsafe).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// What the other side of a webhook has said of the try that a record is at.
pub fn receiver_report(callback: &Callback, object: &ApiPromotion) -> Option<ReceiverReport> {
    let round = object.status.as_ref().map_or(0, |s| s.round);
    let has_failed = object.status.as_ref().is_some_and(|s| s.reason == CALLBACK_FAILED);
    let words = callback.message.clone();
    (callback.round == round).then_some(match callback.state {
        CallbackState::Accepted => ReceiverReport::Accepted(words),
        CallbackState::Done if has_failed => ReceiverReport::Fixed(words),
        CallbackState::Done => ReceiverReport::Done(words),
        CallbackState::Failed => ReceiverReport::Failed(words),
    })
}

/// A phase as `core` names it.
pub fn phase(phase: ApiPhase) -> Phase {
    match phase {
        ApiPhase::Pending => Phase::Pending,
        ApiPhase::Promoting => Phase::Promoting,
        ApiPhase::Proposed => Phase::Proposed,
        ApiPhase::Delivered => Phase::Delivered,
        ApiPhase::Succeeded => Phase::Succeeded,
        ApiPhase::Failed => Phase::Failed,
        ApiPhase::Rejected => Phase::Rejected,
        ApiPhase::Superseded => Phase::Superseded,
        ApiPhase::Cancelled => Phase::Cancelled,
    }
}

/// A phase as the API names it.
pub fn api_phase(phase: Phase) -> ApiPhase {
    match phase {
        Phase::Pending => ApiPhase::Pending,
        Phase::Promoting => ApiPhase::Promoting,
        Phase::Proposed => ApiPhase::Proposed,
        Phase::Delivered => ApiPhase::Delivered,
        Phase::Succeeded => ApiPhase::Succeeded,
        Phase::Failed => ApiPhase::Failed,
        Phase::Rejected => ApiPhase::Rejected,
        Phase::Superseded => ApiPhase::Superseded,
        Phase::Cancelled => ApiPhase::Cancelled,
    }
}

/// A health as the API names it.
pub fn api_health(health: Health) -> api::Health {
    match health {
        Health::Ready => api::Health::Ready,
        Health::Progressing => api::Health::Progressing,
        Health::Suspended => api::Health::Suspended,
        Health::Pending => api::Health::Pending,
        Health::Failed => api::Health::Failed,
        Health::Unknown => api::Health::Unknown,
    }
}

/// What a status has kept of what was proven.
pub fn evidence(status: Option<&api::PipelineStatus>) -> Evidence {
    let mut evidence = Evidence::default();
    for (status, (environment, shown)) in
        status.iter().flat_map(|s| s.environments.iter().map(move |e| (s, e)))
    {
        for target in &shown.targets {
            let stored = size::proofs(status, target);
            let proofs = stored.iter().filter_map(|v| {
                Some(Proof {
                    revision: Revision::from_strings(&v.facets)?,
                    arrival: v.arrival,
                    run: v.run,
                    at: v.at.parse().unwrap_or_default(),
                })
            });
            evidence.insert(environment, &target.name, proofs.collect());
        }
    }
    evidence
}

/// Proofs as the status keeps them.
pub fn verified(proofs: &[Proof]) -> Vec<api::Verified> {
    let one = |p: &Proof| api::Verified {
        facets: p.revision.to_strings(),
        arrival: p.arrival,
        run: p.run,
        at: time(p.at),
    };
    proofs.iter().map(one).collect()
}

/// A time as Kubernetes writes it, to the second.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The gates of a promotion as the API keeps them.
pub fn gates(gates: &[sluice_core::promotion::Gate]) -> Vec<promotion::GateStatus> {
    let one = |g: &sluice_core::promotion::Gate| promotion::GateStatus {
        name: g.kind.name().into(),
        open: g.open,
        message: g.message.clone(),
    };
    gates.iter().map(one).collect()
}
