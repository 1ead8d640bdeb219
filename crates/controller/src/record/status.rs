//! Composes the status of a pipeline from what was observed, verified and decided. Pure: the same facts give the
//! same status, and a status that has not changed is not written.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self, Condition};
use kube::ResourceExt;
use sluice_api::pipeline as api;
use sluice_api::promotion::Promotion as ApiPromotion;
use sluice_core::decide::{Decision, Note};
use sluice_core::dns_name::is_subdomain;
use sluice_core::evidence::Evidence;
use sluice_core::observed::{Health, Member, ObservedTarget, ObservedTargets};
use sluice_core::pipeline::{Environment, Pipeline};
use sluice_core::promotion::{GateKind, Phase};
use sluice_core::{Revision, Time, image};

use super::shared_revisions::SharedRevisions;
use super::status_size;
use super::summary::summary;
use crate::hook::secret_condition;
use crate::hook::secret_condition::HookSecretProblem;
use crate::observe::reported::{self, Reports};
use crate::translate;

/// The facts that a status is composed from.
pub struct StatusFacts<'a> {
    /// The pipeline as its owner wrote it.
    pub object: &'a api::Pipeline,
    /// The last status.
    pub before: &'a api::PipelineStatus,
    /// The pipeline as `core` sees it.
    pub pipeline: &'a Pipeline,
    /// What the targets show.
    pub observed: &'a ObservedTargets,
    /// The targets, by environment and name, whose clusters have not answered since the start. The status shows
    /// them as before.
    pub unanswered: &'a BTreeSet<(String, String)>,
    /// The reports of targets that Sluice cannot read.
    pub reports: &'a Reports,
    /// The problem with the Secrets that hold hook keys, if there is one. The outer `Option` is `None` while that
    /// is not known.
    pub hook_secret: Option<Option<&'a HookSecretProblem>>,
    /// Which targets have verified which revisions.
    pub evidence: &'a Evidence,
    /// The decision.
    pub decision: &'a Decision,
    /// The records of its promotions.
    pub promotions: &'a [&'a ApiPromotion],
    /// The names of the clusters that count as lost.
    pub lost_clusters: Vec<String>,
    /// The wall clock.
    pub now: Timestamp,
}

/// Composes the status.
pub fn compose(facts: &StatusFacts<'_>) -> api::PipelineStatus {
    let (mut environments, mut shared) = (BTreeMap::new(), SharedRevisions::if_large(facts.evidence));
    for (i, environment) in facts.pipeline.environments.iter().enumerate() {
        environments.insert(environment.name.clone(), environment_status(facts, environment, i, &mut shared));
    }
    let conditions = conditions(facts, &environments);
    environments.values_mut().for_each(limit);
    let mut status = api::PipelineStatus {
        observed_generation: facts.object.metadata.generation.unwrap_or_default(),
        conditions,
        summary: Some(summary(facts.pipeline, &environments)),
        environments,
        revisions: shared.map(SharedRevisions::into_revisions).unwrap_or_default(),
        lost_clusters: facts.lost_clusters.clone(),
        ..api::PipelineStatus::default()
    };
    if !status_size::has_at_most(&status, status_size::SMALL_STATUS_BYTES) {
        let reports = if facts.reports.is_empty() { 0 } else { reported::size(facts.reports) };
        if let Some(left_out) =
            status_size::fit(&mut status, status_size::room(status_size::length(facts.object), reports))
        {
            status.conditions.push(condition(facts, "Summarized", true, "TooLarge", left_out));
        }
    }
    status
}

/// The longest error of a target or message of a workload, in bytes.
const MAX_ERROR_BYTES: usize = 1000;

/// Makes the texts of an environment safe to print: tenants choose the names in a spec, and clusters send messages and
/// images. Shortens the messages: Flux quotes whole manifests.
fn limit(environment: &mut api::EnvironmentStatus) {
    super::limit(&mut environment.message, 4 * MAX_ERROR_BYTES);
    for target in &mut environment.targets {
        super::limit(&mut target.error, MAX_ERROR_BYTES);
        if let Some(app) = &mut target.cluster_app_ref {
            limit_reference(app);
        }
        for workload in &mut target.workloads {
            super::limit(&mut workload.message, MAX_ERROR_BYTES);
            // The version of a workload has the tags of its images.
            let own = [&mut workload.kind, &mut workload.name, &mut workload.version];
            let texts = own.into_iter().chain(&mut workload.images);
            texts.for_each(|text| super::limit(text, MAX_ERROR_BYTES));
        }
    }
}

