//! A forge that speaks as GitHub or Gitea does, in front of a real git server, and fails on demand.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use serde_json::{Value, json};
use sluice_delivery::ForgeKind;
use sluice_testkit::{GitServer, Repo};

/// What is done to a call in place of answering it.
#[derive(Clone)]
pub enum Trouble {
    /// Answer with this, and do nothing.
    Answer(u16, Vec<(&'static str, String)>, &'static str),
    /// Do it, and drop the connection.
    Lose,
    /// Never answer.
    Hang,
    /// Let it pass.
    None,
}

#[derive(Clone, Debug)]
pub struct Pull {
    pub number: u64,
    pub title: String,
    pub body: String,
    pub head: String,
    pub base: String,
    pub sha: String,
    pub open: bool,
    pub merged: Option<String>,
    pub comments: Vec<String>,
}

#[derive(Default)]
pub struct Book {
    pub pulls: Vec<Pull>,
    pub calls: Vec<String>,
    pub trouble: VecDeque<(Method, Trouble)>,
}

pub struct StandIn {
    pub kind: ForgeKind,
    pub repo: Repo,
    pub url: String,
    book: Arc<Mutex<Book>>,
    _git: GitServer,
}

#[derive(Clone)]
struct Served {
    kind: ForgeKind,
    repo: Repo,
    git: String,
    book: Arc<Mutex<Book>>,
}

pub const TOKEN: &str = "t0ken";

impl StandIn {
    pub async fn start(kind: ForgeKind, files: &[(&str, &str)]) -> StandIn {
        let git = GitServer::start().unwrap();
        let repo = git.create_repo("fleet", files).unwrap();
        let book = Arc::new(Mutex::new(Book::default()));
        let served = Served { kind, repo: repo.clone(), git: git.url(), book: book.clone() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/acme/fleet.git", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(served);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        StandIn { kind, repo, url, book, _git: git }
    }

    pub fn book<T>(&self, look: impl FnOnce(&mut Book) -> T) -> T {
        look(&mut self.book.lock().unwrap())
    }

    /// What befalls the next call of this method.
    pub fn trouble(&self, method: Method, trouble: Trouble) {
        self.book(|b| b.trouble.push_back((method, trouble)));
    }

    pub fn pulls(&self) -> Vec<Pull> {
        self.book(|b| b.pulls.clone())
    }

    pub fn calls(&self) -> Vec<String> {
        self.book(|b| std::mem::take(&mut b.calls))
    }

    pub fn merge(&self, number: u64) {
        let head = self.book(|b| b.pulls[number as usize - 1].head.clone());
        let commit = self.repo.merge(&head, "main").unwrap();
        self.book(|b| {
            let pull = &mut b.pulls[number as usize - 1];
            (pull.open, pull.merged) = (false, Some(commit));
        });
    }

    pub fn close(&self, number: u64) {
        self.book(|b| b.pulls[number as usize - 1].open = false);
    }
}

async fn answer(
    State(served): State<Served>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let prefix = match served.kind {
        ForgeKind::GitHub => "/api/v3/repos/acme/fleet",
        _ => "/api/v1/repos/acme/fleet",
    };
    let Some(path) = uri.path().strip_prefix(prefix) else {
        return pass_on(&served, method, uri, headers, body).await;
    };
    served.book.lock().unwrap().calls.push(format!("{method} {path}"));
    let trouble = {
        let mut book = served.book.lock().unwrap();
        let due = book.trouble.front().is_some_and(|(m, _)| *m == method);
        if due { book.trouble.pop_front().unwrap().1 } else { Trouble::None }
    };
    if let Trouble::Answer(status, extra, text) = &trouble {
        let mut answer = Response::builder().status(*status);
        for (name, value) in extra {
            answer = answer.header(*name, value);
        }
        return answer.body(Body::from(*text)).unwrap();
    }
    if matches!(trouble, Trouble::Hang) {
        std::future::pending::<()>().await;
    }
    let expected =
        if served.kind == ForgeKind::GitHub { format!("Bearer {TOKEN}") } else { format!("token {TOKEN}") };
    if headers.get("authorization").is_none_or(|h| h != expected.as_str()) {
        return reply(401, &json!({"message": "Bad credentials"}), &headers);
    }
    let (status, value) = served.act(&method, path, uri.query().unwrap_or_default(), &body);
    if matches!(trouble, Trouble::Lose) {
        // A body that breaks off takes the connection with it.
        return Response::builder().status(200).header("content-length", "1000").body(broken()).unwrap();
    }
    reply(status, &value, &headers)
}

/// A body that ends before it should.
fn broken() -> Body {
    Body::from_stream(futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]))
}

fn reply(status: u16, value: &Value, asked: &HeaderMap) -> Response<Body> {
    let text = value.to_string();
    let etag = format!("\"{:x}\"", text.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into())));
    let same = asked.get("if-none-match").is_some_and(|h| h == etag.as_str());
    let status = if same { 304 } else { status };
    let body = if same { Body::empty() } else { Body::from(text) };
    Response::builder()
        .status(status)
        .header("etag", etag)
        .header("x-ratelimit-remaining", "4999")
        .body(body)
        .unwrap()
}

async fn pass_on(
    served: &Served,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let path = uri.path_and_query().unwrap().as_str().replacen("/acme", "", 1);
    let client = reqwest_client();
    let mut request = client.request(method, format!("{}{path}", served.git)).body(body);
    for (name, value) in &headers {
        if name != "host" && name != "content-length" && name != "transfer-encoding" {
            request = request.header(name, value);
        }
    }
    let answer = request.send().await.unwrap();
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        if name != "transfer-encoding" && name != "content-length" {
            response = response.header(name, value);
        }
    }
    response.body(Body::from(answer.bytes().await.unwrap())).unwrap()
}

