//! Faults of forges: lost answers, rate limits, rejections, timeouts.

use std::time::Duration;

use sluice_delivery::{
    ChangeRequestStatus, Delivered, DeliveryError, DeliveryStrategy, ForgeKind, Order, Retry,
};

use crate::any_forge::{ForgeFixture, everywhere};
use crate::change_request::{MAX_LOOKS, merging, proposed};
use crate::fixture::{Bench, FILE, again, bench, bench_with};
use crate::standin::{CallKind, ForgeFault};

#[tokio::test]
async fn a_change_request_whose_answer_got_lost_is_found_immediately() {
    everywhere(async |fixture| {
        let bench = bench();
        fixture.standin().inject_fault(CallKind::Open, ForgeFault::Lose);
        proposed(&bench.delivery, &fixture.order("6.1.8")).await;
        assert_eq!(fixture.pulls().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_change_request_whose_answer_got_lost_is_found_by_the_next_try() {
    everywhere(async |fixture| {
        let bench = bench();
        fixture.standin().inject_fault(CallKind::Open, ForgeFault::Lose);
        for _ in 0..3 {
            fixture.standin().inject_fault(CallKind::List, ForgeFault::Answer(502, vec![], "bad gateway"));
        }
        let order = fixture.order("6.1.8");
        let error = bench.delivery.deliver(&order).await.unwrap_err();
        assert_eq!((error.reason(), error.retry()), ("Unreachable", Retry::Soon));
        proposed(&bench.delivery, &again(&order)).await;
        assert_eq!(fixture.pulls().await.len(), 1);
        assert_eq!(bench.delivery.stats().git_pushes, 1);
    })
    .await;
}

#[tokio::test]
async fn an_open_change_request_is_updated_after_its_branch_was_deleted() {
    everywhere(async |fixture| {
        let bench = bench();
        let first = proposed(&bench.delivery, &fixture.order("6.1.8")).await;
        // The branch goes and comes back while the forge keeps the change request.
        let other = fixture.order("6.2.0");
        fixture.repo().remove_branch("sluice/apps/podinfo/prod").unwrap();
        let second = proposed(&bench.delivery, &other).await;
        assert_eq!(first.number, second.number);
        let pulls = fixture.pulls().await;
        assert_eq!((pulls.len(), pulls[0].title.as_str()), (1, "Promote apps/podinfo to 6.2.0 in prod"));
    })
    .await;
}

#[tokio::test]
async fn following_an_unchanged_change_request_makes_few_calls() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = fixture.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        for _ in 0..5 {
            let followed = bench.delivery.follow(&order, &request).await.unwrap();
            assert_eq!(
                followed,
                ChangeRequestStatus::Open { head: request.head_commit.clone(), stale: None }
            );
        }
        let forge = fixture.standin().kind;
        let stats = bench.delivery.stats();
        // Where a forge does not remember what it has answered, a look is one call. Bitbucket Cloud asks
        // for the whole id of a commit once and for conflicts once, and looked when one was opened.
        let (read, unchanged) = match forge {
            ForgeKind::Bitbucket => (8, None),
            ForgeKind::GitHub | ForgeKind::GitLab => (1, Some(&4)),
            _ => (5, None),
        };
        assert_eq!(stats.forge_calls.get(&(forge.name(), "GET", 200)), Some(&read), "{stats:?}");
        assert_eq!(stats.forge_calls.get(&(forge.name(), "GET", 304)), unchanged, "{stats:?}");
        let left: Vec<_> = stats.forge_budgets.iter().map(|purse| purse.left).collect();
        // The others have no limits, or do not tell.
        let told = matches!(forge, ForgeKind::GitHub | ForgeKind::GitLab).then_some(4999);
        assert_eq!(left, [told]);
        fixture.merge(request.number).await;
        let followed = bench.delivery.follow(&order, &request).await.unwrap();
        assert!(matches!(followed, ChangeRequestStatus::Merged { .. }), "{followed:?}");
    })
    .await;
}

#[tokio::test]
async fn rejections_have_the_message_of_the_forge() {
    let cases = [
        (
            403,
            r#"{"message":"Resource not accessible by integration"}"#,
            "PermissionDenied",
            "not accessible",
        ),
        (404, r#"{"message":"Not Found"}"#, "RepositoryNotFound", "check the address"),
        (
            422,
            r#"{"message":"Validation Failed","errors":[{"message":"No commits between"}]}"#,
            "ForgeRefused",
            "No commits",
        ),
        (301, "", "Redirected", "new address"),
        (500, "oops t0ken", "Unreachable", "status 500"),
        (200, "<html>", "ForgeRefused", "cannot be read"),
    ];
    for (status, text, reason, words) in cases {
        let fixture = ForgeFixture::github().await;
        fixture.standin().inject_fault(CallKind::Open, ForgeFault::Answer(status, vec![], text));
        let error = bench().delivery.deliver(&fixture.order("6.1.8")).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_hanging_forge_call_times_out() {
    let fixture = ForgeFixture::github().await;
    let bench = bench_with(|o| o.deadline = Duration::from_secs(10));
    let order = fixture.order("6.1.8");
    fixture.standin().inject_fault(CallKind::Open, ForgeFault::Hang);
    let error = bench.delivery.deliver(&order).await.unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("Timeout", Retry::Soon));
    proposed(&bench.delivery, &again(&order)).await;
}

#[tokio::test]
async fn a_repository_that_cannot_be_seen_is_not_a_change_request_that_is_gone() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = fixture.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        for call in [CallKind::Read, CallKind::Repository] {
            fixture.standin().inject_fault(call, ForgeFault::Answer(404, vec![], "{}"));
        }
        let error = bench.delivery.follow(&order, &request).await.unwrap_err();
        assert_eq!(error.reason(), "RepositoryNotFound");
    })
    .await;
}

