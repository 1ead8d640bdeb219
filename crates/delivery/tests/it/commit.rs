//! Delivery by commit, and the content of a commit.

use sluice_core::planned_change::PlannedValue;
use sluice_delivery::{Delivered, DeliveryStrategy, Order, Stats};
use sluice_testkit::{GitServer, Repo};

use crate::fixture::{FILE, again, bench, bench_with, git, order, started_again, yaml};

pub fn server(files: &[(&str, &str)]) -> (GitServer, Repo) {
    let server = GitServer::start().unwrap();
    let repo = server.create_repo("fleet", files).unwrap();
    (server, repo)
}

pub fn to_main(repo: &Repo, version: &str) -> Order {
    order(DeliveryStrategy::Commit { url: repo.url().into(), branch: "main".into() }, version)
}

#[tokio::test]
async fn a_value_is_set_with_one_fetch_and_one_push() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5")), ("README.md", "x"), ("a.yaml", "b: c\n")]);
    let cache = tempfile::tempdir().unwrap();
    for version in ["6.1.8", "6.2.0"] {
        // A process of its own: this one would know the branch for a moment, and not ask.
        let bench = bench_with(|o| o.cache_dir = cache.path().into());
        let base = repo.head("main").unwrap();
        let before = repo.requests();
        let done = bench.delivery.deliver(&to_main(&repo, version)).await.unwrap();
        let log = repo.log("main").unwrap();
        assert_eq!(done, Delivered::Committed { commit: log[0].sha.clone() });
        assert_eq!(log[0].parents, [base]);
        assert_eq!(log[0].subject, format!("Promote podinfo to {version} in prod"));
        assert_eq!(repo.read("main", FILE).unwrap(), yaml(version));
        assert_eq!(repo.files("main").unwrap().len(), 3);
        let stats = bench.delivery.stats();
        assert_eq!((stats.git_fetches, stats.git_pushes), (1, 1));
        let after = repo.requests();
        // Two lists of references, one for each; protocol 2 asks for references with a POST of its own.
        assert_eq!((after.ls - before.ls, after.fetch - before.fetch, after.push - before.push), (2, 2, 1));
        assert_eq!(after.refused, 0);
    }
}

#[tokio::test]
async fn the_planned_change_is_what_the_delivery_does() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (bench, order) = (bench(), to_main(&repo, "6.1.8"));
    let base = repo.head("main").unwrap();
    let planned = bench.delivery.planned_change(&order).await.unwrap().unwrap();
    assert_eq!(repo.head("main").unwrap(), base);
    assert_eq!((planned.branch.as_str(), planned.commit.as_str()), ("main", base.as_str()));
    let before = repo.read("main", FILE).unwrap();
    let change = |value: &PlannedValue| {
        assert_eq!(value.path, FILE);
        let line = before.lines().nth(value.line as usize - 1).unwrap().to_string();
        line.replace(value.old.as_ref().unwrap(), &value.new)
    };
    let changed: Vec<String> = planned.values.iter().map(change).collect();
    bench.delivery.deliver(&order).await.unwrap();
    let after = repo.read("main", FILE).unwrap();
    let differs = before.lines().zip(after.lines()).filter(|(before, after)| before != after);
    assert_eq!(changed, differs.map(|(_, after)| after).collect::<Vec<_>>());
    let planned = bench.delivery.planned_change(&order).await.unwrap().unwrap();
    assert_eq!(planned.values, []);
    // Sluice remembers the commit that it has made.
    let stats = bench.delivery.stats();
    assert_eq!((stats.git_fetches, stats.git_pushes), (2, 1));
}

