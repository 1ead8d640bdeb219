//! A forge in memory over real git repositories, behind a [`FaultProxy`], with the API of GitHub Enterprise Server as
//! docs.github.com/rest/pulls documents it. It is strict, and fast enough for hundreds of change requests. It records
//! each violation of what Sluice promises: see [`ChaosForge::violations`].

use super::fault_proxy::FaultProxy;
use super::github::{self, ApiAnswer, ApiError, PullQuery, PullRequestFields};
use super::pulls::{ForgeRecords, PullError, PullRequest, PullState, RepoRecords};
use crate::api_description::{self, CallChecker};
use crate::{GitServer, Repo};
use anyhow::{Result, anyhow, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::any;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The owner of all repositories.
const OWNER: &str = "acme";

/// The forge. Git and the API have one address, that of the fault proxy.
pub struct ChaosForge {
    fault_proxy: FaultProxy,
    git: GitServer,
    records: Arc<Mutex<ForgeRecords>>,
    /// Compares the calls with GitHub's published description.
    checker: Arc<CallChecker>,
}

/// A repository at the forge.
#[derive(Clone, Debug)]
pub struct HostedRepo {
    /// The repository as its owner and Flux reach it, without the fault proxy.
    pub repo: Repo,
    /// The address through the fault proxy.
    pub url: String,
}

impl ChaosForge {
    /// The token for the API. Git takes [`GitServer::USER`] and its password.
    pub const TOKEN: &'static str = "t0ken";

    /// Starts a forge without repositories.
    ///
    /// # Errors
    /// No port is free, or no temporary folder can be made.
    pub fn start() -> Result<ChaosForge> {
        let git = GitServer::start()?;
        let records: Arc<Mutex<ForgeRecords>> = Arc::default();
        let git_router = git.router().layer(from_fn_with_state(Arc::clone(&records), check_after_push));
        let router = Router::new()
            .route("/api/v3/{*path}", any(answer))
            .route("/api/graphql", any(answer))
            .with_state(Arc::clone(&records))
            .fallback_service(git_router);
        let checker = CallChecker::new(api_description::GITHUB, &["/api/v3", "/api"])?;
        let fault_proxy = FaultProxy::in_front_of(checker.in_front_of(router))?;
        Ok(ChaosForge { fault_proxy, git, records, checker })
    }

    /// Creates a repository whose branch `main` holds one commit with these files.
    ///
    /// # Errors
    /// The repository exists, or git fails.
    pub fn create_repo(&self, name: &str, files: &[(&str, &str)]) -> Result<HostedRepo> {
        let full = format!("{OWNER}/{name}");
        let repo = self.git.create_repo(&full, files)?;
        lock(&self.records).add(repo.clone());
        Ok(HostedRepo { repo, url: format!("{}/{full}.git", self.fault_proxy.url()) })
    }

    /// Copies a repository with its change requests, as they are now.
    ///
    /// # Errors
    /// The new repository exists, or the copy fails.
    pub fn copy_repo(&self, original: &HostedRepo, name: &str) -> Result<HostedRepo> {
        let full = format!("{OWNER}/{name}");
        let repo = self.git.copy_repo(&original.repo, &full)?;
        lock(&self.records).copy(original.repo.name(), repo.clone());
        Ok(HostedRepo { repo, url: format!("{}/{full}.git", self.fault_proxy.url()) })
    }

    /// The proxy that records the calls and injects faults into them.
    pub fn fault_proxy(&self) -> &FaultProxy {
        &self.fault_proxy
    }

    /// Returns all change requests of a repository, oldest first.
    pub fn requests(&self, hosted: &HostedRepo) -> Vec<PullRequest> {
        lock(&self.records).repo(hosted.repo.name()).map(|repo| repo.requests.clone()).unwrap_or_default()
    }

    /// Returns the number of open change requests in all repositories.
    pub fn open_requests(&self) -> usize {
        lock(&self.records).repos.values_mut().map(RepoRecords::open_requests).sum()
    }

    /// A person reviews all open change requests of a repository, and merges those without a conflict at the
    /// reviewed head, every third one by squashing. Returns the number of merges.
    pub fn merge(&self, hosted: &HostedRepo) -> usize {
        self.merge_in(hosted.repo.name())
    }

    /// Does [`ChaosForge::merge`] in every repository.
    pub fn merge_all(&self) -> usize {
        let names: Vec<String> = lock(&self.records).repos.keys().cloned().collect();
        names.iter().map(|name| self.merge_in(name)).sum()
    }

    fn merge_in(&self, name: &str) -> usize {
        let reviewed =
            lock(&self.records).repo(name).map(|repo| (repo.review(), repo.leaves_merging_to_sluice));
        let Ok((open, false)) = reviewed else { return 0 };
        // The lock is free between the review and each merge, so that others can act in between.
        let merge = |request: &&PullRequest| {
            let squash = request.number.is_multiple_of(3);
            lock(&self.records).merge(name, request.number, Some(&request.sha), squash).is_ok()
        };
        open.iter().filter(merge).count()
    }

    /// A person reviews all open change requests of a repository.
    pub fn review(&self, hosted: &HostedRepo) {
        let _ = lock(&self.records).repo(hosted.repo.name()).map(RepoRecords::review);
    }

    /// From now on, people only review the change requests of a repository, and Sluice merges them.
    pub fn leave_merging_to_sluice(&self, hosted: &HostedRepo) {
        let _ = lock(&self.records).repo(hosted.repo.name()).map(|repo| repo.leaves_merging_to_sluice = true);
    }

    /// A person closes a change request without merging it.
    pub fn close(&self, hosted: &HostedRepo, number: u64) {
        if let Ok(repo) = lock(&self.records).repo(hosted.repo.name())
            && let Ok(request) = repo.request(number)
        {
            request.state = PullState::Closed;
        }
    }

    /// Returns the violations found so far: two open change requests from one branch, a merge of a head that nobody
    /// reviewed, a promotion delivered twice, a call that differs from GitHub's published description.
    pub fn violations(&self) -> Vec<String> {
        [lock(&self.records).violations.clone(), self.checker.differences()].concat()
    }

    /// Checks every repository.
    ///
    /// # Errors
    /// A violation was found, now or before.
    pub fn check_invariants(&self) -> Result<()> {
        {
            let mut records = lock(&self.records);
            let names: Vec<String> = records.repos.keys().cloned().collect();
            names.iter().for_each(|name| records.check_main(name));
        }
        let violations = self.violations();
        ensure!(violations.is_empty(), "violations: {violations:#?}");
        Ok(())
    }
}

fn lock(records: &Mutex<ForgeRecords>) -> MutexGuard<'_, ForgeRecords> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets git answer, and checks `main` after a push.
async fn check_after_push(
    State(records): State<Arc<Mutex<ForgeRecords>>>,
    request: Request<Body>,
    next: Next,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let answer = next.run(request).await;
    let Some(name) = path.strip_suffix(".git/git-receive-pack") else { return answer };
    let (head, body) = answer.into_parts();
    // A push is complete once its answer is complete.
    let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    lock(&records).check_main(name.trim_start_matches('/'));
    Response::from_parts(head, Body::from(whole))
}

async fn answer(
    State(records): State<Arc<Mutex<ForgeRecords>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let expected = format!("Bearer {}", ChaosForge::TOKEN);
    let (status, value) = if headers.get(header::AUTHORIZATION).is_none_or(|h| h != expected.as_str()) {
        github::error_answer(ApiError::BadCredentials)
    } else {
        let request = ApiRequest::parse(&method, &uri, &body);
        // On another thread, because git blocks.
        let work = move || request.and_then(|request| request.apply(&mut lock(&records)));
        match tokio::task::spawn_blocking(work).await {
            Ok(outcome) => outcome.unwrap_or_else(error_answer),
            Err(panic) => (500, json!({"message": panic.to_string()})),
        }
    };
    response(status, &value, &headers)
}

/// A call of the API.
struct ApiRequest {
    method: String,
    repository: String,
    path: Vec<String>,
    query: HashMap<String, String>,
    body: Value,
}

impl ApiRequest {
    fn parse(method: &Method, uri: &Uri, body: &[u8]) -> Result<ApiRequest, PullError> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if uri.path().ends_with("/graphql") {
            let variable = |key: &str| body["variables"][key].as_str().unwrap_or_default();
            let repository = format!("{}/{}", variable("owner"), variable("name"));
            let (method, path) = (method.as_str().to_owned(), vec!["graphql".to_owned()]);
            return Ok(ApiRequest { method, repository, path, query: HashMap::new(), body });
        }
        let mut path = uri.path().trim_start_matches("/api/v3/repos/").split('/').map(percent_decoded);
        let (Some(owner), Some(name)) = (path.next(), path.next()) else { return Err(PullError::NotFound) };
        let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        Ok(ApiRequest {
            method: method.as_str().to_owned(),
            repository: format!("{owner}/{name}"),
            path: path.filter(|part| !part.is_empty()).collect(),
            query: pairs.map(|(key, value)| (percent_decoded(key), percent_decoded(value))).collect(),
            body,
        })
    }

    /// Returns a field of the body that is text.
    fn text(&self, key: &str) -> Option<String> {
        self.body[key].as_str().map(str::to_owned)
    }

    fn apply(&self, records: &mut ForgeRecords) -> Result<ApiAnswer, PullError> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let number = |text: &str| text.parse().map_err(|_| PullError::NotFound);
        let repo = records.repo(&self.repository)?;
        match (self.method.as_str(), path.as_slice()) {
            ("GET", []) => Ok((200, json!({"id": 1, "name": self.repository}))),
            ("GET", ["pulls"]) => Ok((200, self.list(repo))),
            ("GET", ["pulls", n]) => {
                let request = repo.request(number(n)?)?.clone();
                let mergeable = request.state == PullState::Open && repo.merge_tree(&request).is_ok();
                let mut value = pull_request(&self.repository, &request);
                value["mergeable"] = mergeable.into();
                Ok((200, value))
            }
            ("POST", ["pulls"]) => self.open(records),
            ("PATCH", ["pulls", n]) => {
                let request = repo.request(number(n)?)?;
                request.title = self.text("title").unwrap_or_else(|| request.title.clone());
                request.body = self.text("body").unwrap_or_else(|| request.body.clone());
                request.base = self.text("base").unwrap_or_else(|| request.base.clone());
                if self.text("state").as_deref() == Some("closed") && request.state == PullState::Open {
                    request.state = PullState::Closed;
                }
                Ok((200, pull_request(&self.repository, request)))
            }
            ("POST", ["graphql"]) => {
                let number = self.body["variables"]["number"].as_u64().ok_or(PullError::NotFound)?;
                let request = repo.request(number)?.clone();
                let repository =
                    json!({"viewerDefaultMergeMethod": "MERGE", "pullRequest": repo.readiness(&request)});
                Ok((200, json!({"data": {"repository": repository}})))
            }
            ("PUT", ["pulls", n, "merge"]) => {
                let squash = self.text("merge_method").as_deref() == Some("squash");
                let expected_head = self.text("sha");
                let sha = records.merge(&self.repository, number(n)?, expected_head.as_deref(), squash)?;
                Ok((200, json!({"sha": sha, "merged": true, "message": "Pull Request successfully merged"})))
            }
            ("POST", ["issues", n, "comments"]) => {
                let text = self.text("body").ok_or(PullError::NoBranch)?;
                repo.request(number(n)?)?.comments.push(text);
                Ok((201, json!({"id": 1})))
            }
            ("GET", ["git", "commits", id]) => {
                let (message, parents) = repo.commit(id).map_err(|_| PullError::NotFound)?;
                Ok((200, github::commit(id, &message, &parents)))
            }
            _ => Err(PullError::NotFound),
        }
    }

    fn list(&self, repo: &RepoRecords) -> Value {
        let query = PullQuery::read(OWNER, |name| self.query.get(name).map(String::as_str));
        let matches = |r: &&PullRequest| {
            (query.all || r.state == PullState::Open)
                && query.head.as_ref().is_none_or(|head| *head == r.head)
        };
        let newest_first = repo.requests.iter().rev().filter(matches);
        let page = newest_first.skip(query.from).take(query.size);
        let entry = |request: &PullRequest| {
            let mut value = pull_request(&self.repository, request);
            github::simplify(&mut value);
            value
        };
        page.map(entry).collect()
    }

    fn open(&self, records: &mut ForgeRecords) -> Result<ApiAnswer, PullError> {
        let required = |key: &str| self.text(key).ok_or(PullError::NoBranch);
        let draft = PullRequest {
            number: 0,
            title: required("title")?,
            body: self.text("body").unwrap_or_default(),
            head: required("head")?,
            base: required("base")?,
            sha: String::new(),
            state: PullState::Open,
            comments: Vec::new(),
            created: jiff::Timestamp::now(),
        };
        records.open(&self.repository, draft).map(|request| (201, pull_request(&self.repository, &request)))
    }
}