#[tokio::test]
async fn simultaneous_orders_for_one_environment_open_one_change_request() {
    everywhere(async |fixture| {
        let (one, two) = (bench(), bench());
        let (a, b) = (fixture.order("6.1.8"), fixture.order("6.2.0"));
        let done = tokio::join!(one.delivery.deliver(&a), two.delivery.deliver(&b), one.delivery.deliver(&b));
        for done in [done.0.unwrap(), done.1.unwrap(), done.2.unwrap()] {
            assert!(matches!(done, Delivered::Proposed { merged: false, .. }), "{done:?}");
        }
        assert_eq!(fixture.pulls().await.iter().filter(|p| p.open).count(), 1);
    })
    .await;
}

#[tokio::test]
async fn the_last_commit_of_a_shallow_fetch_can_be_pushed_again() {
    let fixture = ForgeFixture::github().await;
    let (one, two) = (bench(), bench());
    let (a, b) = (fixture.order("6.1.8"), fixture.order("6.2.0"));
    proposed(&two.delivery, &b).await;
    // The first cache sees the commit of `b` as the end of a shallow branch, and then makes it itself.
    for order in [&a, &b] {
        proposed(&one.delivery, order).await;
    }
    assert_eq!(fixture.pulls().await.len(), 1);
    assert_eq!(one.delivery.stats().git_rebuilds, 1);
}

#[tokio::test]
async fn a_comment_that_was_refused_or_lost_is_not_repeated() {
    everywhere(async |fixture| {
        let bench = bench();
        for (version, trouble, comments) in
            [("6.1.8", ForgeFault::Answer(403, vec![], "{}"), 0), ("6.2.0", ForgeFault::Lose, 1)]
        {
            let order = fixture.order(version);
            let request = proposed(&bench.delivery, &order).await;
            fixture.standin().inject_fault(CallKind::Comment, trouble);
            for _ in 0..2 {
                let end = bench.delivery.withdraw(&order, &request, "Superseded.").await.unwrap();
                assert_eq!(end, ChangeRequestStatus::Closed);
            }
            assert_eq!(fixture.comments(request.number).await.len(), comments);
        }
    })
    .await;
}

#[tokio::test]
async fn reviewers_are_added_once_after_failed_or_lost_answers() {
    everywhere(async |fixture| {
        for trouble in [ForgeFault::Answer(502, vec![], "bad gateway"), ForgeFault::Lose] {
            let (bench, joe) = (bench(), fixture.joe().await);
            let order = fixture.order_with("6.1.8", |settings| settings.reviewers = vec![joe.clone()]);
            // At Bitbucket Cloud it is a change of the whole.
            let call = if fixture.kind() == ForgeKind::Bitbucket { CallKind::Update } else { CallKind::Add };
            fixture.standin().inject_fault(call, trouble);
            let request = proposed(&bench.delivery, &order).await;
            assert_eq!(request.notes, Vec::<String>::new());
            let pull = fixture.pulls().await.pop().unwrap();
            assert_eq!(pull.reviewers.iter().filter(|r| **r == joe).count(), 1, "{pull:?}");
            fixture.close(request.number).await;
            fixture.repo().remove_branch(&request.branch).unwrap();
        }
    })
    .await;
}

