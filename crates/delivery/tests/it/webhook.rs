//! Webhooks against a real server: the bytes that are sent, the meaning of each answer, rejected addresses, and that no
//! secret is shown.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::http::Method;
use sha2::{Digest, Sha256};
use sluice_delivery::{
    AllowedWebhooks, Announcement, Credentials, Delivered, DeliveryError, DeliveryStrategy, DeliveryTarget,
    Order, Retry,
};

use crate::fixture::{self, Bench, bench_with};
use crate::receiver::{Receiver, Reply};
use crate::tls::terminate;

const TOKEN: &str = "s3cret-token-of-the-webhook";

/// Returns the announcement of the tested promotion.
pub fn about() -> Announcement {
    Announcement {
        uid: "7f1c2a52-0000-4000-8000-000000000001".into(),
        attempt: 1,
        pipeline_uid: "7f1c2a52-0000-4000-8000-000000000002".into(),
        pipeline_version: "42".into(),
        targets: vec![
            DeliveryTarget { name: "eu".into(), namespace: "podinfo".into(), cluster: None },
            DeliveryTarget {
                name: "us".into(),
                namespace: "podinfo".into(),
                cluster: Some(("fleet".into(), "us".into())),
            },
        ],
        evidence: vec![("staging".into(), "staging".into(), "2026-11-21T09:58:00Z".into())],
        ..Announcement::default()
    }
}

/// Returns an order that calls this address.
fn order_to(url: &str, about: Announcement) -> Order {
    let strategy = DeliveryStrategy::Webhook { url: url.into(), about: Box::new(about) };
    Order {
        promotion: "apps/podinfo-prod-0123456789".into(),
        created: "2026-11-21T10:00:00Z".parse().unwrap(),
        credentials: Credentials::default(),
        ..fixture::order(strategy, "6.1.8")
    }
}

fn secret(data: &[(&str, &str)]) -> Credentials {
    let data: BTreeMap<_, _> = data.iter().map(|(k, v)| (k.to_string(), v.as_bytes().to_vec())).collect();
    Credentials::from_secret(&data).unwrap()
}

/// Returns a delivery that may call private addresses, also without TLS.
fn open() -> Bench {
    bench_with(|o| {
        o.webhooks = AllowedWebhooks { http: true, private: true };
        o.deadline = Duration::from_secs(3);
    })
}

/// Computes HMAC-SHA256 by its definition, without the code under test.
fn hmac(key: &[u8], message: &[u8]) -> String {
    assert!(key.len() <= 64);
    let pad = |with: u8| -> Vec<u8> { (0..64).map(|i| key.get(i).copied().unwrap_or(0) ^ with).collect() };
    let inner = Sha256::digest([&pad(0x36)[..], message].concat());
    let outer = Sha256::digest([&pad(0x5c)[..], &inner[..]].concat());
    outer.iter().map(|b| format!("{b:02x}")).collect()
}

