//! A forge in front of a real git server that fails on demand. What it keeps, and what a call does to
//! it, is the same for all and stands here; which paths, fields, states and refusals a forge has stands in
//! one file each, as its documentation tells it. What is not documented there is refused.

mod acts;
mod azure_devops;
mod bitbucket;
mod bitbucket_server;
mod checks;
mod git;
mod gitea;
mod github;
mod gitlab;
mod graphql;
mod people;
mod reply;
mod request;
mod statuses;
mod style;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_delivery::ForgeKind;
use sluice_testkit::{Commit, GitServer, Repo};

pub use checks::Is;
use checks::Obstacle;
use people::{PEOPLE, number_of};
pub use people::{author, joe};
use reply::{broken, dripping, reply};
use request::{Of, Request};
use statuses::Status;
pub use style::Style;

/// What is done to a call in place of answering it.
#[derive(Clone)]
pub enum Trouble {
    /// Answer with this, and do nothing.
    Answer(u16, Vec<(&'static str, String)>, &'static str),
    /// Do it, and drop the connection.
    Lose,
    /// Never answer.
    Hang,
    /// Answer with this after a while.
    Slow(Duration, &'static str),
    /// Answer a byte at a time, without end.
    Drip,
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
    /// What it proposes, or proposed when it ended.
    pub sha: String,
    /// The end of its branch, also after it has ended.
    pub tip: String,
    pub open: bool,
    pub merged: Option<String>,
    /// How its base lets it be merged.
    pub style: Style,
    pub comments: Vec<String>,
    pub labels: Vec<String>,
    pub reviewers: Vec<String>,
    pub assignees: Vec<String>,
    /// Where a title does not say it.
    pub draft: bool,
    pub conflicts: bool,
    /// How many more calls are answered before the forge has worked out whether this head can be merged.
    pub unknown_for: usize,
    /// The head before this one.
    pub before: String,
    /// Its base has moved on, and it is merged only on top of it.
    pub behind: bool,
    /// Checks by name, and the commits that they are of.
    pub checks: Vec<(String, Is, String)>,
    /// Heads whose checks ran for the result of a merge, and the commit of that.
    pub results: Vec<(String, String)>,
    /// The checks and the number of approvals that it has to have.
    pub requires: Vec<String>,
    pub needs: usize,
    /// The commits that were approved.
    pub approvals: Vec<String>,
    /// Checks that its base names and does not demand.
    pub optional: Vec<(String, Is)>,
    /// What was said of it and of none of its commits, or of the so many-eth push to it.
    pub statuses: Vec<(String, Is, Option<u64>)>,
    /// It is in the queue.
    pub queued: bool,
    /// What a merge that is under way does at its end.
    pub merging: Option<(Style, Option<String>)>,
    /// Whether its branch is in somebody's copy of the repository.
    pub fork: bool,
    /// Counts its changes.
    pub version: u64,
    pub created: Timestamp,
}

/// What a call is about, whichever words a forge has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    List,
    Open,
    Read,
    Update,
    Close,
    Add,
    Look,
    Tell,
    Merge,
    Comment,
    Commit,
    Report,
    Repository,
}

/// What people add to a change request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    Label,
    Reviewer,
    Assignee,
}

