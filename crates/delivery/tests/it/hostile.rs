//! Hostile repositories and servers. Each attack runs in a process of its own, which is killed if the process and its
//! descendants take more than 512 MiB of anonymous memory together. The attacked deliveries fail with an error, and a
//! delivery to another repository ends within 30 seconds.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::future::join_all;
use sluice_delivery::{Delivered, DeliveryStrategy};
use sluice_testkit::{FileChange, Repo, TreeMemory};

use crate::any_forge::ForgeFixture;
use crate::change_request::proposed;
use crate::commit::{server, to_main};
use crate::fixture::{FILE, bench, bench_with, git, order, yaml};

/// The most memory of the attacked process and its descendants, in KiB.
const MAX_MEMORY: u64 = 512 * 1024;
/// The most memory of the git processes, in KiB: their budget, and what they can take between two measurements.
const MAX_GIT_MEMORY: u64 = (384 + 48) * 1024;
/// How long an attacked delivery may take.
const DEADLINE: Duration = Duration::from_secs(20);
/// The same for several attacks, which wait for each other: long enough that a busy machine causes no timeout.
const DEADLINE_OF_SEVERAL: Duration = Duration::from_secs(150);
/// How long the delivery to another repository may take.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
#[ignore = "run by the other tests, in a process of its own"]
async fn process_that_is_attacked() {
    let Ok(urls) = std::env::var("TEST_URLS") else { return };
    let to = |url: &str| order(DeliveryStrategy::Commit { url: url.into(), branch: "main".into() }, "6.1.8");
    let mut orders: Vec<_> = urls.split(' ').map(to).collect();
    let other = orders.pop().unwrap();
    let bench = bench_with(|options| options.deadline = deadline(orders.len()));
    // Several attacks come from different namespaces.
    if orders.len() > 1 {
        orders.iter_mut().enumerate().for_each(|(n, order)| order.namespace = format!("attacker-{n}"));
    }
    let healthy = async {
        // Waits until the attack has begun.
        while bench.delivery.stats().git_fetches == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::timeout(SOON, bench.delivery.deliver(&other)).await
    };
    let attacked = join_all(orders.iter().map(|order| bench.delivery.deliver(order)));
    let (attacked, done) = tokio::join!(attacked, healthy);
    assert!(matches!(done, Ok(Ok(Delivered::Committed { .. }))), "{done:?}");
    for error in attacked.into_iter().map(Result::unwrap_err) {
        println!("\nreason {} message {}", error.reason(), error.to_string().escape_debug());
    }
}

fn deadline(attacks: usize) -> Duration {
    if attacks > 1 { DEADLINE_OF_SEVERAL } else { DEADLINE }
}

/// Attacks with a repository. Returns the reason and the message of the failed delivery.
fn attack(attacked: &Repo) -> (String, String) {
    let (_server, other) = server(&[(FILE, &yaml("6.1.5"))]);
    attack_by(&[attacked.url()], &other).remove(0)
}