/// Makes a reference to the application safe to print.
fn limit_reference(app: &mut api::ClusterAppRef) {
    let own = [&mut app.api_version, &mut app.kind, &mut app.name];
    let cluster = app.cluster_ref.iter_mut().flat_map(|cluster| {
        let optional = [cluster.api_version.as_mut(), cluster.namespace.as_mut()];
        [&mut cluster.kind, &mut cluster.name].into_iter().chain(optional.into_iter().flatten())
    });
    own.into_iter().chain(cluster).for_each(|text| super::limit(text, MAX_ERROR_BYTES));
    // No cluster has another name.
    let is_named = |c: &api::ClusterRef| {
        is_subdomain(&c.name) && c.namespace.as_deref().is_none_or(|n| n.is_empty() || is_subdomain(n))
    };
    app.cluster_ref = app.cluster_ref.take().filter(is_named);
}

fn environment_status(
    facts: &StatusFacts<'_>,
    environment: &Environment,
    place: usize,
    shared: &mut Option<SharedRevisions<Revision>>,
) -> api::EnvironmentStatus {
    let spec = &facts.object.spec.environments[place];
    let before = facts.before.environments.get(&environment.name);
    let mut targets = Vec::new();
    for (name, target) in environment.targets.iter().zip(&spec.targets) {
        let observed = facts.observed.target(&environment.name, name).cloned().unwrap_or_default();
        let earlier = before.and_then(|b| b.targets.iter().find(|t| t.name == *name));
        let proofs = facts.evidence.of(&environment.name, name);
        let is_unanswered = facts.unanswered.contains(&(environment.name.clone(), name.clone()));
        let mut status = match earlier.filter(|_| is_unanswered) {
            Some(earlier) => earlier.clone(),
            None => target_status(facts, name, target, &observed, earlier),
        };
        if target.observe == api::Observe::Push {
            status.reported = reported::time(facts.object, &environment.name, target, name, facts.reports);
        }
        let unproven = facts.evidence.unproven(&environment.name, name);
        (status.verified, status.unverified, status.proofs) = (Vec::new(), None, String::new());
        match shared {
            Some(shared) => status.proofs = shared.short_form(proofs, unproven),
            None => {
                status.verified = translate::verified(proofs);
                status.unverified = unproven.map(Revision::to_strings);
            }
        }
        status.promotion = None;
        if environment.policy.as_ref().is_some_and(|policy| policy.per_target) {
            let own = |p: &ApiPromotion| {
                p.spec.environment == environment.name && p.spec.target.as_ref() == Some(name)
            };
            status.promotion =
                current_promotion(facts, &own, status.revision.as_ref()).map(promotion_summary);
        }
        targets.push(status);
    }
    let first = targets.first().and_then(|t| t.revision.clone());
    let revision = first.filter(|r| targets.iter().all(|t| t.revision.as_ref() == Some(r)));
    let own = |p: &ApiPromotion| p.spec.environment == environment.name;
    let current = current_promotion(facts, &own, revision.as_ref());
    let waits = current.filter(|p| is_waiting_for_approval(p)).map(|p| p.spec.revision.clone());
    let note = facts.decision.notes.get(&environment.name);
    api::EnvironmentStatus {
        health: targets.iter().map(|t| t.health).max().unwrap_or_default(),
        revision,
        message: note.map(|note| note.message.clone()).unwrap_or_default(),
        reason: note.map(|note| note.reason.into()).unwrap_or_default(),
        targets,
        waiting_approval: api::WaitingApproval { revision: waits.unwrap_or_default() },
        promotion: current.map(promotion_summary),
    }
}

fn is_waiting_for_approval(promotion: &ApiPromotion) -> bool {
    promotion.status.as_ref().is_some_and(|s| {
        s.gates.iter().any(|g| GateKind::named(&g.name) == Some(GateKind::Approval) && !g.open)
    })
}

