//! Stand-ins for forges in front of a real git server, with faults on demand. The state and the effects of calls are the
//! same for all forges. Each forge has a file with its documented paths, fields, states and errors. Calls that are not
//! documented are rejected.

mod accounts;
mod azure_devops;
mod bitbucket;
mod bitbucket_server;
mod checks;
mod effects;
mod fault;
mod forge_api;
mod git;
mod gitea;
mod github;
mod gitlab;
mod graphql;
mod merge_style;
mod reply;
mod request;
mod statuses;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_delivery::ForgeKind;
use sluice_testkit::{GitServer, LoggedCommit, Repo};

use accounts::{PEOPLE, number_of};
pub use accounts::{author, joe};
pub use checks::CheckOutcome;
use checks::Obstacle;
pub use fault::{CallKind, ForgeFault};
use forge_api::forge_api;
pub use merge_style::Style;
use reply::{broken, dripping, reply};
use request::{ForgeRequest, PullSelector};
use statuses::ReportedStatus;

#[derive(Clone, Debug)]
pub struct Pull {
    pub number: u64,
    pub title: String,
    pub body: String,
    pub head: String,
    pub base: String,
    /// The head, or the head at its end.
    pub sha: String,
    /// The newest commit of its branch, also after its end.
    pub tip: String,
    pub open: bool,
    pub merged: Option<String>,
    /// The allowed way to merge.
    pub style: Style,
    pub comments: Vec<String>,
    pub labels: Vec<String>,
    pub reviewers: Vec<String>,
    pub assignees: Vec<String>,
    /// For forges where drafts are not marked in the title.
    pub draft: bool,
    pub conflicts: bool,
    /// How many more calls are answered before the forge knows whether this head can be merged.
    pub unknown_for: usize,
    /// The head before this one.
    pub before: String,
    /// Whether the base has newer commits, and only heads on top of them are merged.
    pub behind: bool,
    /// Checks by name, with their commits.
    pub checks: Vec<(String, CheckOutcome, String)>,
    /// Heads whose checks ran for the result of a merge, with the commit of that merge.
    pub results: Vec<(String, String)>,
    /// The required checks, and the required number of approvals.
    pub requires: Vec<String>,
    pub needs: usize,
    /// The commits that were approved.
    pub approvals: Vec<String>,
    /// Checks that the base names but does not require.
    pub optional: Vec<(String, CheckOutcome)>,
    /// Statuses of the pull request itself, or of a push to it by number.
    pub statuses: Vec<(String, CheckOutcome, Option<u64>)>,
    /// Whether it is in the merge queue.
    pub queued: bool,
    /// The running merge.
    pub merging: Option<(Style, Option<String>)>,
    /// Whether its branch is in a fork.
    pub fork: bool,
    /// Whether that fork belongs to the owner of the repository.
    pub same_owner: bool,
    /// Counts its changes.
    pub version: u64,
    pub created: Timestamp,
}

/// What people add to a pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataKind {
    Label,
    Reviewer,
    Assignee,
}

/// A parsed call.
enum ParsedCall {
    List(ListQuery),
    Between {
        base: String,
        head: String,
    },
    Open {
        title: String,
        body: String,
        head: String,
        base: String,
        draft: bool,
    },
    /// All names in one call: one rejected name rejects all.
    Add {
        number: u64,
        what: MetadataKind,
        names: Vec<String>,
        replaces: bool,
    },
    /// A user by name.
    User(String),
    /// Who can be assigned.
    Assignable,
    /// The labels of the repository.
    Labels {
        from: usize,
        size: usize,
    },
    NewLabel(String),
    /// Facts about a pull request that only a merge needs.
    Facts {
        what: &'static str,
        from: usize,
        of: PullSelector,
    },
    /// For a head or a version, if the forge supports that.
    Merge {
        number: u64,
        head: Option<String>,
        version: Option<u64>,
        /// The merge method; `None` for the default.
        style: Option<Style>,
        /// The message of the commit.
        message: Option<String>,
        queue: bool,
    },
    Read(u64),
    /// The progress of a merge task.
    Task(u64),
    Update {
        number: u64,
        change: PullChange,
    },
    Close {
        number: u64,
        version: Option<u64>,
    },
    Comment {
        number: u64,
        text: String,
    },
    Commit(String),
    /// The statuses on a commit, of a name.
    Statuses(String, String),
    Report(ReportedStatus),
    Repository,
}

