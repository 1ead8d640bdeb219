//! Merges of change requests with every method, by any person and with any message: a merge counts for the promotion that
//! it has delivered, and for no other.

use serde_json::json;
use sluice_delivery::{
    ChangeRequest, ChangeRequestStatus, Delivered, Delivery, ForgeKind, MergeMode, Order, OutdatedReason,
};

use crate::any_forge::{ForgeFixture, RealGitea, everywhere};
use crate::change_request::{proposed, until_merged};
use crate::fixture::{Bench, FILE, again, bench, git, started_again, yaml};
use crate::standin::{CallKind, ForgeFault, Style};

/// That it is found as merged, and what its end was.
async fn was_merged(delivery: &Delivery, order: &Order, number: u64) {
    match delivery.deliver(&again(order)).await.unwrap() {
        Delivered::Proposed { request, merged: true } => assert_eq!(request.number, number),
        other => panic!("{other:?}"),
    }
}

pub async fn a_promotion_is_delivered_once_however_a_person_merges_it(fixture: ForgeFixture) {
    let bench = bench();
    // The other two are as plain, and below.
    let cases = [(Style::Squash, false), (Style::Squash, true), (Style::Merge, true), (Style::Rebase, true)];
    for (i, (style, on_top)) in cases.into_iter().enumerate() {
        let (version, case) = (format!("6.2.{i}"), format!("{style:?}, on top: {on_top}"));
        let order = fixture.order_with(&version, |settings| settings.delete_branch = true);
        let request = proposed(&bench.delivery, &order).await;
        if on_top {
            // They want another value, and that is for them to say.
            fixture.push_files(&request.branch, &[(FILE, &yaml(&format!("{version}-theirs")))]);
        }
        fixture.merge_by(request.number, style).await;
        was_merged(&bench.delivery, &order, request.number).await;
        match bench.delivery.advance(&order, &request).await.unwrap().status {
            ChangeRequestStatus::Merged { ours: true, .. } => {}
            other => panic!("{case}: {other:?}"),
        }
        assert_eq!(fixture.repo().branches().unwrap(), ["main"], "{case}");
        // Taken back before anybody has looked, it is not brought again.
        fixture.commit("take it back", &[(FILE, &yaml("6.1.5"))]);
        was_merged(&bench.delivery, &order, request.number).await;
        assert_eq!(fixture.pulls().await.len() as u64, request.number, "{case}");
        fixture.until_deleted(&request.branch, i + 1).await;
    }
}

pub async fn a_merge_by_sluice_is_recognized_in_every_merge_style(fixture: ForgeFixture) {
    let bench = bench();
    for (i, style) in Style::ALL.into_iter().enumerate() {
        let order = fixture.order_with(&format!("6.2.{i}"), |settings| {
            (settings.merge, settings.delete_branch) = (MergeMode::WhenGreen, true);
        });
        let request = proposed(&bench.delivery, &order).await;
        fixture.allow_only(request.number, style).await;
        until_merged(&bench.delivery, &order, &request).await;
        assert_eq!(fixture.repo().branches().unwrap(), ["main"], "{style:?}");
        // The commit on the base branch shows what was delivered, with every method.
        let tip = fixture.repo().head("main").unwrap();
        let change = bench.delivery.delivered_change(&order, &tip).await.unwrap().unwrap();
        let new: Vec<&str> = change.values.iter().map(|value| value.new.as_str()).collect();
        assert_eq!(new, [order.revision.to_string()], "{style:?}");
        // A later reader of the history finds the commit as well.
        let log = fixture.repo().log("main").unwrap();
        let says_so = |commit: &&sluice_testkit::LoggedCommit| {
            commit.body.contains(&format!("Sluice-Promotion: {}\n", order.promotion))
        };
        let found = log.iter().find(says_so).unwrap_or_else(|| panic!("{style:?}: {log:#?}"));
        assert!(!found.subject.starts_with("Sluice-"), "{found:#?}");
        fixture.until_deleted(&request.branch, i + 1).await;
    }
}

