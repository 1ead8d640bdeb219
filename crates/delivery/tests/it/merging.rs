//! Merges by Sluice at every forge. Sluice merges only the commit that it has pushed, and only if nothing blocks this
//! commit.

use serde_json::json;
use sluice_delivery::{
    ChangeRequest, ChangeRequestStatus, Delivered, Delivery, ForgeKind, MergeMode, Order, OutdatedReason,
    Retry,
};

use crate::any_forge::{ForgeFixture, everywhere};
use crate::change_request::{
    merging, proposed, pushed_and_not_recorded, until_merged, until_outdated, waits,
};
use crate::fixture::{FILE, again, bench, yaml};
use crate::standin::{CallKind, CheckOutcome, ForgeFault};

pub async fn a_change_request_is_merged_when_its_checks_are_green(fixture: ForgeFixture) {
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    // If a forge does not report which checks are required, all checks that report are required.
    fixture.protect(request.number, &["ci/build"], 0).await;
    fixture.check(request.number, "ci/build", CheckOutcome::Pending).await;
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why.starts_with("waits for checks: ci/build") && !failed, "{why}");
    fixture.check(request.number, "ci/build", CheckOutcome::Failed).await;
    fixture.standin_only(|s| s.change(request.number, |pull| drop(pull.checks.remove(0))));
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why.starts_with("checks failed: ci/build") && failed, "{why}");
    assert!(fixture.pulls().await[0].open);
    fixture.standin_only(|s| s.change(request.number, |pull| pull.checks.clear()));
    fixture.check(request.number, "ci/build", CheckOutcome::Green).await;
    until_merged(&bench.delivery, &order, &request).await;
    assert!(fixture.pulls().await[0].merged);
    // A second call changes nothing.
    until_merged(&bench.delivery, &order, &request).await;
}

pub async fn the_checks_of_a_tag_named_like_the_head_branch_do_not_count(fixture: ForgeFixture) {
    let bench = bench();
    let other = fixture.repo().head("main").unwrap();
    // The tag points first to a commit without checks, then to a commit with green checks.
    for (version, green) in [("6.1.8", false), ("6.2.0", true)] {
        let order = merging(&fixture, version);
        let request = proposed(&bench.delivery, &order).await;
        if green {
            fixture.check_on(&other, "ci/build", CheckOutcome::Green).await;
        }
        fixture.check(request.number, "ci/build", CheckOutcome::Failed).await;
        fixture.name_like(&request.head_commit, &other);
        let message = loop {
            match bench.delivery.advance(&order, &request).await.map(|look| look.status) {
                Ok(ChangeRequestStatus::Waits { why, failed: true, .. }) => break why,
                Ok(ChangeRequestStatus::Waits { .. } | ChangeRequestStatus::Open { .. }) => {}
                Ok(other) => panic!("{:?}: {other:?}", fixture.kind()),
                Err(error) => break error.to_string(),
            }
        };
        assert!(message.contains("ci/build") || message.contains("is named like the commit"), "{message}");
        assert!(fixture.pulls().await[0].open);
    }
}

#[tokio::test]
async fn a_tag_named_like_a_commit_is_not_read_as_that_commit() {
    for kind in [ForgeKind::GitLab, ForgeKind::Bitbucket] {
        let fixture = ForgeFixture::of(kind).await;
        let order = fixture.order("6.1.8");
        let other = fixture.repo().head("main").unwrap();
        let request = proposed(&bench().delivery, &order).await;
        // Only the commit shows that the change request is from Sluice.
        fixture.set_body(request.number, "mine now").await;
        fixture.name_like(&request.head_commit, &other);
        let error = bench().delivery.deliver(&again(&order)).await.unwrap_err();
        assert!(error.to_string().contains("is named like the commit"), "{kind:?}: {error}");
    }
}

pub async fn a_merge_waits_for_approvals_of_the_current_head(fixture: ForgeFixture) {
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.protect(request.number, &[], 1).await;
    let (why, _) = waits(&bench.delivery, &order, &request).await;
    assert!(why.contains("1 approval"), "{why}");
    fixture.approve(request.number).await;
    // A newer revision has another head, which nobody has approved.
    let newer = merging(&fixture, "6.2.0");
    let request = proposed(&bench.delivery, &newer).await;
    let (why, _) = waits(&bench.delivery, &newer, &request).await;
    assert!(why.contains("1 approval"), "{why}");
    fixture.approve(request.number).await;
    until_merged(&bench.delivery, &newer, &request).await;
}

