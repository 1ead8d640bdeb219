//! Pipelines and promotions, asked about by callers with different rights.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sluice_core::fleet::index::Fleet;
use sluice_testkit::CapturedLog;
use sluice_web::{Api, ChangeError, router};
use tower::ServiceExt;

use crate::described::differs_from_description;
use crate::world::{World, environment, every_state, pipeline, promotion, snapshot};

/// Asks about a world with a pipeline in each state. Each answer must be as it is described.
pub async fn ask(token: &str, path: &str) -> (StatusCode, Value) {
    ask_of(&World::new(every_state()), token, path).await
}

pub async fn ask_of(world: &World, token: &str, path: &str) -> (StatusCode, Value) {
    let request = Request::get(path).header("authorization", format!("Bearer {token}"));
    send(world, ("get", path), request.body(Body::empty()).unwrap()).await
}

/// Requests an action.
pub async fn act(world: &World, token: &str, path: &str, body: Value) -> (StatusCode, Value) {
    let request = Request::post(path)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json");
    send(world, ("post", path), request.body(Body::from(body.to_string())).unwrap()).await
}

async fn send(world: &World, (method, path): (&str, &str), request: Request<Body>) -> (StatusCode, Value) {
    let api = Api::new(Fleet::default(), world.clone(), true);
    let answer = router(api).oneshot(request).await.unwrap();
    let status = answer.status();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    let body = if text.is_empty() { Value::Null } else { serde_json::from_slice(&text).unwrap() };
    let differs = differs_from_description((method, path), status, &body);
    assert!(differs.is_empty(), "{path} {status}: {differs:?}");
    (status, body)
}

/// Returns the pipelines of an answer, as `namespace/name`.
fn names(body: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let name = |item: &Value| format!("{}/{}", text(&item["namespace"]), text(&item["name"]));
    body["items"].as_array().unwrap().iter().map(name).collect()
}

