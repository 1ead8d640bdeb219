//! The forge's book: change requests over real repositories, real merges, and what must never be
//! seen there.

use crate::git::read;
use crate::{Landing, Repo};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The trailer that says which promotion a commit carries.
const TRAILER: &str = "Sluice-Promotion: ";

/// How a change request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for a person.
    Open,
    /// It was merged, and this is the commit.
    Merged(String),
    /// It was closed unmerged.
    Closed,
}

/// A change request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its number in its repository.
    pub number: u64,
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// The branch that it proposes.
    pub head: String,
    /// The branch that it goes to.
    pub base: String,
    /// The newest commit that it proposes.
    pub sha: String,
    /// How it stands.
    pub state: State,
    /// What was said below it.
    pub comments: Vec<String>,
    /// When it was opened.
    pub created: jiff::Timestamp,
}

/// Why the forge does not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    NoBranch,
    Exists,
    NotOpen,
    OtherHead,
    Conflicts,
}

/// A repository with its change requests.
pub(super) struct Page {
    pub(super) repo: Repo,
    pub(super) requests: Vec<Request>,
    /// The heads that somebody has looked at, by number.
    reviewed: BTreeSet<(u64, String)>,
    /// People here only look: merging is left to Sluice.
    pub(super) only_reviewed: bool,
    /// The end of `main` when it was last looked through.
    seen: String,
}

/// All that the forge knows.
#[derive(Default)]
pub(super) struct Book {
    pub(super) pages: BTreeMap<String, Page>,
    /// What must never be, and was.
    pub(super) broken: Vec<String>,
}

impl Book {
    pub(super) fn add(&mut self, repo: Repo) {
        let (requests, reviewed, seen) = Default::default();
        let page = Page { repo, requests, reviewed, only_reviewed: false, seen };
        self.pages.insert(page.repo.name().to_owned(), page);
    }

    /// Adds a repository with the change requests that another has now.
    pub(super) fn copy(&mut self, of: &str, repo: Repo) {
        let (requests, reviewed, only_reviewed) = match self.pages.get(of) {
            Some(page) => (page.requests.clone(), page.reviewed.clone(), page.only_reviewed),
            None => Default::default(),
        };
        let page = Page { repo, requests, reviewed, only_reviewed, seen: String::new() };
        self.pages.insert(page.repo.name().to_owned(), page);
    }

    pub(super) fn page(&mut self, name: &str) -> Result<&mut Page, Refusal> {
        let page = self.pages.get_mut(name).ok_or(Refusal::NotFound)?;
        page.refresh();
        Ok(page)
    }

    /// Opens one, unless it is there: one for each pair of branches is all that the forge lets be, and
    /// one for each head branch all that Sluice may ask for.
    pub(super) fn open(&mut self, name: &str, draft: Request) -> Result<Request, Refusal> {
        let page = self.page(name)?;
        let sha = page.repo.head(&draft.head).map_err(|_| Refusal::NoBranch)?;
        let same = |r: &&Request| r.state == State::Open && r.head == draft.head;
        if page.requests.iter().filter(same).any(|r| r.base == draft.base) {
            return Err(Refusal::Exists);
        }
        let number = page.requests.len() as u64 + 1;
        let request = Request { number, sha, ..draft };
        page.requests.push(request.clone());
        let open = page.requests.iter().filter(|r| r.state == State::Open && r.head == request.head).count();
        if open > 1 {
            self.broken.push(format!("{open} open change requests from {} of {name}", request.head));
        }
        Ok(request)
    }

    /// Merges one at the head that is named; somebody must have looked at it.
    pub(super) fn merge(
        &mut self,
        name: &str,
        number: u64,
        pinned: Option<&str>,
        squash: bool,
    ) -> Result<String, Refusal> {
        let page = self.page(name)?;
        let request = page.request(number)?.clone();
        if request.state != State::Open {
            return Err(Refusal::NotOpen);
        }
        if pinned.is_some_and(|pinned| pinned != request.sha) {
            return Err(Refusal::OtherHead);
        }
        let unseen = !page.reviewed.contains(&(number, request.sha.clone()));
        let commit = page.merged(&request, squash).map_err(|_| Refusal::Conflicts)?;
        page.request(number)?.state = State::Merged(commit.clone());
        if unseen {
            let sha = &request.sha;
            self.broken.push(format!("{name}#{number} was merged at {sha}, which nobody had looked at"));
        }
        self.look_through(name);
        Ok(commit)
    }