/// The forge merged what the branch held a moment before a newer revision was pushed to it.
pub async fn a_merge_counts_only_for_the_promotion_that_it_contains(fixture: ForgeFixture) {
    let bench = bench();
    for (i, style) in Style::ALL.into_iter().enumerate() {
        let older = fixture.order(&format!("6.2.{i}"));
        let newer = fixture.order(&format!("6.3.{i}"));
        let first = proposed(&bench.delivery, &older).await;
        fixture.merge_by(first.number, style).await;
        let second = proposed(&bench.delivery, &newer).await;
        assert_ne!(first.number, second.number);
        for (order, is) in [(&older, true), (&newer, false)] {
            match bench.delivery.follow(order, &first).await.unwrap() {
                ChangeRequestStatus::Merged { ours, .. } => {
                    assert_eq!(ours, is, "{style:?}, {}", order.promotion)
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(proposed(&bench.delivery, &again(&newer)).await, second);
        fixture.merge_by(second.number, style).await;
    }
}

/// It was merged, people took it back, and one of them wants it again: that is another round, which has to
/// bring it once more, and once.
pub async fn a_reverted_merge_of_an_earlier_round_is_delivered_again_once(fixture: ForgeFixture) {
    let bench = bench();
    let mut order = fixture.order("6.1.8");
    let mut earlier = proposed(&bench.delivery, &order).await;
    // The head branch stays as it was where nobody deletes it.
    for style in [Style::Squash, Style::Merge] {
        fixture.merge_by(earlier.number, style).await;
        fixture.commit("take it back", &[(FILE, &yaml("6.1.5"))]);
        was_merged(&bench.delivery, &order, earlier.number).await;
        order = started_again(&order);
        let later = proposed(&bench.delivery, &order).await;
        assert_ne!(later.number, earlier.number);
        assert_eq!(fixture.repo().read(&later.branch, FILE).unwrap(), yaml("6.1.8"));
        // Another process finds it, without any memory of it.
        assert_eq!(proposed(&crate::fixture::bench().delivery, &order).await, later);
        assert_eq!(fixture.pulls().await.len() as u64, later.number);
        earlier = later;
    }
    fixture.merge_by(earlier.number, Style::Squash).await;
    match bench.delivery.follow(&order, &earlier).await.unwrap() {
        ChangeRequestStatus::Merged { ours: true, .. } => {}
        other => panic!("{other:?}"),
    }
    was_merged(&bench.delivery, &order, earlier.number).await;
    // Started again although the change was not reverted, there is nothing to do.
    let done = bench.delivery.deliver(&started_again(&order)).await.unwrap();
    assert_eq!(done, Delivered::AlreadySet { commit: fixture.repo().head("main").unwrap() });
}

#[tokio::test]
async fn an_answer_that_is_lost_in_a_later_round_does_not_bring_back_the_merge_of_an_earlier_one() {
    everywhere(async |fixture| {
        for (i, trouble) in
            [ForgeFault::Answer(502, vec![], "bad gateway"), ForgeFault::Lose].into_iter().enumerate()
        {
            let (bench, order) = (bench(), fixture.order(&format!("6.2.{i}")));
            let first = proposed(&bench.delivery, &order).await;
            // In words of a person's, so that the files would tell.
            fixture.merge_by(first.number, Style::Squash).await;
            fixture.commit("take it back", &[(FILE, &yaml("6.1.5"))]);
            fixture.standin().inject_fault(CallKind::Open, trouble);
            let order = started_again(&order);
            let second = match bench.delivery.deliver(&order).await {
                Ok(Delivered::Proposed { request, merged: false }) => request,
                Ok(other) => panic!("{other:?}"),
                Err(_) => proposed(&bench.delivery, &order).await,
            };
            assert_ne!(second.number, first.number);
            assert_eq!(fixture.pulls().await.len() as u64, second.number);
            fixture.close(second.number).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_open_change_request_of_an_earlier_round_is_used_again_and_a_closed_one_does_not_count() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), fixture.order("6.1.8"));
        let first = proposed(&bench.delivery, &order).await;
        let again = started_again(&order);
        assert_eq!(proposed(&bench.delivery, &again).await.number, first.number);
        assert_eq!(fixture.pulls().await.len(), 1);
        fixture.close(first.number).await;
        match bench.delivery.deliver(&again).await.unwrap() {
            Delivered::Rejected { request } => assert_eq!(request.number, first.number),
            other => panic!("{other:?}"),
        }
        let later = started_again(&again);
        assert_ne!(proposed(&bench.delivery, &later).await.number, first.number);
    })
    .await;
}

#[tokio::test]
async fn the_files_decide_if_the_forge_may_show_another_head() {
    for kind in [ForgeKind::Gitea, ForgeKind::Forgejo] {
        let fixture = ForgeFixture::of(kind).await;
        let bench = bench();
        let (older, newer) = (fixture.order("6.1.8"), fixture.order("6.2.0"));
        let first = proposed(&bench.delivery, &older).await;
        fixture.merge_by(first.number, Style::Squash).await;
        let second = proposed(&bench.delivery, &newer).await;
        // Pushed in the very moment of the merge.
        fixture.standin().change(first.number, |pull| pull.sha.clone_from(&second.head_commit));
        for (order, is) in [(&older, true), (&newer, false)] {
            match bench.delivery.follow(order, &first).await.unwrap() {
                ChangeRequestStatus::Merged { ours, .. } => assert_eq!(ours, is, "{}", order.promotion),
                other => panic!("{other:?}"),
            }
        }
        // Taken back, it is still seen what the merge had.
        fixture.commit("take it back", &[(FILE, &yaml("6.1.5"))]);
        was_merged(&bench.delivery, &older, first.number).await;
    }
}

#[tokio::test]
async fn a_change_request_of_a_later_promotion_is_not_closed_for_an_earlier_one() {
    everywhere(async |fixture| {
        // Two controllers, of which one does not know yet that the other has pushed.
        let (one, two) = (bench(), bench());
        let (earlier, later) = (fixture.order("6.1.8"), fixture.order("6.2.0"));
        let mine = proposed(&one.delivery, &earlier).await;
        let theirs = proposed(&two.delivery, &later).await;
        assert_eq!(mine.number, theirs.number);
        let earlier = Order { open_beside: vec![later.promotion.clone()], ..earlier };
        let end = one.delivery.withdraw(&earlier, &mine, "not wanted").await.unwrap();
        assert_eq!(end, ChangeRequestStatus::HandedOver);
        assert!(fixture.pulls().await[0].open && fixture.comments(mine.number).await.is_empty());
        assert_eq!(proposed(&two.delivery, &again(&later)).await, theirs);
        // What people have put on top of one's own commit does not keep it open.
        fixture.push(&theirs.branch);
        let end = two.delivery.withdraw(&later, &theirs, "not wanted").await.unwrap();
        assert_eq!(end, ChangeRequestStatus::Closed);
    })
    .await;
}

#[tokio::test]
async fn a_person_who_closes_it_rejects_the_promotion_that_it_carries_and_not_an_earlier_one() {
    everywhere(async |fixture| {
        let (one, two) = (bench(), bench());
        let (earlier, later) = (fixture.order("6.1.8"), fixture.order("6.2.0"));
        let mine = proposed(&one.delivery, &earlier).await;
        proposed(&two.delivery, &later).await;
        fixture.close(mine.number).await;
        let earlier = Order { open_beside: vec![later.promotion.clone()], ..earlier };
        let seen = one.delivery.follow(&earlier, &mine).await.unwrap();
        assert_eq!(seen, ChangeRequestStatus::HandedOver);
        let outcome = two.delivery.deliver(&again(&later)).await.unwrap();
        assert!(matches!(outcome, Delivered::Rejected { .. }), "{outcome:?}");
    })
    .await;
}

/// The later promotion was rejected after its push, before anything else was done for it. Somebody else can write the name of
/// any promotion, too.
#[tokio::test]
async fn a_change_request_is_closed_if_its_branch_names_no_open_promotion() {
    everywhere(async |fixture| {
        let bench = bench();
        let (earlier, later) = (fixture.order("6.1.8"), fixture.order("6.2.0"));
        let request = proposed(&bench.delivery, &earlier).await;
        proposed(&bench.delivery, &later).await;
        let earlier = Order { open_beside: vec!["apps/podinfo-prod-6.3.0".into()], ..earlier };
        let end = bench.delivery.withdraw(&earlier, &request, "not wanted").await.unwrap();
        assert_eq!(end, ChangeRequestStatus::Closed);
        assert!(!fixture.pulls().await[0].open);
    })
    .await;
}

#[tokio::test]
async fn a_rewritten_branch_is_withdrawn_although_its_base_has_another_promotion() {
    let (fixture, bench) = (ForgeFixture::github().await, bench());
    let place = "Sluice-Pipeline: apps/podinfo\nSluice-Environment: prod\n";
    let message = format!("Promote\n\nSluice-Promotion: apps/earlier\n{place}");
    fixture.commit(&message, &[("other.yaml", "a: 1\n")]);
    let order = Order { open_beside: vec!["apps/earlier".into()], ..fixture.order("6.1.8") };
    let request = proposed(&bench.delivery, &order).await;
    fixture.repo().amend(&request.branch, "In other words").unwrap();
    let end = bench.delivery.withdraw(&order, &request, "not wanted").await.unwrap();
    assert_eq!(end, ChangeRequestStatus::Closed);
    assert!(!fixture.pulls().await[0].open);
}

/// A person has put a branch on top of what its base has got since: the merge of another environment.
#[tokio::test]
async fn commits_of_people_on_a_newer_base_are_withdrawn_although_it_has_another_promotion() {
    everywhere(async |fixture| {
        let open_beside = vec!["apps/podinfo-prod-6.2.0".into()];
        let (bench, order) = (bench(), Order { open_beside, ..fixture.order("6.1.8") });
        let request = proposed(&bench.delivery, &order).await;
        let newer = fixture.commit(
            "Promote podinfo to 6.1.8 in staging\n\nSluice-Promotion: apps/podinfo-staging-6.1.8\n\
             Sluice-Pipeline: apps/podinfo\nSluice-Environment: staging\nSluice-Revision: 6.1.8\n",
            &[("other.yaml", "a: 1\n")],
        );
        let branch = format!("refs/heads/{}", request.branch);
        git(fixture.repo().folder(), &["update-ref", &branch, &newer], "");
        fixture.push_files(&request.branch, &[(FILE, &yaml("6.1.8"))]);
        let end = bench.delivery.withdraw(&order, &request, "not wanted").await.unwrap();
        assert_eq!(end, ChangeRequestStatus::Closed);
        assert!(!fixture.pulls().await[0].open);
    })
    .await;
}

#[tokio::test]
async fn a_rejection_before_a_retry_does_not_count_again() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), fixture.order("6.1.8"));
        let first = proposed(&bench.delivery, &order).await;
        fixture.close(first.number).await;
        let asked = Order { withdrawn: vec![first.url.clone()], ..again(&order) };
        let second = proposed(&bench.delivery, &asked).await;
        // A person makes something else of it, and merges that.
        let base = fixture.commit("elsewhere", &[("other.yaml", "a: 1\n")]);
        git(fixture.repo().folder(), &["update-ref", &format!("refs/heads/{}", second.branch), &base], "");
        fixture.push_files(&second.branch, &[("third.yaml", "b: 2\n")]);
        fixture.merge(second.number).await;
        let third = proposed(&bench.delivery, &again(&order)).await;
        assert!(third.number > second.number.max(first.number), "{third:?}");
        // What is closed after that is a no.
        fixture.close(third.number).await;
        let end = bench.delivery.deliver(&again(&order)).await.unwrap();
        assert!(matches!(&end, Delivered::Rejected { request } if request.number == third.number), "{end:?}");
    })
    .await;
}

