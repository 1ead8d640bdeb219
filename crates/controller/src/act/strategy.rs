//! Which strategy a promotion uses: the one that the pipeline names now, or the one that opened its change
//! request. Pure.

use sluice_api::pipeline::{
    Pipeline, PromotionPolicy, PullRequestStrategy, Strategy as ApiStrategy, WebhookStrategy,
};
use sluice_api::promotion::{Promotion, RecordedChangeRequest, RecordedRequestState};
use sluice_core::hex::sha256_hex;
use sluice_core::repository::Repository;
use sluice_delivery::Settings;

/// The promotion policy of an environment.
pub fn policy<'a>(pipeline: &'a Pipeline, environment: &str) -> Option<&'a PromotionPolicy> {
    let spec = &pipeline.spec;
    let environment = spec.environments.iter().find(|e| e.name == environment);
    environment.map_or(spec.promotion.as_ref(), |environment| spec.policy(environment))
}

/// The strategy that the pipeline names for the environment of a promotion.
pub fn named<'a>(pipeline: &'a Pipeline, promotion: &Promotion) -> Option<&'a ApiStrategy> {
    policy(pipeline, &promotion.spec.environment)?.strategy.as_ref()
}

/// Whether the pipeline calls a webhook for the environment of a promotion, whose receiver may report a result.
pub fn calls_receiver(pipeline: &Pipeline, promotion: &Promotion) -> bool {
    named(pipeline, promotion).is_some_and(|strategy| strategy.webhook.is_some())
}

/// The strategy that reaches a promotion's change request: the one of the pipeline, which may name a new Secret,
/// or the one that opened the change request if the pipeline names another repository or branch now.
pub fn of_request(pipeline: &Pipeline, promotion: &Promotion) -> Option<ApiStrategy> {
    let named = named(pipeline, promotion);
    match opened_by(promotion) {
        Some(opened) if is_outdated(pipeline, promotion) => {
            Some(ApiStrategy { pull_request: Some(opened.clone()), ..ApiStrategy::default() })
        }
        _ => named.cloned(),
    }
}

/// Whether the strategy of the pipeline, or the one that opened the change request, writes commit statuses.
/// [`of_request`] decides which of the two counts.
pub fn may_report(pipeline: &Pipeline, promotion: &Promotion) -> bool {
    let named = named(pipeline, promotion).and_then(|s| s.pull_request.as_ref());
    named.into_iter().chain(opened_by(promotion)).any(|s| s.commit_statuses)
}

/// Whether a promotion's change request is in a repository or branch that the pipeline does not name any more.
pub fn is_outdated(pipeline: &Pipeline, promotion: &Promotion) -> bool {
    let place = |s: &PullRequestStrategy| Repository { url: s.url.clone(), branch: s.base_branch.clone() };
    let same = |a: &PullRequestStrategy, b: &PullRequestStrategy| {
        // With another head branch, the same strategy would open a second change request.
        place(a).is_same(&place(b)) && a.branch == b.branch
    };
    let named = named(pipeline, promotion).and_then(|s| s.pull_request.as_ref());
    opened_by(promotion).is_some_and(|opened| !named.is_some_and(|named| same(named, opened)))
}

/// Where a strategy delivers to, as records note it; the same for all forms of the address of a repository.
pub fn destination(strategy: &ApiStrategy) -> Option<String> {
    let kind = if strategy.pull_request.is_some() { "pull-request" } else { "commit" };
    let branch = strategy.repository().map(|repository| format!("{kind} {}", repository.id()));
    // The address may have a token in it.
    let address = |webhook: &WebhookStrategy| sha256_hex(webhook.url.as_bytes())[..16].to_string();
    let webhook = || strategy.webhook.as_ref().map(|webhook| format!("webhook {}", address(webhook)));
    let notification = || strategy.notification.as_ref().map(|_| "notification".into());
    branch.or_else(webhook).or_else(notification)
}

/// Whether a receiver does the work at this [`destination`].
fn is_of_receiver(destination: &str) -> bool {
    destination.starts_with("webhook ") || destination == "notification"
}

/// Where the strategy that opened a change request delivers to.
pub fn destination_of_request(request: &RecordedChangeRequest) -> Option<String> {
    let pull_request = request.strategy.clone();
    destination(&ApiStrategy { pull_request, ..ApiStrategy::default() })
}

