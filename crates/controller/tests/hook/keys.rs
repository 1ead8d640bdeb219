//! Each key is accepted for one purpose: what the holder of one key can do with it, and what the holder cannot do.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use axum::http::{StatusCode, Uri};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine;
use http::Request;
use http_body_util::Full;
use hyper::body::Bytes;
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_controller::hook::HookServer;
use sluice_controller::hook::callback::{TokenClaim, TokenSubject, mint};
use sluice_controller::hook::hmac_keys::{HookKeys, Purpose};
use sluice_testkit::{Scratch, WAIT_TIMEOUT, eventually};

use crate::server::sign;
use crate::serving::serving;

/// Returns a target on a cluster that the controller watches, or on a cluster that reports, as `observe` says.
pub fn target(cluster: &str, namespace: Option<&str>, observe: &str) -> Value {
    json!({"name": format!("{}-{cluster}", namespace.unwrap_or("own")), "namespace": "podinfo", "observe": observe,
        "clusterRef": {"kind": "GitopsCluster", "name": cluster, "namespace": namespace}})
}

fn pipeline(name: &str, environments: &Value) -> Pipeline {
    let object = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": name, "namespace": "apps", "uid": "u"},
        "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "promotion": {"strategy": {"secretRef": {"name": "keys"}, "pull-request":
                {"type": "gitlab", "url": "https://gitlab.example.com/a/b", "secretRef": {"name": "git"}}}},
            "environments": environments}});
    serde_json::from_value(object).unwrap()
}

/// The Kubernetes events that a hook server has written.
#[derive(Clone, Default)]
struct WrittenEvents(Arc<Mutex<Vec<Value>>>);

impl WrittenEvents {
    fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }

    /// An API server that accepts events.
    fn router(&self) -> Router {
        let written = self.clone();
        let accept = move |Json(event): Json<Value>| {
            written.0.lock().unwrap().push(event.clone());
            async { (StatusCode::CREATED, Json(event)) }
        };
        Router::new().route("/apis/events.k8s.io/v1/namespaces/apps/events", post(accept))
    }
}

/// A hook server with an API server that has one Secret, or answers the request for it with an error. Every other
/// request to the API server fails, so that an accepted call is answered with 503.
async fn hook(scratch: &Scratch, secret: Result<Value, StatusCode>) -> HookServer {
    hook_with(scratch, secret, Router::new(), None).await
}

/// Returns the same as [`hook`], with one more pipeline. The API server also answers the requests of this router.
async fn hook_with(
    scratch: &Scratch,
    secret: Result<Value, StatusCode>,
    api: Router,
    more: Option<Pipeline>,
) -> HookServer {
    let answer = move |uri: Uri| {
        let encode = |text: &Value| base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap());
        let is_secret = uri.path() == "/api/v1/namespaces/apps/secrets/keys";
        let (status, body) = match &secret {
            Ok(keys) if is_secret => {
                let data: BTreeMap<_, _> =
                    keys.as_object().unwrap().iter().map(|(k, v)| (k, encode(v))).collect();
                let metadata = json!({"name": "keys", "namespace": "apps"});
                (
                    StatusCode::OK,
                    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}),
                )
            }
            Err(status) if is_secret => {
                let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(),
                    "reason": "x", "message": "x"});
                (*status, body)
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, json!({})),
        };
        async move { (status, [("content-type", "application/json")], body.to_string()) }
    };
    let watched = target("watched", None, "Watch");
    let pushed = [
        target("edge-1", None, "Push"),
        target("edge-2", None, "Push"),
        target("edge-2", Some("fleet"), "Push"),
    ];
    let mut keyless = pipeline("keyless", &json!([{"name": "dev", "targets": [watched]}]));
    keyless.spec.promotion = None;
    let pipelines = [
        pipeline(
            "podinfo",
            &json!([{"name": "dev", "targets": [watched]}, {"name": "edge", "targets": pushed}]),
        ),
        pipeline("other", &json!([{"name": "edge", "targets": pushed}])),
        keyless,
    ];
    serving(scratch, pipelines.into_iter().chain(more), 0, api.fallback(answer)).await
}

async fn status(hook: &HookServer, path: &str, (name, value): (&str, &str), body: &str) -> u16 {
    let request =
        Request::post(path).header(name, value).body(Full::new(Bytes::from(body.to_string()))).unwrap();
    hook.answer(IpAddr::V4(Ipv4Addr::LOCALHOST), request).await.status().as_u16()
}