impl ParsedCall {
    fn call(&self) -> CallKind {
        match self {
            ParsedCall::List(_) | ParsedCall::Between { .. } => CallKind::List,
            ParsedCall::Open { .. } => CallKind::Open,
            ParsedCall::Add { .. } => CallKind::Add,
            ParsedCall::User(_)
            | ParsedCall::Assignable
            | ParsedCall::Labels { .. }
            | ParsedCall::NewLabel(_) => CallKind::Look,
            ParsedCall::Facts { .. } | ParsedCall::Statuses(..) => CallKind::Tell,
            ParsedCall::Merge { .. } => CallKind::Merge,
            ParsedCall::Read(_) => CallKind::Read,
            ParsedCall::Task(_) => CallKind::Look,
            ParsedCall::Update { .. } => CallKind::Update,
            ParsedCall::Close { .. } => CallKind::Close,
            ParsedCall::Comment { .. } => CallKind::Comment,
            ParsedCall::Commit(_) => CallKind::Commit,
            ParsedCall::Report(_) => CallKind::Report,
            ParsedCall::Repository => CallKind::Repository,
        }
    }
}

/// The parameters of a list.
#[derive(Default)]
struct ListQuery {
    head: Option<String>,
    /// Only those whose branch is in this repository.
    own: bool,
    open: bool,
    from: usize,
    size: usize,
}

/// The changes of an update.
#[derive(Default)]
struct PullChange {
    title: Option<String>,
    body: Option<String>,
    base: Option<String>,
    reviewers: Option<Vec<String>>,
    version: Option<u64>,
}

