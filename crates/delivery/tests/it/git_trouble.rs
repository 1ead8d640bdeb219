//! Faults of git servers and networks. Each error says what to do about it.

use std::time::Duration;

use sluice_delivery::{Credentials, Delivered, DeliveryError, DeliveryStrategy, Order, Retry};
use sluice_testkit::{GitServer, eventually};

use crate::commit::{server, to_main};
use crate::fixture::{Bench, FILE, again, bench, bench_with, git, order, yaml};

pub async fn fails(bench: &Bench, order: &Order, reason: &str) -> DeliveryError {
    let error = bench.delivery.deliver(order).await.unwrap_err();
    assert_eq!(error.reason(), reason, "{error}");
    for secret in ["hunter2", GitServer::PASSWORD, "t0ken"] {
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
    error
}

pub fn with_password(order: Order, user: &str, password: &str) -> Order {
    let credentials = Credentials {
        username: Some(user.into()),
        password: Some(password.into()),
        ..Credentials::default()
    };
    Order { credentials, ..order }
}

#[tokio::test]
async fn wrong_missing_and_read_only_credentials_are_reported() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (bench, order) = (bench(), to_main(&repo, "6.1.8"));
    fails(&bench, &with_password(order.clone(), "sluice", "hunter2"), "AuthenticationFailed").await;
    fails(&bench, &Order { credentials: Credentials::default(), ..order.clone() }, "AuthenticationFailed")
        .await;
    let reader = with_password(order.clone(), GitServer::READER, GitServer::READER_PASSWORD);
    fails(&bench, &reader, "AuthenticationFailed").await;
    assert_eq!(repo.requests().push, 0);
    // The same cache serves those who may.
    bench.delivery.deliver(&order).await.unwrap();
    fails(&bench, &with_password(order, "sluice", "hunter2"), "AuthenticationFailed").await;
}

#[tokio::test]
async fn missing_repositories_and_branches_are_reported() {
    let (server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let bench = bench();
    let to =
        |url: String, branch: &str| order(DeliveryStrategy::Commit { url, branch: branch.into() }, "6.1.8");
    fails(&bench, &to(format!("{}/nobody.git", server.url()), "main"), "RepositoryNotFound").await;
    let error = fails(&bench, &to(repo.url().into(), "release"), "BranchNotFound").await;
    assert!(error.to_string().contains("\"release\""), "{error}");
    for branch in ["main:refs/heads/x", "ma*", "-x", "a b", ""] {
        fails(&bench, &to(repo.url().into(), branch), "BranchNotFound").await;
    }
    fails(&bench, &to("http://127.0.0.1:1/a/b.git".into(), "main"), "Unreachable").await;
    fails(&bench, &to("http://no-such-host.invalid/a/b.git".into(), "main"), "Unreachable").await;
    fails(&bench, &to("ext::sh -c id".into(), "main"), "InvalidAddress").await;
    assert_eq!(repo.branches().unwrap(), ["main"]);
}

/// The arguments of every process of this machine.
fn command_lines() -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).into_owned()
    })
}