/// Attacks with several addresses at the same time. Returns the reason and the message of each failed delivery.
fn attack_by(attacked: &[&str], other: &Repo) -> Vec<(String, String)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "hostile::process_that_is_attacked", "--nocapture"])
        .env("TEST_URLS", format!("{} {}", attacked.join(" "), other.url()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (begin, longest) = (Instant::now(), deadline(attacked.len()) + Duration::from_secs(100));
    let (mut most, mut most_of_git) = (0, 0);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let memory = TreeMemory::of(child.id()).unwrap();
        (most, most_of_git) = (most.max(memory.all), most_of_git.max(memory.descendants));
        if most > MAX_MEMORY || begin.elapsed() > longest {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(status.success() && most <= MAX_MEMORY, "{status:?} with {most} KiB: {text} {errors}");
    assert!(most_of_git <= MAX_GIT_MEMORY, "git took {most_of_git} KiB: {text} {errors}");
    assert_eq!(other.read("main", FILE).unwrap(), yaml("6.1.8"));
    let failures = text.lines().filter_map(|line| line.strip_prefix("reason ")?.split_once(" message "));
    let failures: Vec<_> =
        failures.map(|(reason, message)| (reason.to_string(), message.to_string())).collect();
    assert_eq!(failures.len(), attacked.len(), "{text} {errors}");
    failures
}

/// Writes an object into a repository.
fn object(repo: &Repo, kind: &str, content: &str) -> String {
    git(repo.folder(), &["hash-object", "-t", kind, "-w", "--stdin"], content)
}

/// Moves `main` to a new commit with this tree.
fn set_main(repo: &Repo, tree: &str) {
    let who = ["-c", "user.name=eve", "-c", "user.email=eve@example.com"];
    let commit = git(repo.folder(), &[&who[..], &["commit-tree", tree, "-m", "attack"]].concat(), "");
    git(repo.folder(), &["update-ref", "refs/heads/main", &commit], "");
}

/// A tree of ten trees, each of ten trees, and so on for eight levels: a few KB with 100 million paths.
#[tokio::test]
async fn a_small_tree_with_millions_of_paths_is_refused() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let blob = object(&repo, "blob", &yaml("6.1.5"));
    check_nested_trees_are_refused(repo, format!("100644 blob {blob}\ta.yaml\n"), 8).await;
}

/// A similar tree without any file, for which git would print nothing.
#[tokio::test]
async fn a_tree_with_millions_of_empty_folders_is_refused() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    check_nested_trees_are_refused(repo, String::new(), 9).await;
}

/// Attacks with `depth` levels of trees of ten trees, and with `tree` at the lowest level.
async fn check_nested_trees_are_refused(repo: Repo, mut tree: String, depth: usize) {
    for _ in 0..depth {
        let below = git(repo.folder(), &["mktree"], &tree);
        tree = (0..10).map(|n| format!("040000 tree {below}\tfolder-{n}\n")).collect();
    }
    set_main(&repo, &git(repo.folder(), &["mktree"], &tree));
    let (reason, message) = tokio::task::spawn_blocking(move || attack(&repo)).await.unwrap();
    assert_eq!(reason, "RepositoryTooLarge", "{message}");
    assert!(message.contains("the list of files in its tree is larger than Sluice reads"), "{message}");
}

