//! Clusters that attack Sluice. For each attack the session must report an error that names the limit, and the
//! memory of this process, which also runs the hostile server, must stay small.

use std::convert::Infallible;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use futures::stream::{iter, once, repeat};
use kube::Client;
use serde_json::json;
use sluice_controller::ObserveScope;
use sluice_controller::watch::cluster_client::ClusterClient;
use sluice_controller::watch::kubeconfig::bounded_client;
use sluice_controller::watch::kubeconfig_secrets::KubeconfigSecrets;
use sluice_controller::watch::limit::WatchLimits;
use sluice_controller::watch::list;
use sluice_controller::watch::observed_memory::ObservedMemory;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Kind};
use sluice_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fake_api_server::{self, EXPIRED};
use crate::run;
use crate::running_session::RunningSession;

/// The attack of a hostile cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Attack {
    VersionBomb,
    VersionError,
    ApisBomb,
    ListBomb,
    HugeObject,
    ManySmallObjects,
    OneNameAgain,
    FatObjects,
    EndlessLine,
    UnfinishedLines,
    EventFlood,
    BookmarkFlood,
    Continue,
    ExpiringWatches,
}

/// The most memory that an attack may take, in MiB: what observed objects may take here, and half as much for all else.
const MAX_GROWTH: usize = 192;
const TIMEOUT: Duration = Duration::from_secs(90);

/// A few KiB of gzip that decompress to a list with 16 MiB of spaces.
fn gzip_bomb() -> Vec<u8> {
    static GZIP_BOMB: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(LIST.as_bytes()).unwrap();
        let spaces = vec![b' '; 1 << 20];
        (0..16).for_each(|_| gzip.write_all(&spaces).unwrap());
        gzip.finish().unwrap()
    };
    GZIP_BOMB.get_or_init(make).clone()
}

fn spaces() -> Bytes {
    Bytes::from(vec![b' '; 1 << 20])
}

fn endless(head: &'static str, repeated: Bytes) -> Body {
    let head = once(async move { Bytes::from_static(head.as_bytes()) });
    Body::from_stream(head.chain(repeat(repeated)).map(Ok::<_, Infallible>))
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
/// An object of each kind.
const SAME_NAME: &str =
    r#"{"metadata":{"name":"x","namespace":"apps","uid":"u","resourceVersion":"1"},"spec":{},"status":{}},"#;
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

/// A line of almost the allowed length that never ends.
fn unfinished_line() -> Body {
    let head =
        once(async { Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"") });
    let names = iter(std::iter::repeat_n(Bytes::from(vec![b'a'; 64 << 10]), 63));
    Body::from_stream(head.chain(names).chain(futures::stream::pending()).map(Ok::<_, Infallible>))
}