/// Waits until so many processes have an address among their arguments.
async fn processes_naming(url: &str, enough: impl Fn(usize) -> bool) {
    eventually(Duration::from_secs(60), || async {
        let count = command_lines().filter(|line| line.contains(url)).count();
        anyhow::ensure!(enough(count), "{count} processes name {url}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_hanging_repository_delays_no_other() {
    let (_one, hanging) = server(&[(FILE, &yaml("6.1.5"))]);
    let (_two, lively) = server(&[(FILE, &yaml("6.1.5"))]);
    let bench = bench_with(|o| (o.deadline, o.processes) = (Duration::from_secs(30), 1));
    hanging.tap().hang(true);
    let stuck = {
        let (delivery, order) = (bench.delivery.clone(), to_main(&hanging, "6.1.8"));
        tokio::spawn(async move { delivery.deliver(&order).await })
    };
    processes_naming(hanging.url(), |count| count > 0).await;
    bench.delivery.deliver(&to_main(&lively, "6.1.8")).await.unwrap();
    assert!(!stuck.is_finished(), "the lively one had to wait");
    let error = stuck.await.unwrap().unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("Timeout", Retry::Soon));
    // And then it is there again.
    hanging.tap().hang(false);
    bench.delivery.deliver(&again(&to_main(&hanging, "6.1.8"))).await.unwrap();
}

#[tokio::test]
async fn an_aborted_delivery_leaves_no_process_behind() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let bench = bench();
    repo.tap().hang(true);
    let order = to_main(&repo, "6.1.8");
    tokio::select! {
        done = bench.delivery.deliver(&order) => panic!("it was to hang: {done:?}"),
        _ = processes_naming(repo.url(), |count| count > 0) => {}
    }
    processes_naming(repo.url(), |count| count == 0).await;
    repo.tap().hang(false);
    bench.delivery.deliver(&order).await.unwrap();
}

#[tokio::test]
async fn secrets_are_neither_arguments_nor_left_on_disk() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let bench = bench();
    repo.tap().hang(true);
    let (delivery, order) = (bench.delivery.clone(), to_main(&repo, "6.1.8"));
    let task = tokio::spawn(async move { delivery.deliver(&order).await });
    processes_naming(repo.url(), |count| count > 0).await;
    for line in command_lines() {
        assert!(!line.contains(GitServer::PASSWORD) && !line.contains("c2x1aWNlO"), "{line}");
    }
    repo.tap().hang(false);
    task.await.unwrap().unwrap();
    let config = git(bench.cache.path(), &["--version"], "");
    assert!(config.starts_with("git version"));
    for file in walk(bench.cache.path()) {
        let bytes = std::fs::read(&file).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(GitServer::PASSWORD) && !text.contains("Authorization"), "{file:?}");
    }
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}

#[tokio::test]
async fn a_delivery_succeeds_when_a_failing_server_recovers() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (bench, order) = (bench(), to_main(&repo, "6.1.8"));
    let mut failures = 0;
    for n in [1, 1, 2, 1] {
        repo.tap().fail_next(n);
        fails(&bench, &again(&order), "Unreachable").await;
        failures += 1;
        repo.tap().fail_next(0);
    }
    bench.delivery.deliver(&again(&order)).await.unwrap();
    assert_eq!((failures, bench.delivery.stats().git_rebuilds), (4, 0));
}

#[tokio::test]
async fn a_password_that_a_server_repeats_is_not_shown() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    repo.hook("pre-receive", &format!("echo 'the password {} has expired' >&2\nexit 1", GitServer::PASSWORD))
        .unwrap();
    let error = fails(&bench(), &to_main(&repo, "6.1.8"), "PushRejected").await;
    assert!(error.to_string().contains("the password *** has expired"), "{error}");
}

#[tokio::test]
async fn the_message_of_a_rejecting_hook_is_quoted() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    repo.hook("pre-receive", "echo 'only through review' >&2\nexit 1").unwrap();
    let error = fails(&bench(), &to_main(&repo, "6.1.8"), "PushRejected").await;
    assert!(error.to_string().contains("only through review"), "{error}");
}

#[tokio::test]
async fn a_push_is_repeated_while_others_move_the_branch() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    // Somebody is faster, three times: the hook moves the branch just before the push counts.
    let script = "n=$(cat count 2>/dev/null || echo 0); [ $n -ge 3 ] && exit 0\n\
                  echo $((n+1)) > count\nunset GIT_QUARANTINE_PATH\n\
                  c=$(echo other | git commit-tree -p $1 $1^{tree}); git update-ref $1 $c";
    repo.hook("update", script).unwrap();
    git(repo.folder(), &["config", "user.email", "t@t"], "");
    git(repo.folder(), &["config", "user.name", "t"], "");
    let bench = bench();
    let done = bench.delivery.deliver(&to_main(&repo, "6.1.8")).await.unwrap();
    assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
    assert_eq!(bench.delivery.stats().git_pushes, 4);
    assert_eq!(repo.read("main", FILE).unwrap(), yaml("6.1.8"));
    assert_eq!(repo.log("main").unwrap().len(), 5);
}