#[tokio::test]
async fn a_commit_of_several_mebibytes_is_refused() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let commit = git(repo.folder(), &["cat-file", "commit", "main"], "");
    for (size, is_read) in [(60 << 10, true), (70 << 10, false), (5 << 20, false)] {
        let commit = object(&repo, "commit", &format!("{commit}\n{}", "word ".repeat(size / 5)));
        git(repo.folder(), &["update-ref", "refs/heads/main", &commit], "");
        match bench().delivery.deliver(&to_main(&repo, "6.1.8")).await {
            Ok(Delivered::Committed { .. }) if is_read => {}
            Err(error) if !is_read => {
                assert_eq!(error.reason(), "RepositoryTooLarge", "{error}");
                let expected = format!("the commit {commit} has more than 64 KiB");
                assert!(error.to_string().contains(&expected), "{error}");
            }
            other => panic!("{size}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_large_commit_on_the_head_branch_is_reported_with_the_branch() {
    let fixture = ForgeFixture::github().await;
    let order = fixture.order("6.1.8");
    let commit = git(fixture.repo().folder(), &["cat-file", "commit", "main"], "");
    let commit = object(fixture.repo(), "commit", &format!("{commit}\n{}", "word ".repeat(1 << 20)));
    fixture.set_branch(&order.branch(), &commit).await;
    let error = bench().delivery.deliver(&order).await.unwrap_err();
    assert_eq!(error.reason(), "RepositoryTooLarge", "{error}");
    assert!(error.to_string().contains("delete the branch sluice/apps/podinfo/prod"), "{error}");
    fixture.repo().remove_branch(&order.branch()).unwrap();
    proposed(&bench().delivery, &order).await;
}

#[tokio::test]
async fn a_large_file_of_zeros_and_a_pointer_to_lfs_are_named() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    for filter in ["true", "false"] {
        let (_server, repo) = server(&[("b.yaml", pointer)]);
        git(repo.folder(), &["config", "uploadpack.allowFilter", filter], "");
        // The file is sparse, so it takes no space.
        let zeros = tempfile::NamedTempFile::new().unwrap();
        zeros.as_file().set_len(400 << 20).unwrap();
        let threshold = ["-c", "core.bigFileThreshold=1m", "hash-object", "-w", "--no-filters"];
        let blob = git(repo.folder(), &[&threshold[..], &[zeros.path().to_str().unwrap()]].concat(), "");
        let tree = git(repo.folder(), &["ls-tree", "main"], "");
        let tree = git(repo.folder(), &["mktree"], &format!("{tree}\n100644 blob {blob}\ta.yaml\n"));
        set_main(&repo, &tree);
        let (reason, message) = tokio::task::spawn_blocking(move || attack(&repo)).await.unwrap();
        assert_eq!(reason, "FileNotRead", "{message}");
        assert!(
            message.contains("a.yaml has 400 MiB") && message.contains("b.yaml is in Git LFS"),
            "{message}"
        );
        assert!(message.contains("$promotion"), "{message}");
    }
}

#[tokio::test]
async fn ten_thousand_large_files_with_markers_are_refused() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let text = yaml("6.1.5") + &"# padding\n".repeat((4 << 20) / 10 - 10);
    let blob = object(&repo, "blob", &text);
    let tree: String = (0..10_000).map(|n| format!("100644 blob {blob}\t{n:05}.yaml\n")).collect();
    set_main(&repo, &git(repo.folder(), &["mktree"], &tree));
    let (reason, message) = tokio::task::spawn_blocking(move || attack(&repo)).await.unwrap();
    assert_eq!(reason, "RepositoryTooLarge", "{message}");
    assert!(message.contains(".yaml, are larger together than Sluice reads"), "{message}");
}

#[tokio::test]
async fn marked_files_that_differ_share_one_budget() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let padding = "# padding\n".repeat((3 << 20) / 10);
    let files: Vec<(String, String)> =
        (0..12).map(|n| (format!("{n}.yaml"), format!("{}# {n}\n{padding}", yaml("6.1.5")))).collect();
    let changes: Vec<FileChange<'_>> =
        files.iter().map(|(p, t)| FileChange::Write(p, t.as_bytes())).collect();
    repo.commit_changes("main", "attack", &changes).unwrap();
    let (reason, message) = tokio::task::spawn_blocking(move || attack(&repo)).await.unwrap();
    assert_eq!(reason, "RepositoryTooLarge", "{message}");
}

/// Returns a pack of two blobs. One has 64 KiB. The other has `mebibytes`, as a delta in which each byte stands for 64
/// KiB (git-scm.com/docs/gitformat-pack, "Deltified representation": a size of zero is 0x10000).
fn pack(base_id: &str, mebibytes: usize) -> Vec<u8> {
    let number = |mut n: usize, bytes: &mut Vec<u8>| {
        while n > 0x7f {
            bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        bytes.push(n as u8);
    };
    let mut delta = Vec::new();
    number(64 << 10, &mut delta);
    number(mebibytes << 20, &mut delta);
    delta.extend(vec![0x80; mebibytes << 4]);
    let mut pack = b"PACK\0\0\0\x02\0\0\0\x02".to_vec();
    let mut object = |kind: u8, base: &[u8], content: &[u8]| {
        pack.push(0x80 | kind << 4 | (content.len() & 15) as u8);
        number(content.len() >> 4, &mut pack);
        pack.extend(base);
        pack.extend(zlib(content));
    };
    object(3, &[], &vec![0; 64 << 10]);
    let base: Vec<u8> =
        (0..20).map(|n| u8::from_str_radix(&base_id[2 * n..2 * n + 2], 16).unwrap()).collect();
    object(7, &base, &delta);
    let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &pack);
    pack.extend(hash.as_ref());
    pack
}