pub async fn a_head_that_sluice_did_not_push_is_not_merged(fixture: ForgeFixture) {
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.push(&request.branch);
    let short: String = request.head_commit.chars().take(8).collect();
    for _ in 0..2 {
        let (why, _) = waits(&bench.delivery, &order, &request).await;
        assert!(why.ends_with(&format!("Sluice pushed {short}")), "{why}");
    }
    // A later try does not adopt the newer commit either.
    let found = proposed(&bench.delivery, &again(&order)).await;
    assert_eq!(found, request);
    let (why, _) = waits(&bench.delivery, &order, &found).await;
    assert!(why.ends_with(&format!("Sluice pushed {short}")), "{why}");
    assert!(fixture.pulls().await[0].open);
}

pub async fn a_draft_is_merged_after_a_person_marks_it_as_ready(fixture: ForgeFixture) {
    let bench = bench();
    let order = fixture.order_with("6.1.8", |s| (s.merge, s.draft) = (MergeMode::WhenGreen, true));
    let request = proposed(&bench.delivery, &order).await;
    assert!(waits(&bench.delivery, &order, &request).await.0.starts_with("it is a draft"));
    fixture.mark_ready(request.number).await;
    until_merged(&bench.delivery, &order, &request).await;
}

pub async fn a_merged_branch_is_deleted_unless_somebody_has_pushed_to_it(fixture: ForgeFixture) {
    let bench = bench();
    let order = |version: &str| {
        fixture.order_with(version, |s| (s.merge, s.delete_branch) = (MergeMode::WhenGreen, true))
    };
    let (first, second) = (order("6.1.8"), order("6.2.0"));
    let request = proposed(&bench.delivery, &first).await;
    until_merged(&bench.delivery, &first, &request).await;
    assert_eq!(fixture.repo().branches().unwrap(), ["main"]);
    // A branch that is deleted already is no failure.
    until_merged(&bench.delivery, &first, &request).await;
    fixture.until_deleted(&request.branch, 1).await;
    // A person merges the second change request, and then somebody pushes to its branch.
    let request = proposed(&bench.delivery, &second).await;
    fixture.merge(request.number).await;
    let head = fixture.push(&request.branch);
    let followed = bench.delivery.advance(&second, &request).await.unwrap().status;
    assert!(matches!(followed, ChangeRequestStatus::Merged { .. }), "{followed:?}");
    assert_eq!(fixture.repo().head(&request.branch).unwrap(), head);
}

pub async fn nothing_is_merged_after_the_fencing_token_is_revoked(fixture: ForgeFixture) {
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    order.fencing_token.revoke();
    assert_eq!(bench.delivery.advance(&order, &request).await.unwrap_err().reason(), "Stopped");
    // A change request that is only followed is never merged.
    let open = bench.delivery.follow(&merging(&fixture, "6.1.8"), &request).await.unwrap();
    assert!(matches!(open, ChangeRequestStatus::Open { .. }), "{open:?}");
    assert!(fixture.pulls().await[0].open);
}

#[tokio::test]
async fn a_change_request_behind_its_base_is_rebuilt_on_top_of_it() {
    // The other forges have no such rule.
    for kind in [ForgeKind::GitHub, ForgeKind::GitLab, ForgeKind::Gitea, ForgeKind::Forgejo] {
        check_rebuild_of_outdated_head(ForgeFixture::of(kind).await).await;
    }
    check_rebuild_of_outdated_head(ForgeFixture::gitea("falls_behind").await).await;
}

