//! Tests with random calls: no call panics or is accepted without a key, and no answer reveals a key, or which
//! pipelines exist.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::ready;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use axum::Router;
use axum::http::{StatusCode, Uri};
use futures::{StreamExt, poll, stream};
use http::Request;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_controller::hook::HookServer;
use sluice_controller::hook::callback::{TokenClaim, TokenSubject, mint};
use sluice_controller::hook::event::ReceivedEvent;
use sluice_controller::hook::report::updated;
use sluice_testkit::Scratch;

use crate::serving::serving;

/// The beginning of every key.
const KEY: &str = "a-key-that-nobody-guesses";

/// Returns the key for a purpose.
fn key(purpose: &str) -> String {
    format!("{KEY}-{purpose}")
}

/// Returns the key that signs a body for a path. If the body names the cluster `eu`, that is the report key of this
/// cluster.
fn signing_key(path: &str, body: &[u8]) -> String {
    let event: Option<ReceivedEvent> = serde_json::from_slice(body).ok();
    let is_report = event.is_some_and(|e| e.metadata("cluster") == Some("eu")) && !path.ends_with("/qa");
    key(if path.starts_with("/trigger") {
        "trigger"
    } else if is_report {
        "report"
    } else {
        "hmac"
    })
}

/// Returns a hook server with the [`pipelines`] whose keys can be read, and a counter. The API server of the hook server
/// has one Secret. The counter counts all other requests to the API server, which all fail.
async fn hook(scratch: &Scratch) -> (HookServer, Arc<AtomicUsize>) {
    let [pipeline, _, anyone] = pipelines();
    hook_of([pipeline, anyone], scratch, 0, json!({})).await
}

/// Returns three pipelines: `podinfo` has keys, `open` has keys and also accepts unsigned events, and `anyone` has no
/// keys and accepts unsigned events.
fn pipelines() -> [Pipeline; 3] {
    let pipeline: Pipeline = serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u"},
        "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "promotion": {"strategy": {"secretRef": {"name": "hook"}, "pull-request":
                {"type": "github", "url": "https://github.com/a/b", "secretRef": {"name": "forge"}}}},
            "environments": [{"name": "dev", "targets": [{"namespace": "podinfo", "observe": "Push",
                "clusterRef": {"kind": "GitopsCluster", "name": "eu"}}]}]}}))
    .unwrap();
    let open: Pipeline = serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "open", "namespace": "apps", "uid": "o"},
        "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "promotion": {"strategy": {"secretRef": {"name": "out-of-reach"}, "allowUnsigned": true, "notification": {}}},
            "environments": [
                {"name": "dev", "targets": [{"namespace": "podinfo", "observe": "Push",
                    "clusterRef": {"kind": "GitopsCluster", "name": "eu"}}]},
                {"name": "prod", "targets": [{"namespace": "podinfo", "observe": "Push",
                    "clusterRef": {"kind": "GitopsCluster", "name": "eu"}}],
                    "promotion": {"strategy": {"secretRef": {"name": "hook"}, "allowUnsigned": true, "notification": {}}}}]}}))
    .unwrap();
    let anyone: Pipeline = serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "anyone", "namespace": "apps", "uid": "a"},
        "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "promotion": {"strategy": {"allowUnsigned": true, "pull-request":
                {"type": "github", "url": "https://github.com/a/b", "secretRef": {"name": "forge"}}}},
            "environments": [
                {"name": "dev", "targets": [{"namespace": "podinfo"}]},
                {"name": "edge", "targets": [{"namespace": "podinfo", "observe": "Push",
                    "clusterRef": {"kind": "GitopsCluster", "name": "eu"}}]}]}}))
    .unwrap();
    [pipeline, open, anyone]
}

/// Returns the same as [`hook`] with all pipelines, and with a limit for the calls of each pipeline in a second; 0 for no limit.
async fn hook_with_rate(scratch: &Scratch, pipeline_rate: u32) -> (HookServer, Arc<AtomicUsize>) {
    hook_of(pipelines(), scratch, pipeline_rate, json!({})).await
}

