//! One stand-in: its server, and what people do at its forge.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use axum::serve::ListenerExt;
use sluice_delivery::ForgeKind;
use sluice_testkit::api_description::{CallChecker, Injected};
use sluice_testkit::{GitServer, Repo, send_at_once};

use super::api_of_kind::forge_api;
use super::fault::{CallKind, ForgeFault};
use super::forge_state::ForgeState;
use super::merge_style::Style;
use super::pull::Pull;
use super::rejection::CallRejection;
use super::reply::{broken, dripping, reply};
use super::request::ForgeRequest;
use super::server::StandInServer;
use super::{described, git};

pub struct StandIn {
    pub kind: ForgeKind,
    pub repo: Repo,
    pub url: String,
    forge_state: Arc<Mutex<ForgeState>>,
    /// Compares the calls with the published description, if the forge has one.
    checker: Arc<CallChecker>,
    _git: GitServer,
}

impl StandIn {
    pub async fn start(kind: ForgeKind, files: &[(&str, &str)]) -> StandIn {
        let git = GitServer::start().unwrap();
        let repo = git.create_repo("fleet", files).unwrap();
        let forge_state = Arc::new(Mutex::new(ForgeState::default()));
        let api = forge_api(kind);
        let path = api.clone_path();
        let checker = described::call_checker(kind);
        let served = StandInServer {
            kind,
            api,
            repo: repo.clone(),
            git: git.url(),
            forge_state: forge_state.clone(),
            checker: checker.clone(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{path}.git", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(served);
        let router = checker.in_front_of(router);
        tokio::spawn(async move { axum::serve(listener.tap_io(send_at_once), router).await.unwrap() });
        StandIn { kind, repo, url, forge_state, checker, _git: git }
    }

    pub fn forge_state<T>(&self, look: impl FnOnce(&mut ForgeState) -> T) -> T {
        look(&mut self.forge_state.lock().unwrap())
    }

    /// Applies a fault to the next call of this kind.
    pub fn inject_fault(&self, call: CallKind, fault: ForgeFault) {
        self.forge_state(|b| b.faults.inject(call, fault));
    }

    pub fn pulls(&self) -> Vec<Pull> {
        self.forge_state(|b| b.pulls.clone())
    }

    pub fn calls(&self) -> Vec<String> {
        self.forge_state(|b| std::mem::take(&mut b.calls))
    }

    pub fn change(&self, number: u64, change: impl FnOnce(&mut Pull)) {
        self.forge_state(|b| {
            let pull = &mut b.pulls[number as usize - 1];
            change(pull);
            pull.version += 1;
        });
    }

    /// Merges the pull request as a person.
    pub fn merge(&self, number: u64, style: Style) {
        self.change(number, |pull| {
            pull.sha = self.repo.head(&pull.head).unwrap();
            pull.land(self.kind, &self.repo, style, None);
        });
    }

    pub fn close(&self, number: u64) {
        self.change(number, |pull| pull.open = false);
    }

    /// Another user opens a change request from a branch of the repository.
    pub fn open_by_hand(&self, head: &str, sha: &str) {
        self.forge_state(|b| {
            let (number, text) = (b.pulls.len() as u64 + 1, String::from);
            let (title, body) = (text("Promote apps/podinfo in prod to 6.1.7"), text("do not edit"));
            b.pulls.push(Pull::new(number, title, body, head.into(), text("main"), sha.into()));
        });
    }

    /// Another user opens a change request from a branch with this name in a fork.
    pub fn open_from_a_fork(&self, head: &str) {
        self.open_from_fork(head, false);
    }

    /// The same from a fork that belongs to the owner of the repository.
    pub fn open_from_a_fork_of_the_owner(&self, head: &str) {
        self.open_from_fork(head, true);
    }

    fn open_from_fork(&self, head: &str, same_owner: bool) {
        self.forge_state(|b| {
            let number = b.pulls.len() as u64 + 1;
            let text = String::from;
            b.pulls.push(Pull {
                fork: true,
                same_owner,
                ..Pull::new(number, text("Mine"), text("?"), head.into(), text("main"), "1".repeat(40))
            });
        });
    }
}

/// Fails the test if a call differs from the published description.
impl Drop for StandIn {
    fn drop(&mut self) {
        let differences = self.checker.differences();
        if !std::thread::panicking() {
            assert!(differences.is_empty(), "calls differ from the published description: {differences:#?}");
        }
    }
}

/// Returns the decoded form of a part of a path, or of a value in a query.
fn decoded(text: &str) -> String {
    let form = format!("={}", text.replace('+', "%2B"));
    url::form_urlencoded::parse(form.as_bytes()).next().map(|(_, v)| v.into_owned()).unwrap_or_default()
}

async fn answer(
    State(served): State<StandInServer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let api = served.api.clone();
    let beside = api
        .beside()
        .iter()
        .find_map(|(place, called)| uri.path().strip_prefix(place).map(|rest| format!("{called}{rest}")));
    let path = match uri.path().strip_prefix(api.base_path()) {
        _ if beside.is_some() => beside.as_deref().unwrap(),
        Some(path) if path.is_empty() || path.starts_with('/') => path,
        _ if uri.path().starts_with(api.clone_path()) => {
            return git::forward(&served, method, uri, headers, body).await;
        }
        _ => {
            let (status, value) = api.error_answer(CallRejection::NoPath);
            return reply(&served, status, &value, (uri.path(), &headers));
        }
    };
    let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let request = ForgeRequest {
        method: method.clone(),
        path: path.split('/').filter(|part| !part.is_empty()).map(decoded).collect(),
        query: query.map(|(k, v)| (k.into_owned(), v.into_owned())).collect(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        headers: headers.clone(),
    };
    let parsed = api.read(&request);
    let fault = {
        let mut forge_state = served.forge_state.lock().unwrap();
        forge_state.calls.push(format!("{method} {path}"));
        forge_state.faults.of_call(parsed.as_ref().ok().map(|call| call.kind()), &method)
    };
    if let ForgeFault::Answer(status, extra, text) = &fault {
        let mut answer = Response::builder().status(*status).extension(Injected);
        for (name, value) in extra {
            answer = answer.header(*name, value);
        }
        return answer.body(Body::from(*text)).unwrap();
    }
    match &fault {
        ForgeFault::Documented(status, text) => {
            return Response::builder().status(*status).body(Body::from(*text)).unwrap();
        }
        ForgeFault::Slow(pause, text) => {
            tokio::time::sleep(*pause).await;
            return Response::builder().extension(Injected).body(Body::from(*text)).unwrap();
        }
        ForgeFault::Drip => return Response::builder().extension(Injected).body(dripping()).unwrap(),
        _ => {}
    }
    if matches!(fault, ForgeFault::Hang) {
        std::future::pending::<()>().await;
    }
    let (name, expected) = api.login();
    let known = request.headers.get(name).is_some_and(|h| h == expected.as_str());
    let done =
        if known { parsed.and_then(|parsed| served.act(parsed)) } else { Err(CallRejection::Unauthorized) };
    if let Err(CallRejection::Query(errors)) = &done {
        served.checker.add("a GraphQL query", errors.to_string());
    }
    let (status, value) = done.unwrap_or_else(|rejection| api.request_error(&request, rejection));
    if matches!(fault, ForgeFault::Lose) {
        // A body that ends early closes the connection.
        let cut = Response::builder().header("content-length", "1000").extension(Injected);
        return cut.body(broken()).unwrap();
    }
    let value = api.select(&request, value);
    reply(&served, status, &value, (uri.path(), &headers))
}

#[tokio::test]
#[should_panic(expected = "the parameter colour is not documented")]
async fn a_call_that_differs_from_the_description_fails_the_test() {
    let stand_in = StandIn::start(ForgeKind::GitLab, &[("a.yaml", "a: 1\n")]).await;
    let url = stand_in.url.replace("/acme/team/fleet.git", "/api/v4/users?colour=red");
    git::plain_client().get(url).send().await.unwrap();
}