/// Returns bytes in the format of zlib, without compression (RFC 1950, RFC 1951 3.2.4).
fn zlib(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x78, 0x01];
    let count = content.chunks(60_000).count();
    for (n, chunk) in content.chunks(60_000).enumerate() {
        let length = chunk.len() as u16;
        bytes.push(u8::from(n + 1 == count));
        bytes.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
        bytes.extend(chunk);
    }
    let (a, b) = content.iter().fold((1_u32, 0_u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    bytes.extend((b << 16 | a).to_be_bytes());
    bytes
}

/// Each of several repositories makes git take much memory, but no more than one repository may take.
#[tokio::test]
async fn packs_that_expand_share_one_budget_of_memory() {
    for (count, mebibytes) in [(3, 200), (8, 50)] {
        let (server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
        git(repo.folder(), &["config", "uploadpack.allowFilter", "false"], "");
        let base = object(&repo, "blob", &"\0".repeat(64 << 10));
        let path = repo.folder().join("objects/pack/pack-attack.pack");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, pack(&base, mebibytes)).unwrap();
        git(repo.folder(), &["index-pack", path.to_str().unwrap()], "");
        let all = git(repo.folder(), &["cat-file", "--batch-all-objects", "--batch-check"], "");
        let large = all.lines().find(|line| line.ends_with(&format!(" {}", mebibytes << 20))).unwrap();
        let large = large.split(' ').next().unwrap();
        let tree = format!("100644 blob {base}\ta.bin\n100644 blob {large}\tb.bin\n");
        set_main(&repo, &git(repo.folder(), &["mktree"], &tree));
        let copies: Vec<Repo> = (0..count)
            .map(|n| {
                let copy = server.create_repo(&format!("attacker-{n}"), &[(FILE, &yaml("6.1.5"))]).unwrap();
                std::fs::remove_dir_all(copy.folder()).unwrap();
                let from = [repo.folder(), copy.folder()].map(|folder| folder.to_str().unwrap().to_string());
                let done = Command::new("cp").arg("-r").args(from).status().unwrap();
                assert!(done.success());
                copy
            })
            .collect();
        let failures = tokio::task::spawn_blocking(move || {
            let (_server, other) = crate::commit::server(&[(FILE, &yaml("6.1.5"))]);
            attack_by(&copies.iter().map(Repo::url).collect::<Vec<_>>(), &other)
        });
        // Each repository is fetched, large ones one after the other.
        for (reason, message) in failures.await.unwrap() {
            assert_eq!(reason, "NoMarker", "{message}");
        }
    }
}

/// Each parsed file takes fifty times its size: 40 MB. Each delivery fails at its own marker, after it has parsed the file.
#[tokio::test]
async fn many_deliveries_with_large_files_share_the_memory_of_one() {
    const COUNT: usize = 24;
    let marker = |n| format!("v{n}: [] # {{\"$promotion\": \"attacker-{n}:podinfo:prod\"}}\n");
    let markers: String = (0..COUNT).map(marker).collect();
    let text = format!("{markers}x:\n{}", "- 1\n".repeat(190_000));
    let (server, _) = server(&[(FILE, &text)]);
    let repos: Vec<Repo> =
        (0..COUNT).map(|n| server.create_repo(&format!("r{n}"), &[(FILE, &text)]).unwrap()).collect();
    let failures = tokio::task::spawn_blocking(move || {
        let (_server, other) = crate::commit::server(&[(FILE, &yaml("6.1.5"))]);
        attack_by(&repos.iter().map(Repo::url).collect::<Vec<_>>(), &other)
    });
    for (reason, message) in failures.await.unwrap() {
        assert_eq!(reason, "FlowCollection", "{message}");
    }
}

/// Each list of files takes about 40 MB, and its tree a few KB.
#[tokio::test]
async fn many_deliveries_with_long_lists_of_files_share_the_memory_of_one() {
    const COUNT: usize = 16;
    let (server, _) = server(&[(FILE, &yaml("6.1.5"))]);
    let repos: Vec<Repo> = (0..COUNT)
        .map(|n| {
            let repo = server.create_repo(&format!("r{n}"), &[(FILE, "a: 1\n")]).unwrap();
            let blob = object(&repo, "blob", "a: 1\n");
            let mut tree = format!("100644 blob {blob}\ta.yaml\n");
            for _ in 0..5 {
                let below = git(repo.folder(), &["mktree"], &tree);
                tree = (0..10).map(|n| format!("040000 tree {below}\t{}-{n}\n", "x".repeat(50))).collect();
            }
            set_main(&repo, &git(repo.folder(), &["mktree"], &tree));
            repo
        })
        .collect();
    let failures = tokio::task::spawn_blocking(move || {
        let (_server, other) = crate::commit::server(&[(FILE, &yaml("6.1.5"))]);
        attack_by(&repos.iter().map(Repo::url).collect::<Vec<_>>(), &other)
    });
    for (reason, message) in failures.await.unwrap() {
        assert_eq!(reason, "NoMarker", "{message}");
    }
}

/// The repository has branches whose names begin with the name of a head branch.
#[tokio::test]
async fn branches_that_begin_like_a_head_branch_are_not_fetched() {
    let fixture = crate::any_forge::ForgeFixture::github().await;
    let head = fixture.repo().head("main").unwrap();
    let refs: String = std::iter::once(format!("{head} refs/heads/main\n"))
        .chain((0..20_000).map(|n| format!("{head} refs/heads/sluice/apps/podinfo/prod-{n}\n")))
        .collect();
    std::fs::write(fixture.repo().folder().join("packed-refs"), refs).unwrap();
    let bench = bench();
    for version in ["6.1.8", "6.2.0"] {
        crate::change_request::proposed(&bench.delivery, &fixture.order(version)).await;
    }
    fn files(folder: &std::path::Path) -> usize {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
    }
    assert!(files(bench.cache.path()) < 200, "{}", files(bench.cache.path()));
}

/// Servers with an endless answer, with a million branches that are not requested, and with a very long error.
#[tokio::test]
async fn endless_answers_of_git_servers_are_refused() {
    for kind in ["endless", "refs", "words"] {
        let address = start_endless_server(kind).await;
        let (_server, other) = server(&[(FILE, &yaml("6.1.5"))]);
        let url = format!("http://{address}/a/b.git");
        let (reason, message) =
            tokio::task::spawn_blocking(move || attack_by(&[&url], &other).remove(0)).await.unwrap();
        let expected: &[&str] = match kind {
            "endless" => &["Timeout", "RepositoryTooLarge", "GitFailed"],
            "refs" => &["RepositoryTooLarge", "BranchNotFound"],
            _ => &["RepositoryTooLarge", "GitFailed", "Unreachable"],
        };
        assert!(expected.contains(&reason.as_str()) && message.len() < 2_000, "{kind}: {reason} {message}");
    }
}

/// Starts a server that answers every call of git with far too many bytes, and returns its address.
async fn start_endless_server(kind: &'static str) -> std::net::SocketAddr {
    use axum::body::{Body, Bytes};
    let packet = |text: String| format!("{:04x}{text}", text.len() + 4);
    let (first, more) = match kind {
        "endless" => (
            "001e# service=git-upload-pack\n0000".to_string(),
            packet(format!("version 1{}\n", "x".repeat(60_000))),
        ),
        "refs" => {
            let id = "1".repeat(40);
            let first =
                packet(format!("{id} refs/heads/a\0multi_ack side-band-64k ofs-delta shallow filter\n"));
            let more = (0..500).map(|_| packet(format!("{id} refs/heads/{}\n", "b".repeat(100)))).collect();
            (format!("001e# service=git-upload-pack\n0000{first}"), more)
        }
        _ => (
            "001e# service=git-upload-pack\n0000".to_string(),
            packet(format!("ERR {}\n", "no ".repeat(20_000))),
        ),
    };
    let rounds = if kind == "refs" { 2_000 } else { usize::MAX };
    let answer = move || {
        let (first, more) = (Bytes::from(first.clone()), Bytes::from(more.clone()));
        async move {
            let chunks = std::iter::once(first).chain(std::iter::repeat_n(more, rounds));
            let end = (rounds != usize::MAX).then(|| Bytes::from_static(b"0000"));
            let stream = futures::stream::iter(chunks.chain(end).map(Ok::<_, std::io::Error>));
            let kind = "application/x-git-upload-pack-advertisement";
            axum::http::Response::builder()
                .header("content-type", kind)
                .body(Body::from_stream(stream))
                .unwrap()
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

#[tokio::test]
async fn hundreds_of_thousands_of_branches_do_not_prevent_a_delivery() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let head = repo.head("main").unwrap();
    let refs: String = std::iter::once(format!("{head} refs/heads/main\n"))
        .chain((0..300_000).map(|n| format!("{head} refs/heads/sluice/apps/podinfo/other-{n}\n")))
        .collect();
    std::fs::write(repo.folder().join("packed-refs"), refs).unwrap();
    let done = bench().delivery.deliver(&to_main(&repo, "6.1.8")).await.unwrap();
    assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
}

/// Entries that are not files, and a name with control characters.
#[tokio::test]
async fn links_and_modules_are_not_followed_and_odd_names_are_shown_escaped() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let good = object(&repo, "blob", &yaml("6.1.5"));
    let link = object(&repo, "blob", "/etc/passwd");
    let bad = object(&repo, "blob", &yaml("6.1.5").replace("prod\"", "prod\", \"value\": \"app\""));
    let head = repo.head("main").unwrap();
    let entries = [
        format!("100644 blob {good}\tgood.yaml"),
        format!("120000 blob {link}\tlink.yaml"),
        format!("160000 commit {head}\tmodule.yaml"),
    ];
    let tree = git(repo.folder(), &["mktree", "-z", "--missing"], &(entries.join("\0") + "\0"));
    set_main(&repo, &tree);
    bench().delivery.deliver(&to_main(&repo, "6.1.8")).await.unwrap();
    assert_eq!(repo.read("main", "good.yaml").unwrap(), yaml("6.1.8"));
    let entries =
        [&entries[..], &[format!("100644 blob {bad}\t\x1b[2Ja\nSluice-Promotion: x.yaml")]].concat();
    let tree = git(repo.folder(), &["mktree", "-z", "--missing"], &(entries.join("\0") + "\0"));
    set_main(&repo, &tree);
    let error = bench().delivery.deliver(&to_main(&repo, "6.1.9")).await.unwrap_err();
    assert_eq!(error.reason(), "UnknownFacet", "{error}");
    assert!(!error.to_string().contains(char::is_control), "{error:?}");
}

#[tokio::test]
async fn credentials_are_not_sent_over_plain_http() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let careful = bench_with(|options| options.insecure_http = false);
    let mut order = to_main(&repo, "6.1.8");
    let before = (repo.requests().ls, repo.requests().fetch);
    let error = careful.delivery.deliver(&order).await.unwrap_err();
    assert_eq!(error.reason(), "PlainHttpRefused", "{error}");
    assert!(error.to_string().contains("--insecure-git-http"), "{error}");
    for forge in sluice_delivery::ForgeKind::ALL {
        let fixture = crate::any_forge::ForgeFixture::of(forge).await;
        let order = fixture.order("6.1.8");
        let error = careful.delivery.deliver(&order).await.unwrap_err();
        assert_eq!(error.reason(), "PlainHttpRefused", "{error}");
        assert!(fixture.standin().calls().is_empty(), "{forge:?}");
    }
    // Without credentials the delivery sends nothing secret, so it calls the server, which requires credentials.
    order.credentials = Default::default();
    assert_eq!(careful.delivery.deliver(&order).await.unwrap_err().reason(), "AuthenticationFailed");
    assert_eq!(before.1, repo.requests().fetch);
}