/// Returns the answer to a request. Requests without an attack get the answers of an empty cluster.
fn answer(attack: Attack, request: &Request) -> Response {
    let (path, is_watch) = (request.uri().path(), request.uri().query().is_some_and(|q| q.contains("watch")));
    let of_deployments = path.ends_with("/deployments");
    match (attack, path) {
        (Attack::VersionBomb, "/version") => {
            ([(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "gzip")], gzip_bomb()).into_response()
        }
        (Attack::VersionError, "/version") => {
            (axum::http::StatusCode::FORBIDDEN, endless("", spaces())).into_response()
        }
        (Attack::ApisBomb, "/apis") => json_body(endless("{\"groups\":[", Bytes::from("{},".repeat(10_000)))),
        (_, "/version") => json_body(Body::from("{}")),
        (_, "/apis") => json_body(Body::from(r#"{"groups":[]}"#)),
        (Attack::UnfinishedLines, _) if is_watch => json_body(unfinished_line()),
        (Attack::OneNameAgain, _) if !is_watch => {
            json_body(endless(LIST, Bytes::from(SAME_NAME.repeat(1000))))
        }
        _ if !of_deployments && is_watch => {
            json_body(Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>()))
        }
        _ if !of_deployments => json_body(Body::from(EMPTY)),
        (Attack::ListBomb, _) => {
            ([(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "gzip")], gzip_bomb()).into_response()
        }
        (Attack::HugeObject, _) => json_body(endless(
            r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":""#,
            Bytes::from(vec![b'a'; 1 << 20]),
        )),
        (Attack::ManySmallObjects, _) => json_body(objects(|_| "{\"metadata\":{}}".into())),
        (Attack::FatObjects, _) => json_body(objects(|n| {
            deployment(n, &"x".repeat(4000))
                .replace("\"namespace\":\"apps\"", &format!("\"namespace\":\"n{n}\""))
        })),
        (Attack::Continue, _) => {
            json_body(Body::from(r#"{"metadata":{"resourceVersion":"5","continue":"again"},"items":[]}"#))
        }
        _ if !is_watch => json_body(Body::from(EMPTY)),
        (Attack::EndlessLine, _) => json_body(endless("{\"type\":\"ADDED\",", spaces())),
        (Attack::EventFlood, _) => json_body(lines(|n| {
            format!(r#"{{"type":"MODIFIED","object":{}}}"#, deployment(n % 10, &format!("{n}")))
        })),
        (Attack::BookmarkFlood, _) => json_body(lines(|n| {
            format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{n}"}}}}}}"#)
        })),
        // Each watch lasts long enough to be valid.
        (Attack::ExpiringWatches, _) => json_body(Body::from_stream(once(async {
            tokio::time::sleep(Duration::from_millis(1100)).await;
            Ok::<_, Infallible>(Bytes::from_static(EXPIRED.as_bytes()))
        }))),
        _ => json_body(Body::from(EMPTY)),
    }
}

/// Starts a server with this attack, and returns a client of it.
async fn hostile_client(attack: Attack) -> Result<Client> {
    let app = Router::new().fallback(move |request: Request| async move { answer(attack, &request) });
    Ok(bounded_client(&fake_api_server::start(app).await?)?)
}

/// Returns the resident memory of this process, in MiB.
fn resident_memory() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<usize>()? >> 10)
}

/// Runs a session with a hostile cluster until it reports an error. Returns the error and the growth of memory in
/// MiB.
async fn error_and_growth(attack: Attack) -> Result<(String, usize)> {
    let before = resident_memory()?;
    let memory = ObservedMemory::new(128 << 20);
    let client = hostile_client(attack).await?;
    let mut session = RunningSession::start(client, "hostile", ObserveScope::All, memory.clone());
    let (started, mut measured, mut growth) = (Instant::now(), Instant::now(), 0);
    let error = loop {
        ensure!(started.elapsed() < TIMEOUT, "{attack:?} does not end");
        if measured.elapsed() > Duration::from_millis(20) {
            measured = Instant::now();
            growth = growth.max(resident_memory()?.saturating_sub(before));
            ensure!(growth < MAX_GROWTH, "{attack:?} took {growth} MiB");
        }
        let Ok(event) = tokio::time::timeout(Duration::from_millis(20), session.events.recv()).await else {
            continue;
        };
        match event.context("it ended")?.0 {
            ClusterEvent::Lost(why) => break why,
            ClusterEvent::TooLarge(_, _, why) | ClusterEvent::Unreadable(_, _, why) => break why,
            _ => {}
        }
    };
    drop(session);
    // The watches of a session end with it, and release their memory.
    eventually(TIMEOUT, || async {
        ensure!(memory.used() == 0, "{attack:?} left {} bytes charged", memory.used());
        Ok(())
    })
    .await?;
    Ok((error, growth))
}

#[test]
fn each_attack_of_a_cluster_ends_with_an_error_and_takes_little_memory() -> Result<()> {
    let table = [
        (Attack::VersionBomb, "too large: one of its answers has more than"),
        (Attack::VersionError, "cluster fleet/hostile"),
        (Attack::ApisBomb, "too large"),
        (Attack::ListBomb, "the answer is not a list"),
        (
            Attack::HugeObject,
            "deployments of cluster fleet/hostile are too large to watch: it sends an object of",
        ),
        (Attack::ManySmallObjects, "it lists more than 250000 objects"),
        (Attack::OneNameAgain, "it lists more than 250000 objects"),
        (Attack::FatObjects, "its objects take more than"),
        (Attack::EndlessLine, "it sends an object of more than 16 MiB"),
        (Attack::EventFlood, "changes a second"),
        (Attack::BookmarkFlood, "changes a second"),
        (Attack::Continue, "the list is incomplete"),
    ];
    // Prepares the answer before the first request.
    gzip_bomb();
    run(async {
        for (attack, expected) in table {
            let (error, growth) = error_and_growth(attack).await?;
            println!("{attack:?}: {growth} MiB: {error}");
            ensure!(error.contains(expected), "{attack:?}: {error}");
            ensure!(error.len() < 500, "{error}");
        }
        Ok(())
    })
}

/// A server that begins the head of an answer, and never ends it.
async fn server_of_endless_heads() -> Result<kube::Config> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1 << 10]).await;
            let head = format!("HTTP/1.1 200 OK\r\nx-a: {}", "a".repeat(300_000));
            let _ = stream.write_all(head.as_bytes()).await;
            open.push(stream);
        }
    });
    Ok(kube::Config::new(format!("http://{address}").parse()?))
}

