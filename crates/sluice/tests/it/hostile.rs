//! Several hostile clusters and a hostile repository at the same time: each has an error at its own target or promotion,
//! the controller and its git processes take at most 512 MiB, and a change on a healthy cluster is promoted within 30 s.

use std::convert::Infallible;
use std::io::Write;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream::{StreamExt, iter, once, repeat};
use serde_json::json;
use sluice_testkit::{FakeCluster, ForgeRepo, TreeMemory, eventually, shared_gitea};

use crate::crash::{self, marked};
use crate::place::{SOON, TestNamespace, error, revision};
use crate::process::Controller;
use crate::{releases, run};

/// The memory limit of the shipped Deployment, in MiB.
const LIMIT: u64 = 1024;
/// The part of the limit that git may take, in MiB. The test measures the controller without git.
const GIT: u64 = 384;
/// The part of the limit that edits of files may take, in MiB. No cluster takes any of it.
const EDITS: u64 = 310;
/// The most memory of the controller and its git processes under these attacks, in KiB.
const UNDER_ATTACK: u64 = 512 << 10;
/// The attack of each cluster, and a part of its target's error.
const ATTACKS: [(&str, &str); 8] = [
    ("version", "too large: one of its answers has more than"),
    ("gzip", "too large: one of its answers has more than"),
    ("object", "are too large to watch"),
    ("objects", "are too large to watch"),
    ("kept", "are too large to watch"),
    ("line", "are too large to watch"),
    // The limit allows a burst of 20,000 changes: the controller must read 1,250 changes a second to reach it in time.
    ("flood", "changes a second"),
    ("slow", "has not answered yet"),
];

const LIST: &str = r#"{"metadata":{"resourceVersion":"5"},"items":["#;
const GROUPS: &str = r#"{"groups":[{"name":"helm.toolkit.fluxcd.io","preferredVersion":{"version":"v2"},
    "versions":[{"version":"v2"}]}]}"#;

fn endless(head: &'static str, mut again: impl FnMut() -> String + Send + 'static) -> Response {
    let head = once(async move { Bytes::from(head) });
    let body = head.chain(iter(std::iter::from_fn(move || Some(Bytes::from(again())))));
    ([(CONTENT_TYPE, "application/json")], Body::from_stream(body.map(Ok::<_, Infallible>))).into_response()
}

fn release(namespace: &str, n: usize, padding: usize) -> String {
    json!({"metadata": {"namespace": namespace, "name": format!("podinfo-{n}"), "resourceVersion": "7"},
        "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "False", "message": "x".repeat(padding)}]}})
    .to_string()
}

/// Returns a list with the healthy application of the pipeline: the error of its target is not a missing member.
fn list_of_member() -> String {
    let member = json!({"metadata": {"namespace": "apps", "name": "podinfo", "generation": 1, "resourceVersion": "5"},
        "spec": {}, "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}],
            "history": [{"chartVersion": "1.0.0", "status": "deployed", "version": 1}]}});
    format!("{LIST}{member}]}}")
}

/// Returns an answer without end that is a thousand times as large after decompression.
fn gzip_bomb() -> Response {
    static MEMBER: OnceLock<Bytes> = OnceLock::new();
    let member = MEMBER.get_or_init(|| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let spaces = vec![b' '; 1 << 20];
        (0..16).for_each(|_| gzip.write_all(&spaces).unwrap());
        gzip.finish().unwrap().into()
    });
    let body = Body::from_stream(repeat(member.clone()).map(Ok::<_, Infallible>));
    ([(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "gzip")], body).into_response()
}

/// Returns the answer of a cluster that has only the namespace `apps`, and in which nothing changes.
pub fn empty(path: &str, watched: bool) -> Response {
    let nothing = futures::stream::pending::<Result<Bytes, Infallible>>();
    let body = match (watched, path.ends_with("/namespaces")) {
        (true, _) => Body::from_stream(nothing),
        (false, true) => {
            Body::from(r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"apps"}}]}"#)
        }
        (false, false) => Body::from(r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#),
    };
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

