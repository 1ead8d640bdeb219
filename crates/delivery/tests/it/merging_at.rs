//! What the merging of one forge alone has to heed, in the words of its documentation.

use serde_json::json;
use sluice_delivery::{Followed, ForgeKind};
use sluice_testkit::Landing;

use crate::contract::proposed;
use crate::fixture::{bench, git};
use crate::merging::{is_merged, merging, waits};
use crate::standin::{Call, Is, Trouble};
use crate::world::World;

#[tokio::test]
async fn a_github_that_does_not_know_the_state_of_a_merge_is_asked_for_required_checks() {
    let world = World::github().await;
    let (bench, order) = (bench(), merging(&world, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    world.protect(request.number, &["ci/build"], 0).await;
    let unknown = || {
        let message = "Field 'mergeStateStatus' doesn't exist on type 'PullRequest'";
        let error = json!({"message": message, "extensions": {"code": "undefinedField"}});
        world
            .standin()
            .trouble(Call::Tell, Trouble::Answer(200, vec![], json!({"errors": [error]}).to_string().leak()));
    };
    unknown();
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why == "waits for checks: ci/build pending" && !failed, "{why}");
    world.check(request.number, "ci/build", Is::Green).await;
    unknown();
    is_merged(&bench.delivery, &order, &request).await;
    assert_eq!(world.standin().calls().iter().filter(|call| call.contains("graphql")).count(), 4);
}

#[tokio::test]
async fn a_gitlab_that_knows_the_token_and_lets_it_not_merge_is_told_from_one_that_does_not() {
    let world = World::of(ForgeKind::GitLab).await;
    let (bench, order) = (bench(), merging(&world, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    world.standin().trouble(Call::Merge, Trouble::Answer(401, vec![], r#"{"message": "401 Unauthorized"}"#));
    let error = bench.delivery.tend(&order, &request).await.unwrap_err();
    assert_eq!(error.reason(), "PermissionDenied");
    let says = error.to_string();
    assert!(says.contains("may not merge into main") && says.contains("Maintainer"), "{says}");
    is_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn a_bitbucket_server_that_knows_the_token_and_lets_it_not_merge_is_told_from_one_that_does_not() {
    let world = World::of(ForgeKind::BitbucketServer).await;
    let (bench, order) = (bench(), merging(&world, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    let refused = |name: &str| {
        let message = "You are not permitted to access this resource";
        let error = json!({"context": null, "message": message, "exceptionName": name});
        Trouble::Answer(401, vec![], json!({"errors": [error]}).to_string().leak())
    };
    let names = [
        ("com.atlassian.bitbucket.AuthorisationException", "PermissionDenied"),
        ("com.atlassian.bitbucket.auth.IncorrectPasswordAuthenticationException", "AuthenticationFailed"),
    ];
    for (name, reason) in names {
        world.standin().trouble(Call::Merge, refused(name));
        assert_eq!(bench.delivery.tend(&order, &request).await.unwrap_err().reason(), reason);
    }
    is_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn at_azure_devops_what_a_policy_rejects_is_no_lack_of_rights() {
    let world = World::of(ForgeKind::AzureDevOps).await;
    let (bench, order) = (bench(), merging(&world, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    let rejected = json!({
        "$id": "1", "message": "A required policy is not satisfied.",
        "typeKey": "GitPullRequestUpdateRejectedByPolicyException",
    });
    world.standin().trouble(Call::Merge, Trouble::Answer(403, vec![], rejected.to_string().leak()));
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert_eq!(why, "its forge does not merge it: A required policy is not satisfied.");
    assert!(!failed);
    is_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn a_forge_that_has_not_looked_yet_whether_it_can_be_merged_is_waited_for() {
    for (kind, name) in [
        (ForgeKind::GitHub, "GitHub"),
        (ForgeKind::GitLab, "GitLab"),
        (ForgeKind::AzureDevOps, "Azure DevOps"),
    ] {
        let world = World::of(kind).await;
        let (bench, order) = (bench(), merging(&world, "6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        world.standin().change(request.number, |pull| pull.unknown_for = 30);
        let why = format!("waits for {name} to look whether it can be merged");
        let waits = Followed::Waits { why, failed: false, queued: false };
        assert_eq!(bench.delivery.tend(&order, &request).await.unwrap(), waits);
        is_merged(&bench.delivery, &order, &request).await;
    }
}

#[tokio::test]
async fn what_azure_devops_completes_later_is_not_completed_twice() {
    let world = World::of(ForgeKind::AzureDevOps).await;
    let (bench, order) = (bench(), merging(&world, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    world.standin().book(|book| book.merge_takes = 30);
    let (why, _) = waits(&bench.delivery, &order, &request).await;
    assert_eq!(why, "its forge merges it");
    let completed = bench.delivery.stats().calls("PATCH");
    bench.delivery.tend(&order, &request).await.unwrap();
    assert_eq!(bench.delivery.stats().calls("PATCH"), completed);
    is_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn a_gitlab_that_shows_the_pipeline_of_an_earlier_head_is_waited_for() {
    let world = World::of(ForgeKind::GitLab).await;
    let (bench, order) = (bench(), merging(&world, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    world.check(request.number, "ci/build", Is::Green).await;
    // Nobody has checked the newer one.
    let newer = merging(&world, "6.2.0");
    let request = proposed(&bench.delivery, &newer).await;
    let pending = ("waits for checks: pipeline pending".to_string(), false);
    assert_eq!(waits(&bench.delivery, &newer, &request).await, pending);
    // Nor what that would be when merged: this is of the earlier head.
    let result = |branch: &str, head: &str| {
        let repo = world.repo();
        git(repo.folder(), &["update-ref", &format!("refs/heads/{branch}"), "refs/heads/main"], "");
        repo.land(head, branch, Landing::Merge("Merge")).unwrap()
    };
    let earlier = world.standin().pulls()[0].checks[0].2.clone();
    let of_earlier = (earlier.clone(), result("results-1", &earlier));
    world.standin().change(request.number, |pull| pull.results.push(of_earlier));
    assert_eq!(waits(&bench.delivery, &newer, &request).await, pending);
    assert!(world.pulls().await[0].open);
    let head = request.head_commit.clone();
    let of_head = (head.clone(), result("results-2", &head));
    world.standin().change(request.number, |pull| pull.results.push(of_head));
    world.check(request.number, "ci/build", Is::Green).await;
    is_merged(&bench.delivery, &newer, &request).await;
}

#[tokio::test]
async fn at_azure_devops_whatever_has_reported_counts_where_nothing_blocks() {
    let world = World::of(ForgeKind::AzureDevOps).await;
    let (bench, order) = (bench(), merging(&world, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    let optional = |is: Is| {
        world.standin().change(request.number, |pull| pull.optional = vec![("scan".into(), is)]);
    };
    let status = |name: &str, is: Is, of: Option<u64>| {
        world.standin().change(request.number, |pull| pull.statuses.push((name.into(), is, of)));
    };
    optional(Is::Failed);
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why == "checks failed: scan" && failed, "{why}");
    optional(Is::Green);
    status("deploy", Is::Failed, None);
    status("lint", Is::Pending, Some(2));
    // Of an earlier push.
    status("e2e", Is::Failed, Some(1));
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why == "checks failed: deploy; waits for checks: lint pending" && failed, "{why}");
    status("deploy", Is::Green, None);
    status("lint", Is::Green, Some(2));
    is_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn at_azure_devops_only_what_blocks_counts_where_something_does() {
    let world = World::of(ForgeKind::AzureDevOps).await;
    let (bench, order) = (bench(), merging(&world, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    world.protect(request.number, &["ci/build"], 0).await;
    world.check(request.number, "ci/build", Is::Green).await;
    world.standin().change(request.number, |pull| {
        pull.optional = vec![("scan".into(), Is::Failed)];
        pull.statuses.push(("deploy".into(), Is::Failed, None));
    });
    is_merged(&bench.delivery, &order, &request).await;
}