async fn check_rebuild_of_outdated_head(fixture: ForgeFixture) {
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    let base_commit = fixture.commit("base_commit", &[("other.yaml", "a: b\n")]);
    fixture.fall_behind(request.number).await;
    until_outdated(&bench.delivery, &order, &request, OutdatedReason::Behind).await;
    // A try without the order to rebuild keeps the head, and its approvals.
    assert_eq!(proposed(&bench.delivery, &order).await.head_commit, request.head_commit);
    let rebuild = Order { rebuild: Some(OutdatedReason::Behind), ..again(&order) };
    let again = proposed(&bench.delivery, &rebuild).await;
    assert_eq!(again.number, request.number);
    assert_ne!(again.head_commit, request.head_commit);
    assert_eq!(fixture.repo().log(&request.branch).unwrap()[1].sha, base_commit);
    assert_eq!(proposed(&bench.delivery, &rebuild).await.head_commit, again.head_commit);
    until_merged(&bench.delivery, &order, &again).await;
}

#[tokio::test]
async fn a_change_request_that_ended_meanwhile_is_not_opened_again() {
    everywhere(async |fixture| {
        for (version, merged) in [("6.1.8", false), ("6.2.0", true)] {
            let (bench, order) = (bench(), fixture.order(version));
            let request = proposed(&bench.delivery, &order).await;
            match merged {
                true => fixture.merge(request.number).await,
                false => fixture.close(request.number).await,
            }
            let file = yaml("6.1.5").replace("spec:", &format!("# after {version}\nspec:"));
            fixture.commit("the same lines", &[(FILE, &file)]);
            let rebuild = Order { rebuild: Some(OutdatedReason::Conflicts), ..again(&order) };
            let (found, number) = match bench.delivery.deliver(&rebuild).await.unwrap() {
                Delivered::Rejected { request } => (false, request.number),
                Delivered::Proposed { request, merged: true } => (true, request.number),
                other => panic!("{other:?}"),
            };
            assert_eq!((found, number), (merged, request.number));
            assert_eq!(fixture.pulls().await.len() as u64, request.number);
        }
    })
    .await;
}

#[tokio::test]
async fn a_change_request_closed_during_its_replacement_is_rejected() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), fixture.order("6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        fixture.commit("the same lines", &[(FILE, &yaml("6.1.6"))]);
        let fetches = bench.delivery.stats().git_fetches;
        fixture.repo().tap().hang(true);
        let meanwhile = async {
            sluice_testkit::eventually(sluice_testkit::WAIT_TIMEOUT, || async {
                anyhow::ensure!(
                    bench.delivery.stats().git_fetches > fetches,
                    "the delivery has not fetched yet"
                );
                Ok(())
            })
            .await
            .unwrap();
            fixture.close(request.number).await;
            fixture.repo().tap().hang(false);
        };
        let rebuild = Order { rebuild: Some(OutdatedReason::Conflicts), ..again(&order) };
        match tokio::join!(bench.delivery.deliver(&rebuild), meanwhile).0.unwrap() {
            Delivered::Rejected { request: found } => assert_eq!(found.number, request.number),
            other => panic!("{other:?}"),
        }
        assert_eq!(fixture.pulls().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_change_request_with_conflicts_is_rebuilt_on_top_of_its_base() {
    let (bench, fixture) = (bench(), ForgeFixture::gitea("conflicts").await);
    let order = merging(&fixture, "6.1.8");
    let request = proposed(&bench.delivery, &order).await;
    let by_hand = fixture.commit("by hand", &[(FILE, &yaml("6.1.6"))]);
    until_outdated(&bench.delivery, &order, &request, OutdatedReason::Conflicts).await;
    let rebuild = Order { rebuild: Some(OutdatedReason::Conflicts), ..again(&order) };
    let remade = proposed(&bench.delivery, &rebuild).await;
    assert_eq!(remade.number, request.number);
    assert_ne!(remade.head_commit, request.head_commit);
    assert_eq!(fixture.repo().log(&request.branch).unwrap()[1].sha, by_hand);
    until_merged(&bench.delivery, &order, &remade).await;
    assert_eq!(fixture.repo().read("main", FILE).unwrap(), yaml("6.1.8"));
}

#[tokio::test]
async fn a_head_that_sluice_has_pushed_and_not_recorded_is_merged_later() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
        let (request, unrecorded) = pushed_and_not_recorded(&fixture, &bench.delivery, &order).await;
        let stale = Some(OutdatedReason::Unrecorded);
        let outdated = ChangeRequestStatus::Open { head: unrecorded.clone(), stale };
        for delivery in [&bench.delivery, &self::bench().delivery] {
            assert_eq!(delivery.advance(&order, &request).await.unwrap().status, outdated);
            let rebuild = Order { rebuild: stale, ..again(&order) };
            let recorded = proposed(delivery, &rebuild).await;
            assert_eq!((recorded.number, &recorded.head_commit), (request.number, &unrecorded));
        }
        let recorded = ChangeRequest { head_commit: unrecorded, ..request };
        until_merged(&bench.delivery, &order, &recorded).await;
        assert_eq!(fixture.repo().read("main", FILE).unwrap(), yaml("6.1.8"));
    })
    .await;
}

