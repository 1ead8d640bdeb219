//! Many deliveries at the same time: promotions into one repository wait for each other, and for no other.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use sluice_delivery::{Delivered, DeliveryStrategy, ForgeKind, Order};
use sluice_testkit::fault_injection::{ChaosForge, Fault, FaultPlan, HostedRepo, PullState};

use crate::chaos::is_large;
use crate::fixture::{again, bench, bench_with, order};

/// The file of an application, with the marker for its own pipeline.
fn file(i: usize, version: &str) -> (String, String) {
    let text = format!("version: {version} # {{\"$promotion\": \"apps:app-{i}:prod\"}}\n");
    (format!("apps/{i}.yaml"), text)
}

fn hosted(forge: &ChaosForge, applications: usize) -> HostedRepo {
    named(forge, "fleet", applications)
}

fn named(forge: &ChaosForge, name: &str, applications: usize) -> HostedRepo {
    let files: Vec<(String, String)> = (0..applications).map(|i| file(i, "1.0.0")).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    forge.create_repo(name, &files).unwrap()
}

fn of_application(i: usize, strategy: DeliveryStrategy) -> Order {
    at_version(i, strategy, "1.1.0")
}

fn at_version(i: usize, strategy: DeliveryStrategy, version: &str) -> Order {
    let promotion = format!("apps/app-{i}-prod-{version}");
    let facet = (format!("HelmRelease/app-{i}:chart"), version.to_string());
    let revision = sluice_core::Revision::from_strings(&[facet].into()).unwrap();
    Order { promotion, pipeline: format!("app-{i}"), revision, ..order(strategy, version) }
}

fn committed(hosted: &HostedRepo) -> DeliveryStrategy {
    DeliveryStrategy::Commit { url: hosted.url.clone(), branch: "main".into() }
}