#[tokio::test]
async fn the_change_of_a_delivery_is_found_again_in_its_commit() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let order = to_main(&repo, "6.1.8");
    let planned = bench().delivery.planned_change(&order).await.unwrap().unwrap();
    let Delivered::Committed { commit } = bench().delivery.deliver(&order).await.unwrap() else { panic!() };
    // Also after later commits, by a process that has not seen the commit before.
    repo.commit("main", "other", &[(FILE, &yaml("6.1.9"))]).unwrap();
    let later = repo.head("main").unwrap();
    let change = bench().delivery.delivered_change(&order, &commit).await.unwrap().unwrap();
    assert_eq!((change.values, change.commit.as_str()), (planned.values, commit.as_str()));
    // A commit that sets other values has not delivered this revision.
    let change = bench().delivery.delivered_change(&order, &later).await.unwrap().unwrap();
    assert_eq!(change.values, []);
    let gone = "0123456789012345678901234567890123456789";
    let error = bench().delivery.delivered_change(&order, gone).await.unwrap_err().to_string();
    assert!(error.contains(gone), "{error}");
}

#[tokio::test]
async fn a_second_try_finds_the_commit_of_the_first() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let order = to_main(&repo, "6.1.8");
    let Delivered::Committed { commit } = bench().delivery.deliver(&order).await.unwrap() else { panic!() };
    let done = Delivered::Committed { commit: commit.clone() };
    assert_eq!(bench().delivery.deliver(&again(&order)).await.unwrap(), done);
    // Also when others have gone on, and when a person has taken it back.
    for i in 0..30 {
        repo.commit("main", "other", &[("other.yaml", &format!("a: {i}\n"))]).unwrap();
    }
    repo.commit("main", "revert", &[(FILE, &yaml("6.1.5"))]).unwrap();
    let bench = bench();
    assert_eq!(bench.delivery.deliver(&again(&order)).await.unwrap(), done);
    assert_eq!(bench.delivery.stats().git_pushes, 0);
    assert_eq!(repo.read("main", FILE).unwrap(), yaml("6.1.5"));
}

#[tokio::test]
async fn a_reverted_value_is_committed_once_in_each_round() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let mut order = to_main(&repo, "6.1.8");
    let mut seen = vec![bench().delivery.deliver(&order).await.unwrap()];
    for round in 1..3 {
        repo.commit("main", "revert", &[(FILE, &yaml("6.1.5"))]).unwrap();
        order = started_again(&order);
        let done = bench().delivery.deliver(&order).await.unwrap();
        assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
        assert_eq!(repo.read("main", FILE).unwrap(), yaml("6.1.8"));
        assert!(!seen.contains(&done), "round {round}");
        // Found again in this round: at the end of the branch, below others, and taken back.
        for revert in [false, true] {
            assert_eq!(bench().delivery.deliver(&order).await.unwrap(), done);
            if revert {
                repo.commit("main", "revert", &[(FILE, &yaml("6.1.5"))]).unwrap();
            } else {
                repo.commit("main", "other", &[("other.yaml", &format!("a: {round}\n"))]).unwrap();
            }
        }
        assert_eq!(bench().delivery.deliver(&order).await.unwrap(), done);
        seen.push(done);
    }
    repo.commit("main", "by hand", &[(FILE, &yaml("6.1.8"))]).unwrap();
    let done = bench().delivery.deliver(&started_again(&order)).await.unwrap();
    assert_eq!(done, Delivered::AlreadySet { commit: repo.head("main").unwrap() });
}

#[tokio::test]
async fn one_read_of_the_history_is_enough_for_all_retries() {
    let files: Vec<(String, String)> = (0..4)
        .map(|i| (format!("{i}.yaml"), yaml("6.1.5").replace(":prod", &format!(":prod-{i}"))))
        .collect();
    let borrowed: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let (_server, repo) = server(&borrowed);
    let orders = (0..4).map(|i| Order {
        promotion: format!("apps/podinfo-prod-{i}"),
        environment: format!("prod-{i}"),
        ..again(&to_main(&repo, "6.1.8"))
    });
    let orders: Vec<Order> = orders.collect();
    // The first was delivered before the process died.
    let Delivered::Committed { commit } = bench().delivery.deliver(&orders[0]).await.unwrap() else {
        panic!()
    };
    let bench = bench();
    for order in &orders[1..] {
        assert!(matches!(bench.delivery.deliver(order).await.unwrap(), Delivered::Committed { .. }));
    }
    let done = bench.delivery.deliver(&orders[0]).await.unwrap();
    assert_eq!(done, Delivered::Committed { commit });
    assert_eq!(repo.log("main").unwrap().len(), 5);
    let stats = bench.delivery.stats();
    // One for the branch each time, and one for its history.
    assert_eq!((stats.git_fetches, stats.git_pushes), (4 + 1, 3));
}