#[test]
fn the_head_of_an_answer_takes_little_memory() -> Result<()> {
    run(async {
        let client = bounded_client(&server_of_endless_heads().await?)?;
        let asked = tokio::time::timeout(TIMEOUT, client.apiserver_version()).await?;
        let error = asked.err().context("an answer")?;
        ensure!(format!("{error:?}").contains("TooLarge"), "{error:?}");
        Ok(())
    })
}

/// A list arrives at once, as it does after decompression.
#[tokio::test]
async fn other_tasks_go_on_while_a_long_list_is_read() {
    let body = Bytes::from([LIST.as_bytes(), &vec![b' '; 3 << 20], b"]}"].concat());
    let service = tower::service_fn(move |_: Request<kube::client::Body>| {
        let body = http_body_util::Full::new(body.clone());
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let request = list::request("/api/v1/pods", None).unwrap();
    let limits = WatchLimits::hub("pods");
    list::read(&Client::new(service, "default"), request, &limits, |_| Ok(())).await.unwrap();
    other.abort();
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns > 100, "{turns} turns of the other task");
}

#[test]
fn lines_that_never_end_on_all_watches_of_many_clusters_take_little_memory() -> Result<()> {
    run(async {
        let before = resident_memory()?;
        let memory = ObservedMemory::new(128 << 20);
        let client = hostile_client(Attack::UnfinishedLines).await?;
        let start = |_| RunningSession::start(client.clone(), "hostile", ObserveScope::All, memory.clone());
        let mut sessions: Vec<_> = (0..20).map(start).collect();
        let too_slow = "it takes more than 30 seconds to send one object";
        eventually(TIMEOUT, || {
            let growth = resident_memory().map(|now| now.saturating_sub(before));
            let events = sessions.iter_mut().filter_map(|session| session.events.try_recv().ok());
            let errors: Vec<String> = events.filter_map(|(event, _)| too_large(event)).collect();
            async move {
                assert!(growth? < MAX_GROWTH, "too much memory");
                ensure!(
                    errors.iter().any(|why| why.contains(too_slow)),
                    "no session has reported it: {errors:?}"
                );
                Ok(())
            }
        })
        .await
    })
}

/// A client of a server whose answers are large and never end. `pieces` counts the pieces of 64 KiB that are read.
fn client_of_unfinished_answers(pieces: Arc<AtomicUsize>) -> Client {
    let service = tower::service_fn(move |_: Request<kube::client::Body>| {
        let pieces = pieces.clone();
        let piece = move |_| {
            pieces.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Bytes::from(vec![b' '; 64 << 10]))
        };
        let text = iter(0..30).map(piece).chain(futures::stream::pending());
        async { Ok::<_, Infallible>(Response::new(Body::from_stream(text))) }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn only_a_few_large_answers_are_read_at_the_same_time() {
    const CLUSTERS: usize = 40;
    let (memory, pieces) = (ObservedMemory::new(128 << 20), Arc::new(AtomicUsize::new(0)));
    let read = |n: usize| {
        let key = ClusterKey::Remote { namespace: format!("team-{n}"), name: "hostile".into() };
        let client = ClusterClient::new(
            client_of_unfinished_answers(pieces.clone()),
            key,
            memory.clone(),
            KubeconfigSecrets::default(),
        );
        async move { client.read::<serde_json::Value>("/apis").await.unwrap_err() }
    };
    let mut reads = Box::pin(futures::future::join_all((0..CLUSTERS).map(read)));
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut reads).await.is_err());
    let large = pieces.load(Ordering::Relaxed).saturating_sub(CLUSTERS) / 29;
    assert!((1..=12).contains(&large), "{large} large answers are read");
    // The time for which a cluster waits does not count.
    for error in reads.await {
        assert!(error.to_string().contains("no answer within 30 seconds"), "{error}");
    }
    assert_eq!(pieces.load(Ordering::Relaxed), CLUSTERS * 30);
}

#[test]
fn the_kinds_of_a_cluster_ask_together_what_it_serves() -> Result<()> {
    run(async {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let most_seen = most.clone();
        let answer = async move |request: Request| {
            if request.uri().path() == "/version" {
                return "{}".into_response();
            }
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(200)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            (axum::http::StatusCode::INTERNAL_SERVER_ERROR, "{}").into_response()
        };
        let answers = Router::new().route("/version", get(answer.clone())).route("/apis", get(answer));
        let client = bounded_client(&fake_api_server::start(answers).await?)?;
        let memory = ObservedMemory::new(128 << 20);
        let mut session = RunningSession::start(client, "broken", ObserveScope::All, memory);
        for _ in 0..2 * Kind::DECIDING.len() {
            let unreadable = |event| matches!(event, ClusterEvent::Unreadable(..)).then_some(());
            session.first(unreadable).await?;
        }
        ensure!(most_seen.load(Ordering::SeqCst) == 1, "{most_seen:?} requests at the same time");
        Ok(())
    })
}

/// A cluster whose watch of deployments expires. Sluice keeps 0.7 MB of its 400 deployments.
async fn client_of_expiring_watch() -> Result<Client> {
    let answer = |request: Request| async move {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch"));
        if is_watch || !request.uri().path().ends_with("/deployments") {
            return answer(Attack::ExpiringWatches, &request);
        }
        let all: Vec<String> = (0..400).map(|n| deployment(n, &"x".repeat(4000))).collect();
        json_body(Body::from(format!("{LIST}{}]}}", all.join(","))))
    };
    Ok(bounded_client(&fake_api_server::start(Router::new().fallback(answer)).await?)?)
}

#[test]
fn a_list_without_room_beside_the_list_before_takes_its_place() -> Result<()> {
    run(async {
        // A third of the memory is for one cluster. The deployments need a little more than half of that.
        let memory = ObservedMemory::new(3_900_000);
        let client = client_of_expiring_watch().await?;
        let mut session = RunningSession::start(client, "full", ObserveScope::All, memory);
        let mut events = Vec::new();
        for _ in 0..5 {
            let of_deployments = |event| match event {
                ClusterEvent::Listed(Kind::Deployment, _, all) => Some(format!("{} listed", all.len())),
                ClusterEvent::TooLarge(Kind::Deployment, _, why) => Some(why),
                _ => None,
            };
            events.push(session.first(of_deployments).await?);
        }
        let dropped = "deployments of cluster fleet/full are being listed again, and Sluice's memory has no room for the \
                       old and the new objects together: wait for the list, or raise --observed-memory";
        ensure!(events == ["400 listed", dropped, "400 listed", dropped, "400 listed"], "{events:?}");
        Ok(())
    })
}

fn too_large(event: ClusterEvent) -> Option<String> {
    match event {
        ClusterEvent::TooLarge(_, _, why) => Some(why),
        _ => None,
    }
}

#[test]
fn a_flood_is_not_read_while_too_many_events_wait() -> Result<()> {
    run(async {
        let client = hostile_client(Attack::EventFlood).await?;
        let memory = ObservedMemory::new(128 << 20);
        let session = RunningSession::start(client, "hostile", ObserveScope::All, memory);
        eventually(TIMEOUT, || async {
            ensure!(session.events.len() >= 128, "{} events wait", session.events.len());
            Ok(())
        })
        .await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Each watch may report one more event, which it was reading.
        ensure!(session.events.len() < 200, "{} events wait", session.events.len());
        Ok(())
    })
}

#[test]
fn a_cluster_whose_watches_expire_again_and_again_is_listed_less_often() -> Result<()> {
    run(async {
        let (error, _) = error_and_growth(Attack::ExpiringWatches).await?;
        let expected = "deployments cannot be read: cluster fleet/hostile has ended its watches too often";
        ensure!(error.contains(expected), "{error}");
        Ok(())
    })
}
