//! The layer in front of a stand-in. It sees what the adapter really sends and what the stand-in really answers.

use super::check::Call;
use super::description::ApiDescription;
use anyhow::Result;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Request, Response, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use std::sync::{Arc, Mutex, PoisonError};

/// A mark of an answer, as an extension: the test asked for this answer, so it may differ from the description.
#[derive(Clone, Copy, Debug)]
pub struct Injected;

/// Compares the calls of a stand-in with a description, and keeps the differences.
#[derive(Debug)]
pub struct CallChecker {
    description: ApiDescription,
    /// The addresses below which the described paths are.
    servers: &'static [&'static str],
    differences: Mutex<Vec<String>>,
}

impl CallChecker {
    /// Returns a checker for a table of facts. Paths of the description are below one of `servers`.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn new(facts: &str, servers: &'static [&'static str]) -> Result<Arc<CallChecker>> {
        let description = ApiDescription::parse(facts)?;
        Ok(Arc::new(CallChecker { description, servers, differences: Mutex::default() }))
    }

    /// Returns a router that checks each call of the API before and after `router` handles it.
    pub fn in_front_of(self: &Arc<Self>, router: Router) -> Router {
        router.layer(from_fn_with_state(Arc::clone(self), handle))
    }

    /// Returns the differences so far.
    pub fn differences(&self) -> Vec<String> {
        self.differences.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a difference that the stand-in found itself.
    pub fn add(&self, call: &str, difference: String) {
        self.keep(call, vec![difference]);
    }

    /// Keeps differences of a call, each once.
    fn keep(&self, call: &str, found: Vec<String>) {
        let mut kept = self.differences.lock().unwrap_or_else(PoisonError::into_inner);
        for sentence in found.into_iter().map(|difference| format!("{call}: {difference}")) {
            if !kept.contains(&sentence) {
                kept.push(sentence);
            }
        }
    }
}