#[tokio::test]
async fn a_push_that_meets_one_other_commit_reads_no_history() {
    for (others, fetches) in [(1, 2), (2, 3)] {
        let fetched = sluice_testkit::eventually(sluice_testkit::WAIT_TIMEOUT, || async {
            let stats = push_that_meets(others).await;
            // A tip that is a few seconds old is fetched again, and a busy machine is that slow.
            anyhow::ensure!(stats.git_pushes == 3, "{} pushes", stats.git_pushes);
            Ok(stats.git_fetches)
        });
        assert_eq!(fetched.await.unwrap(), fetches, "{others}");
    }
}

/// Pushes a commit on top of the last one, in between of which others have pushed this many.
async fn push_that_meets(others: u32) -> Stats {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let bench = bench();
    bench.delivery.deliver(&to_main(&repo, "6.1.8")).await.unwrap();
    for n in 0..others {
        repo.commit("main", "other", &[("notes.md", &n.to_string())]).unwrap();
    }
    // It is tried on the commit before, whose push has just ended.
    let next = Order { promotion: "apps/podinfo-prod-2".into(), ..to_main(&repo, "6.1.9") };
    assert!(matches!(bench.delivery.deliver(&next).await.unwrap(), Delivered::Committed { .. }));
    assert_eq!(repo.read("main", FILE).unwrap(), yaml("6.1.9"));
    bench.delivery.stats()
}

#[tokio::test]
async fn a_push_whose_answer_got_lost_is_not_repeated() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (bench, order) = (bench(), to_main(&repo, "6.1.8"));
    repo.tap().lose_next_pushes(1);
    // It is found before the pipeline may name another place.
    for order in [&order, &again(&order)] {
        let done = bench.delivery.deliver(order).await.unwrap();
        assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
    }
    assert_eq!(repo.log("main").unwrap().len(), 2);
    assert_eq!(bench.delivery.stats().git_pushes, 1);
}

#[tokio::test]
async fn commits_of_two_processes_to_one_branch_all_arrive() {
    let markers: String =
        (0..6).map(|i| format!("v{i}: 1.0.0 # {{\"$promotion\": \"apps:p{i}:prod\"}}\n")).collect();
    let (_server, repo) = server(&[(FILE, &markers)]);
    let (one, two) = (bench(), bench());
    // Two processes, so to say, with three orders each.
    let orders: Vec<Order> = (0..6)
        .map(|i| Order {
            pipeline: format!("p{i}"),
            promotion: format!("apps/p{i}"),
            ..to_main(&repo, "2.0.0")
        })
        .collect();
    let side = |delivery: &sluice_delivery::Delivery, orders: &[Order]| {
        let tasks: Vec<_> = orders
            .iter()
            .cloned()
            .map(|order| {
                let delivery = delivery.clone();
                tokio::spawn(async move { delivery.deliver(&order).await.unwrap() })
            })
            .collect();
        tasks
    };
    for task in side(&one.delivery, &orders[..3]).into_iter().chain(side(&two.delivery, &orders[3..])) {
        assert!(matches!(task.await.unwrap(), Delivered::Committed { .. }));
    }
    assert_eq!(repo.log("main").unwrap().len(), 7);
    assert_eq!(repo.read("main", FILE).unwrap(), markers.replace("1.0.0", "2.0.0"));
}