/// Gitea closes the pull requests of a deleted branch some time after the deletion. If a newer revision was proposed in
/// between, that is the state that this test makes.
#[tokio::test]
async fn a_change_request_that_gitea_closed_with_an_earlier_branch_is_opened_again_twice_at_most() {
    let fixture = ForgeFixture::gitea("closed_by_gitea").await;
    let (bench, order) = (bench(), fixture.order("6.1.8"));
    let rebuild = Order { rebuild: Some(OutdatedReason::ClosedByForge), ..again(&order) };
    let mut open = proposed(&bench.delivery, &order).await;
    for deletions in 1..=3 {
        closed_with_earlier_branch(&fixture, &bench, (&order, &open), deletions).await;
        if deletions == 3 {
            let rejected = bench.delivery.deliver(&rebuild).await.unwrap();
            assert!(matches!(rejected, Delivered::Rejected { .. }), "{rejected:?}");
        } else {
            let opened = proposed(&bench.delivery, &rebuild).await;
            assert_eq!((opened.number, &opened.head_commit), (open.number + 1, &open.head_commit));
            assert_eq!(proposed(&bench.delivery, &again(&order)).await.number, opened.number);
            open = opened;
        }
    }
    assert_eq!(fixture.pulls().await.len(), 3);
}

/// Everybody may comment, and open and close pull requests with long texts.
#[tokio::test]
async fn comments_and_long_texts_do_not_hide_that_gitea_closed_a_change_request() {
    let fixture = ForgeFixture::gitea("closed_and_flooded").await;
    let ForgeFixture::Gitea(RealGitea { repo, .. }) = &fixture else { unreachable!() };
    let (bench, text) = (bench(), "x".repeat(50_000));
    fixture.push_files("flood", &[("flood.txt", "a")]);
    for _ in 0..40 {
        let pull = repo.open_pull("flood", "main", "flood").await.unwrap();
        repo.edit(pull.number, json!({"body": text})).await.unwrap();
        repo.close(pull.number).await.unwrap();
    }
    let earlier = proposed(&bench.delivery, &fixture.order("6.1.8")).await;
    fixture.merge(earlier.number).await;
    let order = fixture.order("6.2.0");
    let open = proposed(&bench.delivery, &order).await;
    fixture.delete_branch_as_other(&open.branch).await;
    fixture.until_deleted(&open.branch, 1).await;
    fixture.create_branch(&open.branch, &open.head_commit).await;
    for _ in 0..60 {
        let comments = format!("issues/{}/comments", open.number);
        repo.api("POST", &comments, json!({"body": text})).await.unwrap();
    }
    let why = OutdatedReason::ClosedByForge;
    let outdated = ChangeRequestStatus::Open { head: open.head_commit.clone(), stale: Some(why) };
    until_status(&bench, (&order, &open), outdated).await;
}

