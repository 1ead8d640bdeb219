//! Stand-ins for forges in front of a real git server, with faults on demand. The state and the effects of calls are the
//! same for all forges. Each forge has a file with its documented paths, fields, states and errors. Calls that are not
//! documented are rejected. A test fails if a call or its answer differs from the published description.

mod accounts;
mod azure_devops;
mod bitbucket;
mod bitbucket_server;
mod checks;
mod commit_statuses;
mod described;
mod every_forge;
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
use sluice_testkit::api_description::{CallChecker, Injected};
use sluice_testkit::{GitServer, LoggedCommit, Repo};

use accounts::{PEOPLE, number_of};
pub use accounts::{author, joe};
pub use checks::CheckOutcome;
use checks::Obstacle;
use commit_statuses::ReportedStatus;
pub use fault::{CallKind, FaultQueue, ForgeFault};
use forge_api::forge_api;
pub use merge_style::Style;
use reply::{broken, dripping, reply};
use request::{ForgeRequest, PullSelector};

#[derive(Clone, Debug)]
pub struct Pull {
    pub number: u64,
    pub title: String,
    pub body: String,
    pub head: String,
    pub base: String,
    /// The head commit. After the pull request has ended, the head commit at that time.
    pub sha: String,
    /// The newest commit of the branch, also after the pull request has ended.
    pub tip: String,
    pub open: bool,
    pub merged: Option<String>,
    /// The allowed merge method.
    pub style: Style,
    pub comments: Vec<String>,
    pub labels: Vec<String>,
    pub reviewers: Vec<String>,
    pub assignees: Vec<String>,
    /// Whether the pull request is a draft, at forges that do not mark drafts in the title.
    pub draft: bool,
    pub conflicts: bool,
    /// How many more calls are answered before the forge has computed whether this head can be merged.
    pub unknown_for: usize,
    /// The head commit before the current one.
    pub before: String,
    /// Whether the base has newer commits, and the forge merges only heads on top of these.
    pub behind: bool,
    /// The checks: name, outcome and commit of each.
    pub checks: Vec<(String, CheckOutcome, String)>,
    /// Heads whose checks ran for the result of a merge, each with the commit of that merge.
    pub results: Vec<(String, String)>,
    /// The names of the required checks.
    pub requires: Vec<String>,
    /// The required number of approvals.
    pub needs: usize,
    /// The commits that were approved.
    pub approvals: Vec<String>,
    /// Checks that the base names but does not require.
    pub optional: Vec<(String, CheckOutcome)>,
    /// Statuses of the pull request itself: name, outcome, and the number of the push if the status is about one push.
    pub statuses: Vec<(String, CheckOutcome, Option<u64>)>,
    /// Whether it is in the merge queue.
    pub queued: bool,
    /// The running merge: its method, and the message from the call.
    pub merging: Option<(Style, Option<String>)>,
    /// Whether its branch is in a fork.
    pub fork: bool,
    /// Whether that fork belongs to the owner of the repository.
    pub same_owner: bool,
    /// The number of changes of the pull request.
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
    /// Adds several names. If one of them is rejected, none is added.
    Add {
        number: u64,
        what: MetadataKind,
        names: Vec<String>,
        replaces: bool,
    },
    /// Reads a user by name.
    User(String),
    /// Lists the people who can be assigned.
    Assignable,
    /// Lists the labels of the repository.
    Labels {
        from: usize,
        size: usize,
    },
    NewLabel(String),
    /// Reads facts about a pull request that only a merge needs.
    Facts {
        what: &'static str,
        from: usize,
        of: PullSelector,
    },
    /// Merges a pull request. If the forge supports that, only at this head or version.
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
    /// Reads the progress of a merge task.
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
    /// Reads the statuses of a commit that have this name.
    Statuses(String, String),
    Report(ReportedStatus),
    Repository,
}

