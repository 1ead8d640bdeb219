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

use github::Answer;

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
        github::refusal(github::Refusal::BadCredentials)
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
                Ok((200, github::commit(id, &message, &parents)))
            }
            _ => Err(Refusal::NotFound),
        }
    }

    fn list(&self, page: &Page) -> Value {
        let listing = github::Listing::read(OWNER, |name| self.query.get(name).map(String::as_str));
        let fits = |r: &&Request| {
            (listing.all || r.state == State::Open)
                && listing.head.as_ref().is_none_or(|head| *head == r.head)
        };
        page.requests
            .iter()
            .rev()
            .filter(fits)
            .skip(listing.from)
            .take(listing.size)
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
        State::Merged(commit) => Some(commit.as_str()),
        State::Open | State::Closed => None,
    };
    github::pull_request(&github::PullRequest {
        number: request.number,
        title: &request.title,
        body: &request.body,
        page: format!("http://forge.example/{repository}/pull/{}", request.number),
        head: (&request.head, format!("{OWNER}:{}", request.head), &request.sha),
        base: (&request.base, format!("{OWNER}:{}", request.base)),
        is_open: request.state == State::Open,
        merged,
        created: request.created,
    })
}

fn refuse(why: Refusal) -> Answer {
    github::refusal(match why {
        Refusal::NotFound => github::Refusal::NotFound,
        Refusal::NoBranch => github::Refusal::NoBranch,
        Refusal::Exists => github::Refusal::Exists("acme"),
        Refusal::NotOpen | Refusal::Conflicts => github::Refusal::NotMergeable,
        Refusal::OtherHead => github::Refusal::HeadMoved,
    })
}

/// GitHub's REST API as docs.github.com/rest/pulls documents it: parameters, objects and refusals, for every imitation of
/// GitHub in the tests.
pub mod github {
    use serde_json::{Value, json};

    /// A status and a body.
    pub type Answer = (u16, Value);

    /// The parameters of "List pull requests".
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Listing {
        /// The head branch, without its owner.
        pub head: Option<String>,
        /// Whether closed ones are listed, too.
        pub all: bool,
        /// The index of the first entry.
        pub from: usize,
        /// The number of entries of a page.
        pub size: usize,
    }

    impl Listing {
        /// Reads the parameters of a query for the repository of an owner.
        pub fn read<'a>(owner: &str, parameter: impl Fn(&str) -> Option<&'a str>) -> Self {
            let number = |name: &str, default: usize| {
                parameter(name).and_then(|text| text.parse().ok()).unwrap_or(default).max(1)
            };
            // No branch has this name, if the branch is of another owner.
            let branch = |head: &str| match head.split_once(':') {
                Some((of, branch)) if of == owner => branch.to_owned(),
                _ => "?".to_owned(),
            };
            let size = number("per_page", 30).min(100);
            let from = (number("page", 1) - 1) * size;
            let (head, all) = (parameter("head").map(branch), parameter("state") == Some("all"));
            Listing { head, all, from, size }
        }
    }

    /// A pull request, as far as all answers have it.
    #[derive(Clone, Debug)]
    pub struct PullRequest<'a> {
        /// Its number in its repository.
        pub number: u64,
        /// Its title.
        pub title: &'a str,
        /// Its text.
        pub body: &'a str,
        /// The address of its page.
        pub page: String,
        /// The head branch, its label, and its commit.
        pub head: (&'a str, String, &'a str),
        /// The base branch and its label.
        pub base: (&'a str, String),
        /// Whether it is open.
        pub is_open: bool,
        /// The commit of its merge.
        pub merged: Option<&'a str>,
        /// When it was opened.
        pub created: jiff::Timestamp,
    }

    /// The object of a pull request.
    pub fn pull_request(pull: &PullRequest<'_>) -> Value {
        json!({
            "number": pull.number, "title": pull.title, "body": pull.body, "html_url": pull.page,
            "state": if pull.is_open { "open" } else { "closed" },
            "merged": pull.merged.is_some(), "merge_commit_sha": pull.merged,
            "merged_at": pull.merged.map(|_| "2026-01-02T03:04:05Z"), "created_at": pull.created.to_string(),
            "head": {"ref": pull.head.0, "label": pull.head.1, "sha": pull.head.2},
            "base": {"ref": pull.base.0, "label": pull.base.1},
        })
    }

    /// The object of a commit.
    pub fn commit(sha: &str, message: &str, parents: &[String]) -> Value {
        let parents: Vec<Value> = parents.iter().map(|sha| json!({"sha": sha})).collect();
        json!({"sha": sha, "message": message, "parents": parents})
    }

    /// Why GitHub refuses a call.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Refusal<'a> {
        /// The token is unknown.
        BadCredentials,
        /// There is no such thing.
        NotFound,
        /// There is an open pull request from this branch, `owner:branch`.
        Exists(&'a str),
        /// There is no such head branch.
        NoBranch,
        /// It cannot be merged.
        NotMergeable,
        /// The head is another commit than the expected one.
        HeadMoved,
        /// Another refusal, with its status and message.
        Other(u16, &'a str),
    }

    /// The answer of a refusal.
    pub fn refusal(why: Refusal<'_>) -> Answer {
        let told = |status: u16, message: &str| {
            let page = "https://docs.github.com/rest";
            (status, json!({"message": message, "documentation_url": page, "status": status.to_string()}))
        };
        let failed = |error: Value| {
            let (status, mut value) = told(422, "Validation Failed");
            value["errors"] = json!([error]);
            (status, value)
        };
        match why {
            Refusal::BadCredentials => told(401, "Bad credentials"),
            Refusal::NotFound => told(404, "Not Found"),
            Refusal::Exists(head) => failed(json!({
                "resource": "PullRequest", "code": "custom",
                "message": format!("A pull request already exists for {head}."),
            })),
            Refusal::NoBranch => {
                failed(json!({"resource": "PullRequest", "field": "head", "code": "invalid"}))
            }
            Refusal::NotMergeable => told(405, "Pull Request is not mergeable"),
            Refusal::HeadMoved => told(409, "Head branch was modified. Review and try the merge again."),
            Refusal::Other(status, message) => told(status, message),
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
