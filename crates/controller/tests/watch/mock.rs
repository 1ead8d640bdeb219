//! Servers that answer what no good one does: nothing is taken for known that is not, what they say is
//! told, and they are not asked without end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use axum::Router;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kube::{Client, Config};
use serde::Deserialize;

use crate::{Follower, run};

#[derive(Deserialize)]
struct Asked {
    watch: Option<String>,
}

/// How often a list and a watch were asked for.
#[derive(Default)]
struct Count {
    lists: AtomicUsize,
    watches: AtomicUsize,
    /// When the first of them came.
    since: OnceLock<Instant>,
}

const LIST: &str = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[
    {"metadata":{"name":"a","resourceVersion":"4"},"data":{"n":"1"}}]}"#;
const CHANGED: &str = r#"{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a",
    "resourceVersion":"6"},"data":{"n":"2"}}}"#;
const EXPIRED: &str = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"WatchFailure","code":410,
    "reason":"Expired","message":"too old"}}"#;

/// A follower of a server that answers lists and watches so.
async fn follower(list: (u16, &'static str), watch: (u16, &'static str)) -> Result<(Follower, Arc<Count>)> {
    let count = Arc::new(Count::default());
    let counted = count.clone();
    let answer = move |Query(asked): Query<Asked>| {
        counted.since.get_or_init(Instant::now);
        let (counter, (status, body)) = match asked.watch {
            Some(_) => (&counted.watches, watch),
            None => (&counted.lists, list),
        };
        counter.fetch_add(1, Ordering::SeqCst);
        let body =
            if status == 200 && asked.watch.is_some() { body.replace('\n', "") + "\n" } else { body.into() };
        let status = StatusCode::from_u16(status).unwrap();
        async move { (status, [("content-type", "application/json")], body).into_response() as Response }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?).parse()?;
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let mut config = Config::new(url);
    config.default_retry = false;
    Ok((Follower::begin(Client::try_from(config)?, "default", None), count))
}

/// Waits for so many requests, which must have taken at least as long as the pauses between them.
async fn paced(count: &Count, what: impl Fn(&Count) -> usize) -> Result<()> {
    let begun = Instant::now();
    while what(count) < 5 {
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "it gave up after {:?} lists and {:?} watches",
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
fn what_ends_at_once_is_begun_again_ever_more_seldom() -> Result<()> {
    run(async {
        let lists = |c: &Count| c.lists.load(Ordering::SeqCst);
        let watches = |c: &Count| c.watches.load(Ordering::SeqCst);
        let (_one, expired) = follower((200, LIST), (200, EXPIRED)).await?;
        let (_two, gone) = follower((200, LIST), (410, "{}")).await?;
        let (_three, short) = follower((200, LIST), (200, CHANGED)).await?;
        let (_four, empty) = follower((200, LIST), (200, "")).await?;
        let (_five, broken) = follower((200, LIST), (200, "{\"type\":")).await?;
        let (_six, failing) = follower((500, "{}"), (200, "")).await?;
        tokio::try_join!(
            paced(&expired, lists),
            paced(&gone, lists),
            paced(&short, watches),
            paced(&empty, watches),
            paced(&broken, watches),
            paced(&failing, lists),
        )?;
        Ok(())
    })
}

#[test]
fn what_a_server_says_is_told_at_once() -> Result<()> {
    run(async {
        let status =
            r#"{"kind":"Status","apiVersion":"v1","status":"WatchFailure","code":503,"message":"starting"}"#;
        let (mut list, _) = follower((503, status), (200, "")).await?;
        list.until("told", |f| !f.failures.is_empty()).await?;
        ensure!(list.failures[0].to_string().contains("starting"), "{:?}", list.failures);
        let (mut watch, _) = follower((200, LIST), (503, status)).await?;
        watch.until("told", |f| !f.failures.is_empty()).await?;
        ensure!(watch.failures[0].to_string().contains("starting"), "{:?}", watch.failures);
        ensure!(watch.lists == 1, "what could be listed is known");
        Ok(())
    })
}

#[test]
fn what_may_not_be_watched_is_not_known() -> Result<()> {
    run(async {
        let status =
            r#"{"kind":"Status","apiVersion":"v1","status":"WatchFailure","code":403,"message":"no"}"#;
        let (mut follower, _) = follower((200, LIST), (403, status)).await?;
        follower.until("told twice", |f| f.failures.len() == 2).await?;
        ensure!(follower.lists == 0);
        Ok(())
    })
}

#[test]
fn half_a_list_is_none() -> Result<()> {
    run(async {
        for list in [
            r#"{"metadata":{"resourceVersion":""},"items":[]}"#,
            r#"{"metadata":{"resourceVersion":"5","continue":"abc"},"items":[]}"#,
            r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a"}}"#,
            "<html>Bad gateway</html>",
            "",
        ] {
            let (mut follower, count) = follower((200, list), (200, "")).await?;
            follower.until("told", |f| !f.failures.is_empty()).await?;
            ensure!(follower.lists == 0 && count.watches.load(Ordering::SeqCst) == 0, "{list}");
        }
        Ok(())
    })
}
