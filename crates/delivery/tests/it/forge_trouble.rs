//! What forges do to us: lost answers, limits, refusals, silence.

use std::time::Duration;

use sluice_delivery::{Delivered, Followed, ForgeKind, Retry};

use crate::contract::proposed;
use crate::fixture::{again, bench, bench_with};
use crate::standin::{Call, Trouble};
use crate::world::World;

pub async fn everywhere(test: impl AsyncFn(World)) {
    for forge in ForgeKind::ALL {
        test(World::of(forge).await).await;
    }
}

#[tokio::test]
async fn a_lost_answer_to_an_open_is_found_at_once() {
    everywhere(async |world| {
        let bench = bench();
        world.standin().trouble(Call::Open, Trouble::Lose);
        proposed(&bench.delivery, &world.order("6.1.8")).await;
        assert_eq!(world.pulls().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn or_the_next_time() {
    everywhere(async |world| {
        let bench = bench();
        world.standin().trouble(Call::Open, Trouble::Lose);
        world.standin().trouble(Call::List, Trouble::Answer(502, vec![], "bad gateway"));
        let order = world.order("6.1.8");
        let error = bench.delivery.deliver(&order).await.unwrap_err();
        assert_eq!((error.reason(), error.retry()), ("Unreachable", Retry::Soon));
        proposed(&bench.delivery, &again(&order)).await;
        assert_eq!(world.pulls().await.len(), 1);
        assert_eq!(bench.delivery.stats().git_pushes, 1);
    })
    .await;
}

#[tokio::test]
async fn one_that_is_there_already_is_taken_over() {
    everywhere(async |world| {
        let bench = bench();
        let first = proposed(&bench.delivery, &world.order("6.1.8")).await;
        // The branch goes and comes back while the forge keeps the change request.
        let other = world.order("6.2.0");
        world.repo().remove_branch("sluice/apps/podinfo/prod").unwrap();
        let second = proposed(&bench.delivery, &other).await;
        assert_eq!(first.number, second.number);
        let pulls = world.pulls().await;
        assert_eq!((pulls.len(), pulls[0].title.as_str()), (1, "Promote apps/podinfo to 6.2.0 in prod"));
    })
    .await;
}

#[tokio::test]
async fn following_costs_nothing_while_nothing_changes() {
    everywhere(async |world| {
        let bench = bench();
        let order = world.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        for _ in 0..5 {
            let followed = bench.delivery.follow(&order, &request).await.unwrap();
            assert_eq!(followed, Followed::Open { head: request.head_commit.clone(), conflicts: false });
        }
        let forge = world.standin().kind;
        let stats = bench.delivery.stats();
        // Where a forge does not remember what it has answered, a look is one call. Bitbucket Cloud asks
        // for the whole id of a commit once, and looked when one was opened.
        let (read, unchanged) = match forge {
            ForgeKind::Bitbucket => (8, None),
            ForgeKind::BitbucketServer | ForgeKind::AzureDevOps => (5, None),
            _ => (1, Some(&4)),
        };
        assert_eq!(stats.forge_calls.get(&(forge.name(), "GET", 200)), Some(&read), "{stats:?}");
        assert_eq!(stats.forge_calls.get(&(forge.name(), "GET", 304)), unchanged, "{stats:?}");
        let left: Vec<_> = stats.forge_budgets.iter().map(|purse| purse.left).collect();
        assert_eq!(left, [Some(4999)]);
        world.merge(request.number).await;
        let followed = bench.delivery.follow(&order, &request).await.unwrap();
        assert!(matches!(followed, Followed::Merged { .. }), "{followed:?}");
    })
    .await;
}

#[tokio::test]
async fn refusals_are_told_in_the_forges_words() {
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
        (500, "oops t0ken", "Unreachable", "oops ***"),
        (200, "<html>", "ForgeRefused", "cannot be read"),
    ];
    for (status, text, reason, words) in cases {
        let world = World::github().await;
        world.standin().trouble(Call::Open, Trouble::Answer(status, vec![], text));
        let error = bench().delivery.deliver(&world.order("6.1.8")).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn silence_has_an_end() {
    let world = World::github().await;
    let bench = bench_with(|o| o.deadline = Duration::from_secs(2));
    let order = world.order("6.1.8");
    world.standin().trouble(Call::Open, Trouble::Hang);
    let error = bench.delivery.deliver(&order).await.unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("Timeout", Retry::Soon));
    proposed(&bench.delivery, &again(&order)).await;
}

#[tokio::test]
async fn a_repository_that_cannot_be_seen_is_not_a_change_request_that_is_gone() {
    everywhere(async |world| {
        let bench = bench();
        let order = world.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        for call in [Call::Read, Call::Repository] {
            world.standin().trouble(call, Trouble::Answer(404, vec![], "{}"));
        }
        let error = bench.delivery.follow(&order, &request).await.unwrap_err();
        assert_eq!(error.reason(), "RepositoryNotFound");
    })
    .await;
}

#[tokio::test]
async fn two_orders_for_one_environment_at_once_make_one_change_request() {
    everywhere(async |world| {
        let (one, two) = (bench(), bench());
        let (a, b) = (world.order("6.1.8"), world.order("6.2.0"));
        let done = tokio::join!(one.delivery.deliver(&a), two.delivery.deliver(&b), one.delivery.deliver(&b));
        for done in [done.0.unwrap(), done.1.unwrap(), done.2.unwrap()] {
            assert!(matches!(done, Delivered::Proposed { merged: false, .. }), "{done:?}");
        }
        assert_eq!(world.pulls().await.iter().filter(|p| p.open).count(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_commit_that_was_fetched_as_an_end_can_be_pushed_again() {
    let world = World::github().await;
    let (one, two) = (bench(), bench());
    let (a, b) = (world.order("6.1.8"), world.order("6.2.0"));
    proposed(&two.delivery, &b).await;
    // The first cache sees the commit of `b` as the end of a shallow branch, and then makes it itself.
    for order in [&a, &b] {
        proposed(&one.delivery, order).await;
    }
    assert_eq!(world.pulls().await.len(), 1);
    assert_eq!(one.delivery.stats().git_rebuilds, 1);
}

#[tokio::test]
async fn a_comment_that_is_refused_or_lost_is_not_said_twice() {
    everywhere(async |world| {
        let bench = bench();
        for (version, trouble, comments) in
            [("6.1.8", Trouble::Answer(403, vec![], "{}"), 0), ("6.2.0", Trouble::Lose, 1)]
        {
            let order = world.order(version);
            let request = proposed(&bench.delivery, &order).await;
            world.standin().trouble(Call::Comment, trouble);
            for _ in 0..2 {
                let end = bench.delivery.withdraw(&order, &request, "Superseded.").await.unwrap();
                assert_eq!(end, Followed::Closed);
            }
            assert_eq!(world.comments(request.number).await.len(), comments);
        }
    })
    .await;
}
