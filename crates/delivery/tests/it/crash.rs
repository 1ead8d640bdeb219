//! The process dies, at every point where it hurts and at any other, and runs again: what was to be
//! done has been done once.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluice_delivery::{
    ChangeRequest, ChangeRequestStatus, Credentials, Delivered, Delivery, DeliveryStrategy, ForgeKind,
    MergeMode, Order, Retry, Settings,
};
use sluice_testkit::Repo;

use crate::any_forge::ForgeFixture;
use crate::change_request::{merging, proposed, until_merged};
use crate::commit::{server, to_main};
use crate::fixture::{FILE, again, bench_with, order, yaml};

/// Another process that carries out an order on a cache, and may be told to die.
fn process(cache: &Path, order: &Order, fault: &str) -> Child {
    command(cache, order, fault).spawn().unwrap()
}

fn command(cache: &Path, order: &Order, fault: &str) -> Command {
    let strategy = match &order.strategy {
        DeliveryStrategy::Commit { url, .. } => format!("commit {url}"),
        DeliveryStrategy::PullRequest { forge, url, .. } => format!("{} {url}", forge.name()),
        DeliveryStrategy::Notification(_) | DeliveryStrategy::Webhook { .. } => {
            panic!("no delivery to a repository")
        }
    };
    let (version, credentials) = (order.promotion.rsplit('-').next().unwrap(), &order.credentials);
    let order = format!("{strategy} {version} {} {}", order.created, order.retried);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "crash::process_that_is_killed", "--nocapture"])
        .env("TEST_CACHE", cache)
        .env("TMPDIR", cache)
        .env("TEST_ORDER", order)
        .env("SLUICE_FAULT_POINT", fault)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let credentials = &credentials.identity.iter().zip(&credentials.known_hosts).next();
    if let Some((identity, known_hosts)) = credentials {
        command.env("TEST_IDENTITY", OsStr::from_bytes(identity));
        command.env("TEST_KNOWN_HOSTS", OsStr::from_bytes(known_hosts));
    }
    command
}

#[tokio::test]
#[ignore = "run by the other tests, in a process of its own"]
async fn process_that_is_killed() {
    let Ok(text) = std::env::var("TEST_ORDER") else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let [kind, url, version, created, retried] = words[..] else { panic!("{text}") };
    let url = url.to_string();
    let tended = std::env::var("TEST_TEND").ok();
    let merge = if tended.is_some() { MergeMode::WhenGreen } else { MergeMode::Never };
    let settings = Settings { merge, ..Settings::default() };
    let strategy = match kind {
        "commit" => DeliveryStrategy::Commit { url, branch: "main".into() },
        forge => {
            let forge = ForgeKind::from_name(forge).unwrap();
            DeliveryStrategy::PullRequest { forge, url, base: "main".into(), settings: Box::new(settings) }
        }
    };
    let mut order =
        Order { created: created.parse().unwrap(), retried: retried == "true", ..order(strategy, version) };
    if let (Ok(identity), Ok(known)) = (std::env::var("TEST_IDENTITY"), std::env::var("TEST_KNOWN_HOSTS")) {
        let (identity, known_hosts) = (Some(identity.into_bytes()), Some(known.into_bytes()));
        order.credentials = Credentials { identity, known_hosts, ..Credentials::default() };
    }
    let bench = bench_with(|o| o.cache_dir = std::env::var_os("TEST_CACHE").unwrap().into());
    if let Some((url, head)) = tended.as_deref().and_then(|text| text.split_once(' ')) {
        drop(bench.delivery.advance(&order, &request(&order, url, head)).await.unwrap());
        return;
    }
    match std::env::var("TEST_WITHDRAW") {
        Ok(url) => withdraw(&bench.delivery, &order, &url).await,
        Err(_) => drop(bench.delivery.deliver(&order).await.unwrap()),
    }
}

/// The change request at an address.
fn request(order: &Order, url: &str, head: &str) -> ChangeRequest {
    let number = url.rsplit('/').next().unwrap().parse().unwrap();
    let (branch, head_commit) = (order.branch(), head.to_string());
    ChangeRequest { number, url: url.into(), branch, head_commit, notes: vec![], queued: false }
}

/// Closes the change request at an address.
async fn withdraw(delivery: &Delivery, order: &Order, url: &str) {
    let request = request(order, url, "");
    let end = delivery.withdraw(order, &request, "Superseded by 6.2.0.").await.unwrap();
    assert_eq!(end, ChangeRequestStatus::Closed);
}

/// Lets it die at a point, and says whether it did.
async fn dies_at(cache: &Path, order: &Order, point: &str) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let mut child = process(cache, order, point);
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert!(status.signal() == Some(9) || status.success(), "{status:?} at {point}");
    !status.success()
}