/// Returns the same as [`hook_with_rate`] with these pipelines, and with annotations on the Secret.
async fn hook_of(
    pipelines: impl IntoIterator<Item = Pipeline>,
    scratch: &Scratch,
    pipeline_rate: u32,
    annotations: Value,
) -> (HookServer, Arc<AtomicUsize>) {
    let other_requests = Arc::new(AtomicUsize::new(0));
    let counted = other_requests.clone();
    let answer = move |uri: Uri| {
        let is_secret = uri.path() == "/api/v1/namespaces/apps/secrets/hook";
        counted.fetch_add(usize::from(!is_secret), Ordering::SeqCst);
        let metadata = json!({"name": "hook", "namespace": "apps", "annotations": annotations});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "data": {"hmac-key": base64(&key("hmac")), "trigger-key": base64(&key("trigger")),
                "callback-key": base64(&key("callback")), "forge-key": base64(&key("forge")),
                "report-key.eu": base64(&key("report"))}});
        let status = if is_secret { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        async move { (status, [("content-type", "application/json")], secret.to_string()) }
    };
    (serving(scratch, pipelines, pipeline_rate, Router::new().fallback(answer)).await, other_requests)
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A generated call.
#[derive(Clone, Debug)]
struct GeneratedCall {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
}

fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => prop::sample::select(vec!["promotion", "trigger", "callback", "forge", "approval", "apps", "podinfo", "dev"]),
        1 => prop::sample::select(vec!["", ".", "..", "%2e", "PROMOTION", "a?b", "0", "none"]),
    ];
    let known = prop::sample::select(vec![
        "/promotion/apps/podinfo/dev",
        "/trigger/apps/podinfo",
        "/callback/apps/podinfo/podinfo-dev-0123456789",
        "/forge/apps/podinfo",
        "/approval/apps/podinfo/dev/1.2.3",
        "/promotion/apps/anyone/dev",
        "/promotion/apps/anyone/edge",
        "/promotion/apps/anyone/none",
        "/trigger/apps/anyone",
        "/callback/apps/anyone/anyone-dev-0123456789",
        "/forge/apps/anyone",
    ]);
    prop_oneof![
        3 => known.prop_map(String::from),
        1 => prop::collection::vec(part, 0..6).prop_map(|parts| format!("/{}", parts.join("/"))),
    ]
}

fn header() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let name = prop::sample::select(vec![
        "x-signature",
        "x-hub-signature-256",
        "x-hub-signature",
        "x-gitea-signature",
        "x-forgejo-signature",
        "x-gitlab-token",
        "authorization",
        "idempotency-key",
        "x-github-event",
        "x-forwarded-for",
        "content-length",
    ]);
    let value = prop_oneof![
        prop::collection::vec(prop_oneof![Just(b'\t'), 32u8..=126, 128u8..=255], 0..60),
        "sha(1|256|384|512)=[0-9a-f]{0,128}".prop_map(String::into_bytes),
        "Bearer [a-z0-9-]{0,36}\\.[0-9]{0,11}\\.(dev|prod)\\.[0-9a-f]{0,64}".prop_map(String::into_bytes),
        "Basic [A-Za-z0-9+/=]{0,40}".prop_map(String::into_bytes),
    ];
    (name, value)
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let shaped = prop::sample::select(vec![
        r#"{"involvedObject":{"kind":"HelmRelease","namespace":"podinfo","name":"podinfo","apiVersion":"helm.toolkit.fluxcd.io/v2"},"severity":"info","timestamp":"2026-11-21T10:00:00Z","reason":"UpgradeSucceeded","metadata":{"revision":"1","cluster":"eu"}}"#,
        r#"{"revision": "1.2.3", "idempotencyKey": "a"}"#,
        r#"{"state": "done"}"#,
        "{}",
        "[[[[[[[[",
    ]);
    prop_oneof![2 => shaped.prop_map(|s| s.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..80)]
}

fn generated_call() -> impl Strategy<Value = GeneratedCall> {
    let method =
        prop_oneof![9 => Just("POST"), 1 => prop::sample::select(vec!["GET", "PUT", "HEAD", "PATCH"])];
    (method, path(), prop::collection::vec(header(), 0..4), body())
        .prop_map(|(method, path, headers, body)| GeneratedCall { method, path, headers, body })
}

/// The promotion of the generated callbacks and their tokens.
const PROMOTION: &str = "podinfo-dev-0123456789";

