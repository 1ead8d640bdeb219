//! From a record and its pipeline to an order for delivery.

use kube::ResourceExt;
use sluice_api::pipeline::{
    Pipeline, PullRequestStrategy, Strategy as ApiStrategy, Target as ApiTarget, Update as ApiUpdate,
};
use sluice_api::promotion::{ChangeRequest as ApiChangeRequest, Promotion, PromotionStatus};
use sluice_core::Revision;
use sluice_core::setters::{Update, UpdateTarget};
use sluice_delivery::notification::UNANSWERED;
use sluice_delivery::{
    Announcement, ChangeRequest, Credentials, DeliveryStrategy, DeliveryTarget, FencingToken, ForgeKind,
    Order, Values,
};

use super::strategy::settings;
use crate::observe::facts::ClusterKey;
use crate::translate;

/// The state of a change request that Sluice closed.
pub const WITHDRAWN: &str = "withdrawn";

/// The strategy as delivery knows it, and the Secret it needs. `None` for one that this version
/// cannot carry out; `core` refuses those before.
pub fn strategy(asked: &ApiStrategy, about: Announcement) -> Option<(DeliveryStrategy, Option<String>)> {
    if let Some(s) = &asked.pull_request {
        let forge = ForgeKind::from_name(&s.forge)?;
        let settings = Box::new(settings(s));
        let (url, base) = (s.url.clone(), s.base_branch.clone());
        let strategy = DeliveryStrategy::PullRequest { forge, url, base, settings };
        return Some((strategy, Some(s.secret_ref.name.clone())));
    }
    if let Some(s) = &asked.commit {
        let strategy = DeliveryStrategy::Commit { url: s.url.clone(), branch: s.branch.clone() };
        return Some((strategy, s.secret_ref.as_ref().map(|s| s.name.clone())));
    }
    if let Some(s) = &asked.webhook {
        let strategy = DeliveryStrategy::Webhook { url: s.url.clone(), about: Box::new(about) };
        return Some((strategy, s.secret_ref.as_ref().map(|s| s.name.clone())));
    }
    asked.notification.as_ref().map(|_| (DeliveryStrategy::Notification(Box::new(about)), None))
}

/// What others are told of a promotion that they are to carry out.
fn about(pipeline: &Pipeline, promotion: &Promotion, first: bool) -> Announcement {
    let status = promotion.status.clone().unwrap_or_default();
    let namespace = pipeline.namespace().unwrap_or_default();
    let of = pipeline.spec.environments.iter().find(|e| e.name == promotion.spec.environment);
    let targets = of.into_iter().flat_map(|e| e.targets.iter().zip(e.target_names()));
    let target = |(target, name): (&ApiTarget, String)| DeliveryTarget {
        name,
        namespace: target.namespace.clone(),
        cluster: match translate::cluster_of(target, &namespace) {
            ClusterKey::Local => None,
            ClusterKey::Remote { namespace, name } => Some((namespace, name)),
        },
    };
    let only_target = promotion.spec.target.as_ref();
    let evidence = promotion.spec.evidence.iter();
    Announcement {
        uid: promotion.uid().unwrap_or_default(),
        attempt: status.attempts + 1,
        in_doubt: !first && (status.attempts == 0 || status.reason == UNANSWERED),
        pipeline_uid: pipeline.uid().unwrap_or_default(),
        pipeline_version: pipeline.resource_version().unwrap_or_default(),
        targets: targets
            .filter(|(_, name)| only_target.is_none_or(|only_target| only_target == name))
            .map(target)
            .collect(),
        evidence: evidence.map(|e| (e.environment.clone(), e.target.clone(), e.at.clone())).collect(),
    }
}

/// Which values a strategy sets in the targets of an environment.
fn values(asked: &ApiStrategy, pipeline: &Pipeline, environment: &str) -> Values {
    let updates = asked.updates();
    let of =
        pipeline.spec.environments.iter().find(|e| e.name == environment).filter(|_| !updates.is_empty());
    let Some(of) = of else { return Values::Marked };
    let place = |(target, name): (&ApiTarget, String)| UpdateTarget {
        environment: environment.into(),
        target: name,
        cluster: target.cluster_ref.as_ref().map(|c| c.name.clone()),
        namespace: target.namespace.clone(),
    };
    let update = |u: &ApiUpdate| Update {
        path: u.path.clone(),
        kind: u.kind.clone(),
        name: u.name.clone(),
        field: u.field.clone(),
        value: u.value.clone(),
        workload: u.workload.clone(),
    };
    Values::Listed {
        updates: updates.iter().map(update).collect(),
        places: of.targets.iter().zip(of.target_names()).map(place).collect(),
    }
}

/// The order for a promotion, without its credentials; and the name of the Secret that has them.
pub fn order(
    pipeline: &Pipeline,
    promotion: &Promotion,
    by: &ApiStrategy,
    first: bool,
) -> Option<(Order, Option<String>)> {
    let spec = &promotion.spec;
    let (strategy, secret) = strategy(by, about(pipeline, promotion, first))?;
    let namespace = pipeline.namespace().unwrap_or_default();
    let status = promotion.status.clone().unwrap_or_default();
    let evidence =
        spec.evidence.iter().map(|e| format!("{}/{} healthy since {}", e.environment, e.target, e.at));
    let trigger = spec.trigger.iter().map(|t| format!("triggered by key {} at {}", t.key, t.at));
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
        retried: !first,
        reopen: may_reopen(promotion, &status),
        rebuild: None,
        checks_settled: false,
        fencing_token: FencingToken::default(),
        strategy,
        values: values(by, pipeline, &spec.environment),
        credentials: Credentials::default(),
        namespace,
    };
    Some((order, secret))
}

/// Whether a closed change request of a promotion, of this round, is nobody's refusal: Sluice itself closed
/// it, or a person has asked for another try since. One that was open after that, and is closed now, is; and
/// so is one that came after a merge.
fn may_reopen(promotion: &Promotion, status: &PromotionStatus) -> bool {
    let state = status.change_request.as_ref().map(|r| r.state.as_str());
    let retried = status.retried.is_some() && status.retried == promotion.spec.retry;
    state == Some(WITHDRAWN) || (retried && !matches!(state, Some("open" | "merged")))
}

/// A change request as delivery knows it.
pub fn change_request(request: &ApiChangeRequest) -> ChangeRequest {
    ChangeRequest {
        number: request.number,
        url: request.url.clone(),
        branch: request.branch.clone(),
        head_commit: request.head_commit.clone(),
        notes: request.notes.clone(),
        queued: request.queued,
    }
}

/// A change request as the API keeps it, with the strategy that opened it.
pub fn api_change_request(request: &ChangeRequest, state: &str, by: &ApiStrategy) -> ApiChangeRequest {
    ApiChangeRequest {
        number: request.number,
        url: request.url.clone(),
        state: state.into(),
        branch: request.branch.clone(),
        head_commit: request.head_commit.clone(),
        notes: request.notes.clone(),
        queued: request.queued,
        // What it sets is in it; this is to find it by.
        strategy: by.pull_request.clone().map(|s| PullRequestStrategy { update: Vec::new(), ..s }),
    }
}