/// The keys of the Secret. The value of each contains its name.
fn keys() -> Value {
    let names = [
        "hmac-key",
        "hmac-key-previous",
        "trigger-key",
        "trigger-key-previous",
        "approval-key",
        "approval-key-previous",
        "callback-key",
        "callback-key-previous",
        "forge-key",
        "forge-key-previous",
        "report-key.edge-1",
        "report-key-previous.edge-1",
        "report-key.edge-2",
        "report-key.fleet_edge-2",
        "password",
    ];
    names
        .iter()
        .map(|name| ((*name).to_string(), json!(format!("value of {name}"))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Returns true if a call of a kind is accepted with a key.
async fn accepts(hook: &HookServer, kind: &str, key: &str) -> bool {
    let event = |cluster: &str| crate::push::event(cluster, "UpgradeSucceeded", "6.1.8", 10).to_string();
    let signed = |path: &'static str, body: String| {
        let signature = sign(key, body.as_bytes());
        async move { status(hook, path, ("x-signature", &signature), &body).await }
    };
    let status = match kind {
        "event" => signed("/promotion/apps/podinfo/dev", event("watched")).await,
        "trigger" => {
            let body = json!({"revision": "1", "idempotencyKey": "a", "pipeline": "apps/podinfo"});
            signed("/trigger/apps/podinfo", body.to_string()).await
        }
        "approval" => {
            let at = jiff::Timestamp::now().to_string();
            let body =
                json!({"pipeline": "apps/podinfo", "environment": "edge", "revision": "6.1.8", "at": at});
            signed("/approval/apps/podinfo/edge/6.1.8", body.to_string()).await
        }
        "callback" => {
            let of = crate::callbacks::key("apps", "podinfo");
            let subject = TokenSubject { pipeline: &of, promotion: "podinfo-dev" };
            let token = mint(
                key.as_bytes(),
                subject,
                TokenClaim { uid: "u", round: 0, retries: Some(0), environment: "dev" },
            );
            let header = format!("Bearer {token}");
            let path = "/callback/apps/podinfo/podinfo-dev";
            status(hook, path, ("authorization", &header), r#"{"state": "done"}"#).await
        }
        "forge" => status(hook, "/forge/apps/podinfo", ("x-gitlab-token", key), "{}").await,
        "edge-1" | "edge-2" | "fleet/edge-2" => {
            // Two clusters of this environment have the name edge-2.
            let cluster = if kind == "edge-2" { "apps/edge-2" } else { kind };
            signed("/promotion/apps/podinfo/edge", event(cluster)).await
        }
        other => panic!("{other}"),
    };
    assert!([200, 202, 401, 503].contains(&status), "{kind} with {key}: {status}");
    status != 401
}

#[test]
fn a_key_is_accepted_for_its_own_purpose_only() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = Scratch::new("purposes").unwrap();
    runtime.block_on(async {
        let hook = hook(&scratch, Ok(keys())).await;
        let table = [
            ("event", &["hmac-key", "hmac-key-previous"][..]),
            ("trigger", &["trigger-key", "trigger-key-previous"]),
            ("approval", &["approval-key", "approval-key-previous"]),
            ("callback", &["callback-key", "callback-key-previous"]),
            ("forge", &["forge-key", "forge-key-previous"]),
            ("edge-1", &["report-key.edge-1", "report-key-previous.edge-1"]),
            ("edge-2", &["report-key.edge-2"]),
            ("fleet/edge-2", &["report-key.fleet_edge-2"]),
        ];
        for (kind, good) in table {
            for name in keys().as_object().unwrap().keys() {
                let accepted = accepts(&hook, kind, &format!("value of {name}")).await;
                assert_eq!(accepted, good.contains(&name.as_str()), "{kind} with {name}");
            }
        }
    });
}

#[test]
fn a_cluster_reports_for_its_own_targets_only() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = Scratch::new("cluster").unwrap();
    runtime.block_on(async {
        let hook = hook(&scratch, Ok(keys())).await;
        let report = |path: &'static str, cluster: &str, key: &str| {
            let body = crate::push::event(cluster, "UpgradeSucceeded", "6.1.8", 10).to_string();
            let signature = sign(&format!("value of {key}"), body.as_bytes());
            let hook = &hook;
            async move { status(hook, path, ("x-signature", &signature), &body).await }
        };
        let edge = "/promotion/apps/podinfo/edge";
        // A cluster reports for its own target.
        assert_eq!(report(edge, "edge-1", "report-key.edge-1").await, 503);
        // The same cluster has a target in another pipeline that names the same Secret.
        assert_eq!(report("/promotion/apps/other/edge", "edge-1", "report-key.edge-1").await, 503);
        // The cluster signs an event that names another cluster, or a name that two clusters have.
        for cluster in
            ["apps/edge-2", "fleet/edge-2", "fleet/edge-1", "edge-2", "nobody", "", "Edge-1", "edge-1 "]
        {
            assert_eq!(report(edge, cluster, "report-key.edge-1").await, 401, "{cluster:?}");
        }
        // The key of the cluster is not accepted for events about a target that the controller watches.
        for cluster in ["edge-1", "watched", ""] {
            assert_eq!(
                report("/promotion/apps/podinfo/dev", cluster, "report-key.edge-1").await,
                401,
                "{cluster:?}"
            );
        }
    });
}