/// Otherwise nobody would close it if the promotion is rejected, or the pipeline edited, before the next try.
#[tokio::test]
async fn an_open_change_request_is_reported_although_its_labels_cannot_be_added() {
    let (fixture, bench) = (ForgeFixture::github().await, bench());
    let order = fixture.order_with("6.1.8", |settings| settings.labels = vec!["promotion".into()]);
    for _ in 0..3 {
        fixture.standin().inject_fault(CallKind::Add, ForgeFault::Answer(500, vec![], "{}"));
    }
    let request = proposed(&bench.delivery, &order).await;
    assert!(request.notes[0].contains("were not all added: "), "{request:?}");
    assert!(fixture.pulls().await[0].labels.is_empty());
}

/// The next try may be into another repository.
#[tokio::test]
async fn a_change_request_is_found_although_its_answer_is_lost_and_the_forge_fails_for_a_moment() {
    everywhere(async |fixture| {
        fixture.standin().inject_fault(CallKind::Open, ForgeFault::Lose);
        fixture.standin().inject_fault(CallKind::List, ForgeFault::Answer(502, vec![], "bad gateway"));
        let bench = bench();
        let request = proposed(&bench.delivery, &fixture.order("6.1.8")).await;
        assert_eq!(fixture.pulls().await.len(), 1, "{request:?}");
    })
    .await;
}

/// Tries until it is done; every failure on the way is one that goes away.
async fn until_done<T>(order: &Order, act: impl AsyncFn(&Order) -> Result<T, DeliveryError>) -> T {
    let mut order = order.clone();
    for _ in 0..4 {
        match act(&order).await {
            Ok(done) => return done,
            Err(error) => assert_eq!(error.retry(), Retry::Soon, "{error}"),
        }
        order.retried = true;
    }
    panic!("{} is not done", order.promotion)
}

#[tokio::test]
async fn no_call_is_repeated_whichever_answer_is_lost() {
    everywhere(async |fixture| any_answer_can_be_lost(&fixture).await).await;
}

#[tokio::test]
async fn no_call_is_repeated_whichever_answer_of_a_real_gitea_is_lost() {
    any_answer_can_be_lost(&ForgeFixture::gitea_behind_a_fault_proxy("lost-answers").await).await;
}

/// Plays the same again with each answer lost, of the calls that change something: one is opened, replaced and
/// closed; and one is opened and merged.
async fn any_answer_can_be_lost(fixture: &ForgeFixture) {
    let bench = bench();
    let closed = until_none_is_lost(fixture, async |n| closes_one(fixture, &bench, n).await).await;
    // Opening, what is added, updating, closing, the comment.
    assert!(closed > 5, "only {closed} calls");
    let merged = until_none_is_lost(fixture, async |n| merges_one(fixture, &bench, closed + n).await).await;
    assert!(merged > 2, "only {merged} calls");
    let all = fixture.pulls().await;
    let ended =
        (all.iter().filter(|p| !p.open && !p.merged).count(), all.iter().filter(|p| p.merged).count());
    assert_eq!((all.len(), ended), (closed + merged, (closed, merged)), "{all:#?}");
}

/// Says how often it was played.
async fn until_none_is_lost(fixture: &ForgeFixture, play: impl AsyncFn(usize)) -> usize {
    let mut n = 0;
    loop {
        n += 1;
        fixture.lose(n);
        play(n).await;
        if !fixture.has_lost() {
            return n;
        }
    }
}

async fn closes_one(fixture: &ForgeFixture, bench: &Bench, n: usize) {
    let joe = fixture.joe().await;
    let (no_labels, no_assignees) = fixture.lacks();
    let mut number = None;
    for version in [format!("7.{n}.0"), format!("7.{n}.1")] {
        let order = fixture.order_with(&version, |settings| {
            settings.reviewers = vec![joe.clone()];
            settings.labels = if no_labels { vec![] } else { vec!["ready".into(), "sluice".into()] };
            settings.assignees = if no_assignees { vec![] } else { vec![joe.clone()] };
        });
        let done = until_done(&order, async |order| bench.delivery.deliver(order).await).await;
        let Delivered::Proposed { request, merged: false } = done else { panic!("{done:?}") };
        assert_eq!(*number.get_or_insert(request.number), request.number, "answer {n}: a second one");
        assert_eq!(request.notes, Vec::<String>::new());
        let mut pull = fixture.pulls().await.pop().unwrap();
        pull.labels.sort();
        let DeliveryStrategy::PullRequest { settings, .. } = &order.strategy else { unreachable!() };
        assert_eq!(pull.labels, settings.labels, "answer {n}");
        let asked = pull.reviewers.iter().filter(|r| **r == joe).count();
        assert_eq!((pull.open, asked, pull.assignees), (true, 1, settings.assignees.clone()));
        assert!(pull.title.contains(&version), "{}", pull.title);
        if version.ends_with(".1") {
            let withdraw = async |order: &Order| bench.delivery.withdraw(order, &request, "no").await;
            assert_eq!(until_done(&order, withdraw).await, ChangeRequestStatus::Closed);
            assert!(fixture.comments(request.number).await.len() <= 1, "answer {n}");
        }
    }
}

