//! Clusters that attack who reads them. Of each attack: the session says in a sentence what there is too much
//! of, and this process stays small, which also counts what the attacking server takes in it.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use futures::stream::{iter, once, repeat};
use kube::client::ClientBuilder;
use kube::{Client, Config};
use serde_json::json;
use sluice_controller::observe::facts::{ClusterEvent, ClusterKey};
use sluice_controller::watch::limit::{Budget, Queue, limit_errors};
use sluice_controller::watch::session::{KubeconfigSource, Session};
use sluice_testkit::eventually;
use tokio::sync::{mpsc, watch};
use tower::util::MapResponseLayer;

use crate::run;

/// What a hostile cluster does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Attack {
    VersionBomb,
    VersionError,
    ApisBomb,
    HugeObject,
    ManySmallObjects,
    FatObjects,
    EndlessLine,
    EventFlood,
    BookmarkFlood,
    Continue,
    ExpiringWatches,
}

/// The limit that stands in for what 512 MiB leaves to the rest of the process, in MiB.
const MOST_GROWTH: usize = 384;
const PATIENCE: Duration = Duration::from_secs(90);

/// Some KiB of gzip that become 16 MiB.
fn bomb() -> Vec<u8> {
    static BOMB: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let spaces = vec![b' '; 1 << 20];
        (0..16).for_each(|_| gzip.write_all(&spaces).unwrap());
        gzip.finish().unwrap()
    };
    BOMB.get_or_init(make).clone()
}

fn spaces() -> Bytes {
    Bytes::from(vec![b' '; 1 << 20])
}

fn endless(head: &'static str, again: Bytes) -> Body {
    let head = once(async move { Bytes::from_static(head.as_bytes()) });
    Body::from_stream(head.chain(repeat(again)).map(Ok::<_, Infallible>))
}

fn json_body(body: Body) -> Response {
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

fn deployment(n: usize, padding: &str) -> String {
    json!({"metadata": {"namespace": "apps", "name": format!("web-{n}"), "resourceVersion": "7",
        "labels": {"kustomize.toolkit.fluxcd.io/name": "podinfo", "kustomize.toolkit.fluxcd.io/namespace": "apps"}},
        "spec": {"template": {"spec": {"containers": [{"image": format!("web:{n}{padding}")}]}}}})
    .to_string()
}

const LIST: &str = r#"{"metadata":{"resourceVersion":"5"},"items":["#;
const EXPIRED: &str = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}
"#;
const EMPTY: &str = r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#;

fn objects(each: impl Fn(usize) -> String + Send + 'static) -> Body {
    let head = once(async { Bytes::from_static(LIST.as_bytes()) });
    let mut n = 0;
    let many = iter(std::iter::from_fn(move || {
        let text: String = (0..200).map(|i| each(n + i) + ",").collect();
        n += 200;
        Some(Bytes::from(text))
    }));
    Body::from_stream(head.chain(many).map(Ok::<_, Infallible>))
}

fn lines(each: impl Fn(usize) -> String + Send + 'static) -> Body {
    let mut n = 0;
    let many = iter(std::iter::from_fn(move || {
        let text: String = (0..200).map(|i| each(n + i) + "\n").collect();
        n += 200;
        Some(Bytes::from(text))
    }));
    Body::from_stream(many.map(Ok::<_, Infallible>))
}

/// The answer to one request; everything that is not attacked is answered as by an empty cluster.
fn answer(attack: Attack, request: &Request) -> Response {
    let (path, watched) = (request.uri().path(), request.uri().query().is_some_and(|q| q.contains("watch")));
    let of_deployments = path.ends_with("/deployments");
    match (attack, path) {
        (Attack::VersionBomb, "/version") => {
            ([(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "gzip")], bomb()).into_response()
        }
        (Attack::VersionError, "/version") => {
            (axum::http::StatusCode::FORBIDDEN, endless("", spaces())).into_response()
        }
        (Attack::ApisBomb, "/apis") => json_body(endless("{\"groups\":[", Bytes::from("{},".repeat(10_000)))),
        (_, "/version") => json_body(Body::from("{}")),
        (_, "/apis") => json_body(Body::from(r#"{"groups":[]}"#)),
        _ if !of_deployments && watched => {
            json_body(Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>()))
        }
        _ if !of_deployments => json_body(Body::from(EMPTY)),
        (Attack::HugeObject, _) => json_body(endless(
            r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":""#,
            Bytes::from(vec![b'a'; 1 << 20]),
        )),
        (Attack::ManySmallObjects, _) => json_body(objects(|_| "{\"metadata\":{}}".into())),
        (Attack::FatObjects, _) => json_body(objects(|n| deployment(n, &"x".repeat(4000)))),
        (Attack::Continue, _) => {
            json_body(Body::from(r#"{"metadata":{"resourceVersion":"5","continue":"again"},"items":[]}"#))
        }
        _ if !watched => json_body(Body::from(EMPTY)),
        (Attack::EndlessLine, _) => json_body(endless("{\"type\":\"ADDED\",", spaces())),
        (Attack::EventFlood, _) => json_body(lines(|n| {
            format!(r#"{{"type":"MODIFIED","object":{}}}"#, deployment(n % 10, &format!("{n}")))
        })),
        (Attack::BookmarkFlood, _) => json_body(lines(|n| {
            format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{n}"}}}}}}"#)
        })),
        // Each watch lasts for as long as one of a good server may.
        (Attack::ExpiringWatches, _) => json_body(Body::from_stream(once(async {
            tokio::time::sleep(Duration::from_millis(1100)).await;
            Ok::<_, Infallible>(Bytes::from_static(EXPIRED.as_bytes()))
        }))),
        _ => json_body(Body::from(EMPTY)),
    }
}

/// A client of a server that attacks so.
async fn attacked_by(attack: Attack) -> Result<Client> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?).parse()?;
    let app = Router::new().fallback(move |request: Request| async move { answer(attack, &request) });
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut config = Config::new(url);
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&MapResponseLayer::new(limit_errors)).build())
}