async fn handle(
    State(checker): State<Arc<CallChecker>>,
    request: Request<Body>,
    next: Next,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if path.contains(".git/") {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    // The client may end in the middle of its request.
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let below = checker.servers.iter().find_map(|server| path.strip_prefix(server));
    let address = format!("http://forge{}", head.uri);
    let query = reqwest::Url::parse(&address).map(|url| url.query_pairs().into_owned().collect());
    let call = Call {
        method: &head.method,
        path: below.unwrap_or(&path).trim_matches('/').split('/').map(String::from).collect(),
        query: query.unwrap_or_default(),
        body: &body,
    };
    let name = format!("{} {path}", head.method);
    let operation = checker.description.operation(&call);
    match operation {
        Some(operation) => checker.keep(&name, checker.description.check_request(operation, &call)),
        None => checker.keep(&name, vec!["this call is not documented".into()]),
    }
    let answer = next.run(Request::from_parts(head.clone(), Body::from(body.clone()))).await;
    let Some(operation) = operation.filter(|_| answer.extensions().get::<Injected>().is_none()) else {
        return answer;
    };
    let (head, body) = answer.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    checker.keep(&name, checker.description.check_answer(operation, head.status.as_u16(), &body));
    Response::from_parts(head, Body::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Method;
    use std::convert::Infallible;

    const FACTS: &str = "
every operation
  404: {message!: string}
Pull
  number!: integer, title!: string, state: (open|closed), closed_at: string?
GET /pulls
  ? state: (open|closed), page!: integer
  200: [Pull]
POST /pulls
  body {title!: string, draft: boolean}
  201: Pull
";

    /// Returns the differences of a call and its answer.
    async fn differences(
        call: (Method, &str, &str),
        answer: (u16, &'static str),
        is_injected: bool,
    ) -> Vec<String> {
        let checker = CallChecker::new(FACTS, &["/api"]).unwrap();
        let stand_in = Router::new().fallback(move || async move {
            let mut reply = Response::builder().status(answer.0).body(Body::from(answer.1)).unwrap();
            if is_injected {
                reply.extensions_mut().insert(Injected);
            }
            Ok::<_, Infallible>(reply)
        });
        let checked = checker.in_front_of(stand_in);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{}", listener.local_addr().unwrap(), call.1);
        tokio::spawn(async move { axum::serve(listener, checked).await.unwrap() });
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        let reply = client.request(call.0, url).body(call.2.to_owned()).send().await.unwrap();
        assert_eq!((reply.status().as_u16(), reply.text().await.unwrap().as_str()), answer);
        checker.differences()
    }

    #[tokio::test]
    async fn a_request_that_differs_from_the_description_is_a_difference() {
        let pull = (201, r#"{"number": 1, "title": "a"}"#);
        let cases = [
            (Method::POST, "/api/pulls", r#"{"title": "a", "draft": true}"#, pull, vec![]),
            (
                Method::POST,
                "/api/pulls",
                r#"{"draft": 1}"#,
                pull,
                vec![
                    "POST /api/pulls: body.draft is 1, and is documented as true or false",
                    "POST /api/pulls: body.title is missing",
                ],
            ),
            (
                Method::POST,
                "/api/pulls",
                r#"{"title": "a", "label": "b"}"#,
                pull,
                vec!["POST /api/pulls: body.label is not documented"],
            ),
            (Method::GET, "/api/pulls?page=1&state=open", "", (200, "[]"), vec![]),
            (
                Method::GET,
                "/api/pulls?state=new&sort=asc",
                "",
                (200, "[]"),
                vec![
                    "GET /api/pulls: the parameter state is new, and is documented as one of open, closed",
                    "GET /api/pulls: the parameter sort is not documented",
                    "GET /api/pulls: the parameter page is missing",
                ],
            ),
            (
                Method::DELETE,
                "/api/pulls",
                "",
                (200, "[]"),
                vec!["DELETE /api/pulls: this call is not documented"],
            ),
        ];
        for (method, path, body, answer, expected) in cases {
            assert_eq!(differences((method, path, body), answer, false).await, expected, "{path} {body}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_differs_from_the_description_is_a_difference() {
        let cases = [
            (200, r#"[{"number": 1, "title": "a", "state": "open", "closed_at": null}]"#, vec![]),
            (404, r#"{"message": "no"}"#, vec![]),
            (403, "{}", vec!["the status 403 is not documented"]),
            (200, "<html>", vec!["answer is not JSON: expected value at line 1 column 1"]),
            (
                200,
                r#"[{"number": "1", "title": null, "state": "new", "id": 7}]"#,
                vec![
                    "answer[0].id is not documented",
                    "answer[0].number is \"1\", and is documented as an integer",
                    "answer[0].state is \"new\", and is documented as one of open, closed",
                    "answer[0].title is null, and is documented as a text",
                ],
            ),
            (200, r#"[{"number": 1}]"#, vec!["answer[0].title is missing"]),
        ];
        for (status, body, expected) in cases {
            let call = || (Method::GET, "/api/pulls?page=1", "");
            let expected: Vec<String> = expected.iter().map(|one| format!("GET /api/pulls: {one}")).collect();
            assert_eq!(differences(call(), (status, body), false).await, expected, "{status} {body}");
            assert!(
                differences(call(), (status, body), true).await.is_empty(),
                "a test asked for {status} {body}"
            );
        }
    }

    #[test]
    fn all_tables_can_be_read() {
        use super::super::{AZURE_DEVOPS, BITBUCKET, BITBUCKET_SERVER, GITHUB, GITLAB};
        for facts in [AZURE_DEVOPS, BITBUCKET, BITBUCKET_SERVER, GITHUB, GITLAB] {
            ApiDescription::parse(facts).unwrap();
        }
        assert!(ApiDescription::parse("GET /a\n  200: Missing\n").is_err());
        assert!(ApiDescription::parse("Pull\n  number\n").is_err());
    }
}