/// What a call asks for, as its shape has read it.
enum Ask {
    List(Wanted),
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
    /// All names at once: one that is not taken is a refusal of all.
    Add {
        number: u64,
        what: Extra,
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
    /// Something about a change request that only merging needs.
    Tell {
        what: &'static str,
        from: usize,
        of: Of,
    },
    /// Held to a head or to a version, where the forge can.
    Merge {
        number: u64,
        head: Option<String>,
        version: Option<u64>,
        /// In this way; in the usual one where the forge is not told.
        style: Option<Style>,
        /// What the commit is to say.
        message: Option<String>,
        queue: bool,
    },
    Read(u64),
    /// How far the merge of one is.
    Task(u64),
    Update {
        number: u64,
        change: Change,
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
    Report(Status),
    Repository,
}

impl Ask {
    fn call(&self) -> Call {
        match self {
            Ask::List(_) | Ask::Between { .. } => Call::List,
            Ask::Open { .. } => Call::Open,
            Ask::Add { .. } => Call::Add,
            Ask::User(_) | Ask::Assignable | Ask::Labels { .. } | Ask::NewLabel(_) => Call::Look,
            Ask::Tell { .. } | Ask::Statuses(..) => Call::Tell,
            Ask::Merge { .. } => Call::Merge,
            Ask::Read(_) => Call::Read,
            Ask::Task(_) => Call::Look,
            Ask::Update { .. } => Call::Update,
            Ask::Close { .. } => Call::Close,
            Ask::Comment { .. } => Call::Comment,
            Ask::Commit(_) => Call::Commit,
            Ask::Report(_) => Call::Report,
            Ask::Repository => Call::Repository,
        }
    }
}

/// Which ones a list is to have.
#[derive(Default)]
struct Wanted {
    head: Option<String>,
    /// Only those whose branch is here.
    own: bool,
    open: bool,
    from: usize,
    size: usize,
}

/// What is to be another.
#[derive(Default)]
struct Change {
    title: Option<String>,
    body: Option<String>,
    base: Option<String>,
    reviewers: Option<Vec<String>>,
    version: Option<u64>,
}

/// Why a call is refused.
enum Why<'a> {
    Unauthorized,
    NoPath,
    NoPull,
    NoCommit,
    Exists(&'a Pull),
    NoBranch,
    OutOfDate,
    NotOpen,
    HeadMoved,
    /// It is in this state already.
    NoTransition,
    NotMergeable(Obstacle),
    /// The errors of a GraphQL query.
    Query(Value),
    Bad(&'static str),
    /// It breaks.
    Internal,
}

type Answer = (u16, Value);

/// How one forge speaks.
trait Shape: Send + Sync {
    /// The path in the repository's address, without `.git`.
    fn clone_path(&self) -> &'static str;
    /// The path of the repository in the API.
    fn api(&self) -> &'static str;
    /// Places of the API that are not below the repository's, and what they are called in `read`.
    fn beside(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// The header and the value that say who calls.
    fn login(&self) -> (&'static str, String);
    /// What git says with nothing but a token.
    fn git_login(&self) -> String;
    /// Whether it remembers what it has answered.
    fn etags(&self) -> bool {
        true
    }
    /// Whether it returns the open one in place of refusing a second one between the same branches.
    fn returns_the_first(&self) -> bool {
        false
    }
    /// Whether one that is not open can still be changed.
    fn changes_what_is_closed(&self) -> bool {
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
    /// The headers that say how many calls are left after one of this path; none where there are no limits.
    fn budget(&self, _path: &str) -> Vec<(&'static str, String)> {
        vec![]
    }
    /// What a call asks for.
    fn read(&self, request: &Request) -> Result<Ask, Why<'static>>;
    /// A change request, as a list shows it or by itself.
    fn pull(&self, pull: &Pull, listed: bool) -> Value;
    /// A page of a list; `next` is where the next one begins.
    fn list(&self, page: Vec<Value>, from: usize, next: Option<usize>) -> Value;
    /// What answers an addition.
    fn added(&self, pull: &Pull, _what: Extra, _names: &[String]) -> Value {
        self.pull(pull, false)
    }
    /// The status of an addition.
    fn added_status(&self, _what: Extra) -> u16 {
        self.status(Call::Add)
    }
    /// What answers a merge.
    fn merged(&self, pull: &Pull) -> Value {
        self.pull(pull, false)
    }
    /// Why one that is not open is not merged.
    fn ended(&self, _pull: &Pull) -> Why<'static> {
        Why::NotOpen
    }
    /// Whether a merge at another head is refused for that, whatever else is in its way.
    fn looks_at_the_head_first(&self) -> bool {
        true
    }
    /// How somebody is refused; `None` for one who is left out without a word.
    fn stranger(&self, what: Extra, author: bool) -> Option<Why<'static>>;
    /// What it says of one that is to be merged; `None` where it knows no such thing.
    /// Where that comes in pages, the one that begins there.
    fn tell(&self, what: &'static str, pull: &Pull, from: usize) -> Option<Value>;
    fn commit(&self, commit: &Commit) -> Value;
    /// What a call has asked for of its answer.
    fn select(&self, _request: &Request, answer: Value) -> Value {
        answer
    }
    fn refuse(&self, why: Why<'_>) -> Answer;
    /// The newest status of each pipeline, if statuses are in pipelines: then a pending one cannot be made so again.
    fn statuses(&self, _of_pipelines: &[&Status]) -> Option<Value> {
        None
    }
    /// The status of a success.
    fn status(&self, call: Call) -> u16 {
        if matches!(call, Call::Open | Call::Comment | Call::Report) { 201 } else { 200 }
    }
}

fn shape(kind: ForgeKind) -> Arc<dyn Shape> {
    match kind {
        ForgeKind::GitHub => Arc::new(github::Shape),
        ForgeKind::GitLab => Arc::new(gitlab::Shape),
        ForgeKind::Gitea => Arc::new(gitea::Shape { is_forgejo: false }),
        ForgeKind::Forgejo => Arc::new(gitea::Shape { is_forgejo: true }),
        ForgeKind::Bitbucket => Arc::new(bitbucket::Shape),
        ForgeKind::BitbucketServer => Arc::new(bitbucket_server::Shape),
        ForgeKind::AzureDevOps => Arc::new(azure_devops::Shape),
        other => panic!("no stand-in for {other:?}"),
    }
}

#[derive(Default)]
pub struct Book {
    pub pulls: Vec<Pull>,
    pub labels: Vec<String>,
    /// Branches or tags that are named like a commit, and where they end.
    pub names: Vec<(String, String)>,
    /// What was reported on commits.
    pub statuses: Vec<Status>,
    /// The newest pipeline of each commit, at GitLab.
    pub pipeline: u64,
    /// Somebody pushes to the branch in the moment before the next merge.
    pub meddle: bool,
    /// The next answer shows what was merged as closed only: it was read in the middle of the merge.
    pub torn: bool,
    pub calls: Vec<String>,
    pub trouble: VecDeque<(Call, Trouble)>,
    /// So often the task of a merge is pending; merges take no task where this is 0.
    pub merge_takes: usize,
    /// The base has a merge queue, which merges go to.
    pub has_queue: bool,
    /// The answer to this one is lost, counted from the next, of the calls that change something.
    pub loses: usize,
    /// Goes with every answer.
    pub headers: Vec<(&'static str, String)>,
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
    shape: Arc<dyn Shape>,
    repo: Repo,
    git: String,
    book: Arc<Mutex<Book>>,
}

pub const TOKEN: &str = "t0ken";

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

impl StandIn {
    pub async fn start(kind: ForgeKind, files: &[(&str, &str)]) -> StandIn {
        let git = GitServer::start().unwrap();
        let repo = git.create_repo("fleet", files).unwrap();
        let book = Arc::new(Mutex::new(Book::default()));
        let shape = shape(kind);
        let path = shape.clone_path();
        let served = Served { kind, shape, repo: repo.clone(), git: git.url(), book: book.clone() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{path}.git", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(served);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        StandIn { kind, repo, url, book, _git: git }
    }

    pub fn book<T>(&self, look: impl FnOnce(&mut Book) -> T) -> T {
        look(&mut self.book.lock().unwrap())
    }

    /// What befalls the next call of this kind.
    pub fn trouble(&self, call: Call, trouble: Trouble) {
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
            version: 0,
            sha,
            created: Timestamp::now().round(jiff::Unit::Second).unwrap(),
        }
    }
}

/// The things of these names.
fn named(key: &str, names: &[String]) -> Value {
    names.iter().map(|name| json!({key: name})).collect()
}

/// A part of a path or a value of a query, as it was meant.
fn plain(text: &str) -> String {
    let form = format!("={}", text.replace('+', "%2B"));
    url::form_urlencoded::parse(form.as_bytes()).next().map(|(_, v)| v.into_owned()).unwrap_or_default()
}

async fn answer(
    State(served): State<Served>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let shape = served.shape.clone();
    let beside = shape
        .beside()
        .iter()
        .find_map(|(place, called)| uri.path().strip_prefix(place).map(|rest| format!("{called}{rest}")));
    let path = match uri.path().strip_prefix(shape.api()) {
        _ if beside.is_some() => beside.as_deref().unwrap(),
        Some(path) if path.is_empty() || path.starts_with('/') => path,
        _ if uri.path().starts_with(shape.clone_path()) => {
            return git::pass_on(&served, method, uri, headers, body).await;
        }
        _ => {
            let (status, value) = shape.refuse(Why::NoPath);
            return reply(&served, status, &value, (uri.path(), &headers));
        }
    };
    let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let request = Request {
        method: method.clone(),
        path: path.split('/').filter(|part| !part.is_empty()).map(plain).collect(),
        query: query.map(|(k, v)| (k.into_owned(), v.into_owned())).collect(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        headers: headers.clone(),
    };
    let ask = shape.read(&request);
    let trouble = {
        let mut book = served.book.lock().unwrap();
        book.calls.push(format!("{method} {path}"));
        let due = ask.as_ref().is_ok_and(|a| book.trouble.front().is_some_and(|(c, _)| *c == a.call()));
        if due {
            book.trouble.pop_front().unwrap().1
        } else if method != Method::GET && book.loses > 0 {
            book.loses -= 1;
            if book.loses == 0 { Trouble::Lose } else { Trouble::None }
        } else {
            Trouble::None
        }
    };
    if let Trouble::Answer(status, extra, text) = &trouble {
        let mut answer = Response::builder().status(*status);
        for (name, value) in extra {
            answer = answer.header(*name, value);
        }
        return answer.body(Body::from(*text)).unwrap();
    }
    match &trouble {
        Trouble::Slow(pause, text) => {
            tokio::time::sleep(*pause).await;
            return Response::new(Body::from(*text));
        }
        Trouble::Drip => return Response::new(dripping()),
        _ => {}
    }
    if matches!(trouble, Trouble::Hang) {
        std::future::pending::<()>().await;
    }
    let (name, expected) = shape.login();
    let known = request.headers.get(name).is_some_and(|h| h == expected.as_str());
    let done = if known { ask.and_then(|ask| served.act(ask)) } else { Err(Why::Unauthorized) };
    let (status, value) = done.unwrap_or_else(|why| shape.refuse(why));
    if matches!(trouble, Trouble::Lose) {
        // A body that breaks off takes the connection with it.
        return Response::builder().status(200).header("content-length", "1000").body(broken()).unwrap();
    }
    let value = shape.select(&request, value);
    reply(&served, status, &value, (uri.path(), &headers))
}