/// A callback with its token, or a call of a forge with the key in one of the headers. The call of a forge reports a
/// new branch or tag, which concerns no change request.
fn call_with_key() -> impl Strategy<Value = GeneratedCall> {
    let of = crate::callbacks::key("apps", "podinfo");
    let (subject, claim) = (
        TokenSubject { pipeline: &of, promotion: PROMOTION },
        TokenClaim { uid: "u", round: 0, retries: Some(0), environment: "dev" },
    );
    let token = format!("Bearer {}", mint(key("callback").as_bytes(), subject, claim));
    let body = br#"{"state": "done"}"#;
    let post = |path: String, headers| GeneratedCall { method: "POST", path, headers, body: body.to_vec() };
    let mut all = vec![post(
        format!("/callback/apps/podinfo/{PROMOTION}"),
        vec![("authorization", token.into_bytes())],
    )];
    for (name, value) in crate::callbacks::key_headers_of_forges(body, &key("forge")) {
        let headers = vec![(name, value.into_bytes()), ("x-github-event", b"create".to_vec())];
        all.push(post("/forge/apps/podinfo".into(), headers));
    }
    prop::sample::select(all)
}

/// A valid call with one change: another character in the key or signature, a shorter or longer key or signature,
/// another body, or another pipeline in the path.
fn call_with_almost_a_key() -> impl Strategy<Value = GeneratedCall> {
    (call_with_key(), any::<prop::sample::Index>(), 0..4).prop_map(|(mut call, at, how)| {
        let is_signed = call.path.starts_with("/forge") && call.headers[0].1.len() > 40;
        let value = &mut call.headers[0].1;
        // Any user name is allowed for Azure DevOps, so only the end of the value is changed.
        let first = if value.starts_with(b"Basic ") { value.len() - 20 } else { 0 };
        let at = first + at.index(value.len() - first);
        match how {
            0 => value[at] = if value[at] == b'x' { b'y' } else { b'x' },
            1 => value.truncate(at),
            2 if is_signed && !value.starts_with(b"Basic ") => call.body.push(b' '),
            2 => value.extend_from_slice(b"x"),
            _ => call.path = call.path.replace("podinfo", "anyone"),
        }
        call
    })
}

type AnswerParts = (u16, BTreeMap<String, Vec<u8>>, String);

async fn answer(hook: &HookServer, call: &GeneratedCall, path: &str) -> Option<AnswerParts> {
    let mut request = Request::builder().method(call.method).uri(path);
    for (name, value) in &call.headers {
        request = request.header(*name, value.as_slice());
    }
    // A text that is not a valid URI or header could not be sent by HTTP either.
    let request = request.body(Full::new(Bytes::from(call.body.clone()))).ok()?;
    let answer = hook.answer(IpAddr::V4(Ipv4Addr::LOCALHOST), request).await;
    let (head, body) = answer.into_parts();
    let headers = head.headers.iter().map(|(n, v)| (n.to_string(), v.as_bytes().to_vec())).collect();
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    Some((head.status.as_u16(), headers, text))
}

#[test]
fn a_signed_report_is_answered_with_503_if_its_key_cannot_be_read() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = Scratch::new("judged").unwrap();
    runtime.block_on(async {
        let (hook, _) = hook_with_rate(&scratch, 0).await;
        let body = crate::push::event("eu", "UpgradeSucceeded", "6.1.8", 10).to_string().into_bytes();
        let headers = vec![("x-signature", crate::server::sign(&key("report"), &body).into_bytes())];
        let path = "/promotion/apps/open/dev".to_string();
        let call = GeneratedCall { method: "POST", path, headers, body };
        // With 401, the report would be lost, because Flux does not send a refused event again.
        let (status, headers, _) = answer(&hook, &call, &call.path).await.unwrap();
        assert_eq!((status, headers["retry-after"].as_slice()), (503, b"3".as_slice()));
        let unsigned = GeneratedCall { headers: Vec::new(), ..call };
        // An answer of its own would reveal whether the Secret of the pipeline can be read.
        assert_eq!(answer(&hook, &unsigned, &unsigned.path).await.unwrap().0, 503);
    });
}