fn answer(attack: &str, request: &Request) -> Response {
    let (path, watched) = (request.uri().path(), request.uri().query().is_some_and(|q| q.contains("watch")));
    let sound = |text: &'static str| ([(CONTENT_TYPE, "application/json")], text).into_response();
    let mut n = 0;
    let mut many = move |padding: usize, around: (&str, &str)| {
        n += 100;
        (n - 100..n).map(|n| [around.0, &release("apps", n, padding), around.1].concat()).collect::<String>()
    };
    match (attack, path) {
        ("version", "/version") => endless("{\"major\":\"", || " ".repeat(1 << 20)),
        ("gzip", "/version") => gzip_bomb(),
        (_, "/version") => sound("{}"),
        (_, "/apis") => sound(GROUPS),
        (_, "/apis/helm.toolkit.fluxcd.io/v2") => sound(r#"{"resources":[{"name":"helmreleases"}]}"#),
        // The attack is on one kind. The others are those of a healthy, empty cluster.
        ("object" | "objects" | "kept" | "line" | "flood", path) if !path.ends_with("/helmreleases") => {
            empty(path, watched)
        }
        ("object", _) if !watched => endless(LIST, || "[[".repeat(1 << 19)),
        ("objects", _) if !watched => endless(LIST, || "{\"metadata\":{}},".repeat(10_000)),
        ("kept", _) if !watched => {
            let mut n = 0;
            // Each in a namespace of its own: those of one namespace would be left out.
            endless(LIST, move || {
                n += 100;
                (n - 100..n).map(|n| release(&format!("n{n}"), n, 4000) + ",").collect()
            })
        }
        ("slow", _) => {
            let drip = iter(0..).then(|_| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, Infallible>(Bytes::from(" "))
            });
            ([(CONTENT_TYPE, "application/json")], Body::from_stream(drip)).into_response()
        }
        ("flood", _) if !watched => ([(CONTENT_TYPE, "application/json")], list_of_member()).into_response(),
        _ if !watched => empty(path, watched),
        ("line", _) => endless("{\"type\":\"ADDED\",", || " ".repeat(1 << 20)),
        ("flood", _) => endless("", move || many(1, ("{\"type\":\"ADDED\",\"object\":", "}\n"))),
        _ => empty(path, watched),
    }
}

fn pipeline(namespace: &str, name: &str, target: &str, cluster: &str) -> String {
    format!(
        "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}}\n  environments:\n  \
         - {{name: dev, targets: [{{namespace: {target}, clusterRef: {{kind: GitopsCluster, name: {cluster}}}}}]}}\n"
    )
}

/// Writes a commit with a file of 400 MiB of zeros, which git sends as 400 KB.
fn add_zeros(repo: &ForgeRepo) -> Result<()> {
    let git = |args: &[&str], input: Option<&str>| -> Result<String> {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=eve", "-c", "user.email=eve@example.com"]);
        command.args(["-c", "core.bigFileThreshold=1m", "--git-dir"]).arg(repo.folder()).args(args);
        if let Some(input) = input {
            let file = tempfile::NamedTempFile::new()?;
            std::fs::write(file.path(), input)?;
            command.stdin(file.reopen()?);
        }
        let output = command.output()?;
        ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_string())
    };
    // The file is sparse, so it takes no space.
    let zeros = tempfile::NamedTempFile::new()?;
    zeros.as_file().set_len(400 << 20)?;
    let path = zeros.path().to_str().context("the path is no text")?;
    let blob = git(&["hash-object", "-w", "--no-filters", path], None)?;
    let tree = git(&["mktree"], Some(&format!("100644 blob {blob}\ta.yaml\n")))?;
    let commit = git(&["commit-tree", &tree, "-m", "attack"], None)?;
    git(&["update-ref", "refs/heads/main", &commit], None).map(drop)
}

/// Creates an application at 1.0.0 in dev and prod, with a Pipeline that commits to a repository.
pub async fn commits_to(place: &TestNamespace, name: &str, repo: &ForgeRepo) -> Result<()> {
    let n = &place.namespace;
    for environment in ["dev", "prod"] {
        releases::create_running(place.leaf(environment), n, name, "1.0.0").await?;
    }
    let commit = format!("{{commit: {{url: {:?}, branch: main, secretRef: {{name: forge}}}}}}", repo.url());
    place.apply(&crash::pipeline(n, name, &commit)).await
}

