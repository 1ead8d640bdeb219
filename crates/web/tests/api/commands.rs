//! What the API has of the commands beside the views: events, the check, and the action `reconcile`, for callers with
//! different rights. Each answer must be as it is described.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sluice_core::fleet::index::Fleet;
use sluice_testkit::CapturedLog;
use sluice_view::object_name::FluxName;
use sluice_web::{Api, ChangeError, router, serve};
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::described::differs_from_description;
use crate::fleet::index;
use crate::pipelines::{act, ask, ask_of};
use crate::world::{World, every_state};

/// Returns the objects of events, in their order.
fn objects(body: &Value) -> Vec<&str> {
    body["items"].as_array().unwrap().iter().map(|event| event["object"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn events_are_shown_to_those_who_see_the_pipeline_and_may_list_them() {
    let path = "/api/v1/pipelines/apps/podinfo/events";
    for token in ["admin", "podinfo"] {
        let (status, body) = ask(token, path).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(objects(&body), ["pipeline/podinfo", "promotion/podinfo-prod-1"]);
    }
    assert_eq!(objects(&ask("admin", &format!("{path}?type=Warning")).await.1), ["promotion/podinfo-prod-1"]);
    assert_eq!(objects(&ask("admin", &format!("{path}?limit=1")).await.1), ["promotion/podinfo-prod-1"]);
    // Who may get the pipeline may not list the events of its namespace.
    let (status, body) = ask("viewer", path).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    let why = "the API server does not show you the events: events is forbidden. You need the right to list events in \
               namespace apps";
    assert_eq!(body["detail"], why);
    for token in ["shop", "nobody", "pipelines", "promotions"] {
        assert_eq!(ask(token, path).await.0, StatusCode::NOT_FOUND, "{token}");
    }
}

#[tokio::test]
async fn events_of_a_namespace_and_of_all_need_the_right_to_list_them() {
    let (_, body) = ask("admin", "/api/v1/events").await;
    assert_eq!(objects(&body), ["pipeline/checkout", "pipeline/podinfo", "promotion/podinfo-prod-1"]);
    let (_, body) = ask("podinfo", "/api/v1/events?namespace=apps&type=Normal").await;
    assert_eq!(objects(&body), ["pipeline/podinfo"]);
    for (token, query) in [("podinfo", ""), ("podinfo", "?namespace=shop"), ("viewer", "?namespace=apps")] {
        let (status, body) = ask(token, &format!("/api/v1/events{query}")).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{token} {query}: {body}");
    }
    for path in ["events?namespace=a/b", "check?namespace=..", "check?namespace=a%3Fx&installation=true"] {
        let (status, body) = ask("admin", &format!("/api/v1/{path}")).await;
        let why = "the namespace is not a name: write lower-case letters, digits and '-'";
        assert_eq!((status, &body["detail"]), (StatusCode::BAD_REQUEST, &json!(why)), "{path}");
    }
    let (status, body) = ask("admin", "/api/v1/events?type=Bad").await;
    let why = "type is Normal or Warning: write one of them, or leave it out for both";
    assert_eq!((status, &body["detail"]), (StatusCode::BAD_REQUEST, &json!(why)));
}

/// Returns the findings about a topic, and whether each one is a warning.
async fn findings(token: &str, query: &str, topic: &str) -> Vec<(String, String)> {
    let (status, body) = ask(token, &format!("/api/v1/check{query}")).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let of_topic = body["findings"].as_array().unwrap().iter().filter(|finding| finding["topic"] == topic);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of_topic.map(|finding| (text(&finding["severity"]), text(&finding["message"]))).collect()
}

#[tokio::test]
async fn the_check_is_about_the_pipelines_that_the_caller_may_see() {
    for (token, query, says) in [
        ("nobody", "", "there are no pipelines"),
        ("shop", "", "2 of 2 pipelines are Ready, and their statuses are up to date"),
        ("admin", "", "4 of 4 pipelines are Ready, and their statuses are up to date"),
        (
            "admin",
            "?namespace=apps",
            "1 of 1 pipelines in namespace apps are Ready, and their statuses are up to date",
        ),
    ] {
        assert_eq!(findings(token, query, "pipelines").await, [("ok".into(), says.into())], "{token}{query}");
    }
    let unchecked = async |query: &str| {
        let (_, body) = ask("admin", &format!("/api/v1/check{query}")).await;
        let unchecked = body["unchecked"].as_array().unwrap();
        let one =
            |one: &Value| format!("{}: {}", one["topic"].as_str().unwrap(), one["why"].as_str().unwrap());
        unchecked.iter().map(one).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(unchecked("").await, @"
    definitions: the API server is asked about it only with installation=true
    controller: the API server is asked about it only with installation=true
    rights: the API server is asked about it only with installation=true
    hooks: the API server is asked about it only with installation=true
    clocks: the API server is asked about it only with installation=true
    secrets: each Secret would be a request: sluice check reads them with your rights
    values: they are in your checkout of the repository: sluice check --checkout DIR looks there
    ");
    insta::assert_snapshot!(unchecked("?installation=true").await, @"
    secrets: each Secret would be a request: sluice check reads them with your rights
    values: they are in your checkout of the repository: sluice check --checkout DIR looks there
    ");
}

#[tokio::test]
async fn the_check_of_the_installation_is_what_the_api_server_says_to_the_caller() {
    let (_, body) = ask("admin", "/api/v1/check?installation=true").await;
    let all = body["findings"].as_array().unwrap();
    let topics: BTreeSet<&str> = all.iter().map(|finding| finding["topic"].as_str().unwrap()).collect();
    let expected = ["clocks", "controller", "definitions", "flux", "pipelines", "rights"];
    assert_eq!(topics, BTreeSet::from(expected), "{body}");
    for (topic, lacks) in [
        ("definitions", "you lack get on customresourcedefinitions.apiextensions.k8s.io"),
        ("controller", "you lack list on leases.coordination.k8s.io in namespace sluice-system"),
        ("hooks", "you lack list on providers.notification.toolkit.fluxcd.io"),
    ] {
        let found = findings("shop", "?installation=true", topic).await;
        assert!(found.iter().all(|(severity, _)| severity == "warning"), "{found:?}");
        assert!(found.iter().any(|(_, message)| message.ends_with(lacks)), "{topic}: {found:?}");
    }
    let rights = findings("shop", "?namespace=shop&installation=true", "rights").await;
    let lack = "shop may not use suspend, resume in namespace shop: this needs patch on pipelines.pipelines.weave.works";
    assert!(rights.contains(&("warning".into(), lack.into())), "{rights:?}");
}

#[tokio::test(start_paused = true)]
async fn a_check_without_an_answer_of_the_api_server_fails_and_costs_many_requests() {
    let world = World::new(every_state());
    world.answer(Err(ChangeError::Unavailable("connection refused".into())));
    let api = Api::new(index().fleet(), world, true);
    let check = async || {
        let request = Request::get("/api/v1/check?installation=true").header("authorization", "Bearer admin");
        router(api.clone()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
    };
    let answers = [check().await, check().await, check().await, check().await, check().await];
    let refused = answers.iter().filter(|status| **status == StatusCode::TOO_MANY_REQUESTS).count();
    assert_eq!(answers[0], StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused, 1, "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn who_asks_too_often_is_told_when_to_ask_again_and_others_are_answered() {
    let api = Api::new(index().fleet(), World::new(every_state()), true);
    let ask = async |caller: &str| {
        let request = Request::get("/api/v1/pipelines").header("authorization", format!("Bearer {caller}"));
        router(api.clone()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    };
    let mut answered = 0;
    let refused = loop {
        let answer = ask("admin").await;
        if answer.status() != StatusCode::OK || answered > 1_000 {
            break answer;
        }
        answered += 1;
    };
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "after {answered} answers");
    let pause = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(ask("viewer").await.status(), StatusCode::OK);
    tokio::time::advance(Duration::from_secs(pause)).await;
    assert_eq!(ask("admin").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_check_names_lost_clusters_only_to_those_who_may_see_them() {
    let mut world = every_state();
    let key = ("apps".to_string(), "podinfo".to_string());
    let stored = world.pipelines.get_mut(&key).unwrap();
    let mut pipeline = stored.object.as_ref().clone();
    let cluster = json!({"kind": "GitopsCluster", "name": "asia", "namespace": "fleet"});
    pipeline.spec.environments[0].targets[0].cluster_ref = serde_json::from_value(cluster).unwrap();
    stored.object = pipeline.into();
    let world = World::new(world);
    let ask = async |token: &str| {
        let request = Request::get("/api/v1/check").header("authorization", format!("Bearer {token}"));
        let api = Api::new(index().fleet(), world.clone(), true);
        let answer = router(api).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(text.to_vec()).unwrap()
    };
    let lost = "the controller cannot read fleet/asia: it refuses the connection: start it";
    let admin = ask("admin").await;
    assert!(admin.contains(lost), "{admin}");
    // This caller sees the pipeline that names the cluster, and not the cluster.
    let tenant = ask("tenant").await;
    assert!(!tenant.contains("refuses the connection"), "{tenant}");
    assert!(tenant.contains("it does not observe it, or you may not get it"), "{tenant}");
}

#[tokio::test]
async fn reconcile_is_made_with_the_token_of_the_caller() {
    let world = World::new(every_state());
    let path = "/api/v1/pipelines/apps/podinfo/reconcile";
    let (status, body) = act(&world, "viewer", path, json!({"environment": "prod"})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    // Whether the caller may do it is what the API server says about each object.
    let item = json!({"kind": "HelmRelease", "namespace": "podinfo", "name": "podinfo", "problem": "it does not exist"});
    assert_eq!(body, json!({"items": [item], "elsewhere": []}));
    let (token, namespace, plan) = world.reconciled().remove(0);
    assert_eq!((token.as_str(), namespace.as_str()), ("viewer", "apps"));
    let here = FluxName { kind: "HelmRelease".into(), namespace: "podinfo".into(), name: "podinfo".into() };
    assert_eq!(plan.here.into_iter().collect::<Vec<_>>(), [here]);
    assert_eq!(plan.repositories[0].url, "https://git.example.com/acme/fleet");

    assert_eq!(act(&world, "viewer", path, json!({})).await.0, StatusCode::OK);
    for (body, status, why) in [
        (json!({"environment": "pord"}), StatusCode::NOT_FOUND, "has no environment or target pord"),
        (json!({"environment": "prod/eu"}), StatusCode::NOT_FOUND, "has no environment or target prod/eu"),
        (json!({"environment": 1}), StatusCode::BAD_REQUEST, "environment is not a text: write it in quotes"),
        (
            json!({"env": "prod"}),
            StatusCode::BAD_REQUEST,
            "there is no parameter env: write one of environment",
        ),
        (json!([]), StatusCode::BAD_REQUEST, "the body is not an object"),
    ] {
        let (found, answer) = act(&world, "viewer", path, body.clone()).await;
        assert_eq!(found, status, "{body}: {answer}");
        assert!(answer["detail"].as_str().unwrap().contains(why), "{body}: {answer}");
    }
    for token in ["shop", "nobody", "pipelines", "promotions"] {
        assert_eq!(act(&world, token, path, json!({})).await.0, StatusCode::NOT_FOUND, "{token}");
    }
    assert_eq!(world.reconciled().len(), 2);
    world.answer(Err(ChangeError::Unavailable("no answer".into())));
    assert_eq!(act(&world, "viewer", path, json!({})).await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn without_actions_nothing_is_reconciled() {
    let world = World::new(every_state());
    let request = Request::post("/api/v1/pipelines/apps/podinfo/reconcile")
        .header("authorization", "Bearer admin")
        .header("content-type", "application/json");
    let api = Api::new(Fleet::default(), world.clone(), false);
    let answer = router(api).oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert!(world.reconciled().is_empty());
}

#[tokio::test]
async fn the_log_says_at_the_start_whether_people_can_act() {
    for (actions, says) in
        [(false, " and read-only; --api-actions lets people act there"), (true, "; people can act there")]
    {
        let log = CapturedLog::default();
        let _logged = tracing::subscriber::set_default(log.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let api = Api::new(Fleet::default(), World::new(every_state()), actions);
        assert!(futures::poll!(pin!(serve(listener, api))).is_pending());
        let on = "serving the API and the pages, on this machine only";
        let line = format!("INFO message={on}{says} address={address} ");
        assert_eq!(log.take(), [line]);
    }
}

/// Words of the libraries that read requests, which say nothing to a caller.
const FOREIGN: [&str; 12] = [
    "deserialize",
    "serde",
    "axum",
    "Failed to",
    "invalid digit",
    "invalid type",
    "expected",
    "trailing",
    "EOF",
    "missing field",
    "unknown field",
    "Utf8",
];

#[tokio::test]
async fn no_problem_has_the_words_of_a_library() {
    let world = World::new(every_state());
    let mut answers = Vec::new();
    for path in [
        "/api/v1/pipelines?limit=0",
        "/api/v1/pipelines?limit=-1",
        "/api/v1/pipelines?limit=1.5",
        "/api/v1/pipelines?limit=99999999999999999999",
        "/api/v1/pipelines?limit=1&limit=2",
        "/api/v1/pipelines?continue=1",
        "/api/v1/pipelines?%ff=1",
        "/api/v1/pipelines?of=nothing",
        "/api/v1/pipelines?nmae=a",
        "/api/v1/charts?outliers=1",
        "/api/v1/charts?limit=0",
        "/api/v1/pipelines/apps/podinfo/history?limit=0",
        "/api/v1/pipelines/apps/podinfo/events?limit=0",
        "/api/v1/pipelines/apps/podinfo/explain?env=prod",
        "/api/v1/pipelines/apps/podinfo/tree?x=1",
        "/api/v1/events?limit=0",
        "/api/v1/check?all=true",
        "/api/v1/trace?kind=Deployment&kind=Deployment",
    ] {
        let (status, body) = ask_of(&world, "admin", path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {body}");
        answers.push((path.to_string(), body));
    }
    let (status, body) = ask_of(&world, "admin", "/api/v1/pipelines/apps/%ff").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    answers.push(("a path".into(), body));
    let path = "/api/v1/pipelines/apps/podinfo/suspend";
    for (kind, body, status) in [
        ("application/json", "{".to_string(), StatusCode::BAD_REQUEST),
        ("application/json", "{\"seen\": \"a\"} x".into(), StatusCode::BAD_REQUEST),
        ("application/json", String::new(), StatusCode::BAD_REQUEST),
        ("application/json", "{}".into(), StatusCode::BAD_REQUEST),
        ("application/json", "\u{fffd}".into(), StatusCode::BAD_REQUEST),
        ("text/plain", "{\"seen\": \"a\"}".into(), StatusCode::BAD_REQUEST),
        (
            "application/json",
            format!("{{\"seen\": \"{}\"}}", "a".repeat(9000)),
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
    ] {
        let request =
            Request::post(path).header("authorization", "Bearer admin").header("content-type", kind);
        let api = Api::new(Fleet::default(), world.clone(), true);
        let answer = router(api).oneshot(request.body(Body::from(body.clone())).unwrap()).await.unwrap();
        assert_eq!(answer.status(), status, "{body}");
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&text).unwrap();
        let differs = differs_from_description(("post", path), status, &problem);
        assert!(differs.is_empty(), "{body}: {differs:?}");
        answers.push((body, problem));
    }
    for (asked, body) in answers {
        let detail = body["detail"].as_str().unwrap();
        let foreign: Vec<&&str> = FOREIGN.iter().filter(|word| detail.contains(**word)).collect();
        assert!(foreign.is_empty(), "{asked}: {detail}");
        // What to do comes after the colon.
        assert!(detail.contains(": ") || detail.starts_with("send "), "{asked}: {detail}");
    }
}