/// Decodes a part of a path or query.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'%').then(|| std::str::from_utf8(after.get(..2)?).ok()).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => (bytes.push(byte), rest = &after[2..]).0,
            None => (bytes.push(if *first == b'+' { b' ' } else { *first }), rest = after).0,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn pull_request(repository: &str, request: &PullRequest) -> Value {
    let merged = match &request.state {
        PullState::Merged(commit) => Some(commit.as_str()),
        PullState::Open | PullState::Closed => None,
    };
    github::pull_request(&PullRequestFields {
        number: request.number,
        title: &request.title,
        body: &request.body,
        page: format!("http://forge.example/{repository}/pull/{}", request.number),
        head: (&request.head, format!("{OWNER}:{}", request.head), &request.sha),
        base: (&request.base, format!("{OWNER}:{}", request.base)),
        is_open: request.state == PullState::Open,
        merged,
        created: request.created,
    })
}

fn error_answer(error: PullError) -> ApiAnswer {
    github::error_answer(match error {
        PullError::NotFound => ApiError::NotFound,
        PullError::NoBranch => ApiError::NoBranch,
        PullError::Exists => ApiError::Exists(OWNER),
        PullError::NotOpen | PullError::Conflicts => ApiError::NotMergeable,
        PullError::HeadMoved => ApiError::HeadMoved,
    })
}

fn response(status: u16, value: &Value, request_headers: &HeaderMap) -> Response<Body> {
    let text = value.to_string();
    let hash = text.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
    let etag = format!("\"{hash:x}\"");
    let is_unchanged =
        status == 200 && request_headers.get(header::IF_NONE_MATCH).is_some_and(|h| h == etag.as_str());
    let answer = Response::builder().header(header::ETAG, etag);
    let answer = match is_unchanged {
        true => answer.status(StatusCode::NOT_MODIFIED).body(Body::empty()),
        false => answer.status(status).body(Body::from(text)),
    };
    answer.unwrap_or_else(|error| Response::new(Body::from(anyhow!(error).to_string())))
}