/// Promotes five revisions of the Pipeline `sound`, and returns the longest time until one was delivered.
pub async fn promote_sound(
    place: &TestNamespace,
    controller: &Controller,
    repo: &ForgeRepo,
) -> Result<Duration> {
    let n = &place.namespace;
    let mut slowest = Duration::ZERO;
    for version in 1..=5 {
        let (version, changed) = (format!("1.0.{version}"), Instant::now());
        releases::runs(place.leaf("dev"), n, "sound", &version, true).await?;
        let delivered = eventually(SOON, || async {
            ensure!(repo.read("main", "app.yaml")? == marked(n, "sound", &version), "no {version} yet");
            Ok(())
        });
        delivered.await.with_context(|| controller.tail())?;
        slowest = slowest.max(changed.elapsed());
        releases::runs(place.leaf("prod"), n, "sound", &version, true).await?;
        let shown = place.until("sound", "prod shows the revision", |p| revision(p, "prod") == version).await;
        shown.with_context(|| controller.tail())?;
    }
    Ok(slowest)
}

/// Checks how long the slowest promotion took, and the most memory of the controller and its git processes, in KiB.
pub fn check_limits(slowest: Duration, most: u64) -> Result<()> {
    println!("the slowest change was promoted after {slowest:?}; the controller took {most} KiB with git");
    ensure!(slowest < Duration::from_secs(30), "it took {slowest:?}");
    ensure!(most <= UNDER_ATTACK, "it took {most} KiB with git");
    Ok(())
}

/// Returns the most memory that a controller and its git processes take until `work` ends, in KiB.
pub async fn most_memory_during(
    controller: &Controller,
    work: impl Future<Output = Result<()>>,
) -> Result<u64> {
    let pid = controller.pid()?;
    let mut most = 0;
    let mut work = std::pin::pin!(work);
    loop {
        // A measurement each 20 ms: that is the pause of a poll, and not a wait for a result.
        match tokio::time::timeout(Duration::from_millis(20), &mut work).await {
            Ok(done) => return done.map(|()| most),
            Err(_) => most = most.max(TreeMemory::of(pid)?.all),
        }
    }
}

#[test]
fn hostile_clusters_delay_no_promotion_and_do_not_exhaust_memory() -> Result<()> {
    run(async {
        let deployment = include_str!("../../../../deploy/deployment.yaml");
        ensure!(
            deployment.contains(&format!("limits: {{memory: {LIMIT}Mi}}")),
            "correct LIMIT: {deployment}"
        );
        let place = TestNamespace::new("hostile").await?;
        let n = place.namespace.as_str();
        let mut hostile = Vec::new();
        for (attack, _) in ATTACKS {
            let router =
                Router::new().fallback(move |request: Request| async move { answer(attack, &request) });
            let cluster = FakeCluster::start(attack, router)?;
            place.gitops_cluster(attack, cluster.kubeconfig()).await?;
            place.apply(&pipeline(n, attack, "apps", attack)).await?;
            hostile.push(cluster);
        }
        let repo =
            shared_gitea().await?.create_repo(n, &[("app.yaml", &marked(n, "sound", "1.0.0"))]).await?;
        place.forge_secret().await?;
        let zeros =
            shared_gitea().await?.create_repo(&format!("{n}-zeros"), &[("README.md", "zeros\n")]).await?;
        add_zeros(&zeros)?;
        commits_to(&place, "sound", &repo).await?;
        commits_to(&place, "zeros", &zeros).await?;
        let controller = Controller::start(&place.shared.hub, n, &[])?;
        place.until("zeros", "prod shows the revision", |p| revision(p, "prod") == "1.0.0").await?;
        releases::runs(place.leaf("dev"), n, "zeros", "1.0.1", true).await?;
        let mut slowest = Duration::ZERO;
        let attacks = async {
            slowest = promote_sound(&place, &controller, &repo).await?;
            for (attack, part) in ATTACKS {
                let attacked = place
                    .until(attack, "the attacked target has an error", |p| error(p, "dev").contains(part))
                    .await;
                let attacked = attacked.with_context(|| controller.tail())?;
                println!("{attack}: {}", error(&attacked, "dev"));
            }
            let is_named = || async {
                let all = place.promotions().list(&Default::default()).await?.items;
                let attacked = all.iter().find(|p| p.spec.pipeline == "zeros").context("no promotion yet")?;
                let status = attacked.status.clone().unwrap_or_default();
                ensure!(status.reason == "FileNotRead", "{status:?}");
                ensure!(status.message.contains("a.yaml has 400 MiB"), "{status:?}");
                Ok(())
            };
            eventually(SOON, is_named).await.with_context(|| controller.tail())
        };
        let most = most_memory_during(&controller, attacks).await?;
        let peak = controller.peak_memory()?;
        println!("the controller took {peak} MiB without git");
        ensure!(peak < LIMIT - GIT - EDITS, "it took {peak} MiB");
        check_limits(slowest, most)?;
        Ok(())
    })
}