#[tokio::test]
async fn a_commit_of_another_process_is_not_repeated_on_top_of_newer_ones() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let order = to_main(&repo, "6.1.8");
    let message = |promotion: &str| format!("Promote\n\nSluice-Promotion: {promotion}\n");
    let same = repo.commit("other", &message(&order.promotion), &[(FILE, &yaml("6.1.8"))]).unwrap();
    let newer = repo.commit("other", &message("apps/podinfo-prod-6.2.0"), &[(FILE, &yaml("6.2.0"))]).unwrap();
    // Another controller, whose lease has ended without its notice, is faster by two promotions.
    let script = "[ -e done ] && exit 0\ntouch done\nunset GIT_QUARANTINE_PATH\n\
                  git update-ref refs/heads/main refs/heads/other";
    repo.hook("update", script).unwrap();
    let done = bench().delivery.deliver(&order).await.unwrap();
    assert_eq!(done, Delivered::Committed { commit: same });
    assert_eq!(repo.head("main").unwrap(), newer);
}

/// Starts a proxy in front of a git server that makes every fetch one without trees, and never answers a fetch of missing
/// objects. Returns the address of the repository there.
fn start_proxy_without_trees(url: &str) -> String {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    let server = url.split('/').nth(2).unwrap().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let proxied = url.replace(&server, &address);
    let serve = move |mut client: TcpStream| -> std::io::Result<()> {
        let mut upstream = TcpStream::connect(&server)?;
        let (mut answers, mut to_client) = (upstream.try_clone()?, client.try_clone()?);
        std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = client.read(&mut buffer)?;
            // A request of git has Latin letters only; each character is one byte.
            let text: String = buffer[..count].iter().map(|byte| char::from(*byte)).collect();
            if count == 0 || text.contains("filter blob:none") {
                std::thread::sleep(Duration::from_secs(600));
                return Ok(());
            }
            let text = text.replace("filter blob:limit=65536", "filter tree:00000000000");
            upstream.write_all(&text.chars().map(|c| c as u8).collect::<Vec<_>>())?;
        }
    };
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(client));
        }
    });
    proxied
}

/// Git would fetch missing trees while it lists files, and wait for the server in the queue of local runs.
#[tokio::test]
async fn a_run_that_stays_on_this_machine_connects_to_no_server() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let url = start_proxy_without_trees(repo.url());
    let order = order(DeliveryStrategy::Commit { url, branch: "main".into() }, "6.1.8");
    let began = std::time::Instant::now();
    let error = fails(&bench(), &order, "GitFailed").await;
    assert!(error.to_string().contains("the server has left out folders or files"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Everybody who may push a branch or tag can push one of this name.
#[tokio::test]
async fn a_branch_or_tag_named_like_the_ref_of_a_branch_is_reported_with_its_name() {
    for kind in ["heads", "tags"] {
        let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
        let (bench, main) = (bench(), repo.head("main").unwrap());
        let other = format!("refs/{kind}/refs/heads/main");
        git(repo.folder(), &["update-ref", &other, &main], "");
        let error = fails(&bench, &to_main(&repo, "6.1.8"), "PushRejected").await;
        let expected =
            "another branch or tag is named refs/heads/main, and is in its way: delete or rename that one";
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(bench.delivery.stats().git_rebuilds, 0);
        git(repo.folder(), &["update-ref", "-d", &other], "");
        bench.delivery.deliver(&to_main(&repo, "6.1.8")).await.unwrap();
    }
}