#[tokio::test]
async fn a_commit_changes_only_the_values() {
    let crlf = yaml("6.1.5").replace('\n', "\r\n");
    let (_server, repo) = server(&[("crlf.yaml", &crlf)]);
    // A script's mode, a link, odd names.
    let blob = |text: &str| format!("data {}\n{text}\n", text.len());
    let import = format!(
        "commit refs/heads/main\ncommitter t <t@t> 1 +0000\n{}from refs/heads/main^0\n\
         M 100755 inline run.yaml\n{}M 120000 inline link.yaml\n{}M 100644 inline \"a \\\"b\\\"\\303\\274.yml\"\n{}",
        blob("odd"),
        blob(&yaml("6.1.5")),
        blob("crlf.yaml # \"$promotion\" apps:podinfo:prod"),
        blob(&yaml("6.1.5")),
    );
    git(repo.folder(), &["fast-import", "--quiet"], &import);
    let before = git(repo.folder(), &["ls-tree", "-r", "main"], "");
    bench().delivery.deliver(&to_main(&repo, "6.1.8")).await.unwrap();
    let after = git(repo.folder(), &["ls-tree", "-r", "main"], "");
    let shape = |listing: &str| -> Vec<(String, String)> {
        let line = |l: &str| (l[..6].to_string(), l.split('\t').nth(1).unwrap().to_string());
        listing.lines().map(line).collect()
    };
    assert_eq!(shape(&before), shape(&after));
    assert!(after.contains("100755") && after.contains("120000"));
    assert_eq!(repo.read("main", "crlf.yaml").unwrap(), crlf.replace("6.1.5", "6.1.8"));
    assert_eq!(repo.read("main", "run.yaml").unwrap(), yaml("6.1.8"));
    assert_eq!(git(repo.folder(), &["diff", "--name-only", "main^", "main"], "").lines().count(), 3);
}

#[tokio::test]
async fn values_that_cannot_be_set_are_reported_with_what_to_do() {
    let (_server, repo) = server(&[("a.yaml", "version: 1.0.0\n")]);
    let bench = bench();
    let fails = async |reason: &str, words: &[&str]| {
        let error = bench.delivery.deliver(&to_main(&repo, "6.1.8")).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert_eq!(error.retry(), sluice_delivery::Retry::OnChange);
        assert!(words.iter().all(|w| error.to_string().contains(w)), "{error}");
    };
    fails("NoMarker", &["fleet.git at main", r#"{"$promotion": "apps:podinfo:prod"}"#, "add"]).await;
    let misspelled = yaml("1").replace("podinfo:prod", "podinfo:prd");
    repo.commit("main", "misspelled", &[("d.yaml", &misspelled)]).unwrap();
    fails("NoMarker", &["; the most similar marker is apps:podinfo:prd at d.yaml:"]).await;
    repo.commit_changes("main", "gone", &[sluice_testkit::FileChange::Remove("d.yaml")]).unwrap();
    repo.commit_changes(
        "main",
        "latin 1",
        &[sluice_testkit::FileChange::Write("b.yaml", &[b"# \xfc\n", yaml("1").as_bytes()].concat())],
    )
    .unwrap();
    fails("UnparsableFile", &["b.yaml", "UTF-8"]).await;
    repo.commit_changes("main", "gone", &[sluice_testkit::FileChange::Remove("b.yaml")]).unwrap();
    let both = yaml("1").replace("prod\"", "prod\", \"value\": \"app\"");
    repo.commit("main", "asks for what is not there", &[("c.yaml", &both)]).unwrap();
    fails("UnknownFacet", &["c.yaml:3", "app"]).await;
    // The mistakes of others are theirs.
    let theirs = both.replace("podinfo", "other");
    repo.commit("main", "another's", &[("c.yaml", &theirs), (FILE, &yaml("1"))]).unwrap();
    bench.delivery.deliver(&to_main(&repo, "6.1.8")).await.unwrap();
    let head = repo.head("main").unwrap();
    let other = Order { promotion: "apps/other".into(), ..to_main(&repo, "6.1.8") };
    assert_eq!(bench.delivery.deliver(&other).await.unwrap(), Delivered::AlreadySet { commit: head });
}