/// Lets Gitea close a change request by the deletion of its branch, the branch's `deletions`th, and makes the branch again.
async fn closed_with_earlier_branch(
    fixture: &ForgeFixture,
    bench: &Bench,
    (order, open): (&Order, &ChangeRequest),
    deletions: usize,
) {
    fixture.delete_branch(&open.branch).await;
    fixture.until_deleted(&open.branch, deletions).await;
    // The branch is gone: a person who deletes it rejects the revision.
    until_status(bench, (order, open), ChangeRequestStatus::Closed).await;
    fixture.create_branch(&open.branch, &open.head_commit).await;
    let why = OutdatedReason::ClosedByForge;
    let outdated = ChangeRequestStatus::Open { head: open.head_commit.clone(), stale: Some(why) };
    until_status(bench, (order, open), outdated).await;
}

/// Waits until a change request has this status.
async fn until_status(bench: &Bench, (order, open): (&Order, &ChangeRequest), wanted: ChangeRequestStatus) {
    let is_so = async || {
        let status = bench.delivery.follow(order, open).await?;
        anyhow::ensure!(status == wanted, "{status:?}");
        Ok(())
    };
    sluice_testkit::eventually(sluice_testkit::WAIT_TIMEOUT, is_so).await.unwrap();
}

/// Somebody has closed the first change request, and a person has asked for a retry. Gitea closes the second one.
#[tokio::test]
async fn a_rejection_before_a_retry_does_not_count_again_when_gitea_closes_a_change_request() {
    let fixture = ForgeFixture::gitea("closed_after_retry").await;
    let (bench, order) = (bench(), fixture.order("6.1.8"));
    let rejected = proposed(&bench.delivery, &order).await;
    fixture.close(rejected.number).await;
    let retry = Order { withdrawn: vec![rejected.url.clone()], ..again(&order) };
    let second = proposed(&bench.delivery, &retry).await;
    closed_with_earlier_branch(&fixture, &bench, (&order, &second), 1).await;
    let rebuild = Order { rebuild: Some(OutdatedReason::ClosedByForge), ..again(&order) };
    let third = proposed(&bench.delivery, &rebuild).await;
    assert!(third.number > second.number && second.number > rejected.number, "{third:?}");
    // What a person closes now is a no.
    fixture.close(third.number).await;
    let end = bench.delivery.deliver(&again(&order)).await.unwrap();
    assert!(matches!(&end, Delivered::Rejected { request } if request.number == third.number), "{end:?}");
}

