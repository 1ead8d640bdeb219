//! Callers that ask for large answers and do not read them.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use sluice_core::fleet::index::Fleet;
use sluice_web::{Api, SignInOptions, router};
use tower::ServiceExt;

use crate::world::{World, environment, pipeline, snapshot};

const LIST: &str = "/api/v1/pipelines?limit=5000";
const PAGE: &str = "/";

/// Many pipelines.
fn many() -> Router {
    let statuses = || ["dev", "staging", "prod"].map(|_| environment("6.2.0", "Failed", &"x".repeat(200)));
    let pipelines = (0..3000).map(|number| pipeline("apps", &format!("app-{number}"), statuses())).collect();
    let page_url = "https://sluice.example.com".parse().ok();
    let options = SignInOptions { page_url, trust_proxy_token: true, ..SignInOptions::default() };
    router(Api::new(Fleet::default(), World::new(snapshot(pipelines, vec![])), true).with_sign_in(options))
}

async fn ask(api: &Router, token: &str, path: &str) -> Response {
    let request = Request::get(path).header("authorization", format!("Bearer {token}"));
    // Pages are compressed, the API is not.
    let request = if path == PAGE { request.header("accept-encoding", "gzip") } else { request };
    api.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_caller_that_does_not_read_its_answers_gets_no_more_of_them_and_keeps_none_from_others() {
    let api = many();
    let mut unread = Vec::new();
    // Pages fill what lists leave.
    for (path, most) in [(LIST, 17), (PAGE, 150)] {
        let refused = loop {
            let answer = ask(&api, "admin", path).await;
            if answer.status() != StatusCode::OK || unread.len() > most {
                break answer;
            }
            unread.push(answer);
        };
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{path}: {} answers", unread.len());
        if path == LIST {
            let problem = refused.into_body().collect().await.unwrap().to_bytes();
            let problem = String::from_utf8_lossy(&problem);
            assert!(problem.contains("read your other answers to their end"), "{path}: {problem}");
        }
    }
    assert!(unread.len() > 1, "one large answer is always sent");
    assert_eq!(ask(&api, "viewer", LIST).await.status(), StatusCode::OK);
    drop(unread);
    assert_eq!(ask(&api, "admin", PAGE).await.status(), StatusCode::OK);
}