#[tokio::test]
async fn a_push_directly_before_the_merge_is_not_merged_except_by_bitbucket_cloud() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        fixture.standin().forge_state(|b| b.pushes_before_merge = true);
        let merged = matches!(
            bench.delivery.advance(&order, &request).await.unwrap().status,
            ChangeRequestStatus::Merged { .. }
        );
        // The merge call of Bitbucket Cloud has no parameter for the expected head.
        assert_eq!(merged, fixture.kind() == ForgeKind::Bitbucket, "{:?}", fixture.kind());
        if !merged {
            let (why, _) = waits(&bench.delivery, &order, &request).await;
            assert!(why.contains("Sluice pushed"), "{why}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_push_after_the_checks_were_read_is_not_merged() {
    let fixture = ForgeFixture::of(ForgeKind::Bitbucket).await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.standin().forge_state(|forge_state| forge_state.pushes_after_checks = true);
    let (why, _) = waits(&bench.delivery, &order, &request).await;
    assert!(why.contains("Sluice pushed"), "{why}");
    assert!(fixture.pulls().await[0].open);
}

#[tokio::test]
async fn a_merge_whose_answer_is_lost_is_found_or_repeated() {
    everywhere(async |fixture| {
        for (version, trouble) in
            [("6.1.8", ForgeFault::Lose), ("6.2.0", ForgeFault::Answer(502, vec![], "bad gateway"))]
        {
            let (bench, order) = (bench(), merging(&fixture, version));
            let request = proposed(&bench.delivery, &order).await;
            fixture.standin().inject_fault(CallKind::Merge, trouble);
            match bench.delivery.advance(&order, &request).await.map(|look| look.status) {
                Ok(ChangeRequestStatus::Merged { ours: true, .. }) => assert_eq!(version, "6.1.8"),
                Err(error) => {
                    assert_eq!(
                        (version, error.reason(), error.retry()),
                        ("6.2.0", "Unreachable", Retry::Soon)
                    );
                }
                other => panic!("{other:?}"),
            }
            until_merged(&bench.delivery, &order, &request).await;
        }
        assert_eq!(fixture.pulls().await.iter().filter(|p| p.merged).count(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_rejected_merge_has_the_message_of_the_forge() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        let no = r#"{"message": "frozen until Monday", "errors": [{"message": "frozen until Monday"}]}"#;
        fixture.standin().inject_fault(CallKind::Merge, ForgeFault::Answer(405, vec![], no));
        let (why, _) = waits(&bench.delivery, &order, &request).await;
        assert!(why.starts_with("its forge does not merge it: ") && why.contains("frozen"), "{why}");
        fixture.standin().inject_fault(CallKind::Merge, ForgeFault::Answer(403, vec![], no));
        let error = bench.delivery.advance(&order, &request).await.unwrap_err();
        assert_eq!(error.reason(), "PermissionDenied", "{error}");
        until_merged(&bench.delivery, &order, &request).await;
    })
    .await;
}

#[tokio::test]
async fn an_html_page_as_an_answer_prevents_a_merge() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        fixture.check(request.number, "ci/build", CheckOutcome::Green).await;
        // Bitbucket reports conflicts in a separate call, which is made once and decides nothing.
        bench.delivery.follow(&order, &request).await.unwrap();
        fixture.standin().inject_fault(CallKind::ReadFacts, ForgeFault::Answer(200, vec![], "<html>"));
        let error = bench.delivery.advance(&order, &request).await.unwrap_err();
        assert_eq!((error.reason(), error.retry()), ("ForgeRefused", Retry::Soon), "{error}");
        assert!(fixture.pulls().await[0].open);
        until_merged(&bench.delivery, &order, &request).await;
    })
    .await;
}