#[test]
fn a_key_of_a_secret_that_is_not_for_hooks_is_refused() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (used_by, status) in [("commit, hook", 503), ("commit", 401), ("", 401)] {
        let scratch = Scratch::new("locked").unwrap();
        runtime.block_on(async {
            let annotations = json!({"pipelines.weave.works/used-by": used_by});
            let (hook, _) = hook_of(pipelines(), &scratch, 0, annotations).await;
            let body = crate::push::event("eu", "UpgradeSucceeded", "6.1.8", 10).to_string().into_bytes();
            let headers = vec![("x-signature", crate::server::sign(&key("report"), &body).into_bytes())];
            let call =
                GeneratedCall { method: "POST", path: "/promotion/apps/open/prod".into(), headers, body };
            // The status 503 means that the report is accepted: this API server stores nothing.
            assert_eq!(answer(&hook, &call, &call.path).await.unwrap().0, status, "{used_by:?}");
        });
    }
}

#[test]
fn a_flood_of_unsigned_calls_does_not_limit_signed_calls() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = Scratch::new("unsigned").unwrap();
    runtime.block_on(async {
        let (hook, other_requests) = hook_with_rate(&scratch, 1).await;
        let body = crate::push::event("eu", "UpgradeSucceeded", "6.1.8", 10).to_string().into_bytes();
        let path = "/promotion/apps/open/prod".to_string();
        let signature = crate::server::sign(&key("report"), &body).into_bytes();
        let unsigned = GeneratedCall { method: "POST", path, headers: Vec::new(), body };
        let mut statuses = Vec::new();
        for _ in 0..40 {
            statuses.push(answer(&hook, &unsigned, &unsigned.path).await.unwrap().0);
        }
        assert!(statuses.contains(&429), "{statuses:?}");
        let signed = GeneratedCall { headers: vec![("x-signature", signature)], ..unsigned };
        // The status 503 means that the call is accepted: this API server stores nothing.
        assert_eq!(answer(&hook, &signed, &signed.path).await.unwrap().0, 503);
        assert!(other_requests.load(Ordering::SeqCst) > 0);
    });
}

#[test]
fn a_flood_of_calls_reads_a_secret_at_most_once_a_second() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = Scratch::new("flood").unwrap();
    runtime.block_on(async {
        let (hook, other_requests) = hook_with_rate(&scratch, 0).await;
        let call = GeneratedCall {
            method: "POST",
            path: "/promotion/apps/open/dev".into(),
            headers: vec![("x-signature", crate::server::sign("no", b"{}").into_bytes())],
            body: b"{}".to_vec(),
        };
        let begun = std::time::Instant::now();
        let calls = (0..200).map(|_| answer(&hook, &call, &call.path));
        futures::future::join_all(calls).await;
        // The Secret may be read again each second, and the calls may take longer than that on a slow machine.
        let (read, most) = (other_requests.load(Ordering::SeqCst), 20 + begun.elapsed().as_secs() as usize);
        assert!(read <= most, "200 calls at the same time made {read} requests to the API server");
    });
}

#[test]
fn the_number_of_unverified_long_bodies_in_memory_is_limited() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = Scratch::new("long").unwrap();
    runtime.block_on(async {
        let (hook, _) = hook(&scratch).await;
        let begun = || {
            let first = Frame::data(Bytes::from(vec![b' '; 100_000]));
            let parts = stream::once(ready(Ok::<_, Infallible>(first))).chain(stream::pending());
            let request = Request::post("/forge/apps/podinfo").body(StreamBody::new(parts)).unwrap();
            Box::pin(hook.answer(IpAddr::V4(Ipv4Addr::LOCALHOST), request))
        };
        let mut held = Vec::new();
        let refused = loop {
            let mut call = begun();
            match poll!(&mut call) {
                Poll::Ready(answer) => break answer,
                Poll::Pending => held.push(call),
            }
            assert!(held.len() * (3 << 20) <= 128 << 20, "{} long bodies at a time", held.len());
        };
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        // Short bodies are answered, and a long one finds a slot again when another one has ended.
        let short = GeneratedCall {
            method: "POST",
            path: "/forge/apps/podinfo".into(),
            headers: vec![("x-gitlab-token", b"no".to_vec())],
            body: b"{}".to_vec(),
        };
        assert_eq!(answer(&hook, &short, &short.path).await.unwrap().0, 401);
        held.pop();
        assert!(poll!(&mut begun()).is_pending());
    });
}