    /// Looks through `main`, if it has moved: no promotion may stand there twice.
    pub(super) fn look_through(&mut self, name: &str) {
        let Some(page) = self.pages.get_mut(name) else { return };
        match page.twice() {
            Ok(twice) => {
                let found = twice.into_iter().map(|promotion| format!("{name}: {promotion} twice in main"));
                let new: Vec<String> = found.filter(|f| !self.broken.contains(f)).collect();
                self.broken.extend(new);
            }
            Err(error) => self.broken.push(format!("{name}: main cannot be read: {error:#}")),
        }
    }
}

impl Page {
    pub(super) fn request(&mut self, number: u64) -> Result<&mut Request, Refusal> {
        self.requests.iter_mut().find(|r| r.number == number).ok_or(Refusal::NotFound)
    }

    /// Brings open ones up to their branches; one whose branch is gone is closed.
    fn refresh(&mut self) {
        for request in self.requests.iter_mut().filter(|r| r.state == State::Open) {
            match self.repo.head(&request.head) {
                Ok(sha) => request.sha = sha,
                Err(_) => request.state = State::Closed,
            }
        }
    }

    /// How many are open.
    pub(super) fn open(&mut self) -> usize {
        self.refresh();
        self.requests.iter().filter(|r| r.state == State::Open).count()
    }

    /// A person looks at all that are open, and at what they propose now.
    pub(super) fn review(&mut self) -> Vec<Request> {
        self.refresh();
        let open: Vec<Request> = self.requests.iter().filter(|r| r.state == State::Open).cloned().collect();
        self.reviewed.extend(open.iter().map(|r| (r.number, r.sha.clone())));
        open
    }

    /// What stands between a change request and its merge, as GitHub's other API tells it: an approval. One of an
    /// earlier head still counts for the forge, as it does where nobody has asked it to take those back.
    pub(super) fn readiness(&self, request: &Request) -> Value {
        let heads = self.reviewed.iter().filter(|(number, _)| *number == request.number);
        let reviews: Vec<Value> =
            heads.map(|(_, sha)| json!({"state": "APPROVED", "commit": {"oid": sha}})).collect();
        let (decision, status) =
            if reviews.is_empty() { ("REVIEW_REQUIRED", "BLOCKED") } else { ("APPROVED", "CLEAN") };
        let checks =
            json!({"pageInfo": {"hasNextPage": false}, "nodes": [{"context": "ci", "state": "SUCCESS"}]});
        let commit = json!({"oid": request.sha, "statusCheckRollup": {"contexts": checks}});
        json!({
            "id": request.number.to_string(), "headRefOid": request.sha, "mergeStateStatus": status,
            "reviewDecision": decision, "latestOpinionatedReviews": {"nodes": reviews},
            "baseRef": {"refUpdateRule": {"requiredApprovingReviewCount": 1}},
            "commits": {"nodes": [{"commit": commit}]},
        })
    }

    /// The tree of a merge, if there is no conflict.
    pub(super) fn tree(&self, request: &Request) -> Result<String> {
        let base = self.repo.head(&request.base)?;
        let tree = read(self.repo.folder(), &["merge-tree", "--write-tree", &base, &request.sha])?;
        Ok(tree.lines().next().unwrap_or_default().to_owned())
    }

    fn merged(&self, request: &Request, squash: bool) -> Result<String> {
        let Request { number, title, head, sha, base, .. } = request;
        if squash {
            let range = format!("refs/heads/{base}..{sha}");
            let brought = read(self.repo.folder(), &["log", "--format=* %B", &range])?;
            let message = format!("{title} (#{number})\n\n{brought}\n");
            return self.repo.land(sha, base, Landing::Squash(&message));
        }
        let message = format!("Merge pull request #{number} from acme/{head}\n\n{title}\n");
        self.repo.land(sha, base, Landing::Merge(&message))
    }

    /// The promotions that stand in `main` more than once.
    fn twice(&mut self) -> Result<BTreeSet<String>> {
        let tip = self.repo.head("main")?;
        if tip == self.seen {
            return Ok(BTreeSet::new());
        }
        let log = read(self.repo.folder(), &["log", "--format=%B", "refs/heads/main"])?;
        self.seen = tip;
        let mut once = BTreeSet::new();
        let all = log.lines().filter_map(|line| line.trim().strip_prefix(TRAILER));
        Ok(all.filter(|promotion| !once.insert(promotion.to_string())).map(str::to_owned).collect())
    }

    /// A commit's message and parents.
    pub(super) fn commit(&self, id: &str) -> Result<(String, Vec<String>)> {
        if id.len() < 7 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            bail!("{id:?} is not the id of a commit");
        }
        let text = read(self.repo.folder(), &["show", "-s", "--format=%P%x00%B", id])?;
        let (parents, message) = text.split_once('\0').context("git show shows no commit")?;
        Ok((message.to_owned(), parents.split_whitespace().map(str::to_owned).collect()))
    }
}