#[test]
fn a_body_that_names_two_clusters_is_a_report_of_neither() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = Scratch::new("two-clusters").unwrap();
    runtime.block_on(async {
        let hook = hook(&scratch, Ok(keys())).await;
        let mut event = crate::push::event("edge-1", "UpgradeSucceeded", "6.1.8", 10);
        let metadata = event["metadata"].as_object_mut().unwrap();
        metadata.remove("cluster");
        // The name with the prefix of the object's group counts. Only the key of that cluster is accepted.
        event["involvedObject"]["apiVersion"] = json!("helm.toolkit.fluxcd.io/v2");
        for (one, other) in [("edge-1", "fleet/edge-2"), ("fleet/edge-2", "edge-1")] {
            for (cluster, key) in
                [("edge-1", "report-key.edge-1"), ("fleet/edge-2", "report-key.fleet_edge-2")]
            {
                event["metadata"]["kustomize.toolkit.fluxcd.io/cluster"] = json!(one);
                event["metadata"]["helm.toolkit.fluxcd.io/cluster"] = json!(other);
                let body = event.to_string();
                let signature = sign(&format!("value of {key}"), body.as_bytes());
                let found =
                    status(&hook, "/promotion/apps/podinfo/edge", ("x-signature", &signature), &body).await;
                let is_own = cluster == other;
                assert_eq!(found == 503, is_own, "{one} {other} {key}: {found}");
            }
        }
    });
}

#[test]
fn an_event_with_more_than_100_values_of_metadata_is_rejected() {
    let with = |count: usize| {
        let metadata: serde_json::Map<_, _> = (0..count).map(|nth| (nth.to_string(), json!(""))).collect();
        let body = json!({"involvedObject": {}, "metadata": metadata}).to_string();
        serde_json::from_str::<sluice_controller::hook::event::ReceivedEvent>(&body)
    };
    assert_eq!(with(100).unwrap().metadata.len(), 100);
    assert!(with(101).unwrap_err().to_string().contains("at most 100 entries"));
    let null = r#"{"involvedObject": {}, "metadata": null}"#;
    assert!(
        serde_json::from_str::<sluice_controller::hook::event::ReceivedEvent>(null)
            .unwrap()
            .metadata
            .is_empty()
    );
}

#[test]
fn a_key_for_another_purpose_gets_the_same_answer_as_no_key() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = Scratch::new("same").unwrap();
    runtime.block_on(async {
        let hook = hook(&scratch, Ok(keys())).await;
        let body = r#"{"revision": "1", "idempotencyKey": "a"}"#;
        let mut answers = Vec::new();
        for (pipeline, key) in
            [("podinfo", "value of hmac-key"), ("podinfo", "no key"), ("none", "value of hmac-key")]
        {
            let request = Request::post(format!("/trigger/apps/{pipeline}"))
                .header("x-signature", sign(key, body.as_bytes()))
                .body(Full::new(Bytes::from(body)))
                .unwrap();
            let (head, body) = hook.answer(IpAddr::V4(Ipv4Addr::LOCALHOST), request).await.into_parts();
            let text = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            answers.push((head.status, head.headers, text));
        }
        assert_eq!(answers[0], answers[1]);
        assert_eq!(answers[0], answers[2]);
        assert_eq!(answers[0].0, StatusCode::UNAUTHORIZED);
    });
}

