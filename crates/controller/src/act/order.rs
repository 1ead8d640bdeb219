//! From a record and its pipeline to an order for delivery.

use kube::ResourceExt;
use sluice_api::pipeline::{
    Merge as ApiMerge, Pipeline, PromotionPolicy, PullRequestStrategy, Strategy as ApiStrategy,
    Target as ApiTarget, Update as ApiUpdate,
};
use sluice_api::promotion::{ChangeRequest as ApiChangeRequest, Promotion, PromotionStatus};
use sluice_core::Revision;
use sluice_core::model::Repository;
use sluice_core::setters::{Place, Update};
use sluice_delivery::notification::UNANSWERED;
use sluice_delivery::{
    About, ChangeRequest, Credentials, ForgeKind, Merge, Order, Permit, Settings, Strategy, Target, Values,
};

use crate::observe::facts::ClusterKey;
use crate::translate;

/// The state of a change request that Sluice closed.
pub const WITHDRAWN: &str = "withdrawn";

/// How an environment of a pipeline is promoted into.
pub fn policy<'a>(pipeline: &'a Pipeline, environment: &str) -> Option<&'a PromotionPolicy> {
    let spec = &pipeline.spec;
    let of = spec.environments.iter().find(|e| e.name == environment);
    of.map_or(spec.promotion.as_ref(), |environment| spec.policy(environment))
}

/// The strategy as delivery knows it, and the Secret it needs. `None` for one that this version
/// cannot carry out; `core` refuses those before.
pub fn strategy(asked: &ApiStrategy, about: About) -> Option<(Strategy, Option<String>)> {
    if let Some(s) = &asked.pull_request {
        let forge = ForgeKind::from_name(&s.forge)?;
        let settings = Box::new(settings(s));
        let (url, base) = (s.url.clone(), s.base_branch.clone());
        let strategy = Strategy::PullRequest { forge, url, base, settings };
        return Some((strategy, Some(s.secret_ref.name.clone())));
    }
    if let Some(s) = &asked.commit {
        let strategy = Strategy::Commit { url: s.url.clone(), branch: s.branch.clone() };
        return Some((strategy, s.secret_ref.as_ref().map(|s| s.name.clone())));
    }
    if let Some(s) = &asked.webhook {
        let strategy = Strategy::Webhook { url: s.url.clone(), about: Box::new(about) };
        return Some((strategy, s.secret_ref.as_ref().map(|s| s.name.clone())));
    }
    asked.notification.as_ref().map(|_| (Strategy::Notification(Box::new(about)), None))
}

/// What a change request is to be like.
pub fn settings(asked: &PullRequestStrategy) -> Settings {
    Settings {
        labels: asked.labels.clone(),
        reviewers: asked.reviewers.clone(),
        assignees: asked.assignees.clone(),
        draft: asked.draft,
        title: asked.title.clone(),
        body: asked.body.clone(),
        branch: asked.branch.clone(),
        merge: match asked.merge {
            ApiMerge::Never => Merge::Never,
            ApiMerge::WhenGreen => Merge::WhenGreen,
            ApiMerge::Queue => Merge::Queue,
        },
        delete_branch: asked.delete_branch,
        api_url: asked.api_url.clone(),
    }
}

