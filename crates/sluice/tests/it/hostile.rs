//! Hostile clusters, all of them at the same time: each shows a sentence at its own target, the controller
//! stays within 512 MiB, and what changes on a sound cluster is promoted within 30 s all the while.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream::{StreamExt, iter, once};
use serde_json::json;
use sluice_testkit::{FakeCluster, eventually, shared_gitea};

use crate::crash::{self, marked};
use crate::place::{SOON, TestNamespace, error, revision};
use crate::process::Controller;
use crate::{releases, run};

/// The memory limit of the shipped Deployment, in MiB.
const MEMORY: u64 = 512;
/// What each cluster does, and a part of what its target then says.
const ATTACKS: [(&str, &str); 7] = [
    ("version", "too large"),
    ("object", "too large"),
    ("objects", "too large"),
    ("kept", "too large"),
    ("line", "too large"),
    // A slow machine takes changes more slowly than the limit: then the missing member is what is wrong.
    ("flood", "/flood"),
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

/// The answer of a cluster that has nothing but the namespace `apps`, and in which nothing changes.
fn empty(path: &str, watched: bool) -> Response {
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
        (_, "/version") => sound("{}"),
        (_, "/apis") => sound(GROUPS),
        (_, "/apis/helm.toolkit.fluxcd.io/v2") => sound(r#"{"resources":[{"name":"helmreleases"}]}"#),
        // One kind is attacked: the others are what they are on a sound cluster that has nothing.
        ("object" | "objects" | "kept" | "line" | "flood", path) if !path.ends_with("/helmreleases") => {
            empty(path, watched)
        }
        ("object", _) if !watched => endless(LIST, || "[[".repeat(1 << 19)),
        ("objects", _) if !watched => endless(LIST, || "{\"metadata\":{}},".repeat(10_000)),
        ("kept", _) if !watched => endless(LIST, move || many(4000, ("", ","))),
        ("slow", _) => {
            let drip = iter(0..).then(|_| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, Infallible>(Bytes::from(" "))
            });
            ([(CONTENT_TYPE, "application/json")], Body::from_stream(drip)).into_response()
        }
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

#[test]
fn hostile_clusters_harm_nobody() -> Result<()> {
    run(async {
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
        for environment in ["dev", "prod"] {
            releases::create(place.leaf(environment), n, "sound", json!({})).await?;
            releases::runs(place.leaf(environment), n, "sound", "1.0.0", true).await?;
        }
        let commit =
            format!("{{commit: {{url: {:?}, branch: main, secretRef: {{name: forge}}}}}}", repo.url());
        place.apply(&crash::pipeline(n, "sound", &commit)).await?;
        let controller = Controller::start(&place.shared.hub, n, &[])?;
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
            let shown =
                place.until("sound", "the sound one shows it", |p| revision(p, "prod") == version).await;
            shown.with_context(|| controller.tail())?;
        }
        for (attack, words) in ATTACKS {
            let told =
                place.until(attack, "the attacked one says so", |p| error(p, "dev").contains(words)).await;
            let told = told.with_context(|| controller.tail())?;
            println!("{attack}: {}", error(&told, "dev"));
        }
        let peak = controller.peak_memory()?;
        println!("the slowest change was promoted after {slowest:?}; the controller took {peak} MiB");
        ensure!(slowest < Duration::from_secs(30), "it took {slowest:?}");
        ensure!(peak < MEMORY, "it took {peak} MiB");
        Ok(())
    })
}