#[test]
fn an_event_tells_the_owner_which_key_a_refused_call_needs() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = Scratch::new("wrong-key").unwrap();
    runtime.block_on(async {
        let written = WrittenEvents::default();
        let hook = hook_with(&scratch, Ok(keys()), written.router(), None).await;
        for kind in ["trigger", "trigger", "event"] {
            let key = if kind == "trigger" { "value of hmac-key" } else { "value of trigger-key" };
            assert!(!accepts(&hook, kind, key).await, "{kind} with {key}");
        }
        // A caller without any key of the Secret causes no event.
        assert!(!accepts(&hook, "approval", "no key").await);
        eventually(WAIT_TIMEOUT, || async {
            let count = written.all().len();
            anyhow::ensure!(count >= 2, "{count} events");
            Ok(())
        })
        .await
        .unwrap();
        let mut shown: Vec<[String; 5]> = written
            .all()
            .iter()
            .map(|event| {
                let texts = [&event["type"], &event["reason"], &event["action"], &event["regarding"]["name"], &event["note"]];
                texts.map(|text| text.as_str().unwrap_or_default().to_string())
            })
            .collect();
        shown.sort();
        let event = |note: &str| ["Warning", "WrongHookKey", "Authenticate", "podinfo", note].map(str::to_string);
        // The second refused call of /trigger causes no second event.
        assert_eq!(
            shown,
            [
                event(
                    "a call of /promotion was refused: it uses trigger-key, and /promotion accepts hmac-key only; give \
                     the caller hmac-key of the Secret in promotion.strategy.secretRef, or first add it to the Secret"
                ),
                event(
                    "a call of /trigger was refused: it uses hmac-key, and /trigger accepts trigger-key only; give the \
                     caller trigger-key of the Secret in promotion.strategy.secretRef, or first add it to the Secret"
                ),
            ]
        );
    });
}

#[test]
fn a_secret_that_the_controller_may_not_read_answers_503_and_a_missing_one_401() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (secret, wanted) in
        [(StatusCode::FORBIDDEN, 503), (StatusCode::NOT_FOUND, 401), (StatusCode::BAD_GATEWAY, 503)]
    {
        let scratch = Scratch::new("forbidden").unwrap();
        runtime.block_on(async {
            let hook = hook(&scratch, Err(secret)).await;
            let body = crate::push::event("watched", "UpgradeSucceeded", "6.1.8", 10).to_string();
            let signature = sign("value of hmac-key", body.as_bytes());
            let found =
                status(&hook, "/promotion/apps/podinfo/dev", ("x-signature", &signature), &body).await;
            assert_eq!(found, wanted, "{secret}");
        });
    }
}

#[test]
fn one_unreadable_secret_changes_the_answers_for_other_pipelines_without_a_key_too() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = Scratch::new("others").unwrap();
    runtime.block_on(async {
        let mut broken =
            pipeline("broken", &json!([{"name": "dev", "targets": [target("a", None, "Watch")]}]));
        let strategy = broken.spec.promotion.as_mut().unwrap().strategy.as_mut().unwrap();
        strategy.secret_ref.as_mut().unwrap().name = "unreadable".into();
        let hook = hook_with(&scratch, Ok(keys()), Router::new(), Some(broken)).await;
        let call = async |pipeline: &str, key: &str| {
            let (path, signature) = (format!("/trigger/apps/{pipeline}"), sign(key, b"[]"));
            status(&hook, &path, ("x-signature", &signature), "[]").await
        };
        let mut found = Vec::new();
        for pipeline in ["broken", "podinfo", "none"] {
            found.push(call(pipeline, "no key").await);
        }
        assert_eq!(found, [503, 503, 503]);
        assert_eq!(call("podinfo", "value of trigger-key").await, 422);
    });
}

