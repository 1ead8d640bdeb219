//! Pipelines that share the cache of a repository never see what the server returned to the credentials of another one.

use futures::future::join_all;
use sluice_core::setters::{Update, UpdateTarget};
use sluice_delivery::{Credentials, Delivered, ForgeKind, Order, Values};
use sluice_testkit::GitServer;

use crate::any_forge::ForgeFixture;
use crate::commit::{server, to_main};
use crate::fixture::{FILE, again, bench, yaml};
use crate::git_trouble::with_password;

/// What only those may know of who may read the repository.
const HIDDEN: &str = "kind: Secret\nmetadata: {name: payroll-db}\nspec: {password: hunter2}\n";
const PATH: &str = "prod/merger-with-acme.yaml";

/// The order of another pipeline, in another namespace, that asks for what it cannot know.
fn guess(order: &Order, n: usize, field: &str, value: &str, credentials: Credentials) -> Order {
    let update = Update {
        path: "prod/*.yaml".into(),
        kind: Some(if field.is_empty() { "Guess" } else { "Secret" }.into()),
        field: if field.is_empty() { "spec.x" } else { field }.into(),
        value: Some(value.into()).filter(|value: &String| !value.is_empty()),
        ..Update::default()
    };
    let place = UpdateTarget { environment: "prod".into(), target: "eu".into(), ..UpdateTarget::default() };
    let values = Values::Listed { updates: vec![update], places: vec![place] };
    let (namespace, pipeline) = ("evil".to_string(), format!("b{n}"));
    let promotion = format!("{namespace}/{pipeline}-prod");
    Order { namespace, pipeline, promotion, values, credentials, ..order.clone() }
}

/// Three guesses: at names of objects, at fields, and at a value.
fn guesses(order: &Order, credentials: &Credentials) -> Vec<Order> {
    let asked = [("", ""), ("spec.x", ""), ("spec.password", "hunter2")];
    let all = asked.into_iter().enumerate();
    all.map(|(n, (field, value))| guess(order, n, field, value, credentials.clone())).collect()
}

fn wrong() -> Credentials {
    with_password(to_nowhere(), GitServer::USER, "wrong").credentials
}

fn to_nowhere() -> Order {
    let strategy = sluice_delivery::DeliveryStrategy::Notification(Box::default());
    crate::fixture::order(strategy, "1.0.0")
}

/// The good orders are delivered. Each of the others gets an error that names the missing permission and no content.
async fn nothing_is_told(good: Vec<Order>, evil: Vec<Order>) {
    let bench = bench();
    let all: Vec<&Order> = good.iter().chain(&evil).collect();
    let mut done = join_all(all.iter().map(|order| bench.delivery.deliver(order))).await;
    let refused = done.split_off(good.len());
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    // While what was known of the branch is a moment old, and after an earlier try as well.
    let late = join_all(evil.iter().map(|order| bench.delivery.deliver(order))).await;
    let again = evil.iter().map(again).collect::<Vec<_>>();
    let again = join_all(again.iter().map(|order| bench.delivery.deliver(order))).await;
    for refused in refused.into_iter().chain(late).chain(again) {
        let error = refused.unwrap_err();
        assert_eq!(error.reason(), "AuthenticationFailed", "{error}");
        for word in ["merger", "payroll", "hunter2", "spec.", FILE] {
            assert!(!format!("{error} {error:?}").contains(word), "{error:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_without_read_access_see_nothing_of_earlier_deliveries() {
    for credentials in [Credentials::default(), wrong()] {
        let (_server, repo) = server(&[(FILE, &yaml("6.1.5")), (PATH, HIDDEN)]);
        let good = [to_main(&repo, "6.1.8"), to_main(&repo, "6.2.0")];
        let evil = guesses(&good[0], &credentials);
        nothing_is_told(good.to_vec(), evil).await;
        assert_eq!(repo.log("main").unwrap().len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_without_read_access_see_nothing_of_earlier_change_requests() {
    let fixture = ForgeFixture::of(ForgeKind::GitHub).await;
    let of_other = yaml("6.1.5").replace("podinfo", "other");
    fixture.commit("content that must stay hidden", &[(PATH, HIDDEN), ("other.yaml", &of_other)]);
    let good = fixture.order("6.1.8");
    // The first asks for its own branch alone; the second for those of all who wait by then.
    let promotion = "apps/other-prod".to_string();
    let second = Order { pipeline: "other".into(), promotion, ..good.clone() };
    // Its forge would take the token; git takes the password.
    let token = good.credentials.token.clone();
    let evil = guesses(&good, &Credentials { token, ..wrong() });
    nothing_is_told(vec![good, second], evil).await;
    assert_eq!(fixture.pulls().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sets_of_credentials_fetch_once_each_and_share_pushes() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let bench = bench();
    // The same password with a key that is of no use there: rights of their own.
    let orders: Vec<Order> = (0..8)
        .map(|n| {
            let mut order = to_main(&repo, &format!("6.2.{n}"));
            order.pipeline = "podinfo".into();
            order.credentials.identity = (n % 2 == 1).then(|| b"a key".to_vec());
            order
        })
        .collect();
    for done in join_all(orders.iter().map(|order| bench.delivery.deliver(order))).await {
        assert!(matches!(done.unwrap(), Delivered::Committed { .. }));
    }
    let stats = bench.delivery.stats();
    assert_eq!((stats.git_fetches, stats.git_pushes), (2, 8));
    assert_eq!(repo.log("main").unwrap().len(), 9);
}