/// What others are told of a promotion that they are to carry out.
fn about(pipeline: &Pipeline, promotion: &Promotion, first: bool) -> About {
    let status = promotion.status.clone().unwrap_or_default();
    let namespace = pipeline.namespace().unwrap_or_default();
    let of = pipeline.spec.environments.iter().find(|e| e.name == promotion.spec.environment);
    let targets = of.into_iter().flat_map(|e| e.targets.iter().zip(e.target_names()));
    let target = |(target, name): (&ApiTarget, String)| Target {
        name,
        namespace: target.namespace.clone(),
        cluster: match translate::cluster_of(target, &namespace) {
            ClusterKey::Local => None,
            ClusterKey::Remote { namespace, name } => Some((namespace, name)),
        },
    };
    let alone = promotion.spec.target.as_ref();
    let evidence = promotion.spec.evidence.iter();
    About {
        uid: promotion.uid().unwrap_or_default(),
        attempt: status.attempts + 1,
        in_doubt: !first && (status.attempts == 0 || status.reason == UNANSWERED),
        pipeline_uid: pipeline.uid().unwrap_or_default(),
        pipeline_version: pipeline.resource_version().unwrap_or_default(),
        targets: targets.filter(|(_, name)| alone.is_none_or(|alone| alone == name)).map(target).collect(),
        evidence: evidence.map(|e| (e.environment.clone(), e.target.clone(), e.at.clone())).collect(),
    }
}

/// Which values a strategy sets in the targets of an environment.
fn values(asked: &ApiStrategy, pipeline: &Pipeline, environment: &str) -> Values {
    let updates = asked.updates();
    let of =
        pipeline.spec.environments.iter().find(|e| e.name == environment).filter(|_| !updates.is_empty());
    let Some(of) = of else { return Values::Marked };
    let place = |(target, name): (&ApiTarget, String)| Place {
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

/// The strategy that the pipeline names for the environment of a promotion.
pub fn named<'a>(pipeline: &'a Pipeline, promotion: &Promotion) -> Option<&'a ApiStrategy> {
    policy(pipeline, &promotion.spec.environment)?.strategy.as_ref()
}

/// Where a promotion's change request is: as the pipeline names that place, which may have a new
/// Secret for it, and where it names it no more, as it was opened.
pub fn of_request(pipeline: &Pipeline, promotion: &Promotion) -> Option<ApiStrategy> {
    let named = named(pipeline, promotion);
    match opened_by(promotion) {
        Some(opened) if is_outdated(pipeline, promotion) => {
            Some(ApiStrategy { pull_request: Some(opened.clone()), ..ApiStrategy::default() })
        }
        _ => named.cloned(),
    }
}

/// Whether commit statuses are written for a promotion, by the strategy that the pipeline names or by the one that
/// opened its change request: [`of_request`] says which counts.
pub fn may_report(pipeline: &Pipeline, promotion: &Promotion) -> bool {
    let named = named(pipeline, promotion).and_then(|s| s.pull_request.as_ref());
    named.into_iter().chain(opened_by(promotion)).any(|s| s.commit_statuses)
}

/// Whether a promotion's change request is where the pipeline proposes nothing any more.
pub fn is_outdated(pipeline: &Pipeline, promotion: &Promotion) -> bool {
    let place = |s: &PullRequestStrategy| Repository { url: s.url.clone(), branch: s.base_branch.clone() };
    let same = |a: &PullRequestStrategy, b: &PullRequestStrategy| {
        // From another branch it would be a second one.
        place(a).is_same(&place(b)) && a.branch == b.branch
    };
    let named = named(pipeline, promotion).and_then(|s| s.pull_request.as_ref());
    opened_by(promotion).is_some_and(|opened| !named.is_some_and(|named| same(named, opened)))
}

/// Whether a later promotion into the environment carries the change request that this record calls
/// open.
pub fn is_handed_over(promotion: &Promotion, all: &[&Promotion]) -> bool {
    let Some(request) = request(promotion).filter(|r| r.state == "open") else { return false };
    let mut later =
        all.iter().filter(|p| p.spec.place() == promotion.spec.place() && p.line() > promotion.line());
    later.any(|p| self::request(p).is_some_and(|r| r.url == request.url))
}

fn request(promotion: &Promotion) -> Option<&ApiChangeRequest> {
    promotion.status.as_ref()?.change_request.as_ref()
}

fn opened_by(promotion: &Promotion) -> Option<&PullRequestStrategy> {
    request(promotion)?.strategy.as_ref()
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
        anew: None,
        settled: false,
        permit: Permit::default(),
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