/// How much memory this process takes, in MiB.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<usize>()? >> 10)
}

/// Has a session with a hostile cluster until it says what is wrong.
async fn outcome(attack: Attack) -> Result<(String, usize)> {
    let before = resident()?;
    let (_namespaces, receiver) = watch::channel(BTreeSet::from(["apps".to_string()]));
    let queue = Arc::new(EventQueue::default());
    let budget = Budget::new(128 << 20);
    let session = Session {
        key: ClusterKey::Remote { namespace: "fleet".into(), name: "hostile".into() },
        hub: attacked_by(attack).await?,
        access: KubeconfigSource::Local,
        allow_exec: false,
        namespaces: receiver,
        budget: budget.clone(),
        queue: queue.clone(),
        lists: Arc::default(),
    };
    let (tell, mut events) = mpsc::unbounded_channel();
    let task = tokio::spawn(session.run(move |event| tell.send((event, queue.slot())).is_ok()));
    let (begun, mut looked, mut most) = (Instant::now(), Instant::now(), 0);
    let said = loop {
        ensure!(begun.elapsed() < PATIENCE, "{attack:?} goes on for ever");
        if looked.elapsed() > Duration::from_millis(20) {
            looked = Instant::now();
            most = most.max(resident()?.saturating_sub(before));
            ensure!(most < MOST_GROWTH, "{attack:?} took {most} MiB");
        }
        let Ok(event) = tokio::time::timeout(Duration::from_millis(20), events.recv()).await else {
            continue;
        };
        match event.context("it ended")?.0 {
            ClusterEvent::Lost(why) => break why,
            ClusterEvent::TooLarge(_, _, why) | ClusterEvent::Unreadable(_, _, why) => break why,
            _ => {}
        }
    };
    task.abort();
    let _ = task.await;
    // The watches of a session end with it, and what they keep is free for others.
    eventually(PATIENCE, || async {
        ensure!(budget.used() == 0, "{attack:?} left {} bytes charged", budget.used());
        Ok(())
    })
    .await?;
    Ok((said, most))
}

#[test]
fn each_attack_of_a_cluster_ends_in_a_sentence_and_takes_little_memory() -> Result<()> {
    let table = [
        (Attack::VersionBomb, "too large: one of its answers has more than"),
        (Attack::VersionError, "cluster fleet/hostile"),
        (Attack::ApisBomb, "too large"),
        (
            Attack::HugeObject,
            "deployments of cluster fleet/hostile are too large to watch: it sends an object of",
        ),
        (Attack::ManySmallObjects, "it lists more than 250000 objects"),
        (Attack::FatObjects, "what Sluice keeps of its objects takes more than"),
        (Attack::EndlessLine, "it sends an object of more than 4 MiB"),
        (Attack::EventFlood, "changes a second"),
        (Attack::BookmarkFlood, "changes a second"),
        (Attack::Continue, "the list is not whole"),
    ];
    // Made before anybody waits for it.
    bomb();
    run(async {
        for (attack, words) in table {
            let (said, most) = outcome(attack).await?;
            println!("{attack:?}: {most} MiB: {said}");
            ensure!(said.contains(words), "{attack:?}: {said}");
            ensure!(said.len() < 500, "{said}");
        }
        Ok(())
    })
}

#[test]
fn a_cluster_whose_watches_always_end_is_not_listed_all_the_time() -> Result<()> {
    run(async {
        let (said, _) = outcome(Attack::ExpiringWatches).await?;
        let expected = "deployments cannot be read: cluster fleet/hostile has ended its watches too often";
        ensure!(said.contains(expected), "{said}");
        Ok(())
    })
}