#[test]
fn a_call_without_a_key_is_not_accepted_and_its_answer_reveals_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let scratch = Scratch::new("router").unwrap();
    let (hook, other_requests) = runtime.block_on(hook(&scratch));
    let (sent, accepted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // A test case is a batch of calls, because one case for each call would take longer than the call.
    let mut runner = TestRunner::new(Cases::with_cases(2300));
    let batch = prop::collection::vec(prop_oneof![5 => generated_call(), 1 => call_with_almost_a_key()], 50);
    let ended = runner.run(&batch, |calls| {
        runtime.block_on(async {
            for call in &calls {
                let Some(found) = answer(&hook, call, &call.path).await else { continue };
                sent.fetch_add(1, Ordering::Relaxed);
                let is_open = call.path.starts_with("/promotion/apps/anyone/");
                let good: &[u16] =
                    if is_open { &[200, 202, 400, 401, 405, 422] } else { &[400, 401, 404, 405, 408, 413] };
                prop_assert!(good.contains(&found.0), "{:?}: {:?}", call, found);
                accepted.fetch_add(usize::from(found.0 == 202), Ordering::Relaxed);
                prop_assert!(!found.2.contains(KEY) && !found.2.contains("hook"), "{:?}: {:?}", call, found);
                if is_open {
                    continue;
                }
                // The same call for a pipeline that does not exist.
                let other = call.path.replace("podinfo", "missing").replace("anyone", "missing");
                let unknown = answer(&hook, call, &other).await;
                prop_assert_eq!(Some(found), unknown, "{:?}", call);
            }
            Ok(())
        })
    });
    ended.unwrap();
    assert_eq!(other_requests.load(Ordering::SeqCst), 0, "an unsigned call sent a request to the API server");
    assert!(
        accepted.load(Ordering::Relaxed) > 100,
        "only {accepted:?} unsigned calls were accepted where they are allowed"
    );
    assert!(sent.load(Ordering::Relaxed) > 100_000, "only {sent:?} calls were sent");
}

/// JSON of any shape, often with the names and values of real bodies.
fn shape() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "involvedObject",
        "kind",
        "namespace",
        "name",
        "apiVersion",
        "resourceVersion",
        "severity",
        "timestamp",
        "reason",
        "message",
        "metadata",
        "revision",
        "cluster",
        "idempotencyKey",
        "images",
        "state",
        "chart",
        "HelmRelease",
        "podinfo",
        "helm.toolkit.fluxcd.io/v2",
        "UpgradeSucceeded",
        "1.2.3",
        "eu",
        "done",
        "\u{7f}",
        "2026-11-21T10:00:00Z",
        "",
    ]);
    let leaf = prop_oneof![
        4 => word.clone().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<Option<bool>>().prop_map(Value::from),
        1 => ".{0,6}".prop_map(Value::from),
        1 => prop::sample::select(vec![("\u{1}", 3000), ("x", 129), ("é", 600), ("1", 257)])
            .prop_map(|(text, times): (&str, usize)| Value::from(text.repeat(times))),
    ];
    leaf.prop_recursive(4, 24, 6, move |inner| {
        let fields = prop::collection::vec((word.clone(), inner.clone()), 0..8);
        let fields = fields.prop_map(|all| all.into_iter().map(|(k, v)| (k.to_string(), v)).collect());
        prop_oneof![
            1 => prop::collection::vec(inner, 0..8).prop_map(Value::Array),
            3 => fields.prop_map(Value::Object),
        ]
    })
}

/// A valid body with some of its values replaced by others.
fn nearly_good() -> impl Strategy<Value = Value> {
    let good = prop::sample::select(vec![
        json!({"involvedObject": {"kind": "HelmRelease", "namespace": "podinfo", "name": "podinfo",
                "apiVersion": "helm.toolkit.fluxcd.io/v2"},
            "severity": "info", "timestamp": jiff::Timestamp::now(), "reason": "UpgradeSucceeded",
            "metadata": {"revision": "1", "cluster": "eu"}}),
        json!({"involvedObject": {"kind": "HelmRelease", "namespace": "podinfo", "name": "podinfo",
                "apiVersion": "helm.toolkit.fluxcd.io/v2"},
            "severity": "error", "timestamp": jiff::Timestamp::now(), "reason": "UpgradeFailed", "message": "no",
            "metadata": {"revision": "1", "cluster": "eu"}}),
        json!({"revision": "1.2.3", "idempotencyKey": "a"}),
        json!({"images": {"a/b": "1"}, "idempotencyKey": "a", "pipeline": "apps/podinfo"}),
    ]);
    (good, prop::collection::vec((any::<prop::sample::Index>(), shape()), 0..3)).prop_map(
        |(mut good, others)| {
            let fields = good.as_object_mut().unwrap();
            for (at, other) in others {
                let key = fields.keys().nth(at.index(fields.len())).unwrap().clone();
                fields.insert(key, other);
            }
            good
        },
    )
}

