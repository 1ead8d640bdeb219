//! Makes the order for a delivery from a pipeline and a promotion. Pure.

use jiff::Timestamp;
use kube::ResourceExt;
use sluice_api::pipeline::{Pipeline, PullRequestStrategy, Strategy as ApiStrategy, Target};
use sluice_api::promotion::{
    CheckResult, Promotion, RecordedChangeRequest, RecordedCheck, RecordedChecks, RecordedRequestState,
};
use sluice_core::setters::UpdateTarget;
use sluice_core::{Revision, Time};
use sluice_delivery::evidence_text;
use sluice_delivery::notification::UNANSWERED;
use sluice_delivery::{
    Announcement, ChangeRequest, CheckState, Credentials, DeliveryStrategy, DeliveryTarget, FencingToken,
    ForgeKind, Order, ReportedCheck, ReportedChecks, Values,
};

use super::strategy::{secret_name, settings};
use sluice_core::fleet::ClusterKey;

/// Returns the strategy in the types of the crate delivery. `None` if this version cannot carry it out; `core` rejects such a
/// strategy before.
pub fn strategy(strategy: &ApiStrategy, announcement: Announcement) -> Option<DeliveryStrategy> {
    if let Some(s) = &strategy.pull_request {
        let forge = ForgeKind::from_name(&s.forge)?;
        let settings = Box::new(settings(s));
        let (url, base) = (s.url.clone(), s.base_branch.clone());
        return Some(DeliveryStrategy::PullRequest { forge, url, base, settings });
    }
    if let Some(s) = &strategy.commit {
        return Some(DeliveryStrategy::Commit { url: s.url.clone(), branch: s.branch.clone() });
    }
    if let Some(s) = &strategy.webhook {
        return Some(DeliveryStrategy::Webhook { url: s.url.clone(), about: Box::new(announcement) });
    }
    strategy.notification.as_ref().map(|_| DeliveryStrategy::Notification(Box::new(announcement)))
}

/// The contents of the webhook or event of a promotion.
fn announcement(pipeline: &Pipeline, promotion: &Promotion, is_first_try: bool) -> Announcement {
    let status = promotion.status.clone().unwrap_or_default();
    let namespace = pipeline.namespace().unwrap_or_default();
    let environment = pipeline.spec.environments.iter().find(|e| e.name == promotion.spec.environment);
    let targets = environment.into_iter().flat_map(|e| e.targets.iter().zip(e.target_names()));
    let target = |(target, name): (&Target, String)| DeliveryTarget {
        name,
        namespace: target.namespace.clone(),
        cluster: match target.cluster_key(&namespace) {
            ClusterKey::Local => None,
            ClusterKey::Remote { namespace, name } => Some((namespace, name)),
        },
    };
    let only_target = promotion.spec.target.as_ref();
    let evidence = promotion.spec.evidence.iter();
    Announcement {
        uid: promotion.uid().unwrap_or_default(),
        attempt: status.attempts + 1,
        in_doubt: !is_first_try && (status.attempts == 0 || status.reason == UNANSWERED),
        pipeline_uid: pipeline.uid().unwrap_or_default(),
        pipeline_version: pipeline.resource_version().unwrap_or_default(),
        targets: targets
            .filter(|(_, name)| only_target.is_none_or(|only_target| only_target == name))
            .map(target)
            .collect(),
        evidence: evidence.map(|e| (e.environment.clone(), e.target.clone(), e.at.to_string())).collect(),
    }
}

/// The values that a strategy sets for the targets of an environment.
fn values(strategy: &ApiStrategy, pipeline: &Pipeline, environment: &str) -> Values {
    let updates = strategy.updates();
    let of =
        pipeline.spec.environments.iter().find(|e| e.name == environment).filter(|_| !updates.is_empty());
    let Some(of) = of else { return Values::Marked };
    let place = |(target, name): (&Target, String)| UpdateTarget {
        environment: environment.into(),
        target: name,
        cluster: target.cluster_ref.as_ref().map(|c| c.name.clone()),
        namespace: target.namespace.clone(),
    };
    Values::Listed {
        updates: updates.to_vec(),
        places: of.targets.iter().zip(of.target_names()).map(place).collect(),
    }
}

