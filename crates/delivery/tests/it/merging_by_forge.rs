//! Merges by Sluice with the rules of a single forge, by its documentation.

use serde_json::json;
use sluice_delivery::{ChangeRequestStatus, ForgeKind};
use sluice_testkit::Landing;

use crate::any_forge::ForgeFixture;
use crate::change_request::{merging, proposed, until_merged, waits};
use crate::fixture::{bench, git};
use crate::standin::{CallKind, CheckOutcome, ForgeFault, Style};

#[tokio::test]
async fn a_github_that_does_not_know_the_state_of_a_merge_is_asked_for_required_checks() {
    let fixture = ForgeFixture::github().await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.protect(request.number, &["ci/build"], 0).await;
    let unknown = || {
        let message = "Field 'mergeStateStatus' doesn't exist on type 'PullRequest'";
        let error = json!({"message": message, "extensions": {"code": "undefinedField"}});
        fixture.standin().inject_fault(
            CallKind::ReadFacts,
            ForgeFault::Answer(200, vec![], json!({"errors": [error]}).to_string().leak()),
        );
    };
    unknown();
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why == "waits for checks: ci/build pending" && !failed, "{why}");
    fixture.check(request.number, "ci/build", CheckOutcome::Green).await;
    unknown();
    until_merged(&bench.delivery, &order, &request).await;
    assert_eq!(fixture.standin().calls().iter().filter(|call| call.contains("graphql")).count(), 4);
}