#[tokio::test]
async fn a_call_has_exactly_the_documented_bytes() {
    let receiver = Receiver::start().await;
    let mut order = order_to(&receiver.url(), about());
    order.credentials =
        secret(&[("token", TOKEN), ("headers", "X-Team: payments\nAuthorization: Bearer abc\n")]);
    let done = open().delivery.deliver(&order).await.unwrap();
    assert_eq!(done, Delivered::Called { to: receiver.host.clone(), status: 202 });
    let calls = receiver.calls();
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((&call.method, call.path.as_str()), (&Method::POST, "/hooks/XoLZfgK?team=a"));
    let text = String::from_utf8(call.body.to_vec()).unwrap();
    let (before, after) = text.split_once(r#""sentAt":""#).unwrap();
    let (sent, after) = after.split_once('"').unwrap();
    assert_eq!(
        format!("{before}{after}"),
        concat!(
            r#"{"apiVersion":"hooks.pipelines.weave.works/v1alpha1","kind":"Promotion","#,
            r#""id":"7f1c2a52-0000-4000-8000-000000000001","#,
            r#""promotion":{"namespace":"apps","name":"podinfo-prod-0123456789","#,
            r#""uid":"7f1c2a52-0000-4000-8000-000000000001"},"#,
            r#""pipeline":{"namespace":"apps","name":"podinfo","uid":"7f1c2a52-0000-4000-8000-000000000002"},"#,
            r#""environment":{"name":"prod","targets":[{"name":"eu","namespace":"podinfo","cluster":null},"#,
            r#"{"name":"us","namespace":"podinfo","cluster":{"namespace":"fleet","name":"us"}}]},"#,
            r#""revision":{"text":"6.1.8","facets":{"HelmRelease/podinfo:chart":"6.1.8"}},"#,
            r#""replaces":"6.1.5","#,
            r#""evidence":[{"environment":"staging","target":"staging","at":"2026-11-21T09:58:00Z"}],"#,
            r#""attempt":1,"createdAt":"2026-11-21T10:00:00Z",,"callback":"","callbackToken":""}"#
        )
    );
    let sent: jiff::Timestamp = sent.parse().unwrap();
    assert!(jiff::Timestamp::now().as_second() - sent.as_second() < 60);
    let signature = format!("sha256={}", hmac(TOKEN.as_bytes(), &call.body));
    assert_eq!(call.header("x-signature"), Some(signature.as_str()));
    assert_eq!(call.header("idempotency-key"), Some("7f1c2a52-0000-4000-8000-000000000001"));
    assert_eq!(call.header("content-type"), Some("application/json"));
    assert_eq!(call.header("user-agent"), Some(concat!("sluice/", env!("CARGO_PKG_VERSION"))));
    assert_eq!(call.header("x-team"), Some("payments"));
    assert_eq!(call.header("authorization"), Some("Bearer abc"));
    assert_eq!(call.header("content-length"), Some(text.len().to_string().as_str()));
    let mut names: Vec<&str> = call.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    let ours = ["accept", "authorization", "content-length", "content-type", "host", "idempotency-key"];
    assert_eq!(names, [&ours[..], &["user-agent", "x-signature", "x-team"]].concat());
}

/// Adds the paths of all fields of a value to `found`. The fields of facets are left out, because their names are not
/// fixed.
fn fields(value: &serde_json::Value, at: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let here = format!("{at}.{key}");
                found.push(here.clone());
                if key != "facets" {
                    fields(value, &here, found);
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| fields(item, at, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_documented_payload_is_sent() {
    let receiver = Receiver::start().await;
    open().delivery.deliver(&order_to(&receiver.url(), about())).await.unwrap();
    let page = include_str!("../../../../docs/strategies/webhook.md");
    let shown = page.split("\n```json\n").nth(1).unwrap().split("\n```").next().unwrap();
    let of = |value: &serde_json::Value| {
        let mut found = Vec::new();
        fields(value, "", &mut found);
        found.sort();
        found.dedup();
        found
    };
    let (sent, shown) = (receiver.calls().remove(0).json(), serde_json::from_str(shown).unwrap());
    assert_eq!(of(&sent), of(&shown));
    assert_eq!((&sent["apiVersion"], &sent["kind"]), (&shown["apiVersion"], &shown["kind"]));
    for field in sent.as_object().unwrap().keys() {
        assert!(page.contains(&format!("| `{field}")), "{field} is not described");
    }
}

#[tokio::test]
async fn without_a_token_nothing_is_signed_and_user_and_password_are_sent() {
    let receiver = Receiver::start().await;
    let mut order = order_to(&receiver.url(), about());
    order.credentials = secret(&[("username", "ci"), ("password", "hunter2")]);
    open().delivery.deliver(&order).await.unwrap();
    let call = receiver.calls().remove(0);
    assert_eq!(
        (call.header("x-signature"), call.header("authorization")),
        (None, Some("Basic Y2k6aHVudGVyMg=="))
    );
}

#[tokio::test]
async fn the_address_of_the_secret_comes_before_that_of_the_pipeline() {
    let (receiver, other) = (Receiver::start().await, Receiver::start().await);
    let mut order = order_to(&other.url(), about());
    order.credentials = secret(&[("address", &format!("{}\n", receiver.url()))]);
    receiver.reply(Reply::With(404, vec![], "no hook /hooks/XoLZfgK here".into()));
    let error = open().delivery.deliver(&order).await.unwrap_err();
    assert_eq!((receiver.calls().len(), other.calls().len()), (1, 0));
    // The message contains no part of that address, not even if the answer repeats the address.
    let told = format!("{error} {error:?}");
    assert!(!told.contains("XoLZfgK") && !told.contains(&receiver.host), "{told}");
}

#[tokio::test]
async fn every_http_status_is_classified() {
    let receiver = Receiver::start().await;
    let bench = open();
    let soon = ("Unreachable", Retry::Soon);
    let refused = ("WebhookRefused", Retry::Soon);
    for status in 200..=599 {
        let expected = match status {
            200..300 => None,
            300..400 => Some(("Redirected", Retry::OnChange)),
            // The time of the retry depends on the clock. Another test checks it.
            429 => continue,
            408 | 425 | 500.. => Some(soon),
            _ => Some(refused),
        };
        receiver.reply(Reply::With(
            status,
            vec![],
            format!(r#"{{"message": "\n  no, says {status}\r\n", "debug": "and more"}}"#),
        ));
        let order = order_to(&receiver.url(), about());
        match (bench.delivery.deliver(&order).await, expected) {
            (Ok(done), None) => {
                assert_eq!(done, Delivered::Called { to: receiver.host.clone(), status });
            }
            (Err(error), Some(expected)) => {
                assert_eq!((error.reason(), error.retry()), expected, "{status}");
                let text = error.to_string();
                assert!(text.contains(&receiver.host) && text.contains(&status.to_string()), "{text}");
                let has_no_text = matches!(status, 304) || (300..400).contains(&status);
                assert!(has_no_text || text.contains(&format!("no, says {status}")), "{text}");
                assert!(!text.contains("and more") && !text.contains("hooks"), "{text}");
            }
            (got, expected) => panic!("{status}: {got:?} and not {expected:?}"),
        }
        assert_eq!(receiver.calls().len(), 1, "{status}: one call, and none that follows it");
    }
    let counted = bench.delivery.stats().forge_calls;
    assert_eq!(counted.get(&("webhook", "POST", 404)), Some(&1));
}

/// A tenant can name any public server as a receiver. Of its answer, the tenant sees the message fields of JSON.
#[tokio::test]
async fn only_the_message_of_an_answer_is_shown() {
    let receiver = Receiver::start().await;
    let bench = open();
    let page = "<html>internal page</html>".to_string();
    for (status, body, shown) in [
        (200, r#"{"message": "internal page"}"#.into(), None),
        (302, r#"{"message": "internal page"}"#.into(), Some("")),
        (500, page.clone(), Some("no reason given")),
        (404, r#"["internal page"]"#.into(), Some("no reason given")),
        (404, r#""internal page""#.into(), Some("no reason given")),
        (
            404,
            r#"{"data": "internal page", "trace": {"message": "internal page"}}"#.into(),
            Some("no reason given"),
        ),
        (404, r#"{"message": "no such hook", "data": "internal page"}"#.into(), Some("no such hook")),
        (404, r#"{"error": "no such hook", "data": "internal page"}"#.into(), Some("no such hook")),
        (404, r#"{"message": "no\u001b[31m red\u0007\r\n\u202e"}"#.into(), Some("no red")),
        (404, format!(r#"{{"message": "no {}"}}"#, "a".repeat(3000)), Some("no aaa")),
    ] {
        receiver.reply(Reply::With(status, vec![], body));
        let result = bench.delivery.deliver(&order_to(&receiver.url(), about())).await;
        let text = match &result {
            Ok(done) => format!("{done:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(result.is_err(), shown.is_some(), "{text}");
        assert!(text.contains(shown.unwrap_or_default()), "{text}");
        assert!(!text.contains("internal") && text.chars().count() < 600, "{text}");
        let escapes = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!text.chars().any(escapes) && !text.contains("[31m"), "{text:?}");
    }
}

#[tokio::test]
async fn a_pause_in_retry_after_is_kept() {
    let receiver = Receiver::start().await;
    let bench = open();
    let cases = [
        (429, Some("120"), 120),
        (429, None, 60),
        (503, Some("3"), 3),
        (429, Some("0"), 1),
        (429, Some("99999999"), 7200),
        (429, Some("soon"), 60),
    ];
    for (status, after, seconds) in cases {
        let headers = after.map(|after| ("retry-after", after.to_string())).into_iter().collect();
        receiver.reply(Reply::With(status, headers, String::new()));
        let now = jiff::Timestamp::now();
        let error = bench.delivery.deliver(&order_to(&receiver.url(), about())).await.unwrap_err();
        let Retry::At(until) = error.retry() else { panic!("{error:?}") };
        let asked = now.as_second() - 1..=jiff::Timestamp::now().as_second() + 1;
        assert!(asked.contains(&(until.as_second() - seconds)), "{status} {after:?}: {until}");
    }
}

#[tokio::test]
async fn every_try_has_the_same_key_until_the_promotion_is_started_again() {
    let receiver = Receiver::start().await;
    let bench = open();
    receiver.reply(Reply::With(503, vec![], String::new())).reply(Reply::Hang);
    for attempt in 1..=3 {
        let order = order_to(&receiver.url(), Announcement { attempt, ..about() });
        assert_eq!(bench.delivery.deliver(&order).await.is_ok(), attempt == 3);
    }
    let again = fixture::started_again(&order_to(&receiver.url(), about()));
    bench.delivery.deliver(&again).await.unwrap();
    let calls = receiver.calls();
    let keys: Vec<_> = calls.iter().map(|call| call.header("idempotency-key").unwrap()).collect();
    let uid = about().uid;
    assert_eq!(keys, [&uid, &uid, &uid, &format!("{uid}.1")]);
    let said: Vec<_> =
        calls.iter().map(|call| (call.json()["id"].clone(), call.json()["attempt"].clone())).collect();
    assert_eq!(said[1], (uid.clone().into(), 2.into()));
    assert_eq!(said[3].0, format!("{uid}.1"));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (receiver, other_server) = (Receiver::start().await, Receiver::start().await);
    for status in [301, 302, 303, 307, 308] {
        let location = vec![("location", format!("http://{}/{TOKEN}", other_server.host))];
        receiver.reply(Reply::With(status, location, String::new()));
        let mut order = order_to(&receiver.url(), about());
        order.credentials = secret(&[("token", TOKEN)]);
        let error = open().delivery.deliver(&order).await.unwrap_err();
        assert_eq!(error.reason(), "Redirected");
        assert!(!error.to_string().contains(TOKEN), "{error}");
    }
    assert!(other_server.calls().is_empty(), "the other server was called");
}

#[tokio::test]
async fn slow_huge_and_broken_answers_end_in_time() {
    let receiver = Receiver::start().await;
    let bench = open();
    let cases = [
        (Reply::Hang, Some("Timeout")),
        (Reply::Broken, Some("Unreachable")),
        (Reply::Slow(500), Some("Unreachable")),
        (Reply::Endless(400), Some("WebhookRefused")),
        (Reply::Endless(200), None),
        (Reply::Slow(200), None),
        (Reply::With(400, vec![("x-long", "x".repeat(300_000))], String::new()), Some("WebhookRefused")),
        (Reply::With(400, vec![("x-longer", "x".repeat(3_000_000))], String::new()), Some("Unreachable")),
    ];
    for (i, (reply, reason)) in cases.into_iter().enumerate() {
        receiver.reply(reply);
        let begun = Instant::now();
        let done = bench.delivery.deliver(&order_to(&receiver.url(), about())).await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{i}: {:?}", begun.elapsed());
        match (&done, reason) {
            (Ok(_), None) => assert!(
                begun.elapsed() < Duration::from_secs(3),
                "a success waits for the text of the answer"
            ),
            (Err(error), Some(reason)) => {
                assert_eq!(error.reason(), reason, "{i}: {error}");
                assert!(error.to_string().len() < 700, "{i}: {error}");
            }
            _ => panic!("{i}: {done:?}"),
        }
        assert_eq!(receiver.calls().len(), 1, "{i}");
    }
}

#[tokio::test]
async fn an_unreachable_receiver_is_called_again() {
    let error = open().delivery.deliver(&order_to("http://127.0.0.1:1/x", about())).await.unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("Unreachable", Retry::Soon), "{error}");
    let error = open().delivery.deliver(&order_to("http://nobody.invalid/", about())).await.unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("Unreachable", Retry::Soon), "{error}");
}

#[tokio::test]
async fn private_addresses_are_not_called() {
    let receiver = Receiver::start().await;
    let port = receiver.host.rsplit_once(':').unwrap().1.to_string();
    let only_http = bench_with(|o| o.webhooks = AllowedWebhooks { http: true, private: false });
    let mut names = vec!["localhost".to_string(), "LOCALHOST".into(), "127.0.0.1".into()];
    names.extend(
        ["127.1", "2130706433", "0x7f000001", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]"]
            .map(String::from),
    );
    names.extend(["[::ffff:7f00:1]", "[64:ff9b::127.0.0.1]", "[::127.0.0.1]"].map(String::from));
    // The name of this machine resolves to one of its addresses.
    if let Ok(name) = std::fs::read_to_string("/etc/hostname") {
        let name = name.trim().to_string();
        let leads = tokio::net::lookup_host((name.as_str(), 0)).await;
        names.extend(leads.is_ok_and(|mut found| found.next().is_some()).then_some(name));
    }
    for name in names {
        let url = format!("http://{name}:{port}/latest/meta-data");
        let error = only_http.delivery.deliver(&order_to(&url, about())).await.unwrap_err();
        assert_eq!((error.reason(), error.retry()), ("AddressRefused", Retry::OnChange), "{name}: {error}");
        assert!(error.to_string().contains("--insecure-webhook-private-addresses"), "{error}");
        // A private address in the Secret is refused, too.
        let mut order = order_to("https://ci.example.com/", about());
        order.credentials = secret(&[("address", &url)]);
        let error = only_http.delivery.deliver(&order).await.unwrap_err();
        assert_eq!(error.reason(), "AddressRefused", "{name}: {error}");
    }
    let only_private = bench_with(|o| o.webhooks = AllowedWebhooks { http: false, private: true });
    let error = only_private.delivery.deliver(&order_to(&receiver.url(), about())).await.unwrap_err();
    assert_eq!(error.reason(), "AddressRefused");
    assert!(error.to_string().contains("--insecure-webhook-http"), "{error}");
    assert!(receiver.calls().is_empty());
    // If the flags allow it, the same name is called.
    let url = format!("http://localhost:{port}/");
    open().delivery.deliver(&order_to(&url, about())).await.unwrap();
    assert_eq!(receiver.calls().len(), 1);
}

#[tokio::test]
async fn a_certificate_is_trusted_if_the_secret_has_its_authority() {
    let receiver = Receiver::start().await;
    let (port, pem) = terminate(receiver.host.clone()).await;
    let bench = bench_with(|o| o.webhooks = AllowedWebhooks { http: false, private: true });
    let mut order = order_to(&format!("https://localhost:{port}/"), about());
    let error = bench.delivery.deliver(&order).await.unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("CertificateInvalid", Retry::Soon), "{error}");
    order.credentials = secret(&[("ca.crt", std::str::from_utf8(&pem).unwrap())]);
    bench.delivery.deliver(&order).await.unwrap();
    order.credentials = secret(&[("caFile", "none")]);
    let error = bench.delivery.deliver(&order).await.unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("SecretInvalid", Retry::Soon), "{error}");
    assert_eq!(receiver.calls().len(), 1);
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_stops_the_call() {
    let receiver = Receiver::start().await;
    for (key, value) in [
        ("headers", "X-A: \"b\\r\\nX-B: hunter2\"\n"),
        ("headers", "X-A: \"b\\nX-B: hunter2\"\n"),
        ("headers", "\"X-A\\r\\nX-hunter2\": b\n"),
        ("headers", "Host: hunter2.example.com\n"),
        ("headers", "Transfer-Encoding: hunter2\n"),
        ("headers", "hunter2: [a, b]\n"),
        ("headers", "hunter2"),
        ("proxy", "http://hunter2.example.com:3128"),
    ] {
        let mut order = order_to(&receiver.url(), about());
        order.credentials = secret(&[(key, value)]);
        let error = open().delivery.deliver(&order).await.unwrap_err();
        assert_eq!((error.reason(), error.retry()), ("SecretInvalid", Retry::Soon), "{value}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
    assert!(receiver.calls().is_empty());
}

#[tokio::test]
async fn no_secret_is_in_any_error() {
    let receiver = Receiver::start().await;
    let bench = open();
    let credentials = secret(&[
        ("token", TOKEN),
        ("username", "ci-user"),
        ("password", "hunter2-and-more"),
        ("headers", "X-Api-Key: api-key-1234567890\nX-Other: Bearer other-key-1234567890\n"),
    ]);
    let basic = "Y2ktdXNlcjpodW50ZXIyLWFuZC1tb3Jl";
    let secrets = [TOKEN, "hunter2-and-more", "api-key-1234567890", "other-key-1234567890", basic];
    for secret in secrets {
        for status in [400, 404, 408, 500, 503] {
            receiver.reply(Reply::With(
                status,
                vec![],
                serde_json::json!({"message": format!("you said {secret}, which is wrong")}).to_string(),
            ));
            let mut order = order_to(&receiver.url(), about());
            order.credentials = credentials.clone();
            let error = bench.delivery.deliver(&order).await.unwrap_err();
            let told = format!("{error} {error:?} {order:?}");
            assert!(!told.contains(&secret[..12]), "{told}");
            assert!(error.to_string().contains("you said ***"), "{error}");
        }
    }
}

#[tokio::test]
async fn nothing_is_sent_after_the_fencing_token_is_revoked() {
    let receiver = Receiver::start().await;
    let order = order_to(&receiver.url(), about());
    order.fencing_token.revoke();
    let error = open().delivery.deliver(&order).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Revoked), "{error}");
    assert!(receiver.calls().is_empty());
}

#[tokio::test]
async fn calls_use_no_proxy() {
    let (receiver, proxy) = (Receiver::start().await, Receiver::start().await);
    let mut process = tokio::process::Command::new(std::env::current_exe().unwrap());
    process
        .args(["--ignored", "--exact", "webhook::process_with_a_proxy"])
        .env("TEST_WEBHOOK", receiver.url());
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        process.env(name, format!("http://{}", proxy.host));
    }
    for name in ["NO_PROXY", "no_proxy"] {
        process.env_remove(name);
    }
    let output = process.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((receiver.calls().len(), proxy.calls().len()), (1, 0));
}

#[tokio::test]
#[ignore = "run by the test above, in a process of its own"]
async fn process_with_a_proxy() {
    let Ok(url) = std::env::var("TEST_WEBHOOK") else { return };
    open().delivery.deliver(&order_to(&url, about())).await.unwrap();
}