#[tokio::test]
async fn a_change_request_is_opened_once_if_the_process_dies_at_any_fault_point() {
    for forge in ForgeKind::ALL {
        let fixture = ForgeFixture::of(forge).await;
        let cache = tempfile::tempdir().unwrap();
        let bench = bench_with(|o| o.cache_dir = cache.path().into());
        let points = ["before-push", "after-push", "before-open", "after-open"];
        for (i, point) in points.into_iter().enumerate() {
            let order = fixture.order(&format!("6.2.{i}"));
            assert!(dies_at(cache.path(), &order, point).await, "{point} was not reached");
            let request = proposed(&bench.delivery, &again(&order)).await;
            let pulls = fixture.pulls().await;
            assert_eq!((pulls.len(), pulls.iter().filter(|p| p.open).count()), (i + 1, 1), "{point}");
            let log = fixture.repo().log(&request.branch).unwrap();
            assert_eq!(log[0].body.matches("Sluice-Promotion: ").count(), 1);
            assert!(pulls[i].title.contains(&format!("6.2.{i} ")), "{}", pulls[i].title);
            fixture.merge(request.number).await;
            fixture.repo().remove_branch(&request.branch).unwrap();
        }
        let pushes = fixture.repo().requests().push;
        assert_eq!(pushes, points.len(), "each was pushed once");
    }
}

#[tokio::test]
async fn a_change_request_is_withdrawn_and_commented_once() {
    use std::os::unix::process::ExitStatusExt;
    for forge in ForgeKind::ALL {
        let fixture = ForgeFixture::of(forge).await;
        let cache = tempfile::tempdir().unwrap();
        let bench = bench_with(|o| o.cache_dir = cache.path().into());
        let order = fixture.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        let mut command = command(cache.path(), &order, "after-close");
        command.env("TEST_WITHDRAW", &request.url);
        let status = tokio::task::spawn_blocking(move || command.status().unwrap()).await.unwrap();
        assert_eq!(status.signal(), Some(9), "{status:?}");
        for _ in 0..2 {
            withdraw(&bench.delivery, &order, &request.url).await;
        }
        assert!(fixture.pulls().await.iter().all(|p| !p.open));
        assert!(fixture.comments(request.number).await.len() <= 1);
    }
}

#[tokio::test]
async fn a_change_request_is_merged_once_if_the_process_dies_at_any_fault_point() {
    use std::os::unix::process::ExitStatusExt;
    for forge in ForgeKind::ALL {
        let fixture = ForgeFixture::of(forge).await;
        let cache = tempfile::tempdir().unwrap();
        let bench = bench_with(|o| o.cache_dir = cache.path().into());
        for (i, point) in ["before-merge", "after-merge"].into_iter().enumerate() {
            let order = merging(&fixture, &format!("6.3.{i}"));
            let request = proposed(&bench.delivery, &order).await;
            let mut command = command(cache.path(), &order, point);
            command.env("TEST_TEND", format!("{} {}", request.url, request.head_commit));
            let status = tokio::task::spawn_blocking(move || command.status().unwrap()).await.unwrap();
            assert_eq!(status.signal(), Some(9), "{status:?} at {point}");
            until_merged(&bench.delivery, &order, &request).await;
            assert_eq!(fixture.pulls().await.iter().filter(|p| p.merged).count(), i + 1, "{point}");
            fixture.repo().remove_branch(&request.branch).unwrap();
        }
    }
}

#[tokio::test]
async fn a_commit_is_made_once_if_the_process_dies_at_any_fault_point() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    commits_survive(&repo, |version| to_main(&repo, version)).await;
}

pub async fn commits_survive(repo: &Repo, to_main: impl Fn(&str) -> Order) {
    let cache = tempfile::tempdir().unwrap();
    let bench = bench_with(|o| o.cache_dir = cache.path().into());
    for (i, point) in ["before-push", "after-push"].into_iter().enumerate() {
        let order = to_main(&format!("6.2.{i}"));
        assert!(dies_at(cache.path(), &order, point).await, "{point} was not reached");
        let done = bench.delivery.deliver(&again(&order)).await.unwrap();
        assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
        assert_eq!(repo.log("main").unwrap().len(), i + 2, "{point}");
    }
}

#[tokio::test]
async fn a_commit_is_made_once_if_the_process_is_killed_at_any_time() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let cache = tempfile::tempdir().unwrap();
    for i in 0..8 {
        let order = to_main(&repo, &format!("6.2.{i}"));
        let mut child = process(cache.path(), &order, "");
        tokio::time::sleep(Duration::from_millis(30 + i * 37)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        // A git that outlives its parent may still be pushing: that is found, or is found to be no harm. One that
        // still fetches into the cache makes at most a few tries fail, after which the controller tries again.
        let bench = bench_with(|o| o.cache_dir = cache.path().into());
        let mut failures = Vec::new();
        let done = loop {
            match bench.delivery.deliver(&again(&order)).await {
                Ok(done) => break done,
                Err(error) if error.retry() == Retry::Soon && failures.len() < 5 => failures.push(error),
                Err(error) => panic!("{error:?} after {failures:?}"),
            }
        };
        assert!(matches!(done, Delivered::Committed { .. }), "{done:?}");
        assert_eq!(repo.read("main", FILE).unwrap(), yaml(&format!("6.2.{i}")));
        let log = repo.log("main").unwrap();
        let of_it = |c: &&sluice_testkit::LoggedCommit| c.body.contains(&format!("{}\n", order.promotion));
        assert_eq!(log.iter().filter(of_it).count(), 1, "{log:#?}");
    }
}