#[tokio::test]
async fn a_new_head_without_checks_is_not_merged_immediately() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        let fresh = Order { checks_settled: false, ..order.clone() };
        let (why, failed) = waits(&bench.delivery, &fresh, &request).await;
        assert!(why == "waits for checks: none has reported yet" && !failed, "{why}");
        assert!(fixture.pulls().await[0].open);
        until_merged(&bench.delivery, &order, &request).await;
    })
    .await;
}

#[tokio::test]
async fn a_token_that_may_not_read_checks_merges_a_clean_head() {
    let fixture = ForgeFixture::github().await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    // GitHub answers fine-grained tokens like this: github.com/cli/cli/issues/12597.
    let answer = |state: &str, field: &str| {
        let commit = json!({"oid": request.head_commit, "statusCheckRollup": null});
        let pull = json!({"id": "PR_1", "headRefOid": request.head_commit, "mergeStateStatus": state,
            "latestOpinionatedReviews": {"nodes": []}, "commits": {"nodes": [{"commit": commit}]}});
        let path = json!(["repository", "pullRequest", "commits", "nodes", 0, "commit", field, "contexts"]);
        let error = json!({"type": "FORBIDDEN", "path": path,
            "message": "Resource not accessible by personal access token"});
        let data = json!({"repository": {"squashMergeAllowed": true, "pullRequest": pull}});
        ForgeFault::Answer(200, vec![], json!({"data": data, "errors": [error]}).to_string().leak())
    };
    fixture.standin().inject_fault(CallKind::ReadFacts, answer("UNSTABLE", "statusCheckRollup"));
    let (why, _) = waits(&bench.delivery, &order, &request).await;
    assert_eq!(why, "waits for its checks, which this token may not read");
    fixture.standin().inject_fault(CallKind::ReadFacts, answer("CLEAN", "signature"));
    let error = bench.delivery.advance(&order, &request).await.unwrap_err();
    assert_eq!(error.reason(), "PermissionDenied", "{error}");
    assert!(fixture.pulls().await[0].open);
    fixture.standin().inject_fault(CallKind::ReadFacts, answer("CLEAN", "statusCheckRollup"));
    until_merged(&bench.delivery, &order, &request).await;
    assert!(fixture.pulls().await[0].merged);
}

#[tokio::test]
async fn a_failed_check_on_the_last_page_prevents_a_merge() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        fixture.standin().change(request.number, |pull| {
            let green =
                (0..250).map(|n| (format!("ci/{n}"), CheckOutcome::Green, request.head_commit.clone()));
            pull.checks.extend(green);
            pull.checks.push(("ci/last".into(), CheckOutcome::Failed, request.head_commit.clone()));
        });
        let (why, failed) = waits(&bench.delivery, &order, &request).await;
        assert!(why == "checks failed: ci/last" && failed, "{why}");
        assert!(fixture.pulls().await[0].open);
    })
    .await;
}

#[tokio::test]
async fn a_failed_check_prevents_a_merge_if_the_newest_checks_come_first() {
    let fixture = ForgeFixture::gitea("many-checks").await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    // Gitea returns the newest checks first, at most 50 on a page.
    fixture.check(request.number, "ci/first", CheckOutcome::Failed).await;
    for n in 0..50 {
        fixture.check(request.number, &format!("ci/{n}"), CheckOutcome::Green).await;
    }
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why == "checks failed: ci/first" && failed, "{why}");
}

#[tokio::test]
async fn a_later_approval_replaces_requested_changes() {
    let fixture = ForgeFixture::gitea("after-all").await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    let ForgeFixture::Gitea(real) = &fixture else { panic!("this is a stand-in") };
    let joe = fixture.joe().await;
    real.repo.review(request.number, &joe, "REQUEST_CHANGES").await.unwrap();
    let (why, _) = waits(&bench.delivery, &order, &request).await;
    assert_eq!(why, "waits for the changes that a reviewer asks for");
    fixture.approve(request.number).await;
    until_merged(&bench.delivery, &order, &request).await;
}

