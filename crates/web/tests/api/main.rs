//! The API, asked by callers with different rights about a small fleet.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say it by failing")]

mod changes;
mod commands;
mod described;
mod fleet;
mod pipelines;
mod slow_reader;
#[path = "../support/starts.rs"]
mod starts;
mod triggers;
mod unsent;
#[allow(dead_code, reason = "the tests of the pages use the rest")]
#[path = "../support/world.rs"]
mod world;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use sluice_web::{Api, router};
use tower::ServiceExt;

use crate::fleet::{FORBIDDEN, Rights, flood, index};

/// Asks as the user with this token.
async fn ask_with(token: &str, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, Value) {
    let index = index();
    let mut request = Request::get(path).header("authorization", format!("Bearer {token}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = router(Api::new(index.fleet(), Rights::default(), false))
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
    (parts.status, parts.headers, body)
}

async fn ask(token: &str, path: &str) -> (StatusCode, Value) {
    let (status, _, body) = ask_with(token, path, &[]).await;
    (status, body)
}

/// Returns the rows of an answer, as `name version cluster namespace/object`.
async fn rows(token: &str, path: &str) -> Vec<String> {
    let (status, body) = ask(token, path).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let row = |row: &Value| {
        let mark = if row["outlier"] == true { " outlier" } else { "" };
        let place = format!("{}/{}", text(&row["namespace"]), text(&row["object"]));
        format!("{} {} [{}] {place}{mark}", text(&row["name"]), text(&row["version"]), text(&row["cluster"]))
    };
    body["items"].as_array().unwrap().iter().map(row).collect()
}

#[tokio::test]
async fn each_caller_sees_the_clusters_and_the_namespaces_of_the_hub_that_rbac_allows() {
    insta::assert_snapshot!(rows("admin", "/api/v1/charts").await.join("\n"), @"
    podinfo 6.7.1 [fleet/asia-pacific] apps/HelmRelease/podinfo
    podinfo 6.7.1 [fleet/eu] apps/HelmRelease/podinfo
    podinfo 6.6.0 [fleet/us] apps/HelmRelease/podinfo outlier
    shop 1.0.0 [] shop/HelmRelease/shop
    ");
    insta::assert_snapshot!(rows("eu-team", "/api/v1/charts").await.join("\n"), @"
    podinfo 6.7.1 [fleet/eu] apps/HelmRelease/podinfo
    ");
    insta::assert_snapshot!(rows("shop-team", "/api/v1/charts").await.join("\n"), @"
    shop 1.0.0 [] shop/HelmRelease/shop
    ");
    assert!(rows("nobody", "/api/v1/charts").await.is_empty());
    assert!(rows("nobody", "/api/v1/images").await.is_empty());
}

#[tokio::test]
async fn an_outlier_is_marked_only_among_what_the_caller_sees() {
    let admin = rows("admin", "/api/v1/charts?outliers=true").await;
    assert!(admin.iter().any(|row| row.contains("[fleet/us]")), "{admin:?}");
    assert!(rows("us-team", "/api/v1/charts?outliers=true").await.is_empty());
}

#[tokio::test]
async fn without_a_token_that_the_hub_accepts_nothing_is_answered() {
    for path in ["/api/v1/clusters", "/api/v1/charts", "/api/v1/images", "/api/v1/trace?kind=Deployment"] {
        for token in ["", "stolen"] {
            let (status, headers, body) = ask_with(token, path, &[]).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{path} {body}");
            assert_eq!(headers["www-authenticate"], "Bearer");
            assert_eq!(headers["content-type"], "application/problem+json");
        }
    }
    let (status, body) = ask("down", "/api/v1/charts").await;
    assert_eq!(
        (status, body["detail"].as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, Some("cannot ask the API server who may do what: no answer"))
    );
}

#[tokio::test]
async fn a_lost_cluster_is_named_and_delays_no_other() {
    let (_, body) = ask("admin", "/api/v1/charts").await;
    assert_eq!(
        body["unread"],
        serde_json::json!([{"cluster": "fleet/asia", "why": "it refuses the connection: start it"}])
    );
    let (_, body) = ask("eu-team", "/api/v1/charts").await;
    assert_eq!(body["unread"], Value::Null, "a cluster that the caller may not see is not named");
    let (_, body) = ask("admin", "/api/v1/clusters").await;
    insta::assert_snapshot!(serde_json::to_string_pretty(&body).unwrap(), @r#"
    {
      "items": [
        {
          "message": "it refuses the connection: start it",
          "name": "fleet/asia",
          "objects": 0,
          "state": "Lost"
        },
        {
          "name": "fleet/asia-pacific",
          "objects": 3,
          "state": "Up"
        },
        {
          "message": "the cluster forbids listing cronjobs: apply deploy/reader there",
          "name": "fleet/eu",
          "objects": 3,
          "state": "Partial"
        },
        {
          "name": "fleet/us",
          "objects": 3,
          "state": "Up"
        }
      ]
    }
    "#);
    let (_, body) = ask("eu-team", "/api/v1/clusters").await;
    assert_eq!(body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repetition() {
    let whole = rows("admin", "/api/v1/images").await;
    let (mut paged, mut next) = (Vec::new(), String::new());
    loop {
        let escaped: String = next.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/images?limit=1&continue={escaped}");
        let (_, body) = ask("admin", &path).await;
        paged.extend(rows("admin", &path).await);
        match body["continue"].as_str() {
            Some(more) => next = more.into(),
            None => break,
        }
    }
    assert_eq!(paged, whole);
    // A hostile cluster may name images with any character, and a workload may have two tags of one image.
    assert!(whole.iter().any(|row| row.contains('\u{1}')) && whole.len() > 8, "{whole:?}");
}

#[tokio::test]
async fn rows_are_chosen_by_the_parameters() {
    for (query, count) in [
        ("name=podinfo", 3),
        ("cluster=hub", 1),
        ("cluster=fleet/us", 1),
        ("namespace=apps", 3),
        ("version=6.6.0", 1),
    ] {
        assert_eq!(rows("admin", &format!("/api/v1/charts?{query}")).await.len(), count, "{query}");
    }
}

#[tokio::test]
async fn a_wrong_parameter_is_named_with_what_to_write() {
    for (path, part) in [
        ("/api/v1/charts?limit=many", "limit"),
        ("/api/v1/charts?nmae=podinfo", "nmae"),
        ("/api/v1/charts?continue=podinfo", "leave it out to begin again"),
        ("/api/v1/trace?kind=Pod&namespace=a&name=b", "write one of"),
        ("/api/v1/trace?kind=Deployment", "write namespace=… and name=…"),
        ("/api/v1/trace?kind=Deployment&namespace=a&name=b&cluster=us", "<namespace>/<name>"),
    ] {
        let (status, body) = ask("admin", path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert!(body["detail"].as_str().unwrap().contains(part), "{path}: {body}");
    }
    let (status, body) = ask("admin", "/api/v1/charts?cluster=us").await;
    assert!(
        status == StatusCode::BAD_REQUEST && body["detail"].as_str().unwrap().contains("<namespace>/<name>")
    );
    let (status, body) = ask("admin", "/api/v2/charts").await;
    assert_eq!((status, body["title"].as_str()), (StatusCode::NOT_FOUND, Some("Not Found")));
}

#[tokio::test]
async fn an_answer_that_the_caller_has_is_not_sent_again() {
    let (_, headers, _) = ask_with("admin", "/api/v1/charts", &[]).await;
    let tag = headers["etag"].to_str().unwrap();
    assert_eq!(headers["cache-control"], "private, no-cache");
    let (status, _, body) = ask_with("admin", "/api/v1/charts", &[("if-none-match", tag)]).await;
    assert_eq!((status, body), (StatusCode::NOT_MODIFIED, Value::Null));
    let weak = format!("\"other\", W/{tag}");
    let (status, ..) = ask_with("admin", "/api/v1/charts", &[("if-none-match", &weak)]).await;
    assert_eq!(status, StatusCode::NOT_MODIFIED, "as a proxy that compresses sends it");
    let (status, ..) = ask_with("eu-team", "/api/v1/charts", &[("if-none-match", tag)]).await;
    assert_eq!(status, StatusCode::OK, "another caller has other rows");
}

#[tokio::test]
async fn a_trace_on_the_hub_shows_only_what_the_caller_may_get() {
    let path = "/api/v1/trace?kind=deployment&namespace=shop&name=shop";
    let (status, body) = ask("admin", path).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let objects = |body: &Value| -> Vec<String> {
        body["links"].as_array().unwrap().iter().map(|link| link["object"].as_str().unwrap().into()).collect()
    };
    assert_eq!(objects(&body), ["Deployment/shop", "HelmRelease/shop", "HelmRepository/charts"]);
    let (_, body) = ask("shop-team", path).await;
    // The name is in the HelmRelease, which the caller may get. The rest is not told.
    assert_eq!(body["links"][2]["missing"], "you may not get helmrepositories in namespace flux-system");
    assert_eq!(body["links"][2]["address"], Value::Null);
    // Who may not get an object is not told whether it exists.
    let (absent, absent_body) =
        ask("eu-team", "/api/v1/trace?kind=Deployment&namespace=shop&name=absent").await;
    let (hidden, hidden_body) = ask("eu-team", path).await;
    assert_eq!((absent, hidden), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
    let detail = |body: &Value| body["detail"].as_str().unwrap().replace("absent", "shop");
    assert_eq!(detail(&absent_body), detail(&hidden_body));
}

#[tokio::test]
async fn a_trace_on_another_cluster_needs_its_gitopscluster() {
    let path = "/api/v1/trace?cluster=fleet/us&kind=HelmRelease&namespace=apps&name=podinfo";
    assert_eq!(ask("us-team", path).await.0, StatusCode::OK);
    assert_eq!(ask("eu-team", path).await.0, StatusCode::NOT_FOUND);
    let lost = "/api/v1/trace?cluster=fleet/asia&kind=HelmRelease&namespace=apps&name=podinfo";
    let (status, body) = ask("admin", lost).await;
    assert_eq!(
        (status, body["detail"].as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, Some("it refuses the connection: start it"))
    );
}

#[tokio::test]
async fn a_trace_of_what_cannot_be_read_says_why() {
    let ask = async |kind: &str, name: &str| {
        let path = format!("/api/v1/trace?cluster=fleet/eu&kind={kind}&namespace=apps&name={name}");
        let (status, body) = ask("admin", &path).await;
        (status.as_u16(), body["detail"].as_str().unwrap_or_default().to_string())
    };
    let (status, detail) = ask("CronJob", "nightly").await;
    assert_eq!((status, detail.as_str()), (503, FORBIDDEN));
    assert_eq!(ask("HelmRelease", "absent").await.0, 404);
}

#[tokio::test]
async fn kinds_that_the_caller_may_not_see_are_named_by_cluster() {
    let (_, body) = ask("eu-team", "/api/v1/images").await;
    assert_eq!(body["unread"], serde_json::json!([{"cluster": "fleet/eu", "why": FORBIDDEN}]));
    // Of the hub nothing is named to those who may not see anything there.
    let (_, body) = ask("nobody", "/api/v1/images").await;
    assert_eq!(body["unread"], Value::Null);
}

#[tokio::test]
async fn only_names_that_objects_can_have_are_asked_about() {
    for query in ["namespace=apps&name=Pod%20info", "namespace=a%2Fb&name=podinfo", "namespace=apps&name="] {
        let (status, body) = ask("admin", &format!("/api/v1/trace?kind=Deployment&{query}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    }
    let rights = Rights::default();
    let index = index();
    let asked = |path: String| {
        let request =
            Request::get(path).header("authorization", "Bearer nobody").body(Body::empty()).unwrap();
        router(Api::new(index.fleet(), rights.clone(), false)).oneshot(request)
    };
    for number in 0..20 {
        let path = format!("/api/v1/trace?cluster=fleet/no-{number}&kind=Deployment&namespace=a&name=b");
        assert_eq!(asked(path).await.unwrap().status(), StatusCode::NOT_FOUND);
    }
    assert_eq!(rights.questions(), 0, "a caller fills the memory of rights");
}

#[tokio::test]
async fn a_namespace_with_too_many_images_is_cut_and_the_others_are_shown() {
    let mut index = index();
    flood(&mut index, "eu", 50_000);
    let api = router(Api::new(index.fleet(), Rights::default(), false));
    let get = async |path: &str| {
        let request = Request::get(path).header("authorization", "Bearer admin").body(Body::empty()).unwrap();
        let answer = api.clone().oneshot(request).await.unwrap();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let body = get("/api/v1/images?cluster=fleet/us").await;
    assert_eq!(body["items"].as_array().unwrap().len(), 6, "{body}");
    let cut = serde_json::json!({
        "cluster": "fleet/eu", "why": "it has too many rows: 50001, of which 20000 are shown"
    });
    assert!(body["unread"].as_array().unwrap().contains(&cut), "{}", body["unread"]);
    let body = get("/api/v1/images?cluster=fleet/eu&namespace=tenant").await;
    assert_eq!(body["items"][0]["name"], "tenant", "{body}");
}

#[tokio::test]
async fn every_error_is_a_problem_with_what_to_do() {
    for (method, path, expected) in [
        ("GET", "/api/v1/pipelines/apps/%ff", StatusCode::BAD_REQUEST),
        ("POST", "/api/v1/charts", StatusCode::METHOD_NOT_ALLOWED),
        ("DELETE", "/api/v1/pipelines/apps/podinfo", StatusCode::METHOD_NOT_ALLOWED),
        ("GET", "/api/v1/nothing", StatusCode::NOT_FOUND),
    ] {
        // The name of the scheme may be in any case.
        let request = Request::builder().method(method).uri(path).header("authorization", "bearer admin");
        let api = Api::new(index().fleet(), Rights::default(), false);
        let answer = router(api).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        assert_eq!(parts.status, expected, "{method} {path}");
        assert_eq!(parts.headers["content-type"], "application/problem+json", "{method} {path}");
        assert_eq!(
            parts.headers.contains_key("allow"),
            expected == StatusCode::METHOD_NOT_ALLOWED,
            "{method} {path}"
        );
        let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
        assert!(body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{method} {path}: {body}");
    }
}