#[tokio::test]
async fn each_caller_sees_the_pipelines_that_rbac_allows() {
    for (token, expected) in [
        ("admin", &["apps/podinfo", "evil/evil", "shop/checkout", "shop/mailer"][..]),
        ("viewer", &["apps/podinfo", "evil/evil", "shop/checkout", "shop/mailer"]),
        ("shop", &["shop/checkout", "shop/mailer"]),
        ("nobody", &[]),
    ] {
        let (status, body) = ask(token, "/api/v1/pipelines").await;
        assert_eq!(
            (status, names(&body)),
            (StatusCode::OK, expected.iter().map(ToString::to_string).collect())
        );
    }
    assert_eq!(ask("stolen", "/api/v1/pipelines").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(ask("down", "/api/v1/pipelines").await.0, StatusCode::SERVICE_UNAVAILABLE);
}

/// A list does not ask the API server about each object. `kubectl get pipelines` is refused then, too.
#[tokio::test]
async fn a_right_to_one_name_shows_the_object_and_not_the_list() {
    let (status, body) = ask("podinfo", "/api/v1/pipelines/apps/podinfo").await;
    assert_eq!((status, &body["name"]), (StatusCode::OK, &json!("podinfo")));
    assert_eq!(ask("podinfo", "/api/v1/pipelines/apps/podinfo/explain").await.0, StatusCode::OK);
    assert_eq!(names(&ask("podinfo", "/api/v1/pipelines").await.1), [""; 0]);
    assert_eq!(ask("podinfo", "/api/v1/pipelines/shop/checkout").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn hidden_objects_are_answered_like_missing_ones() {
    for path in [
        "pipelines/apps/podinfo",
        "pipelines/apps/podinfo/explain",
        "pipelines/apps/podinfo/history",
        "pipelines/apps/podinfo/tree",
        "pipelines/apps/podinfo/triggers",
        "promotions/apps/podinfo-prod-1",
    ] {
        assert_eq!(ask("viewer", &format!("/api/v1/{path}")).await.0, StatusCode::OK, "{path}");
        let (status, hidden) = ask("shop", &format!("/api/v1/{path}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        // A pipeline shows its promotions, and a promotion its pipeline.
        for half in ["pipelines", "promotions"] {
            let answer = ask(half, &format!("/api/v1/{path}")).await;
            assert_eq!(answer, (status, hidden.clone()), "{half} {path}");
        }
        let (absent_status, absent) =
            ask("viewer", &format!("/api/v1/{}", path.replace("podinfo", "absent"))).await;
        let detail = |body: &Value| body["detail"].as_str().unwrap().replace("absent", "podinfo");
        assert_eq!((absent_status, detail(&absent)), (StatusCode::NOT_FOUND, detail(&hidden)));
    }
}

#[tokio::test]
async fn the_answers_are_those_of_the_commands() {
    let (_, body) = ask("viewer", "/api/v1/pipelines/apps/podinfo").await;
    let prod = &body["environments"][2];
    assert_eq!(
        (&prod["environment"], &prod["runs"], &prod["incoming"][0]),
        (&json!("prod"), &json!("6.1.8"), &json!("6.2.0"))
    );
    let (_, body) = ask("viewer", "/api/v1/pipelines/apps/podinfo/explain?environment=prod").await;
    let prod = body["items"].as_array().unwrap();
    assert_eq!(prod.len(), 1, "{body}");
    assert!(prod[0]["next"][0].as_str().unwrap().starts_with("sluice approve"), "{body}");
    let (_, body) = ask("viewer", "/api/v1/pipelines/apps/podinfo/history?limit=1").await;
    assert_eq!(
        (&body["items"][0]["revision"], &body["items"][0]["replaces"]),
        (&json!("6.2.0"), &json!("6.1.8"))
    );
    let (_, none) = ask("viewer", "/api/v1/pipelines/apps/podinfo/history?environment=dev").await;
    assert_eq!(none["items"], json!([]));
    let (_, body) = ask("viewer", "/api/v1/pipelines/apps/podinfo/tree?environment=prod").await;
    let prod = &body["items"][0]["targets"][0];
    assert_eq!(
        (body["items"].as_array().unwrap().len(), &prod["runs"], &prod["members"][0]["name"]),
        (1, &json!("6.1.8"), &json!("HelmRelease/podinfo"))
    );
    let (_, body) = ask("viewer", "/api/v1/promotions/apps/podinfo-prod-1").await;
    assert_eq!((&body["pipeline"], &body["gates"][0]["open"]), (&json!("podinfo"), &json!(false)));
    assert!(
        body["events"][0]["what"].as_str().unwrap().contains("staging/podinfo ran 6.2.0 healthily"),
        "{body}"
    );
}

#[tokio::test]
async fn an_environment_or_one_of_its_targets_is_chosen() {
    let ask = async |query: &str| ask("viewer", &format!("/api/v1/pipelines/apps/podinfo/{query}")).await;
    for view in ["explain", "history", "tree"] {
        // The promotion into prod changes all of its targets.
        for environment in ["prod", "prod/podinfo"] {
            let (status, body) = ask(&format!("{view}?environment={environment}")).await;
            let items = body["items"].as_array().map(Vec::len);
            assert_eq!((status, items), (StatusCode::OK, Some(1)), "{view} {environment}: {body}");
        }
    }
    for (query, part) in [
        ("explain?environment=live", "no environment or target live"),
        ("tree?environment=live", "no environment or target live"),
        ("tree?environment=prod/eu", "no environment or target prod/eu"),
    ] {
        let (status, body) = ask(query).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{query}: {body}");
        assert!(body["detail"].as_str().unwrap().contains(part), "{query}: {body}");
    }
}

#[tokio::test]
async fn pipelines_are_chosen_by_the_parameters() {
    for (query, expected) in [
        ("namespace=shop", &["shop/checkout", "shop/mailer"][..]),
        ("search=MAIL", &["shop/mailer"]),
        ("search=shop%202.14.1", &["shop/checkout"]),
        ("of=person", &["apps/podinfo", "evil/evil", "shop/checkout"]),
        ("search=absent", &[]),
        ("search=13.0", &["shop/checkout"]),
        ("search=revision:13.0", &[]),
        ("search=revision:2.13", &["shop/checkout"]),
        ("search=Health:Failed", &["evil/evil", "shop/checkout"]),
        ("search=health:failed%20namespace:shop", &["shop/checkout"]),
        ("search=health", &[]),
        ("search=application:podinfo%20mailer", &["shop/mailer"]),
        ("search=podinfo:6", &[]),
    ] {
        let (_, body) = ask("viewer", &format!("/api/v1/pipelines?{query}")).await;
        assert_eq!(names(&body), expected, "{query}");
    }
    for (query, part) in [
        ("of=everything", "write one of person"),
        ("limit=many", "limit"),
        ("continue=podinfo", "leave it out"),
        ("nmae=a", "nmae"),
    ] {
        let (status, body) = ask("viewer", &format!("/api/v1/pipelines?{query}")).await;
        assert!(
            status == StatusCode::BAD_REQUEST && body["detail"].as_str().unwrap().contains(part),
            "{body}"
        );
    }
}

#[tokio::test]
async fn pages_of_pipelines_follow_each_other_without_gap_or_repetition() {
    let ready = || environment("1", "Ready", "");
    let all = ["a/b", "a/c", "ab/a", "b/a"].map(|name| {
        let (namespace, name) = name.split_once('/').unwrap();
        pipeline(namespace, name, [ready(), ready(), ready()])
    });
    let world =
        World::new(snapshot(all.to_vec(), vec![promotion("a", "b", "2", json!({"phase": "Pending"}))]));
    let (mut paged, mut next) = (Vec::new(), String::new());
    loop {
        let escaped: String = next.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (_, body) =
            ask_of(&world, "viewer", &format!("/api/v1/pipelines?limit=1&continue={escaped}")).await;
        paged.extend(names(&body));
        match body["continue"].as_str() {
            Some(more) => next = more.into(),
            None => break,
        }
    }
    assert_eq!(paged, ["a/b", "a/c", "ab/a", "b/a"]);
}

const PIPELINE: &str = "/api/v1/pipelines/apps/podinfo";
const PROMOTION: &str = "/api/v1/promotions/apps/podinfo-prod-1";

async fn seen(world: &World, path: &str) -> Value {
    ask_of(world, "admin", path).await.1["seen"].clone()
}

#[tokio::test]
async fn an_action_is_made_with_the_token_of_the_caller() {
    let world = World::new(every_state());
    for (path, action, body, spec) in [
        (PROMOTION, "approve", json!({}), json!({"approval": {"by": "admin", "revision": "6.2.0"}})),
        (PROMOTION, "reject", json!({"reason": "no"}), json!({"rejection": {"by": "admin", "reason": "no"}})),
        (PIPELINE, "suspend", json!({}), json!({"suspend": true})),
        (PIPELINE, "resume", json!({}), json!({"suspend": false})),
    ] {
        let mut body = body;
        body["seen"] = seen(&world, path).await;
        let (status, answer) = act(&world, "admin", &format!("{path}/{action}"), body).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{action}: {answer}");
        let (token, change) = world.changes().pop().unwrap();
        assert_eq!(token, "admin");
        for (name, value) in spec.as_object().unwrap() {
            let written = &change.spec[name];
            let is_part = |part: &serde_json::Map<String, Value>| part.iter().all(|(k, v)| &written[k] == v);
            assert!(value.as_object().map_or(written == value, is_part), "{action}: {}", change.spec);
        }
    }
    assert_eq!(world.changes().len(), 4);
}

#[tokio::test]
async fn the_log_names_who_has_acted_and_on_what() {
    let mut failed = every_state();
    let status = json!({"phase": "Failed", "reason": "NoMarker", "message": "no marker", "times": {}});
    let again = vec![promotion("apps", "podinfo", "6.2.0", status)];
    failed.promotions.insert(("apps".into(), "podinfo".into()), again);
    let log = CapturedLog::default();
    let _logged = tracing::subscriber::set_default(log.clone());
    let on_promotion = " promotion=\"podinfo-prod-1\"";
    for (path, action, world, on) in [
        (PROMOTION, "approve", every_state(), on_promotion),
        (PROMOTION, "reject", every_state(), on_promotion),
        (PROMOTION, "retry", failed, on_promotion),
        (PIPELINE, "suspend", every_state(), ""),
        (PIPELINE, "resume", every_state(), ""),
        (PIPELINE, "reconcile", every_state(), ""),
    ] {
        let world = World::new(world);
        let body = match action {
            "reconcile" => json!({}),
            "reject" => json!({"seen": seen(&world, path).await, "reason": "no"}),
            _ => json!({"seen": seen(&world, path).await}),
        };
        log.take();
        let (status, answer) = act(&world, "admin", &format!("{path}/{action}"), body.clone()).await;
        assert!(status.is_success(), "{action}: {answer}");
        world.answer(Err(ChangeError::Refused("the policy says no".into())));
        let (status, answer) = act(&world, "admin", &format!("{path}/{action}"), body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{action}: {answer}");
        let [acted, refused] = &log.take()[..] else { panic!("{action}: not two lines") };
        let who = format!("person=\"admin\" action=\"{action}\" pipeline=\"apps/podinfo\"{on} ");
        assert!(acted.starts_with(&format!("INFO message=a person has acted {who}")), "{acted}");
        assert!(
            refused.starts_with(&format!("INFO message=the action of a person failed {who}")),
            "{refused}"
        );
        assert!(refused.contains("the policy says no"), "{refused}");
    }
}

#[tokio::test]
async fn an_action_counts_only_for_what_the_caller_has_seen_and_may_do() {
    let world = World::new(every_state());
    let known = seen(&world, PROMOTION).await;
    for (token, action, body, expected) in [
        ("admin", "approve", json!({"seen": "another"}), StatusCode::CONFLICT),
        ("admin", "approve", json!({}), StatusCode::BAD_REQUEST),
        ("admin", "approve", json!({"seen": known, "force": true}), StatusCode::BAD_REQUEST),
        ("admin", "reject", json!({"seen": known}), StatusCode::BAD_REQUEST),
        ("admin", "reject", json!({"seen": known, "reason": "x".repeat(1001)}), StatusCode::BAD_REQUEST),
        ("admin", "retry", json!({"seen": known}), StatusCode::CONFLICT),
        ("viewer", "approve", json!({"seen": known}), StatusCode::FORBIDDEN),
        ("shop", "approve", json!({"seen": known}), StatusCode::NOT_FOUND),
        ("stolen", "approve", json!({"seen": known}), StatusCode::UNAUTHORIZED),
    ] {
        let (status, answer) = act(&world, token, &format!("{PROMOTION}/{action}"), body).await;
        assert_eq!(status, expected, "{token} {action}: {answer}");
    }
    assert!(world.changes().is_empty());
    // A gate that has closed since is another decision.
    let mut changed = every_state();
    let closed = json!({"phase": "Pending", "times": {}, "gates": [
        {"name": "Approval", "open": false, "message": "waits for approval"},
        {"name": "Window", "open": false, "message": "opens on Monday"}]});
    let promotion = promotion("apps", "podinfo", "6.2.0", closed);
    changed.promotions.insert(("apps".into(), "podinfo".into()), vec![promotion]);
    world.set(changed);
    let (status, _) = act(&world, "admin", &format!("{PROMOTION}/approve"), json!({"seen": known})).await;
    assert_eq!((status, world.changes().len()), (StatusCode::CONFLICT, 0));
}