/// The promotion to show for an environment or target: the newest one that has not ended. Otherwise the newest
/// one, if it failed or was rejected and its revision does not run.
fn current_promotion<'a>(
    facts: &StatusFacts<'a>,
    is_own: &dyn Fn(&ApiPromotion) -> bool,
    runs: Option<&String>,
) -> Option<&'a ApiPromotion> {
    let newest = |wanted: &dyn Fn(Phase) -> bool| {
        let own = facts.promotions.iter().filter(|p| is_own(p));
        own.filter(|p| wanted(p.phase())).max_by_key(|p| p.order()).copied()
    };
    let open = newest(&|phase| !phase.has_ended());
    let stopped = || {
        let stops = |p: &&ApiPromotion| {
            matches!(p.phase(), Phase::Failed | Phase::Rejected) && Some(&p.spec.revision) != runs
        };
        newest(&|_| true).filter(stops)
    };
    open.or_else(stopped)
}

fn promotion_summary(promotion: &ApiPromotion) -> api::PromotionSummary {
    let status = promotion.status.clone().unwrap_or_default();
    api::PromotionSummary {
        name: promotion.name_any(),
        revision: promotion.spec.revision.clone(),
        phase: status.phase,
        message: status.message,
        pull_request: status
            .change_request
            .map(|r| api::PullRequestSummary { url: r.url, state: Some(r.state) }),
    }
}

fn target_status(
    facts: &StatusFacts<'_>,
    name: &str,
    spec: &api::Target,
    observed: &ObservedTarget,
    earlier: Option<&api::TargetStatus>,
) -> api::TargetStatus {
    let health = observed.health();
    // Flux writes a new time whenever it has reconciled a Kustomization: if the health stays, the time stays.
    let unchanged = earlier.filter(|e| e.health == health).and_then(|e| e.since);
    let by_flux = || observed.members.iter().filter(|m| m.health == health).filter_map(|m| m.since).max();
    let since = unchanged.or_else(by_flux).unwrap_or_else(|| Time::to_second(facts.now));
    let has_no_error = matches!(health, Health::Ready | Health::Progressing);
    let app = facts.object.spec.app_ref.clone().unwrap_or_default();
    api::TargetStatus {
        name: name.into(),
        namespace: spec.namespace.clone(),
        cluster_app_ref: Some(api::ClusterAppRef {
            api_version: app.api_version,
            kind: app.kind,
            name: app.name,
            cluster_ref: spec.cluster_ref.clone(),
        })
        .filter(|r| *r != api::ClusterAppRef::default()),
        health,
        since: Some(since),
        reported: None,
        ready: health == Health::Ready,
        revision: observed.revision(&facts.pipeline.tracks).map(|r| r.to_string()),
        error: if has_no_error { String::new() } else { observed.complaint() },
        workloads: observed.members.iter().flat_map(|member| workloads(member)).collect(),
        promotion: None,
        verified: Vec::new(),
        unverified: None,
        proofs: String::new(),
    }
}

/// A member, followed by the workloads that it made.
fn workloads(member: &Member) -> Vec<api::WorkloadStatus> {
    let own = api::WorkloadStatus {
        kind: member.kind.clone(),
        name: member.name.clone(),
        version: member.version.clone(),
        health: member.health,
        message: member.message.clone(),
        images: Vec::new(),
    };
    let made = member.workloads.iter().map(|made| {
        let tags = made.images.iter().map(|i| image::parts(i).1);
        api::WorkloadStatus {
            kind: made.kind.clone(),
            name: made.name.clone(),
            version: tags.collect::<Vec<_>>().join(", "),
            health: made.health,
            message: made.message.clone(),
            images: made.images.clone(),
        }
    });
    std::iter::once(own).chain(made).collect()
}