async fn merges_one(fixture: &ForgeFixture, bench: &Bench, n: usize) {
    let order = merging(fixture, &format!("7.{n}.2"));
    let done = until_done(&order, async |order| bench.delivery.deliver(order).await).await;
    let Delivered::Proposed { request, merged: false } = done else { panic!("{done:?}") };
    let tend = async |order: &Order| bench.delivery.advance(order, &request).await.map(|look| look.status);
    let mut looks = 0;
    while !matches!(until_done(&order, tend).await, ChangeRequestStatus::Merged { ours: true, .. }) {
        looks += 1;
        assert!(looks < MAX_LOOKS, "answer {n}: it is not merged");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(fixture.repo().read("main", FILE).unwrap().contains(&format!("7.{n}.2")), "answer {n}");
}

#[tokio::test]
async fn a_change_request_is_gone_only_if_all_answers_agree() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = fixture.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        fixture.standin().inject_fault(CallKind::Read, ForgeFault::Answer(404, vec![], "{}"));
        let followed = bench.delivery.follow(&order, &request).await.unwrap();
        assert!(matches!(followed, ChangeRequestStatus::Open { .. }), "{followed:?}");
        fixture.standin().inject_fault(CallKind::Read, ForgeFault::Answer(404, vec![], "{}"));
        let end = bench.delivery.withdraw(&order, &request, "Superseded.").await.unwrap();
        assert_eq!(end, ChangeRequestStatus::Closed);
        assert!(fixture.pulls().await.iter().all(|pull| !pull.open));
    })
    .await;
}

#[tokio::test]
async fn a_forge_without_drafts_is_noted() {
    let fixture = ForgeFixture::github().await;
    let no = r#"{"message":"Draft pull requests are not supported in this repository."}"#;
    fixture.standin().inject_fault(CallKind::Open, ForgeFault::Answer(422, vec![], no));
    let request = proposed(&bench().delivery, &fixture.order_with("6.1.8", |s| s.draft = true)).await;
    assert_eq!(
        request.notes,
        ["the forge has no drafts for this repository: the change request is open for review"]
    );
    assert!(!fixture.pulls().await[0].draft);
}

#[tokio::test]
async fn a_merge_in_progress_does_not_count_as_a_rejection() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = fixture.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        fixture.merge(request.number).await;
        fixture.standin().forge_state(|forge_state| forge_state.shows_merged_as_closed = true);
        let followed = bench.delivery.follow(&order, &request).await.unwrap();
        assert!(matches!(followed, ChangeRequestStatus::Merged { ours: true, .. }), "{followed:?}");
        fixture.standin().forge_state(|forge_state| forge_state.shows_merged_as_closed = true);
        let done = bench.delivery.deliver(&again(&order)).await.unwrap();
        assert!(matches!(done, Delivered::Proposed { merged: true, .. }), "{done:?}");
        assert!(!fixture.standin().forge_state(|forge_state| forge_state.shows_merged_as_closed));
    })
    .await;
}

#[tokio::test]
async fn an_incomplete_answer_about_a_merge_is_read_again() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = fixture.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        fixture.merge(request.number).await;
        fixture.standin().inject_fault(CallKind::Commit, ForgeFault::Answer(200, vec![], r#"{"sha": "0123"#));
        let error = bench.delivery.follow(&order, &request).await.unwrap_err();
        assert_eq!((error.reason(), error.retry()), ("ForgeRefused", Retry::Soon));
        let followed = bench.delivery.follow(&order, &request).await.unwrap();
        assert!(matches!(followed, ChangeRequestStatus::Merged { ours: true, .. }), "{followed:?}");
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_rate_limit_follows_the_clock_of_the_forge() {
    let fixture = ForgeFixture::github().await;
    // The forge's clock is an hour behind ours; half a minute later by it, calls are welcome again.
    let there = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1);
    let headers = vec![
        ("date", jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&there).unwrap()),
        ("x-ratelimit-remaining", "0".into()),
        ("x-ratelimit-reset", (there.as_second() + 30).to_string()),
    ];
    fixture.standin().inject_fault(CallKind::Open, ForgeFault::Answer(403, headers, "{}"));
    let error = bench().delivery.deliver(&fixture.order("6.1.8")).await.unwrap_err();
    let Retry::At(until) = error.retry() else { panic!("{error}") };
    let pause = until.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((20..=31).contains(&pause), "{pause} seconds");
}