#[tokio::test]
async fn the_merge_queue_is_entered_once_with_the_pushed_head() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = fixture.order_with("6.1.8", |settings| settings.merge = MergeMode::Queue);
        let mut request = proposed(&bench.delivery, &order).await;
        fixture
            .standin()
            .forge_state(|forge_state| forge_state.has_queue = fixture.kind() == ForgeKind::Bitbucket);
        let (why, _) = waits_for_queue(&bench.delivery, &order, &request).await;
        if !matches!(fixture.kind(), ForgeKind::GitHub | ForgeKind::GitLab | ForgeKind::Bitbucket) {
            assert!(why.ends_with("has no merge queue"), "{why}");
            return;
        }
        assert_eq!(why, "it is in the merge queue");
        request.queued = true;
        assert_eq!(waits_for_queue(&bench.delivery, &order, &request).await, (why, true));
        // Sluice does not add a change request again that was removed from the queue.
        fixture.standin().change(request.number, |pull| pull.queued = false);
        let (why, queued) = waits_for_queue(&bench.delivery, &order, &request).await;
        assert!(why.contains("has put it out") && queued, "{why}");
        assert!(!fixture.standin().pulls()[0].queued);
        // The merge call of Bitbucket Cloud has no parameter for the expected head.
        if fixture.kind() == ForgeKind::Bitbucket {
            return;
        }
        // Another head may be added to the queue, if Sluice has pushed it.
        let newer = fixture.order_with("6.2.0", |settings| settings.merge = MergeMode::Queue);
        let request = proposed(&bench.delivery, &newer).await;
        assert!(!request.queued);
        fixture.standin().forge_state(|b| b.pushes_before_merge = true);
        let (why, queued) = waits_for_queue(&bench.delivery, &newer, &request).await;
        assert!(!queued && !fixture.standin().pulls()[0].queued, "{why}");
    })
    .await;
}

#[tokio::test]
async fn a_long_merge_is_polled_until_it_ends() {
    let (fixture, bench) = (ForgeFixture::of(ForgeKind::Bitbucket).await, bench());
    let order = merging(&fixture, "6.1.8");
    let request = proposed(&bench.delivery, &order).await;
    fixture.standin().forge_state(|forge_state| forge_state.merge_takes = 3);
    match bench.delivery.advance(&order, &request).await.unwrap().status {
        ChangeRequestStatus::Merged { ours: true, .. } => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.delivery.stats().calls("POST"), 2, "one call opens, and one merges");
    // The message of a failed task is shown.
    let order = merging(&fixture, "6.2.0");
    let request = proposed(&bench.delivery, &order).await;
    fixture.standin().forge_state(|forge_state| forge_state.merge_takes = 3);
    let failed = r#"{"type": "error", "error": {"message": "a merge check failed"}}"#;
    fixture.standin().inject_fault(CallKind::LookUp, ForgeFault::Documented(400, failed));
    let (why, _) = waits(&bench.delivery, &order, &request).await;
    assert_eq!(why, "its forge does not merge it: a merge check failed");
}

#[tokio::test]
async fn a_merge_waits_in_the_merge_queue_of_the_base() {
    let (fixture, bench) = (ForgeFixture::of(ForgeKind::Bitbucket).await, bench());
    let order = merging(&fixture, "6.1.8");
    let request = proposed(&bench.delivery, &order).await;
    fixture.standin().forge_state(|forge_state| forge_state.has_queue = true);
    assert_eq!(waits(&bench.delivery, &order, &request).await.0, "its forge merges it");
    for _ in 0..2 {
        assert_eq!(waits_for_queue(&bench.delivery, &order, &request).await.0, "it is in the merge queue");
    }
    assert_eq!(bench.delivery.stats().calls("POST"), 2, "one call opens, and one adds to the queue");
}

async fn waits_for_queue(delivery: &Delivery, order: &Order, request: &ChangeRequest) -> (String, bool) {
    match delivery.advance(order, request).await.unwrap().status {
        ChangeRequestStatus::Waits { why, queued, .. } => (why, queued),
        other => panic!("{other:?}"),
    }
}