/// Whether the pipeline names another strategy, repository or branch than the one that a delivered promotion was written
/// to. What a receiver has accepted is its own to finish, whatever the pipeline names later.
pub fn has_moved(pipeline: &Pipeline, promotion: &Promotion) -> bool {
    let delivered_to = promotion.status.as_ref().and_then(|status| status.delivered_to.as_deref());
    let named = || named(pipeline, promotion).and_then(destination);
    let is_other = |delivered_to: &str| named().is_some_and(|named| named != delivered_to);
    delivered_to.is_some_and(|to| !is_of_receiver(to) && is_other(to))
}

/// Whether another promotion into the environment uses the change request that this record has as open: a later one, or an
/// earlier one that has started again.
pub fn is_handed_over(promotion: &Promotion, all: &[&Promotion]) -> bool {
    let Some(request) = promotion.status.as_ref().and_then(|status| status.open_request()) else {
        return false;
    };
    let is_next = |p: &&&Promotion| {
        p.spec.place() == promotion.spec.place() && p.current_order() > promotion.current_order()
    };
    let uses =
        |r: &RecordedChangeRequest| r.url == request.url && r.state != RecordedRequestState::HandedOver;
    all.iter().filter(is_next).any(|p| self::request(p).is_some_and(uses))
}

/// The name of the Secret with the credentials that a strategy uses.
pub fn secret_name(strategy: &ApiStrategy) -> Option<&str> {
    let pull_request = strategy.pull_request.as_ref().map(|s| &s.secret_ref);
    let commit = || strategy.commit.as_ref().and_then(|s| s.secret_ref.as_ref());
    let webhook = || strategy.webhook.as_ref().and_then(|s| s.secret_ref.as_ref());
    pull_request.or_else(commit).or_else(webhook).map(|secret| secret.name.as_str())
}

fn request(promotion: &Promotion) -> Option<&RecordedChangeRequest> {
    promotion.status.as_ref()?.change_request.as_ref()
}

fn opened_by(promotion: &Promotion) -> Option<&PullRequestStrategy> {
    request(promotion)?.strategy.as_ref()
}

/// Converts the settings of change requests to the type of `delivery`.
pub fn settings(strategy: &PullRequestStrategy) -> Settings {
    Settings {
        labels: strategy.labels.clone(),
        reviewers: strategy.reviewers.clone(),
        assignees: strategy.assignees.clone(),
        draft: strategy.draft,
        title: strategy.title.clone(),
        body: strategy.body.clone(),
        branch: strategy.branch.clone(),
        merge: strategy.merge,
        delete_branch: strategy.delete_branch,
        api_url: strategy.api_url.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_delivery::ChangeRequest;

    use super::*;
    use crate::act::order::api_change_request;

    fn destination_of(strategy: Value) -> Option<String> {
        destination(&serde_json::from_value(strategy).unwrap())
    }

    #[test]
    fn a_destination_is_the_strategy_with_its_repository_and_branch_or_address() {
        let commit =
            |url: &str, branch: &str| destination_of(json!({"commit": {"url": url, "branch": branch}}));
        let https = commit("https://git.example.com/acme/fleet.git", "main");
        assert_eq!(https.as_deref(), Some("commit git.example.com/acme/fleet main"));
        assert_eq!(https, commit("git@git.example.com:acme/fleet", "main"));
        assert_ne!(https, commit("https://git.example.com/acme/fleet.git", "other"));
        let webhook = |url: &str| destination_of(json!({"webhook": {"url": url}}));
        assert_ne!(webhook("https://ci.example.com/?key=a"), webhook("https://ci.example.com/?key=b"));
        assert!(!webhook("https://ci.example.com/?key=a").unwrap().contains("key"));
        assert_eq!(destination_of(json!({"notification": {}})).as_deref(), Some("notification"));
        assert_eq!(destination_of(json!({})), None);
    }

    #[test]
    fn a_merged_change_request_went_where_its_strategy_delivers_to() {
        let update = json!([{"path": "app.yaml", "field": "version"}]);
        let strategy = json!({"pull-request": {"type": "github", "url": "https://github.com/acme/fleet",
            "baseBranch": "main", "secretRef": {"name": "git"}, "update": update}});
        let strategy: ApiStrategy = serde_json::from_value(strategy).unwrap();
        let request = api_change_request(&ChangeRequest::default(), RecordedRequestState::Merged, &strategy);
        assert_eq!(destination_of_request(&request), destination(&strategy));
        assert_eq!(destination(&strategy).as_deref(), Some("pull-request github.com/acme/fleet main"));
    }
}