fn reqwest_client() -> reqwest::Client {
    static ONCE: std::sync::OnceLock<()> = std::sync::OnceLock::new();
    ONCE.get_or_init(|| drop(rustls::crypto::ring::default_provider().install_default()));
    reqwest::Client::new()
}

impl Served {
    fn act(&self, method: &Method, path: &str, query: &str, body: &[u8]) -> (u16, Value) {
        let input: Value = serde_json::from_slice(body).unwrap_or_default();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let github = self.kind == ForgeKind::GitHub;
        let mut book = self.book.lock().unwrap();
        for pull in book.pulls.iter_mut().filter(|p| p.open) {
            pull.sha = self.repo.head(&pull.head).unwrap_or_else(|_| pull.sha.clone());
        }
        let missing = (404, json!({"message": "Not Found"}));
        match (method.as_str(), parts.as_slice()) {
            ("GET", [""]) => (200, json!({"name": "fleet"})),
            ("GET", ["pulls"]) => {
                let all = query.contains("state=all");
                let pages = query.contains("page=1&") || query.ends_with("page=1") || github;
                let wanted = |p: &&Pull| {
                    let head = format!("acme%3A{}", p.head.replace('/', "%2F").replace('@', "%40"));
                    pages && (all || p.open) && (!github || query.contains(&format!("head={head}&")))
                };
                let list: Vec<Value> = book.pulls.iter().rev().filter(wanted).map(|p| self.show(p)).collect();
                (200, Value::Array(list))
            }
            ("POST", ["pulls"]) => self.create(&mut book, &input),
            ("GET", ["pulls", base, head]) if !github => {
                let head = head.replace("%2F", "/").replace("%40", "@");
                let found = book.pulls.iter().find(|p| p.head == head && p.base == *base);
                found.map_or(missing, |p| (200, self.show(p)))
            }
            (_, ["pulls", number]) => {
                let number: usize = number.parse().unwrap();
                let Some(pull) = book.pulls.get_mut(number - 1) else { return missing };
                if method == Method::PATCH {
                    for (key, field) in
                        [("title", &mut pull.title), ("body", &mut pull.body), ("base", &mut pull.base)]
                    {
                        if let Some(text) = input[key].as_str() {
                            *field = text.into();
                        }
                    }
                    if let Some(state) = input["state"].as_str() {
                        pull.open = state == "open";
                    }
                }
                (200, self.show(pull))
            }
            ("POST", ["issues", number, "comments"]) => {
                let number: usize = number.parse().unwrap();
                book.pulls[number - 1].comments.push(input["body"].as_str().unwrap().into());
                (201, json!({}))
            }
            ("GET", ["git", "commits", id]) => {
                let commit = self.repo.log("main").unwrap_or_default();
                let heads = book.pulls.iter().flat_map(|p| self.repo.log(&p.head).unwrap_or_default());
                let found = commit.into_iter().chain(heads).find(|c| c.sha == *id);
                let Some(found) = found else { return missing };
                let message = format!("{}\n\n{}", found.subject, found.body);
                let parents: Vec<Value> = found.parents.iter().map(|p| json!({"sha": p})).collect();
                (
                    200,
                    if github {
                        json!({"message": message, "parents": parents})
                    } else {
                        json!({"commit": {"message": message}, "parents": parents})
                    },
                )
            }
            _ => missing,
        }
    }

    fn create(&self, book: &mut Book, input: &Value) -> (u16, Value) {
        let text = |key: &str| input[key].as_str().unwrap().to_string();
        let (head, base) = (text("head"), text("base"));
        if book.pulls.iter().any(|p| p.open && p.head == head && p.base == base) {
            return match self.kind {
                ForgeKind::GitHub => (
                    422,
                    json!({"message": "Validation Failed", "errors": [{"resource":
                    "PullRequest", "code": "custom",
                    "message": format!("A pull request already exists for acme:{head}.")}]}),
                ),
                _ => (409, json!({"message": "pull request already exists for these targets [id: 1]"})),
            };
        }
        let Ok(sha) = self.repo.head(&head) else {
            return (
                422,
                json!({"message": "Validation Failed", "errors":
                [{"resource": "PullRequest", "field": "head", "code": "invalid"}]}),
            );
        };
        let number = book.pulls.len() as u64 + 1;
        let (title, body) = (text("title"), text("body"));
        let pull = Pull { number, title, body, head, base, sha, open: true, merged: None, comments: vec![] };
        book.pulls.push(pull.clone());
        (StatusCode::CREATED.as_u16(), self.show(&pull))
    }

    fn show(&self, pull: &Pull) -> Value {
        let label =
            if self.kind == ForgeKind::GitHub { format!("acme:{}", pull.head) } else { pull.head.clone() };
        json!({
            "number": pull.number, "title": pull.title, "body": pull.body,
            "html_url": format!("http://forge/acme/fleet/pulls/{}", pull.number),
            "state": if pull.open { "open" } else { "closed" },
            "merged": pull.merged.is_some(), "merge_commit_sha": pull.merged,
            "merged_at": pull.merged.as_ref().map(|_| "2026-01-02T03:04:05Z"),
            "created_at": jiff::Timestamp::now().round(jiff::Unit::Minute).unwrap().to_string(),
            "head": {"ref": pull.head, "label": label, "sha": pull.sha},
            "base": {"ref": pull.base, "label": pull.base},
        })
    }
}