#[test]
fn an_unreadable_secret_does_not_reveal_which_pipelines_exist() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (secret, wanted) in [
        (StatusCode::FORBIDDEN, StatusCode::SERVICE_UNAVAILABLE),
        (StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE),
        (StatusCode::NOT_FOUND, StatusCode::UNAUTHORIZED),
    ] {
        let scratch = Scratch::new("one-unreadable").unwrap();
        runtime.block_on(async {
            let hook = hook(&scratch, Err(secret)).await;
            for (endpoint, rest) in [
                ("promotion", "/dev"),
                ("trigger", ""),
                ("callback", "/x"),
                ("forge", ""),
                ("approval", "/edge/1"),
            ] {
                let mut answers = Vec::new();
                // The first call is the one that finds the Secret unreadable.
                for pipeline in ["none", "podinfo", "keyless", "other", "none"] {
                    let request = Request::post(format!("/{endpoint}/apps/{pipeline}{rest}"))
                        .header("x-signature", sign("no key", b"{}"))
                        .header("x-gitlab-token", "no key")
                        .header("authorization", "Bearer u.0.dev.00")
                        .body(Full::new(Bytes::from("{}")))
                        .unwrap();
                    let (head, body) =
                        hook.answer(IpAddr::V4(Ipv4Addr::LOCALHOST), request).await.into_parts();
                    let text = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
                    answers.push((head.status, head.headers, text));
                }
                assert_eq!(answers[0].0, wanted, "{endpoint} {secret}");
                assert!(
                    answers.iter().all(|answer| *answer == answers[0]),
                    "{endpoint} {secret}: {answers:?}"
                );
            }
        });
    }
}

#[test]
fn a_key_with_a_line_break_inside_is_not_accepted() {
    for (value, is_accepted) in [
        ("a", true),
        ("a\n", true),
        ("\r\na\r\n", true),
        ("a\nb", false),
        ("a\rb\n", false),
        ("a\r\nb", false),
    ] {
        let data = [("hmac-key", value), ("trigger-key", "other")];
        let data = data.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        let known = HookKeys::of(&data.into());
        assert_eq!(!known.of_purpose(&Purpose::Event).is_empty(), is_accepted, "{value:?}");
        assert_eq!(known.broken().contains("hmac-key"), !is_accepted, "{value:?}");
        assert!(!known.of_purpose(&Purpose::Trigger).is_empty(), "{value:?}");
    }
}

#[test]
fn a_value_that_two_keys_share_is_accepted_as_hmac_key_only() {
    let known = |keys: &[(&str, &str)]| {
        let data =
            keys.iter().map(|(name, value)| ((*name).to_string(), value.as_bytes().to_vec())).collect();
        let known = HookKeys::of(&data);
        let purposes: Vec<String> = known.purposes().map(ToString::to_string).collect();
        let shared: Vec<Vec<String>> =
            known.shared().iter().map(|names| names.iter().cloned().collect()).collect();
        (purposes.join(" "), shared)
    };
    let none: Vec<Vec<String>> = Vec::new();
    let group = |names: &[&str]| vec![names.iter().map(|name| (*name).to_string()).collect::<Vec<_>>()];
    for (keys, purposes, shared) in [
        (&[("hmac-key", "a"), ("trigger-key", "b")][..], "hmac-key trigger-key", none.clone()),
        (&[("hmac-key", "a"), ("hmac-key-previous", "a\n")], "hmac-key", none.clone()),
        (&[("hmac-key", "a"), ("trigger-key", "a\n")], "hmac-key", group(&["hmac-key", "trigger-key"])),
        // Every cluster may have the previous hmac-key, so its value is no approval-key.
        (
            &[("hmac-key", "b"), ("hmac-key-previous", "a"), ("approval-key", "a")],
            "hmac-key",
            group(&["approval-key", "hmac-key-previous"]),
        ),
        (&[("trigger-key", "a"), ("approval-key", "a")], "", group(&["approval-key", "trigger-key"])),
        (
            &[("trigger-key", "a"), ("approval-key", "a"), ("approval-key-previous", "b")],
            "approval-key",
            group(&["approval-key", "trigger-key"]),
        ),
        (
            &[("report-key.a", "x"), ("report-key.b", "x"), ("report-key.c", "y")],
            "report-key.c",
            group(&["report-key.a", "report-key.b"]),
        ),
        (&[("hmac-key", " \n"), ("trigger-key", " ")], "", none.clone()),
        (&[("report-key", "x"), ("report-key.", "x"), ("hmac-key2", "x"), ("HMAC-KEY", "x")], "", none),
    ] {
        assert_eq!(known(keys), (purposes.to_string(), shared), "{keys:?}");
    }
    let data = [("report-key-previous.a".to_string(), b"x".to_vec())].into();
    assert_eq!(HookKeys::of(&data).of_purpose(&Purpose::Report("report-key.a".into())), [b"x".to_vec()]);
}