/// Returns the order for a promotion, without credentials, and the name of the Secret that has the credentials.
/// `is_first_try` says that no process has tried to deliver the promotion before.
pub fn order(
    pipeline: &Pipeline,
    promotion: &Promotion,
    api_strategy: &ApiStrategy,
    is_first_try: bool,
) -> Option<(Order, Option<String>)> {
    let spec = &promotion.spec;
    let strategy = strategy(api_strategy, announcement(pipeline, promotion, is_first_try))?;
    let namespace = pipeline.namespace().unwrap_or_default();
    let status = promotion.status.clone().unwrap_or_default();
    let evidence = spec.evidence.iter().map(|e| evidence_text::healthy(&e.environment, &e.target, e.at));
    let trigger = spec.trigger.iter().map(|t| evidence_text::triggered(&t.key, t.at));
    let order = Order {
        promotion: format!("{namespace}/{}", promotion.name_any()),
        pipeline: pipeline.name_any(),
        environment: spec.environment.clone(),
        target: spec.target.clone(),
        revision: Revision::from_strings(&spec.facets)?,
        replaces: spec.replaces.clone(),
        evidence: evidence.chain(trigger).collect(),
        created: promotion.creation_timestamp().map(|t| t.0).unwrap_or_default(),
        round: status.round,
        retried: !is_first_try,
        rebuild: None,
        checks_settled: false,
        reads_checks: false,
        open_beside: Vec::new(),
        recorded: Vec::new(),
        recorded_open: Vec::new(),
        withdrawn: status.withdrawn_requests,
        fencing_token: FencingToken::default(),
        strategy,
        values: values(api_strategy, pipeline, &spec.environment),
        credentials: Credentials::default(),
        namespace,
    };
    Some((order, secret_name(api_strategy).map(String::from)))
}

/// Converts a change request to the type of `delivery`.
pub fn change_request(request: &RecordedChangeRequest) -> ChangeRequest {
    ChangeRequest {
        number: request.number,
        url: request.url.clone(),
        branch: request.branch.clone(),
        head_commit: request.head_commit.clone(),
        notes: request.notes.clone(),
        queued: request.queued,
    }
}

/// Converts the checks of a change request to the type of `api`. They are so since now.
pub fn recorded_checks(found: ReportedChecks, now: Timestamp) -> RecordedChecks {
    let item = |check: ReportedCheck| RecordedCheck {
        name: check.name,
        result: match check.state {
            CheckState::Failed => CheckResult::Failed,
            CheckState::Pending => CheckResult::Pending,
            CheckState::Green => CheckResult::Passed,
        },
        required: check.required,
        url: check.url,
    };
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    RecordedChecks {
        commit: found.head,
        since: Time::to_second(now),
        failed: count(found.failed),
        pending: count(found.pending),
        passed: count(found.passed),
        items: found.shown.into_iter().map(item).collect(),
    }
}

/// Converts a change request to the type of `api`, with the strategy that opened it.
pub fn api_change_request(
    request: &ChangeRequest,
    state: RecordedRequestState,
    strategy: &ApiStrategy,
) -> RecordedChangeRequest {
    RecordedChangeRequest {
        number: request.number,
        url: request.url.clone(),
        state,
        branch: request.branch.clone(),
        head_commit: request.head_commit.clone(),
        notes: request.notes.clone(),
        queued: request.queued,
        checks: None,
        // Kept to find and close the change request. The values that it sets are in its commit.
        strategy: strategy.pull_request.clone().map(|s| PullRequestStrategy { update: Vec::new(), ..s }),
    }
}
