//! Which strategy a promotion uses: the one that the pipeline names now, or the one that opened its change request.

use sluice_api::pipeline::{Pipeline, PromotionPolicy, PullRequestStrategy, Strategy as ApiStrategy};
use sluice_api::promotion::{ChangeRequest as ApiChangeRequest, Promotion};
use sluice_core::repository::Repository;
use sluice_delivery::Settings;

/// How an environment of a pipeline is promoted into.
pub fn policy<'a>(pipeline: &'a Pipeline, environment: &str) -> Option<&'a PromotionPolicy> {
    let spec = &pipeline.spec;
    let of = spec.environments.iter().find(|e| e.name == environment);
    of.map_or(spec.promotion.as_ref(), |environment| spec.policy(environment))
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
        all.iter().filter(|p| p.spec.place() == promotion.spec.place() && p.order() > promotion.order());
    later.any(|p| self::request(p).is_some_and(|r| r.url == request.url))
}

fn request(promotion: &Promotion) -> Option<&ApiChangeRequest> {
    promotion.status.as_ref()?.change_request.as_ref()
}

fn opened_by(promotion: &Promotion) -> Option<&PullRequestStrategy> {
    request(promotion)?.strategy.as_ref()
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
        merge: asked.merge,
        delete_branch: asked.delete_branch,
        api_url: asked.api_url.clone(),
    }
}