#[tokio::test]
async fn gitlab_missing_merge_rights_differ_from_an_unknown_token() {
    let fixture = ForgeFixture::of(ForgeKind::GitLab).await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture
        .standin()
        .inject_fault(CallKind::Merge, ForgeFault::Documented(401, r#"{"message": "401 Unauthorized"}"#));
    let error = bench.delivery.advance(&order, &request).await.unwrap_err();
    assert_eq!(error.reason(), "PermissionDenied");
    let says = error.to_string();
    assert!(says.contains("may not merge into main") && says.contains("Maintainer"), "{says}");
    until_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn bitbucket_server_missing_merge_rights_differ_from_an_unknown_token() {
    let fixture = ForgeFixture::of(ForgeKind::BitbucketServer).await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    let refused = |name: &str| {
        let message = "You are not permitted to access this resource";
        let error = json!({"context": null, "message": message, "exceptionName": name});
        ForgeFault::Documented(401, json!({"errors": [error]}).to_string().leak())
    };
    let names = [
        ("com.atlassian.bitbucket.AuthorisationException", "PermissionDenied"),
        ("com.atlassian.bitbucket.auth.IncorrectPasswordAuthenticationException", "AuthenticationFailed"),
    ];
    for (name, reason) in names {
        fixture.standin().inject_fault(CallKind::Merge, refused(name));
        assert_eq!(bench.delivery.advance(&order, &request).await.unwrap_err().reason(), reason);
    }
    until_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn a_rejecting_policy_of_azure_devops_is_not_a_missing_right() {
    let fixture = ForgeFixture::of(ForgeKind::AzureDevOps).await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    let rejected = json!({
        "$id": "1", "message": "A required policy is not satisfied.",
        "typeKey": "GitPullRequestUpdateRejectedByPolicyException",
    });
    fixture.standin().inject_fault(CallKind::Merge, ForgeFault::Documented(403, rejected.to_string().leak()));
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert_eq!(why, "its forge does not merge it: A required policy is not satisfied.");
    assert!(!failed);
    until_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn a_merge_waits_until_the_forge_has_computed_mergeability() {
    for (kind, name) in [
        (ForgeKind::GitHub, "GitHub"),
        (ForgeKind::GitLab, "GitLab"),
        (ForgeKind::AzureDevOps, "Azure DevOps"),
    ] {
        let fixture = ForgeFixture::of(kind).await;
        let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        fixture.standin().change(request.number, |pull| pull.unknown_for = 30);
        let why = format!("waits for {name} to check whether it can be merged");
        let waits = ChangeRequestStatus::Waits { why, failed: false, queued: false };
        assert_eq!(bench.delivery.advance(&order, &request).await.unwrap().status, waits);
        until_merged(&bench.delivery, &order, &request).await;
    }
}

#[tokio::test]
async fn a_delayed_completion_at_azure_devops_is_not_repeated() {
    let fixture = ForgeFixture::of(ForgeKind::AzureDevOps).await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.standin().forge_state(|forge_state| forge_state.merge_takes = 30);
    let (why, _) = waits(&bench.delivery, &order, &request).await;
    assert_eq!(why, "its forge merges it");
    let completed = bench.delivery.stats().calls("PATCH");
    bench.delivery.advance(&order, &request).await.unwrap();
    assert_eq!(bench.delivery.stats().calls("PATCH"), completed);
    until_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn a_merge_waits_while_gitlab_shows_the_pipeline_of_an_earlier_head() {
    let fixture = ForgeFixture::of(ForgeKind::GitLab).await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.check(request.number, "ci/build", CheckOutcome::Green).await;
    // Nobody has checked the newer one.
    let newer = merging(&fixture, "6.2.0");
    let request = proposed(&bench.delivery, &newer).await;
    let pending = ("waits for checks: pipeline pending".to_string(), false);
    assert_eq!(waits(&bench.delivery, &newer, &request).await, pending);
    // Nor what that would be when merged: this is of the earlier head.
    let result = |branch: &str, head: &str| {
        let repo = fixture.repo();
        git(repo.folder(), &["update-ref", &format!("refs/heads/{branch}"), "refs/heads/main"], "");
        repo.land(head, branch, Landing::Merge("Merge")).unwrap()
    };
    let earlier = fixture.standin().pulls()[0].checks[0].2.clone();
    let of_earlier = (earlier.clone(), result("results-1", &earlier));
    fixture.standin().change(request.number, |pull| pull.results.push(of_earlier));
    assert_eq!(waits(&bench.delivery, &newer, &request).await, pending);
    assert!(fixture.pulls().await[0].open);
    let head = request.head_commit.clone();
    let of_head = (head.clone(), result("results-2", &head));
    fixture.standin().change(request.number, |pull| pull.results.push(of_head));
    fixture.check(request.number, "ci/build", CheckOutcome::Green).await;
    until_merged(&bench.delivery, &newer, &request).await;
}

#[tokio::test]
async fn every_check_of_azure_devops_counts_if_no_policy_is_blocking() {
    let fixture = ForgeFixture::of(ForgeKind::AzureDevOps).await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    let optional = |is: CheckOutcome| {
        fixture.standin().change(request.number, |pull| pull.optional = vec![("scan".into(), is)]);
    };
    let status = |name: &str, is: CheckOutcome, of: Option<u64>| {
        fixture.standin().change(request.number, |pull| pull.statuses.push((name.into(), is, of)));
    };
    optional(CheckOutcome::Failed);
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why == "checks failed: scan" && failed, "{why}");
    optional(CheckOutcome::Green);
    status("deploy", CheckOutcome::Failed, None);
    status("lint", CheckOutcome::Pending, Some(2));
    // Of an earlier push.
    status("e2e", CheckOutcome::Failed, Some(1));
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why == "checks failed: deploy; waits for checks: lint pending" && failed, "{why}");
    status("deploy", CheckOutcome::Green, None);
    status("lint", CheckOutcome::Green, Some(2));
    until_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn only_blocking_policies_of_azure_devops_count_if_there_are_any() {
    let fixture = ForgeFixture::of(ForgeKind::AzureDevOps).await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.protect(request.number, &["ci/build"], 0).await;
    fixture.check(request.number, "ci/build", CheckOutcome::Green).await;
    fixture.standin().change(request.number, |pull| {
        pull.optional = vec![("scan".into(), CheckOutcome::Failed)];
        pull.statuses.push(("deploy".into(), CheckOutcome::Failed, None));
    });
    until_merged(&bench.delivery, &order, &request).await;
}

/// The answer leaves the strategy out unless the parameter `fields` asks for it. The stand-in refuses a merge with another
/// strategy, and other values of `fields`.
#[tokio::test]
async fn bitbucket_asks_for_the_merge_strategy_of_the_base_with_fields() {
    let (fixture, bench) = (ForgeFixture::of(ForgeKind::Bitbucket).await, bench());
    for (style, version) in Style::ALL.into_iter().zip(["6.1.8", "6.2.0", "6.3.0"]) {
        let order = merging(&fixture, version);
        let request = proposed(&bench.delivery, &order).await;
        fixture.allow_only(request.number, style).await;
        until_merged(&bench.delivery, &order, &request).await;
    }
}

/// Gitea's own branch protection accepts the warning: the call by which Sluice merges is subject to it.
#[tokio::test]
async fn a_required_check_with_a_warning_stops_no_merge_at_gitea() {
    let fixture = ForgeFixture::gitea("warning").await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.protect(request.number, &["ci/build"], 0).await;
    fixture.check(request.number, "ci/build", CheckOutcome::Failed).await;
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why.starts_with("checks failed: ci/build") && failed, "{why}");
    fixture.warn(request.number, "ci/build").await;
    until_merged(&bench.delivery, &order, &request).await;
    assert!(fixture.pulls().await[0].merged);
}