/// Returns the same call with another body, and with the key or signature for that body.
fn with_body(call: &GeneratedCall, value: &Value) -> GeneratedCall {
    let body = serde_json::to_vec(value).unwrap();
    let mut call = GeneratedCall { body, ..call.clone() };
    let of_forge = crate::callbacks::key_headers_of_forges(&call.body, &key("forge"));
    let (name, shown) = &mut call.headers[0];
    if let Some((_, value)) = of_forge.into_iter().find(|(n, _)| call.path.starts_with("/forge") && n == name)
    {
        *shown = value.into_bytes();
    }
    call
}

/// Returns the size of the report of an event, in bytes of JSON.
fn size_of_report(body: &[u8]) -> Option<usize> {
    let event: ReceivedEvent = serde_json::from_slice(body).ok()?;
    Some(serde_json::to_vec(&updated(None, &event, jiff::Timestamp::now())?).unwrap().len())
}

#[test]
fn a_signed_call_with_any_body_is_answered_with_what_is_wrong() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let scratch = Scratch::new("signed").unwrap();
    let (hook, _) = runtime.block_on(hook(&scratch));
    let path = prop::sample::select(vec![
        "/promotion/apps/podinfo/dev",
        "/promotion/apps/podinfo/qa",
        "/trigger/apps/podinfo",
    ]);
    let signed = (path, prop_oneof![shape(), nearly_good()], prop::option::of(0usize..200));
    let one = (
        signed,
        prop::option::weighted(0.2, (call_with_key(), prop_oneof![shape(), Just(json!({"state": "done"}))])),
    );
    let (sent, rejected, reported) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut runner = TestRunner::new(Cases::with_cases(1050));
    let ended = runner.run(&prop::collection::vec(one, 100), |calls| {
        runtime.block_on(async {
            for ((path, value, cut), other) in &calls {
                if let Some((call, value)) = other {
                    let call = with_body(call, value);
                    let (status, _, text) = answer(&hook, &call, &call.path).await.unwrap();
                    sent.fetch_add(1, Ordering::Relaxed);
                    rejected.fetch_add(usize::from(matches!(status, 400 | 422)), Ordering::Relaxed);
                    let good: &[u16] =
                        if call.path.starts_with("/forge") { &[200] } else { &[400, 422, 503] };
                    prop_assert!(good.contains(&status) && !text.contains(KEY), "{status} {text}: {call:?}");
                    continue;
                }
                let mut body = serde_json::to_vec(value).unwrap();
                body.truncate(cut.unwrap_or(usize::MAX));
                let headers =
                    vec![("x-signature", crate::server::sign(&signing_key(path, &body), &body).into_bytes())];
                let call = GeneratedCall { method: "POST", path: path.to_string(), headers, body };
                let (status, _, text) = answer(&hook, &call, path).await.unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
                rejected.fetch_add(usize::from(matches!(status, 400 | 422)), Ordering::Relaxed);
                prop_assert!(matches!(status, 200 | 400 | 422 | 503), "{status} {text}: {value}");
                prop_assert!(!text.contains(KEY), "{text}");
                if status == 503
                    && let Some(size) = size_of_report(&call.body)
                {
                    prop_assert!(size < 10_000, "{size} bytes of one report");
                    reported.fetch_add(1, Ordering::Relaxed);
                }
                // The status 503 means that the call is accepted: this API server stores nothing.
                if status == 503 {
                    let has = if path.starts_with("/trigger") { "idempotencyKey" } else { "involvedObject" };
                    prop_assert!(
                        cut.is_none_or(|cut| cut >= call.body.len()) && value.get(has).is_some(),
                        "{value}"
                    );
                    prop_assert!(!path.ends_with("/qa"), "{value}");
                }
            }
            Ok(())
        })
    });
    ended.unwrap();
    let (sent, rejected) = (sent.into_inner(), rejected.into_inner());
    assert!(sent > 100_000 && rejected > sent / 2, "{rejected} of {sent}");
    assert!(reported.into_inner() > 300, "too few reports were accepted");
}