/// A person rejects a change request by deleting its branch. Gitea records the same if the person has deleted an earlier
/// branch, but there was none.
#[tokio::test]
async fn a_person_who_deletes_the_branch_is_not_overruled_by_another_who_makes_it_again() {
    let fixture = ForgeFixture::gitea("rejected_with_branch").await;
    let (bench, order) = (bench(), fixture.order("6.1.8"));
    let open = proposed(&bench.delivery, &order).await;
    fixture.delete_branch_as_other(&open.branch).await;
    fixture.until_deleted(&open.branch, 1).await;
    fixture.create_branch(&open.branch, &open.head_commit).await;
    until_status(&bench, (&order, &open), ChangeRequestStatus::Closed).await;
    let end = bench.delivery.deliver(&again(&order)).await.unwrap();
    assert!(matches!(&end, Delivered::Rejected { request } if request.number == open.number), "{end:?}");
}

#[tokio::test]
async fn a_change_request_that_was_opened_again_can_be_rejected() {
    let fixture = ForgeFixture::gitea("rejected_at_gitea").await;
    let (bench, order) = (bench(), fixture.order("6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.close(request.number).await;
    assert_eq!(bench.delivery.follow(&order, &request).await.unwrap(), ChangeRequestStatus::Closed);
    let rebuild = Order { rebuild: Some(OutdatedReason::ClosedByForge), ..again(&order) };
    let rejected = bench.delivery.deliver(&rebuild).await.unwrap();
    assert!(matches!(rejected, Delivered::Rejected { .. }), "{rejected:?}");
}
