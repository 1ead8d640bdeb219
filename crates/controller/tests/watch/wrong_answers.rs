//! API servers with wrong answers: incomplete answers are not used, errors are reported, and the pauses between
//! tries grow.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use kube::{Client, Config};
use serde::Deserialize;
use sluice_controller::watch::cluster_client::ClusterClient;
use sluice_controller::watch::kubeconfig::bounded_client;
use sluice_controller::watch::kubeconfig_secrets::KubeconfigSecrets;
use sluice_controller::watch::observed_memory::ObservedMemory;
use sluice_controller::watch::read_error::{ReadError, cluster_message};
use sluice_controller::watch::stream::WatchFailure;
use sluice_core::fleet::ClusterKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fake_api_server::{self, EXPIRED};
use crate::{Follower, run};

#[derive(Deserialize)]
struct Query {
    watch: Option<String>,
}

/// The requests that a server has received.
#[derive(Default)]
struct RequestCount {
    lists: AtomicUsize,
    watches: AtomicUsize,
    /// When the first request arrived.
    since: OnceLock<Instant>,
}

const LIST: &str = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[
    {"metadata":{"name":"a","resourceVersion":"4"},"data":{"n":"1"}}]}"#;
const CHANGED: &str = r#"{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a",
    "resourceVersion":"6"},"data":{"n":"2"}}}"#;