fn proposed(hosted: &HostedRepo) -> DeliveryStrategy {
    DeliveryStrategy::PullRequest {
        forge: ForgeKind::GitHub,
        url: hosted.url.clone(),
        base: "main".into(),
        settings: Box::default(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_to_one_branch_wait_for_each_other_and_share_their_fetches() {
    let many = if is_large() { 200 } else { 60 };
    let forge = ChaosForge::start().unwrap();
    let hosted = hosted(&forge, many);
    let bench = bench();
    let started = Instant::now();
    let orders: Vec<Order> = (0..many).map(|i| of_application(i, committed(&hosted))).collect();
    let all = orders.iter().map(|order| bench.delivery.deliver(order));
    for done in join_all(all).await {
        assert!(matches!(done.unwrap(), Delivered::Committed { .. }));
    }
    let (took, stats) = (started.elapsed(), bench.delivery.stats());
    println!(
        "{many} commits in {took:?}: {} fetches, {} pushes, {:?}",
        stats.git_fetches,
        stats.git_pushes,
        forge.fault_proxy().counts()
    );
    assert_eq!(stats.git_pushes, many as u64, "a push was refused");
    // One for the first delivery, and one for files that a partial clone leaves out.
    assert!(stats.git_fetches <= 2 + took.as_secs(), "{} fetches in {took:?}", stats.git_fetches);
    let log = hosted.repo.log("main").unwrap();
    let carried: BTreeSet<&str> = log
        .iter()
        .flat_map(|c| c.body.lines())
        .filter_map(|l| l.strip_prefix("Sluice-Promotion: "))
        .collect();
    assert_eq!((log.len(), carried.len()), (many + 1, many));
    for i in 0..many {
        let (path, text) = file(i, "1.1.0");
        assert_eq!(hosted.repo.read("main", &path).unwrap(), text);
    }

    // As after a restart: all look for what they have done, with one look for all.
    let next = bench_with(|o| o.cache_dir = bench.cache.path().into());
    let orders: Vec<Order> = orders.iter().take(50).map(again).collect();
    for done in join_all(orders.iter().map(|order| next.delivery.deliver(order))).await {
        assert!(matches!(done.unwrap(), Delivered::Committed { .. }));
    }
    let stats = next.delivery.stats();
    // The first has asked before the others came.
    assert!(stats.git_fetches <= 3 && stats.git_pushes == 0, "{stats:?}");
    forge.check_invariants().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_requests_to_one_branch_have_a_push_each_and_share_their_fetches() {
    const MANY: usize = 40;
    let forge = ChaosForge::start().unwrap();
    let hosted = hosted(&forge, MANY);
    let bench = bench();
    // All are opened, and then all updated in place.
    for (waves, version) in [(1, "1.1.0"), (2, "1.2.0")] {
        let (started, before) = (Instant::now(), bench.delivery.stats());
        let orders: Vec<Order> = (0..MANY).map(|i| at_version(i, proposed(&hosted), version)).collect();
        for done in join_all(orders.iter().map(|order| bench.delivery.deliver(order))).await {
            assert!(matches!(done.unwrap(), Delivered::Proposed { merged: false, .. }));
        }
        let (took, stats) = (started.elapsed(), bench.delivery.stats());
        let fetches = stats.git_fetches - before.git_fetches;
        println!("{MANY} change requests in {took:?}: {fetches} fetches, {:?}", forge.fault_proxy().counts());
        // One for the first delivery, one for those who wait then, one for files of a partial clone.
        assert!(fetches <= 3 + took.as_secs(), "{fetches} fetches in {took:?}");
        assert_eq!((stats.git_pushes, stats.calls("POST")), (MANY as u64 * waves, MANY as u64));
    }
    let open = forge.requests(&hosted).into_iter().filter(|r| r.state == PullState::Open).count();
    assert_eq!(open, MANY);
    assert_eq!(forge.merge(&hosted), MANY);
    let (path, text) = file(MANY - 1, "1.2.0");
    assert_eq!(hosted.repo.read("main", &path).unwrap(), text);
    forge.check_invariants().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_that_share_a_fetch_see_earlier_and_foreign_pushes() {
    let forge = ChaosForge::start().unwrap();
    let hosted = hosted(&forge, 2);
    let bench = bench();
    let orders: Vec<Order> = (0..2).map(|i| of_application(i, committed(&hosted))).collect();
    bench.delivery.deliver(&orders[0]).await.unwrap();
    // Within the second: what is known of the branch is not how it is.
    let (path, text) = file(1, "1.1.0");
    let by_hand = hosted.repo.commit("main", "by hand", &[(&path, &text)]).unwrap();
    let done = bench.delivery.deliver(&orders[1]).await.unwrap();
    assert_eq!(done, Delivered::AlreadySet { commit: by_hand });
}

/// Commits `many` promotions into one branch, and after them one more, which `of` describes like the others: by
/// namespace, pipeline and environment. Returns how many commits the branch has, and the place of the last
/// promotion among them, the oldest commit being 0.
async fn place_of_the_last(many: usize, of: impl Fn(usize) -> [String; 3]) -> (usize, Option<usize>) {
    let file = |n: usize| {
        let marker = format!("{{\"$promotion\": \"{}\"}}", of(n).join(":"));
        (format!("{n}.yaml"), format!("version: 1.0.0 # {marker}\n"))
    };
    let files: Vec<(String, String)> = (0..=many).map(file).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let forge = ChaosForge::start().unwrap();
    let hosted = forge.create_repo("fleet", &files).unwrap();
    let bench = bench();
    let order = |n: usize| {
        let [namespace, pipeline, environment] = of(n);
        let promotion = format!("{namespace}/{pipeline}-{environment}");
        Order { promotion, namespace, pipeline, environment, ..order(committed(&hosted), "1.1.0") }
    };
    let orders: Vec<Order> = (0..=many).map(order).collect();
    for done in join_all(orders.iter().map(|order| bench.delivery.deliver(order))).await {
        assert!(matches!(done.unwrap(), Delivered::Committed { .. }));
    }
    let log = hosted.repo.log("main").unwrap();
    let last = format!("Sluice-Promotion: {}", orders[many].promotion);
    (log.len(), log.iter().rev().position(|c| c.body.contains(&last)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_with_many_commits_delays_another_by_one() {
    const MANY: usize = 12;
    let of = |n: usize| match n {
        MANY => ["apps", "other", "prod"].map(String::from),
        n => ["apps".into(), "busy".into(), format!("e{n}")],
    };
    // After the first commit of the repository, the one that all wait for, and one more of the busy pipeline.
    assert_eq!(place_of_the_last(MANY, of).await, (MANY + 2, Some(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_with_many_pipelines_delays_another_by_one_commit() {
    const MANY: usize = 20;
    let of = |n: usize| match n {
        MANY => ["quiet", "app", "prod"].map(String::from),
        n => ["busy".into(), format!("app-{n}"), "prod".into()],
    };
    // After the first commit of the repository, the one that all wait for, and one more of the busy namespace.
    assert_eq!(place_of_the_last(MANY, of).await, (MANY + 2, Some(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_with_many_calls_is_not_ahead_of_another_with_one() {
    const MANY: usize = 80;
    let forge = ChaosForge::start().unwrap();
    let hosted = hosted(&forge, 2);
    let bench = bench();
    let [busy, other] = [0, 1].map(|i| of_application(i, proposed(&hosted)));
    let mut requests = Vec::new();
    for order in [&busy, &other] {
        let Delivered::Proposed { request, .. } = bench.delivery.deliver(order).await.unwrap() else {
            panic!()
        };
        requests.push(request);
    }
    let done = AtomicUsize::new(0);
    let follow = async |(order, request)| {
        bench.delivery.follow(order, request).await.unwrap();
        done.fetch_add(1, Ordering::Relaxed)
    };
    let all = std::iter::repeat_n((&busy, &requests[0]), MANY).chain([(&other, &requests[1])]);
    let places = join_all(all.map(follow)).await;
    // After the eight that are on their way, and next to seven more at most that are when it is.
    assert!(places[MANY] < MANY / 2, "{places:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_forge_delays_only_its_own_deliveries() {
    let (hanging, lively) = (ChaosForge::start().unwrap(), ChaosForge::start().unwrap());
    let here = hosted(&lively, 2);
    let bench = bench_with(|o| (o.deadline, o.processes) = (Duration::from_secs(120), 2));
    hanging.fault_proxy().set_plan(FaultPlan::Always(Fault::Silent));
    let stuck: Vec<_> = (0..12)
        .map(|i| {
            let there = named(&hanging, &format!("fleet-{i}"), 12);
            let strategy = if i % 2 == 0 { committed(&there) } else { proposed(&there) };
            let (delivery, order) = (bench.delivery.clone(), of_application(i, strategy));
            tokio::spawn(async move { delivery.deliver(&order).await })
        })
        .collect();
    sluice_testkit::eventually(Duration::from_secs(60), async || {
        anyhow::ensure!(hanging.fault_proxy().calls().len() > 1, "nobody has called");
        Ok(())
    })
    .await
    .unwrap();
    for (i, strategy) in [committed(&here), proposed(&here)].into_iter().enumerate() {
        bench.delivery.deliver(&of_application(i, strategy)).await.unwrap();
    }
    assert!(stuck.iter().all(|task| !task.is_finished()), "the lively one had to wait");
    stuck.iter().for_each(tokio::task::JoinHandle::abort);
}

/// As if one person had eight namespaces, with repositories at the host of another person.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_repositories_of_eight_namespaces_delay_no_other_at_their_host() {
    let forge = ChaosForge::start().unwrap();
    let here = hosted(&forge, 1);
    let there: Vec<HostedRepo> = (0..16).map(|n| named(&forge, &format!("evil-{n}"), 1)).collect();
    let bench = bench();
    forge.fault_proxy().set_plan(FaultPlan::Always(Fault::Silent));
    let hanging = |(n, repository): (usize, &HostedRepo)| {
        let order =
            Order { namespace: format!("evil-{}", n % 8), ..of_application(0, committed(repository)) };
        let delivery = bench.delivery.clone();
        tokio::spawn(async move { delivery.deliver(&order).await })
    };
    let stuck: Vec<_> = there.iter().enumerate().map(hanging).collect();
    sluice_testkit::eventually(Duration::from_secs(60), async || {
        let calls = forge.fault_proxy().calls().len();
        anyhow::ensure!(calls >= 8, "{calls} calls");
        Ok(())
    })
    .await
    .unwrap();
    forge.fault_proxy().set_plan(FaultPlan::Quiet);
    let order = of_application(0, committed(&here));
    let delivered = tokio::time::timeout(Duration::from_secs(30), bench.delivery.deliver(&order)).await;
    assert!(matches!(delivered, Ok(Ok(Delivered::Committed { .. }))), "{delivered:?}");
    stuck.iter().for_each(tokio::task::JoinHandle::abort);
}