impl ParsedCall {
    fn kind(&self) -> CallKind {
        match self {
            ParsedCall::List(_) | ParsedCall::Between { .. } => CallKind::List,
            ParsedCall::Open { .. } => CallKind::Open,
            ParsedCall::Add { .. } => CallKind::Add,
            ParsedCall::User(_)
            | ParsedCall::Assignable
            | ParsedCall::Labels { .. }
            | ParsedCall::NewLabel(_) => CallKind::LookUp,
            ParsedCall::Facts { .. } | ParsedCall::Statuses(..) => CallKind::ReadFacts,
            ParsedCall::Merge { .. } => CallKind::Merge,
            ParsedCall::Read(_) => CallKind::Read,
            ParsedCall::Task(_) => CallKind::LookUp,
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
    /// Whether to list only pull requests whose branch is in this repository.
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
    /// Prefixes of paths outside of the repository, each with the prefix that replaces it before `read` is called.
    fn beside(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// The header with the credentials, and its value.
    fn login(&self) -> (&'static str, String);
    /// The credentials of git for a token.
    fn git_login(&self) -> String;
    /// Whether the forge supports conditional calls.
    fn etags(&self) -> bool {
        true
    }
    /// Whether the forge returns the open pull request instead of rejecting a second one between the same branches.
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
    /// The most characters of a body that the forge accepts.
    fn longest_body(&self) -> usize {
        65_536
    }
    /// The most characters of a title that the forge accepts.
    fn longest_title(&self) -> usize {
        255
    }
    /// The headers that report the rate limit in the answer to a call of this path; none if there is no limit.
    fn budget(&self, _path: &str) -> Vec<(&'static str, String)> {
        vec![]
    }
    /// Parses a call.
    fn read(&self, request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>>;
    /// Returns the JSON object of a pull request, in a list or alone.
    fn pull(&self, pull: &Pull, listed: bool) -> Value;
    /// Returns a page of a list. `next` is the first entry of the next page.
    fn list(&self, page: Vec<Value>, from: usize, next: Option<usize>) -> Value;
    /// Returns the answer to an addition.
    fn added(&self, pull: &Pull, _what: MetadataKind, _names: &[String]) -> Value {
        self.pull(pull, false)
    }
    /// Returns the HTTP status of the answer to an addition.
    fn added_status(&self, _what: MetadataKind) -> u16 {
        self.status(CallKind::Add)
    }
    /// The answer to a merge.
    fn merged(&self, pull: &Pull) -> Value {
        self.pull(pull, false)
    }
    /// Returns the rejection of a call that merges a closed pull request.
    fn ended(&self, _pull: &Pull) -> CallRejection<'static> {
        CallRejection::NotOpen
    }
    /// Whether the forge rejects a merge for another head before it checks anything else.
    fn looks_at_the_head_first(&self) -> bool {
        true
    }
    /// Returns the rejection of a person, or `None` if the forge silently skips the person. `author` is true for the
    /// author of the pull request.
    fn user_rejection(&self, what: MetadataKind, author: bool) -> Option<CallRejection<'static>>;
    /// Returns facts for a merge, or `None` if the forge has no such facts. If the facts have pages, returns the page
    /// that begins at `from`.
    fn facts(&self, what: &'static str, pull: &Pull, from: usize) -> Option<Value>;
    fn commit(&self, commit: &LoggedCommit) -> Value;
    /// Returns the JSON object of the repository. `style` is the merge method that it allows.
    fn repository(&self, _style: Style) -> Value {
        json!({"id": 1, "name": "fleet"})
    }
    /// Returns the answer to a status of a commit.
    fn reported(&self, _status: &ReportedStatus, id: usize) -> Value {
        json!({"id": id})
    }
    /// Returns the part of an answer that the request selects.
    fn select(&self, _request: &ForgeRequest, answer: Value) -> Value {
        answer
    }
    fn error_answer(&self, why: CallRejection<'_>) -> ForgeAnswer;
    /// Returns the answer with an error, in the form that this call has.
    fn request_error(&self, _request: &ForgeRequest, why: CallRejection<'_>) -> ForgeAnswer {
        self.error_answer(why)
    }
    /// Returns the newest status of each pipeline, if the forge puts statuses into pipelines. Such a forge rejects a
    /// change from pending to pending.
    fn statuses(&self, _of_pipelines: &[&ReportedStatus]) -> Option<Value> {
        None
    }
    /// Returns the HTTP status of a successful call.
    fn status(&self, call: CallKind) -> u16 {
        if matches!(call, CallKind::Open | CallKind::Comment | CallKind::Report) { 201 } else { 200 }
    }
}

#[derive(Default)]
pub struct ForgeState {
    pub pulls: Vec<Pull>,
    pub labels: Vec<String>,
    /// Branches or tags that are named like a commit, each with the commit that it points to.
    pub names: Vec<(String, String)>,
    /// The statuses that were reported on commits.
    pub statuses: Vec<ReportedStatus>,
    /// The newest pipeline of each commit, at GitLab.
    pub pipeline: u64,
    /// Whether a commit is pushed to the branch just before the next merge.
    pub pushes_before_merge: bool,
    /// The base branch to which a person changes a pull request, directly after the pull request is read.
    pub retargets: Option<String>,
    /// The base branch to which a person changes all pull requests when the repository is read.
    pub retargets_late: Option<String>,
    /// Whether a commit is pushed to the branch of a pull request after its checks were read.
    pub pushes_after_checks: bool,
    /// Whether the next answer shows merged pull requests as closed, as if the forge had read them during the merge.
    pub shows_merged_as_closed: bool,
    pub calls: Vec<String>,
    pub faults: FaultQueue,
    /// How often a merge task is reported as pending. If it is 0, merges need no task.
    pub merge_takes: usize,
    /// Whether the base has a merge queue.
    pub has_queue: bool,
    /// Headers of every answer.
    pub headers: Vec<(&'static str, String)>,
}

pub struct StandIn {
    pub kind: ForgeKind,
    pub repo: Repo,
    pub url: String,
    forge_state: Arc<Mutex<ForgeState>>,
    /// Compares the calls with the published description, if the forge has one.
    checker: Option<Arc<CallChecker>>,
    _git: GitServer,
}

#[derive(Clone)]
struct StandInServer {
    kind: ForgeKind,
    api: Arc<dyn ForgeApi>,
    repo: Repo,
    git: String,
    forge_state: Arc<Mutex<ForgeState>>,
    checker: Option<Arc<CallChecker>>,
}

pub const TOKEN: &str = "t0ken";

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
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
        let router = checker.as_ref().map_or(router.clone(), |checker| checker.in_front_of(router));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
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

/// Returns a JSON list of objects that have these names under `key`.
fn named(key: &str, names: &[String]) -> Value {
    names.iter().map(|name| json!({key: name})).collect()
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
    if let (Err(CallRejection::Query(errors)), Some(checker)) = (&done, &served.checker) {
        checker.add("a GraphQL query", errors.to_string());
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
