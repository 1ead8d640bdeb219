//! The cache of a repository: lost, broken, locked, and with different servers. It never makes a delivery fail.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_delivery::{Delivered, DeliveryStrategy};

use crate::commit::{server, to_main};
use crate::fixture::{FILE, bench, bench_with, git, order, yaml};

fn cache_of(dir: &Path) -> PathBuf {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.pop().unwrap()
}

#[tokio::test]
async fn a_lost_or_broken_cache_is_built_again() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let bench = bench();
    let deliver = async |version: &str| {
        let done = bench.delivery.deliver(&to_main(&repo, version)).await.unwrap();
        assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
        assert_eq!(repo.read("main", FILE).unwrap(), yaml(version));
    };
    deliver("1.0.0").await;
    let cache = cache_of(bench.cache.path());
    std::fs::remove_dir_all(&cache).unwrap();
    deliver("1.0.1").await;
    for file in ["HEAD", "config", "shallow"] {
        std::fs::write(cache.join(file), "\0garbage").unwrap();
        deliver(&format!("1.1.{}", file.len())).await;
    }
    for entry in std::fs::read_dir(cache.join("objects/pack")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "garbage").unwrap();
    }
    deliver("1.2.0").await;
    std::fs::remove_dir_all(cache.join("objects")).unwrap();
    deliver("1.2.1").await;
    std::fs::remove_dir_all(cache.join("refs")).unwrap();
    deliver("1.2.2").await;
    assert!(bench.delivery.stats().git_rebuilds >= 4, "{:?}", bench.delivery.stats());
}

#[tokio::test]
async fn lock_files_of_a_killed_process_do_not_stop_a_delivery() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let bench = bench();
    bench.delivery.deliver(&to_main(&repo, "1.0.0")).await.unwrap();
    let cache = cache_of(bench.cache.path());
    let lock = || {
        for name in ["shallow.lock", "config.lock", "HEAD.lock", "packed-refs.lock", "index.lock"] {
            std::fs::write(cache.join(name), "").unwrap();
        }
        for dir in std::fs::read_dir(cache.join("refs/sluice/base")).unwrap() {
            let path = dir.unwrap().path();
            std::fs::write(path.with_extension("lock"), "").unwrap();
        }
    };
    // In this process, which finds out by failing; and in the next, which looks first.
    lock();
    bench.delivery.deliver(&to_main(&repo, "1.0.1")).await.unwrap();
    lock();
    let next = bench_with(|o| o.cache_dir = bench.cache.path().into());
    next.delivery.deliver(&to_main(&repo, "1.0.2")).await.unwrap();
    assert_eq!(next.delivery.stats().git_rebuilds, 0);
    assert_eq!(repo.read("main", FILE).unwrap(), yaml("1.0.2"));
}

#[tokio::test]
async fn large_files_are_found_with_one_more_fetch_and_only_once() {
    let padding = "# padding\n".repeat(20_000);
    let large = |i: u32| format!("{padding}n: {i}\n");
    let marked = format!("{padding}{}", yaml("6.1.5"));
    let files: Vec<(String, String)> = (0..20).map(|i| (format!("large/{i}.yaml"), large(i))).collect();
    let mut all: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    all.push(("marked.yaml", &marked));
    let (_server, repo) = server(&all);
    git(repo.folder(), &["config", "uploadpack.allowFilter", "true"], "");
    let bench = bench();
    bench.delivery.deliver(&to_main(&repo, "1.0.0")).await.unwrap();
    assert_eq!(bench.delivery.stats().git_fetches, 2);
    assert!(repo.requests().fetch <= 4, "{:?}", repo.requests());
    assert_eq!(repo.read("main", "marked.yaml").unwrap(), format!("{padding}{}", yaml("1.0.0")));
    // Another process has the cache, but has not read it yet. Our own commit is here already, so not even
    // its large file is fetched.
    let before = repo.requests();
    let next = bench_with(|o| o.cache_dir = bench.cache.path().into());
    next.delivery.deliver(&to_main(&repo, "1.0.1")).await.unwrap();
    let after = repo.requests();
    assert_eq!((after.fetch - before.fetch, next.delivery.stats().git_fetches), (2, 1));
}

#[tokio::test]
async fn a_server_without_partial_fetches_is_supported() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5")), ("large.yaml", &"# padding\n".repeat(20_000))]);
    git(repo.folder(), &["config", "uploadpack.allowFilter", "false"], "");
    let bench = bench();
    bench.delivery.deliver(&to_main(&repo, "1.0.0")).await.unwrap();
    assert_eq!(bench.delivery.stats().git_fetches, 1);
    assert_eq!(repo.read("main", FILE).unwrap(), yaml("1.0.0"));
}

#[tokio::test]
async fn a_repository_in_a_folder_is_allowed_only_in_tests() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let strategy = DeliveryStrategy::Commit {
        url: format!("file://{}", repo.folder().display()),
        branch: "main".into(),
    };
    let error = bench().delivery.deliver(&order(strategy.clone(), "1.0.0")).await.unwrap_err();
    assert_eq!(error.reason(), "InvalidAddress");
    let allowed = bench_with(|o| o.allow_file = true);
    allowed.delivery.deliver(&order(strategy, "1.0.0")).await.unwrap();
}

#[tokio::test]
async fn a_cache_does_not_become_slow_after_many_deliveries() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let bench = bench_with(|o| o.deadline = Duration::from_secs(20));
    for i in 0..40 {
        repo.commit("main", "other", &[("other.yaml", &format!("a: {i}\n"))]).unwrap();
        bench.delivery.deliver(&to_main(&repo, &format!("1.0.{i}"))).await.unwrap();
    }
    // Once it is not seen that others push, too; then it asks each time.
    let fetches = bench.delivery.stats().git_fetches;
    assert!((40..=42).contains(&fetches), "{fetches}");
}