/// Starts a follower of a server that has these answers to lists and watches.
async fn follower(
    list: (u16, &'static str),
    watch: (u16, &'static str),
) -> Result<(Follower, Arc<RequestCount>)> {
    let count = Arc::new(RequestCount::default());
    let counted = count.clone();
    let answer = move |extract::Query(query): extract::Query<Query>| {
        counted.since.get_or_init(Instant::now);
        let (counter, (status, body)) = match query.watch {
            Some(_) => (&counted.watches, watch),
            None => (&counted.lists, list),
        };
        counter.fetch_add(1, Ordering::SeqCst);
        let body =
            if status == 200 && query.watch.is_some() { body.replace('\n', "") + "\n" } else { body.into() };
        let status = StatusCode::from_u16(status).unwrap();
        async move { (status, [("content-type", "application/json")], body).into_response() as Response }
    };
    let config = fake_api_server::start(Router::new().fallback(answer)).await?;
    Ok((Follower::start(Client::try_from(config)?, "default", None), count))
}

/// Waits for five requests, and checks that they took at least as long as the pauses between them.
async fn assert_pauses_grow(count: &RequestCount, requests: impl Fn(&RequestCount) -> usize) -> Result<()> {
    let started = Instant::now();
    while requests(count) < 5 {
        ensure!(
            started.elapsed() < Duration::from_secs(60),
            "no further request after {:?} lists and {:?} watches",
            count.lists,
            count.watches
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // 0.25, 0.5, 1 and 2 seconds.
    let took = count.since.get().map(Instant::elapsed).unwrap_or_default();
    ensure!(took > Duration::from_secs(3), "five requests within {took:?}");
    Ok(())
}

#[test]
fn the_pauses_between_short_or_failed_requests_grow() -> Result<()> {
    run(async {
        let lists = |c: &RequestCount| c.lists.load(Ordering::SeqCst);
        let watches = |c: &RequestCount| c.watches.load(Ordering::SeqCst);
        let (_one, expired) = follower((200, LIST), (200, EXPIRED)).await?;
        let (_two, gone) = follower((200, LIST), (410, "{}")).await?;
        let (_three, short) = follower((200, LIST), (200, CHANGED)).await?;
        let (_four, empty) = follower((200, LIST), (200, "")).await?;
        let (_five, broken) = follower((200, LIST), (200, "{\"type\":")).await?;
        let (_six, failing) = follower((500, "{}"), (200, "")).await?;
        tokio::try_join!(
            assert_pauses_grow(&expired, lists),
            assert_pauses_grow(&gone, lists),
            assert_pauses_grow(&short, watches),
            assert_pauses_grow(&empty, watches),
            assert_pauses_grow(&broken, watches),
            assert_pauses_grow(&failing, lists),
        )?;
        Ok(())
    })
}

#[test]
fn the_error_of_a_server_is_reported_immediately() -> Result<()> {
    run(async {
        let status =
            r#"{"kind":"Status","apiVersion":"v1","status":"WatchFailure","code":503,"message":"starting"}"#;
        let (mut list, _) = follower((503, status), (200, "")).await?;
        list.until("reported a failure", |f| !f.failures.is_empty()).await?;
        ensure!(list.failures[0].to_string().contains("starting"), "{:?}", list.failures);
        let (mut watch, _) = follower((200, LIST), (503, status)).await?;
        watch.until("reported a failure", |f| !f.failures.is_empty()).await?;
        ensure!(watch.failures[0].to_string().contains("starting"), "{:?}", watch.failures);
        ensure!(watch.lists == 1, "the list is reported although the watch fails");
        Ok(())
    })
}

#[test]
fn a_list_whose_watch_is_forbidden_is_not_reported() -> Result<()> {
    run(async {
        let status =
            r#"{"kind":"Status","apiVersion":"v1","status":"WatchFailure","code":403,"message":"no"}"#;
        let (mut follower, _) = follower((200, LIST), (403, status)).await?;
        follower.until("reported two failures", |f| f.failures.len() == 2).await?;
        ensure!(follower.lists == 0);
        Ok(())
    })
}

#[test]
fn an_incomplete_list_is_not_reported() -> Result<()> {
    run(async {
        for list in [
            r#"{"metadata":{"resourceVersion":""},"items":[]}"#,
            r#"{"metadata":{"resourceVersion":"5","continue":"abc"},"items":[]}"#,
            r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a"}}"#,
            "<html>Bad gateway</html>",
            "",
        ] {
            let (mut follower, count) = follower((200, list), (200, "")).await?;
            follower.until("reported a failure", |f| !f.failures.is_empty()).await?;
            ensure!(follower.lists == 0 && count.watches.load(Ordering::SeqCst) == 0, "{list}");
        }
        Ok(())
    })
}

#[test]
fn no_watch_starts_from_a_very_long_version() -> Result<()> {
    run(async {
        let metadata = format!(r#""metadata":{{"name":"a","resourceVersion":"{}"}}"#, "1".repeat(129));
        let list = format!(r#"{{{metadata},"items":[]}}"#).leak();
        let lines = ["BOOKMARK", "ADDED", "DELETED"]
            .map(|event| &*format!(r#"{{"type":"{event}","object":{{{metadata}}}}}"#).leak());
        let too_long = async |list, watch, watches| {
            let (mut follower, count) = follower((200, list), (200, watch)).await?;
            follower.until("reported a failure", |f| !f.failures.is_empty()).await?;
            let why = follower.failures[0].to_string();
            ensure!(why.contains("it sends a resourceVersion of more than 128 bytes"), "{why}");
            ensure!(count.watches.load(Ordering::SeqCst) == watches, "{watch}");
            Ok(())
        };
        let [bookmark, added, deleted] = lines.map(|line| too_long(LIST, line, 1));
        tokio::try_join!(too_long(list, "", 0), bookmark, added, deleted)?;
        Ok(())
    })
}

/// Returns the error of asking a server for its version, as it is shown.
async fn version_error(config: &Config, secrets: KubeconfigSecrets) -> Result<ReadError> {
    let client = bounded_client(config)?;
    let client = ClusterClient::new(client, ClusterKey::Local, ObservedMemory::new(128 << 20), secrets);
    let answer = client.read::<serde_json::Value>("/version").await;
    Ok(ReadError::from(&answer.err().context("no error")?))
}

#[test]
fn a_server_that_answers_wrongly_does_not_count_as_unreachable() -> Result<()> {
    run(async {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&[7; 1 << 10])?;
        let whole = gzip.finish()?;
        let (cut, changed) = (whole[..whole.len() / 2].to_vec(), [&whole[..12], &[0xff; 20]].concat());
        for body in [b"no gzip".to_vec(), cut, changed] {
            let answer = || async move { ([("content-encoding", "gzip")], body) };
            let config = fake_api_server::start(Router::new().fallback(answer)).await?;
            let error = version_error(&config, KubeconfigSecrets::default()).await?;
            let message = cluster_message(&ClusterKey::Local, &error);
            ensure!(message.starts_with("the answer of the local cluster cannot be read ("), "{message}");
        }
        let incomplete = r#"{"metadata":{"resourceVersion":"5","continue":"abc"},"items":[]}"#;
        let (mut follower, _) = follower((200, incomplete), (200, "")).await?;
        follower.until("reported a failure", |f| !f.failures.is_empty()).await?;
        let error = ReadError::from(follower.failures[0].error());
        ensure!(error == ReadError::Unreadable("the list is incomplete".into()), "{error:?}");
        Ok(())
    })
}

#[test]
fn a_server_that_breaks_off_its_answer_counts_as_unreachable() -> Result<()> {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let config = Config::new(format!("http://{}", listener.local_addr()?).parse()?);
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let _ = stream.read(&mut [0; 1 << 10]).await?;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{").await
        });
        let error = version_error(&config, KubeconfigSecrets::default()).await?;
        ensure!(matches!(error, ReadError::Unreachable(_)), "{error:?}");
        Ok(())
    })
}

#[test]
fn an_error_that_repeats_the_token_is_shown_without_it() -> Result<()> {
    run(async {
        let status = r#"{"kind":"Status","status":"Failure","code":403,"message":"no: Bearer tok-1234"}"#;
        let answer = async move || {
            (StatusCode::FORBIDDEN, [("content-type", "application/json")], status).into_response()
        };
        let mut config = fake_api_server::start(Router::new().fallback(answer)).await?;
        config.auth_info.token = Some("tok-1234".to_string().into());
        let error = version_error(&config, KubeconfigSecrets::new(&config)).await?;
        ensure!(error == ReadError::Forbidden("no: Bearer ***".into()), "{error:?}");
        Ok(())
    })
}

/// A server that lists objects and is then too busy for watches.
#[test]
fn objects_count_as_unreadable_while_no_watch_starts_for_long() -> Result<()> {
    run(async {
        let status =
            r#"{"kind":"Status","apiVersion":"v1","status":"WatchFailure","code":503,"message":"busy"}"#;
        let (mut follower, count) = follower((200, LIST), (503, status)).await?;
        let unreadable =
            |f: &Follower| f.failures.iter().any(|failure| matches!(failure, WatchFailure::List(_)));
        follower.until("counts as unreadable", unreadable).await?;
        ensure!(follower.failures.len() > 5, "the first failures are temporary: {:?}", follower.failures);
        ensure!(count.lists.load(Ordering::SeqCst) == 1, "a busy server is not listed again");
        Ok(())
    })
}