fn conditions(
    facts: &StatusFacts<'_>,
    environments: &BTreeMap<String, api::EnvironmentStatus>,
) -> Vec<Condition> {
    let notes = || facts.pipeline.environments.iter().filter_map(|e| facts.decision.notes.get(&e.name));
    let refused: Vec<String> = notes()
        .filter(|n| matches!(n.reason, "StrategyRefused" | "PromotesItsOwnCommits"))
        .map(|n| n.message.clone())
        .collect();
    let misnamed = notes().find(|note| note.reason == "NameNotAccepted");
    let in_order = || {
        let names = facts.pipeline.environments.iter().map(|e| e.name.as_str());
        names.filter_map(|name| Some((name, environments.get(name)?)))
    };
    let of = |health: api::Health| -> Vec<(String, &api::TargetStatus)> {
        let all = in_order().flat_map(|(name, e)| e.targets.iter().map(move |t| (name, t)));
        let those = all.filter(|(_, target)| target.health == health);
        those.map(|(name, target)| (format!("{name}/{}", target.name), target)).collect()
    };
    let moving: Vec<String> = of(api::Health::Progressing).into_iter().map(|(place, _)| place).collect();
    let pending: Vec<String> = in_order()
        .filter(|(_, e)| !e.message.is_empty())
        .map(|(name, e)| format!("{name}: {}", e.message))
        .collect();
    let mut composed: Vec<(&str, bool, &str, String)> = Vec::new();
    if let Some(Note { reason, message }) = misnamed {
        composed.push(("Stalled", true, reason, message.clone()));
        composed.push(("Ready", false, reason, message.clone()));
    } else if refused.is_empty() {
        let (ready, reason, message) = readiness(&of, facts.pipeline.suspended);
        composed.push(("Ready", ready, reason, message));
    } else {
        composed.push(("Stalled", true, "StrategyRefused", refused.join("; ")));
        composed.push(("Ready", false, "StrategyRefused", refused.join("; ")));
    }
    if !moving.is_empty() {
        composed.push(("Reconciling", true, "Progressing", format!("changing: {}", moving.join(", "))));
    }
    let before = || facts.before.conditions.iter().find(|c| c.type_ == secret_condition::CONDITION);
    let hook_secret = match facts.hook_secret {
        Some(problem) => problem.map(|problem| (problem.reason.name(), problem.message.clone())),
        // After a start the condition stays as it was until the Secrets were read.
        None => before().map(|before| (before.reason.as_str(), before.message.clone())),
    };
    if let Some((reason, message)) = hook_secret {
        composed.push((secret_condition::CONDITION, true, reason, message));
    }
    let first = in_order().find(|(_, e)| !e.message.is_empty());
    if let Some(note) = first.and_then(|(name, _)| facts.decision.notes.get(name)) {
        composed.push(("PromotionPending", true, note.reason, pending.join("; ")));
    }
    composed
        .into_iter()
        .map(|(type_, status, reason, message)| condition(facts, type_, status, reason, message))
        .collect()
}

/// Whether the pipeline is Ready, with the reason and a message: every target was read, and none has failed.
fn readiness<'a>(
    of: &dyn Fn(api::Health) -> Vec<(String, &'a api::TargetStatus)>,
    suspended: bool,
) -> (bool, &'static str, String) {
    let unreadable = of(api::Health::Unknown);
    let reason = if unreadable.is_empty() { "TargetFailed" } else { "TargetNotReadable" };
    let bad = unreadable.into_iter().chain(of(api::Health::Failed));
    let bad: Vec<String> = bad.map(|(place, target)| format!("{place}: {}", target.error)).collect();
    if !bad.is_empty() {
        return (false, reason, bad.join("; "));
    }
    if suspended {
        return (true, "Suspended", "observed only: spec.suspend is true".into());
    }
    let idle = of(api::Health::Suspended).into_iter().chain(of(api::Health::Pending));
    let idle = idle.map(|(place, target)| format!("{place} is {}", target.health));
    let all: Vec<String> = std::iter::once("all targets were read".to_string()).chain(idle).collect();
    (true, "ReconciliationSucceeded", all.join("; "))
}

/// The longest message of a condition, in bytes. The API server accepts 32,768 characters; a person reads less.
const MAX_CONDITION_BYTES: usize = 8000;

/// A condition. Its transition time stays if its status stays.
fn condition(
    facts: &StatusFacts<'_>,
    type_: &str,
    status: bool,
    reason: &str,
    mut message: String,
) -> Condition {
    super::limit(&mut message, MAX_CONDITION_BYTES);
    let status = if status { "True" } else { "False" };
    let before = facts.before.conditions.iter().find(|c| c.type_ == type_);
    let since = before.filter(|c| c.status == status).map(|c| c.last_transition_time.clone());
    let now = Timestamp::from_second(facts.now.as_second()).unwrap_or(facts.now);
    Condition {
        type_: type_.into(),
        status: status.into(),
        reason: reason.into(),
        message,
        observed_generation: facts.object.metadata.generation,
        last_transition_time: since.unwrap_or(v1::Time(now)),
    }
}
