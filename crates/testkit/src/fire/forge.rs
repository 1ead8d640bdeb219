//! A forge in memory over real git repositories, with the API of GitHub Enterprise Server as far as
//! docs.github.com/rest/pulls documents it: fast enough for hundreds of change requests, strict, and
//! behind a door. It keeps what is promised in sight: see [`Forge::broken`].

use super::door::Door;
use super::pulls::{Book, Page, Refusal, Request, State};
use crate::{GitServer, Repo};
use anyhow::{Result, anyhow, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State as Of;
use axum::http::{HeaderMap, Method, Request as HttpRequest, Response, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::any;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whose repositories they are.
const OWNER: &str = "acme";

/// The forge. Git and API are at one address, that of its door.
pub struct Forge {
    door: Door,
    git: GitServer,
    book: Arc<Mutex<Book>>,
}

/// A repository at the forge.
#[derive(Clone, Debug)]
pub struct Hosted {
    /// As its owner and Flux see it: beside the door, and never at fault.
    pub repo: Repo,
    /// Its address through the door.
    pub url: String,
}

type Answer = (u16, Value);

impl Forge {
    /// The token that the API takes. Git takes [`GitServer::USER`] and its password.
    pub const TOKEN: &'static str = "t0ken";

    /// Starts one without repositories.
    ///
    /// # Errors
    /// When there is no port or no temporary folder to be had.
    pub fn start() -> Result<Forge> {
        let git = GitServer::start()?;
        let book: Arc<Mutex<Book>> = Arc::default();
        let watched = git.router().layer(from_fn_with_state(Arc::clone(&book), watch));
        let api = Router::new()
            .route("/api/v3/{*path}", any(api))
            .route("/api/graphql", any(api))
            .with_state(Arc::clone(&book));
        Ok(Forge { door: Door::before(api.fallback_service(watched))?, git, book })
    }

    /// Makes a repository whose branch `main` holds one commit with these files.
    ///
    /// # Errors
    /// When there is one of this name, or git fails.
    pub fn create_repo(&self, name: &str, files: &[(&str, &str)]) -> Result<Hosted> {
        let full = format!("{OWNER}/{name}");
        let repo = self.git.create_repo(&full, files)?;
        lock(&self.book).add(repo.clone());
        Ok(Hosted { repo, url: format!("{}/{full}.git", self.door.url()) })
    }

    /// A repository as another is now, with the same change requests.
    ///
    /// # Errors
    /// When there is one of this name, or it cannot be copied.
    pub fn copy_repo(&self, of: &Hosted, name: &str) -> Result<Hosted> {
        let full = format!("{OWNER}/{name}");
        let repo = self.git.copy_repo(&of.repo, &full)?;
        lock(&self.book).copy(of.repo.name(), repo.clone());
        Ok(Hosted { repo, url: format!("{}/{full}.git", self.door.url()) })
    }

    /// Its door: what befalls calls, and which there were.
    pub fn door(&self) -> &Door {
        &self.door
    }

    /// All change requests of a repository, oldest first.
    pub fn requests(&self, of: &Hosted) -> Vec<Request> {
        lock(&self.book).page(of.repo.name()).map(|page| page.requests.clone()).unwrap_or_default()
    }

    /// How many change requests are open.
    pub fn open(&self) -> usize {
        let mut book = lock(&self.book);
        book.pages.values_mut().map(Page::open).sum()
    }

    /// A person looks at everything that is open in a repository, and merges what can be merged as it
    /// was looked at; every third by squashing. Returns how many were merged.
    pub fn merge(&self, of: &Hosted) -> usize {
        self.merge_in(of.repo.name())
    }

    /// The same in every repository.
    pub fn merge_all(&self) -> usize {
        let names: Vec<String> = lock(&self.book).pages.keys().cloned().collect();
        names.iter().map(|name| self.merge_in(name)).sum()
    }

    fn merge_in(&self, name: &str) -> usize {
        let looked = lock(&self.book).page(name).map(|page| (page.review(), page.only_reviewed));
        let Ok((open, false)) = looked else { return 0 };
        // Between looking and merging the book is open to all.
        let merge = |request: &&Request| {
            let squash = request.number.is_multiple_of(3);
            lock(&self.book).merge(name, request.number, Some(&request.sha), squash).is_ok()
        };
        open.iter().filter(merge).count()
    }

    /// A person looks at everything that is open in a repository.
    pub fn review(&self, of: &Hosted) {
        let _ = lock(&self.book).page(of.repo.name()).map(Page::review);
    }

    /// From now on people only look at what is open in a repository, and leave merging to Sluice.
    pub fn leave_merging(&self, of: &Hosted) {
        let _ = lock(&self.book).page(of.repo.name()).map(|page| page.only_reviewed = true);
    }

    /// A person closes a change request unmerged.
    pub fn close(&self, of: &Hosted, number: u64) {
        if let Ok(page) = lock(&self.book).page(of.repo.name())
            && let Ok(request) = page.request(number)
        {
            request.state = State::Closed;
        }
    }

    /// What must never be, and was: two open change requests for one thing, a merge of what nobody
    /// had looked at, a promotion delivered twice.
    pub fn broken(&self) -> Vec<String> {
        lock(&self.book).broken.clone()
    }

    /// Fails if something that must never be was.
    ///
    /// # Errors
    /// It was.
    pub fn unbroken(&self) -> Result<()> {
        {
            let mut book = lock(&self.book);
            let names: Vec<String> = book.pages.keys().cloned().collect();
            names.iter().for_each(|name| book.look_through(name));
        }
        let broken = self.broken();
        ensure!(broken.is_empty(), "what is promised was broken: {broken:#?}");
        Ok(())
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets git work, and looks what a push has brought.
async fn watch(Of(book): Of<Arc<Mutex<Book>>>, request: HttpRequest<Body>, next: Next) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let answer = next.run(request).await;
    let Some(name) = path.strip_suffix(".git/git-receive-pack") else { return answer };
    let (head, body) = answer.into_parts();
    // A push has ended when all of its answer is there.
    let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    lock(&book).look_through(name.trim_start_matches('/'));
    Response::from_parts(head, Body::from(whole))
}

async fn api(
    Of(book): Of<Arc<Mutex<Book>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let known = format!("Bearer {}", Forge::TOKEN);
    let (status, value) = if headers.get(header::AUTHORIZATION).is_none_or(|h| h != known.as_str()) {
        (401, json!({"message": "Bad credentials"}))
    } else {
        let asked = Asked::read(&method, &uri, &body);
        // Git is waited for, and other calls are not to wait with it.
        let done = tokio::task::spawn_blocking(move || asked.and_then(|asked| asked.act(&mut lock(&book))));
        match done.await {
            Ok(done) => done.unwrap_or_else(refuse),
            Err(died) => (500, json!({"message": died.to_string()})),
        }
    };
    reply(status, &value, &headers)
}

/// A call of the API.
struct Asked {
    method: String,
    repository: String,
    path: Vec<String>,
    query: HashMap<String, String>,
    body: Value,
}

impl Asked {
    fn read(method: &Method, uri: &Uri, body: &[u8]) -> Result<Asked, Refusal> {
        let plain = |text: &str| percent(text);
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if uri.path().ends_with("/graphql") {
            let of = &body["variables"];
            let name = |key: &str| of[key].as_str().unwrap_or_default();
            let repository = format!("{}/{}", name("owner"), name("name"));
            let (method, path) = (method.as_str().to_owned(), vec!["graphql".to_owned()]);
            return Ok(Asked { method, repository, path, query: HashMap::new(), body });
        }
        let mut path = uri.path().trim_start_matches("/api/v3/repos/").split('/').map(plain);
        let (Some(owner), Some(name)) = (path.next(), path.next()) else { return Err(Refusal::NotFound) };
        let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        Ok(Asked {
            method: method.as_str().to_owned(),
            repository: format!("{owner}/{name}"),
            path: path.filter(|part| !part.is_empty()).collect(),
            query: pairs.map(|(key, value)| (plain(key), plain(value))).collect(),
            body,
        })
    }

    fn text(&self, key: &str) -> Option<String> {
        self.body[key].as_str().map(str::to_owned)
    }

    fn act(&self, book: &mut Book) -> Result<Answer, Refusal> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let number = |text: &str| text.parse().map_err(|_| Refusal::NotFound);
        let page = book.page(&self.repository)?;
        match (self.method.as_str(), path.as_slice()) {
            ("GET", []) => Ok((200, json!({"name": self.repository}))),
            ("GET", ["pulls"]) => Ok((200, self.list(page))),
            ("GET", ["pulls", n]) => {
                let request = page.request(number(n)?)?.clone();
                let mergeable = request.state == State::Open && page.tree(&request).is_ok();
                let mut value = show(&self.repository, &request);
                value["mergeable"] = mergeable.into();
                Ok((200, value))
            }
            ("POST", ["pulls"]) => self.open(book),
            ("PATCH", ["pulls", n]) => {
                let request = page.request(number(n)?)?;
                request.title = self.text("title").unwrap_or_else(|| request.title.clone());
                request.body = self.text("body").unwrap_or_else(|| request.body.clone());
                request.base = self.text("base").unwrap_or_else(|| request.base.clone());
                if self.text("state").as_deref() == Some("closed") && request.state == State::Open {
                    request.state = State::Closed;
                }
                Ok((200, show(&self.repository, request)))
            }
            ("POST", ["graphql"]) => {
                let number = self.body["variables"]["number"].as_u64().ok_or(Refusal::NotFound)?;
                let request = page.request(number)?.clone();
                let repository =
                    json!({"viewerDefaultMergeMethod": "MERGE", "pullRequest": page.readiness(&request)});
                Ok((200, json!({"data": {"repository": repository}})))
            }
            ("PUT", ["pulls", n, "merge"]) => {
                let squash = self.text("merge_method").as_deref() == Some("squash");
                let pinned = self.text("sha");
                let sha = book.merge(&self.repository, number(n)?, pinned.as_deref(), squash)?;
                Ok((200, json!({"sha": sha, "merged": true})))
            }
            ("POST", ["issues", n, "comments"]) => {
                let text = self.text("body").ok_or(Refusal::NoBranch)?;
                page.request(number(n)?)?.comments.push(text);
                Ok((201, json!({"id": 1})))
            }
            ("GET", ["git", "commits", id]) => {
                let (message, parents) = page.commit(id).map_err(|_| Refusal::NotFound)?;
                let parents: Vec<Value> = parents.iter().map(|sha| json!({"sha": sha})).collect();
                Ok((200, json!({"sha": id, "message": message, "parents": parents})))
            }
            _ => Err(Refusal::NotFound),
        }
    }

    fn list(&self, page: &Page) -> Value {
        let asked = |key: &str| self.query.get(key).map(String::as_str);
        let number = |key: &str, or: usize| asked(key).and_then(|n| n.parse().ok()).unwrap_or(or).max(1);
        let (size, at) = (number("per_page", 30).min(100), number("page", 1));
        let head = asked("head").map(|head| head.strip_prefix("acme:").unwrap_or_default());
        let fits = |r: &&Request| {
            (asked("state") == Some("all") || r.state == State::Open)
                && head.is_none_or(|head| head == r.head)
        };
        page.requests
            .iter()
            .rev()
            .filter(fits)
            .skip(size * (at - 1))
            .take(size)
            .map(|r| show(&self.repository, r))
            .collect()
    }

    fn open(&self, book: &mut Book) -> Result<Answer, Refusal> {
        let text = |key: &str| self.text(key).ok_or(Refusal::NoBranch);
        let draft = Request {
            number: 0,
            title: text("title")?,
            body: self.text("body").unwrap_or_default(),
            head: text("head")?,
            base: text("base")?,
            sha: String::new(),
            state: State::Open,
            comments: Vec::new(),
            created: jiff::Timestamp::now(),
        };
        book.open(&self.repository, draft).map(|request| (201, show(&self.repository, &request)))
    }
}

/// A part of an address as it was meant.
fn percent(text: &str) -> String {
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

fn show(repository: &str, request: &Request) -> Value {
    let merged = match &request.state {
        State::Merged(commit) => Some(commit),
        State::Open | State::Closed => None,
    };
    json!({
        "number": request.number, "title": request.title, "body": request.body,
        "html_url": format!("http://forge.example/{repository}/pull/{}", request.number),
        "state": if request.state == State::Open { "open" } else { "closed" },
        "merged": merged.is_some(), "merge_commit_sha": merged,
        "merged_at": merged.map(|_| "2026-01-02T03:04:05Z"),
        "created_at": request.created.to_string(),
        "head": {"ref": request.head, "label": format!("{OWNER}:{}", request.head), "sha": request.sha},
        "base": {"ref": request.base, "label": format!("{OWNER}:{}", request.base)},
    })
}

fn refuse(why: Refusal) -> Answer {
    let failed = |error: Value| (422, json!({"message": "Validation Failed", "errors": [error]}));
    match why {
        Refusal::NotFound => (404, json!({"message": "Not Found"})),
        Refusal::NoBranch => failed(json!({"resource": "PullRequest", "field": "head", "code": "invalid"})),
        Refusal::Exists => failed(json!({
            "resource": "PullRequest", "code": "custom", "message": "A pull request already exists.",
        })),
        Refusal::NotOpen | Refusal::Conflicts => (405, json!({"message": "Pull Request is not mergeable"})),
        Refusal::OtherHead => {
            (409, json!({"message": "Head branch was modified. Review and try the merge again."}))
        }
    }
}

fn reply(status: u16, value: &Value, asked: &HeaderMap) -> Response<Body> {
    let text = value.to_string();
    let hash = text.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
    let etag = format!("\"{hash:x}\"");
    let same = status == 200 && asked.get(header::IF_NONE_MATCH).is_some_and(|h| h == etag.as_str());
    let answer = Response::builder().header(header::ETAG, etag);
    let answer = match same {
        true => answer.status(StatusCode::NOT_MODIFIED).body(Body::empty()),
        false => answer.status(status).body(Body::from(text)),
    };
    answer.unwrap_or_else(|error| Response::new(Body::from(anyhow!(error).to_string())))
}