/// Why a call is rejected.
enum CallRejection<'a> {
    Unauthorized,
    NoPath,
    NoPull,
    NoCommit,
    Exists(&'a Pull),
    NoBranch,
    OutOfDate,
    NotOpen,
    HeadMoved,
    /// The status has this state already.
    NoTransition,
    NotMergeable(Obstacle),
    /// The errors of a GraphQL query.
    Query(Value),
    Bad(&'static str),
    Internal,
}

type ForgeAnswer = (u16, Value);

/// The API of one forge.
trait ForgeApi: Send + Sync {
    /// The path in the repository's address, without `.git`.
    fn clone_path(&self) -> &'static str;
    /// The path of the repository in the API.
    fn base_path(&self) -> &'static str;
    /// Paths of the API outside of the repository, and their names in `read`.
    fn beside(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// The header with the credentials, and its value.
    fn login(&self) -> (&'static str, String);
    /// The credentials of git for a token.
    fn git_login(&self) -> String;
    /// Whether it supports conditional calls.
    fn etags(&self) -> bool {
        true
    }
    /// Whether it returns the open pull request instead of rejecting a second one between the same branches.
    fn returns_the_first(&self) -> bool {
        false
    }
    /// Whether a closed pull request can be changed.
    fn can_update_closed(&self) -> bool {
        true
    }
    /// Whether a commit is also read by the name of a branch or tag.
    fn reads_commits_by_name(&self) -> bool {
        false
    }
    /// The longest body that it takes.
    fn longest(&self) -> usize {
        65_536
    }
    /// The headers of the rate limit after a call to this path; none without limits.
    fn budget(&self, _path: &str) -> Vec<(&'static str, String)> {
        vec![]
    }
    /// Parses a call.
    fn read(&self, request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>>;
    /// Returns the JSON object of a pull request, in a list or alone.
    fn pull(&self, pull: &Pull, listed: bool) -> Value;
    /// A page of a list. `next` is where the next page begins.
    fn list(&self, page: Vec<Value>, from: usize, next: Option<usize>) -> Value;
    /// The answer to an addition.
    fn added(&self, pull: &Pull, _what: MetadataKind, _names: &[String]) -> Value {
        self.pull(pull, false)
    }
    /// The status of the answer to an addition.
    fn added_status(&self, _what: MetadataKind) -> u16 {
        self.status(CallKind::Add)
    }
    /// The answer to a merge.
    fn merged(&self, pull: &Pull) -> Value {
        self.pull(pull, false)
    }
    /// Why a closed pull request is not merged.
    fn ended(&self, _pull: &Pull) -> CallRejection<'static> {
        CallRejection::NotOpen
    }
    /// Whether a merge for another head is rejected for that reason first.
    fn looks_at_the_head_first(&self) -> bool {
        true
    }
    /// The rejection of a person; `None` for a person who is silently skipped.
    fn user_rejection(&self, what: MetadataKind, author: bool) -> Option<CallRejection<'static>>;
    /// Facts for a merge; `None` if the forge has no such facts. If they come in pages, the page that begins at `from`.
    fn facts(&self, what: &'static str, pull: &Pull, from: usize) -> Option<Value>;
    fn commit(&self, commit: &LoggedCommit) -> Value;
    /// The selected part of an answer.
    fn select(&self, _request: &ForgeRequest, answer: Value) -> Value {
        answer
    }
    fn error_answer(&self, why: CallRejection<'_>) -> ForgeAnswer;
    /// The newest status of each pipeline, if statuses are in pipelines: then a pending status cannot be set to pending.
    fn statuses(&self, _of_pipelines: &[&ReportedStatus]) -> Option<Value> {
        None
    }
    /// The status of a success.
    fn status(&self, call: CallKind) -> u16 {
        if matches!(call, CallKind::Open | CallKind::Comment | CallKind::Report) { 201 } else { 200 }
    }
}

#[derive(Default)]
pub struct ForgeState {
    pub pulls: Vec<Pull>,
    pub labels: Vec<String>,
    /// Branches or tags that are named like a commit, and where they end.
    pub names: Vec<(String, String)>,
    /// What was reported on commits.
    pub statuses: Vec<ReportedStatus>,
    /// The newest pipeline of each commit, at GitLab.
    pub pipeline: u64,
    /// Whether a commit is pushed to the branch just before the next merge.
    pub meddle: bool,
    /// The base branch that somebody gives to all pull requests when the next one was read.
    pub retargets: Option<String>,
    /// The base branch that somebody gives to all pull requests when the repository is read.
    pub retargets_late: Option<String>,
    /// Whether a commit is pushed to the branch of a pull request after its checks were read.
    pub pushes_late: bool,
    /// Whether the next answer shows merged pull requests as closed: it was read in the middle of the merge.
    pub torn: bool,
    pub calls: Vec<String>,
    pub trouble: VecDeque<(CallKind, ForgeFault)>,
    /// How often a merge task is pending. With 0, merges need no task.
    pub merge_takes: usize,
    /// Whether the base has a merge queue.
    pub has_queue: bool,
    /// The answer to the call with this number is lost, counted from the next call that changes something.
    pub loses: usize,
    /// Headers of every answer.
    pub headers: Vec<(&'static str, String)>,
}

pub struct StandIn {
    pub kind: ForgeKind,
    pub repo: Repo,
    pub url: String,
    book: Arc<Mutex<ForgeState>>,
    _git: GitServer,
}

#[derive(Clone)]
struct StandInServer {
    kind: ForgeKind,
    api: Arc<dyn ForgeApi>,
    repo: Repo,
    git: String,
    book: Arc<Mutex<ForgeState>>,
}

pub const TOKEN: &str = "t0ken";

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

impl StandIn {
    pub async fn start(kind: ForgeKind, files: &[(&str, &str)]) -> StandIn {
        let git = GitServer::start().unwrap();
        let repo = git.create_repo("fleet", files).unwrap();
        let book = Arc::new(Mutex::new(ForgeState::default()));
        let api = forge_api(kind);
        let path = api.clone_path();
        let served = StandInServer { kind, api, repo: repo.clone(), git: git.url(), book: book.clone() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{path}.git", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(served);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        StandIn { kind, repo, url, book, _git: git }
    }

    pub fn book<T>(&self, look: impl FnOnce(&mut ForgeState) -> T) -> T {
        look(&mut self.book.lock().unwrap())
    }

    /// Sets the fault of the next call of this kind.
    pub fn trouble(&self, call: CallKind, trouble: ForgeFault) {
        self.book(|b| b.trouble.push_back((call, trouble)));
    }

    pub fn pulls(&self) -> Vec<Pull> {
        self.book(|b| b.pulls.clone())
    }

    pub fn calls(&self) -> Vec<String> {
        self.book(|b| std::mem::take(&mut b.calls))
    }

    pub fn change(&self, number: u64, change: impl FnOnce(&mut Pull)) {
        self.book(|b| {
            let pull = &mut b.pulls[number as usize - 1];
            change(pull);
            pull.version += 1;
        });
    }

    /// A person merges it.
    pub fn merge(&self, number: u64, style: Style) {
        self.change(number, |pull| {
            pull.sha = self.repo.head(&pull.head).unwrap();
            pull.land(self.kind, &self.repo, style, None);
        });
    }

    pub fn close(&self, number: u64) {
        self.change(number, |pull| pull.open = false);
    }
}

impl Pull {
    fn new(number: u64, title: String, body: String, head: String, base: String, sha: String) -> Pull {
        Pull {
            number,
            title,
            body,
            head,
            base,
            tip: sha.clone(),
            open: true,
            merged: None,
            style: Style::Squash,
            comments: vec![],
            labels: vec![],
            reviewers: vec!["jane".into()],
            assignees: vec![],
            draft: false,
            conflicts: false,
            unknown_for: 1,
            before: sha.clone(),
            behind: false,
            checks: vec![],
            results: vec![],
            requires: vec![],
            needs: 0,
            approvals: vec![],
            optional: vec![],
            statuses: vec![],
            queued: false,
            merging: None,
            fork: false,
            same_owner: false,
            version: 0,
            sha,
            created: Timestamp::now().round(jiff::Unit::Second).unwrap(),
        }
    }
}

/// A list of objects with these names.
fn named(key: &str, names: &[String]) -> Value {
    names.iter().map(|name| json!({key: name})).collect()
}

/// The decoded part of a path or value of a query.
fn plain(text: &str) -> String {
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
        path: path.split('/').filter(|part| !part.is_empty()).map(plain).collect(),
        query: query.map(|(k, v)| (k.into_owned(), v.into_owned())).collect(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        headers: headers.clone(),
    };
    let ask = api.read(&request);
    let trouble = {
        let mut book = served.book.lock().unwrap();
        book.calls.push(format!("{method} {path}"));
        let due = ask.as_ref().is_ok_and(|a| book.trouble.front().is_some_and(|(c, _)| *c == a.call()));
        if due {
            book.trouble.pop_front().unwrap().1
        } else if method != Method::GET && book.loses > 0 {
            book.loses -= 1;
            if book.loses == 0 { ForgeFault::Lose } else { ForgeFault::None }
        } else {
            ForgeFault::None
        }
    };
    if let ForgeFault::Answer(status, extra, text) = &trouble {
        let mut answer = Response::builder().status(*status);
        for (name, value) in extra {
            answer = answer.header(*name, value);
        }
        return answer.body(Body::from(*text)).unwrap();
    }
    match &trouble {
        ForgeFault::Slow(pause, text) => {
            tokio::time::sleep(*pause).await;
            return Response::new(Body::from(*text));
        }
        ForgeFault::Drip => return Response::new(dripping()),
        _ => {}
    }
    if matches!(trouble, ForgeFault::Hang) {
        std::future::pending::<()>().await;
    }
    let (name, expected) = api.login();
    let known = request.headers.get(name).is_some_and(|h| h == expected.as_str());
    let done = if known { ask.and_then(|ask| served.act(ask)) } else { Err(CallRejection::Unauthorized) };
    let (status, value) = done.unwrap_or_else(|rejection| api.error_answer(rejection));
    if matches!(trouble, ForgeFault::Lose) {
        // A body that ends early closes the connection.
        return Response::builder().status(200).header("content-length", "1000").body(broken()).unwrap();
    }
    let value = api.select(&request, value);
    reply(&served, status, &value, (uri.path(), &headers))
}
