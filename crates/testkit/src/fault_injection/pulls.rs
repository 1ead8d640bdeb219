//! The records of the forge: change requests of real repositories, real merges, and the violations that were found.

use crate::git::read;
use crate::{Landing, Repo};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The trailer that names the promotion of a commit.
const TRAILER: &str = "Sluice-Promotion: ";

/// The state of a change request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullState {
    /// Open.
    Open,
    /// Merged, with this commit.
    Merged(String),
    /// Closed without a merge.
    Closed,
}

/// A change request.
#[derive(Clone, Debug)]
pub struct PullRequest {
    /// The number in the repository, from 1.
    pub number: u64,
    /// The title.
    pub title: String,
    /// The description.
    pub body: String,
    /// The head branch.
    pub head: String,
    /// The base branch.
    pub base: String,
    /// The newest commit of the head branch; the one at the end for a merged or closed change request.
    pub sha: String,
    /// The state.
    pub state: PullState,
    /// The comments, oldest first.
    pub comments: Vec<String>,
    /// The time it was opened.
    pub created: jiff::Timestamp,
}

/// Why the forge rejects a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PullError {
    NotFound,
    NoBranch,
    Exists,
    NotOpen,
    HeadMoved,
    Conflicts,
}

/// A repository with its change requests.
pub(super) struct RepoRecords {
    pub(super) repo: Repo,
    pub(super) requests: Vec<PullRequest>,
    /// The reviewed heads, with the number of the change request.
    reviewed: BTreeSet<(u64, String)>,
    /// People only review, and Sluice merges.
    pub(super) leaves_merging_to_sluice: bool,
    /// The newest commit of `main` at the last check.
    checked: String,
}

/// All records of the forge.
#[derive(Default)]
pub(super) struct ForgeRecords {
    /// The repositories by name.
    pub(super) repos: BTreeMap<String, RepoRecords>,
    /// The violations found so far.
    pub(super) violations: Vec<String>,
}

impl ForgeRecords {
    pub(super) fn add(&mut self, repo: Repo) {
        let (requests, reviewed, checked) = Default::default();
        let records = RepoRecords { repo, requests, reviewed, leaves_merging_to_sluice: false, checked };
        self.repos.insert(records.repo.name().to_owned(), records);
    }

    /// Adds a repository with the current change requests of another.
    pub(super) fn copy(&mut self, original: &str, repo: Repo) {
        let (requests, reviewed, leaves_merging_to_sluice) = match self.repos.get(original) {
            Some(records) => {
                (records.requests.clone(), records.reviewed.clone(), records.leaves_merging_to_sluice)
            }
            None => Default::default(),
        };
        let checked = String::new();
        let records = RepoRecords { repo, requests, reviewed, leaves_merging_to_sluice, checked };
        self.repos.insert(records.repo.name().to_owned(), records);
    }

    /// Returns a repository, with its change requests up to date.
    pub(super) fn repo(&mut self, name: &str) -> Result<&mut RepoRecords, PullError> {
        let records = self.repos.get_mut(name).ok_or(PullError::NotFound)?;
        records.refresh();
        Ok(records)
    }

    /// Opens a change request. The forge rejects a second one between the same branches. A second one from the same
    /// head branch is a violation.
    pub(super) fn open(&mut self, name: &str, draft: PullRequest) -> Result<PullRequest, PullError> {
        let records = self.repo(name)?;
        let sha = records.repo.head(&draft.head).map_err(|_| PullError::NoBranch)?;
        let has_head = |r: &&PullRequest| r.state == PullState::Open && r.head == draft.head;
        if records.requests.iter().filter(has_head).any(|r| r.base == draft.base) {
            return Err(PullError::Exists);
        }
        let number = records.requests.len() as u64 + 1;
        let request = PullRequest { number, sha, ..draft };
        records.requests.push(request.clone());
        let is_open = |r: &&PullRequest| r.state == PullState::Open && r.head == request.head;
        let open = records.requests.iter().filter(is_open).count();
        if open > 1 {
            self.violations.push(format!("{open} open change requests from {} of {name}", request.head));
        }
        Ok(request)
    }

    /// Merges a change request, at the expected head if one is given. A head that nobody reviewed is a violation.
    pub(super) fn merge(
        &mut self,
        name: &str,
        number: u64,
        expected_head: Option<&str>,
        squash: bool,
    ) -> Result<String, PullError> {
        let records = self.repo(name)?;
        let request = records.request(number)?.clone();
        if request.state != PullState::Open {
            return Err(PullError::NotOpen);
        }
        if expected_head.is_some_and(|head| head != request.sha) {
            return Err(PullError::HeadMoved);
        }
        let is_reviewed = records.reviewed.contains(&(number, request.sha.clone()));
        let commit = records.merge(&request, squash).map_err(|_| PullError::Conflicts)?;
        records.request(number)?.state = PullState::Merged(commit.clone());
        if !is_reviewed {
            self.violations.push(format!("{name}#{number} was merged at {}, without a review", request.sha));
        }
        self.check_main(name);
        Ok(commit)
    }

    /// Checks `main`, if it has moved: a promotion that is in it twice is a violation.
    pub(super) fn check_main(&mut self, name: &str) {
        let Some(records) = self.repos.get_mut(name) else { return };
        match records.repeated_promotions() {
            Ok(promotions) => {
                for (promotion, commits) in promotions {
                    let found = format!("{name}: {promotion} is in main twice: {commits:?}");
                    if !self.violations.contains(&found) {
                        self.violations.push(found);
                    }
                }
            }
            Err(error) => self.violations.push(format!("cannot read main of {name}: {error:#}")),
        }
    }
}

impl RepoRecords {
    pub(super) fn request(&mut self, number: u64) -> Result<&mut PullRequest, PullError> {
        self.requests.iter_mut().find(|r| r.number == number).ok_or(PullError::NotFound)
    }

    /// Reads the heads of open change requests again. One without a head branch is closed.
    fn refresh(&mut self) {
        for request in self.requests.iter_mut().filter(|r| r.state == PullState::Open) {
            match self.repo.head(&request.head) {
                Ok(sha) => request.sha = sha,
                Err(_) => request.state = PullState::Closed,
            }
        }
    }

    /// Returns the number of open change requests.
    pub(super) fn open_requests(&mut self) -> usize {
        self.refresh();
        self.requests.iter().filter(|r| r.state == PullState::Open).count()
    }

    /// Marks the current heads of all open change requests as reviewed, and returns these change requests.
    pub(super) fn review(&mut self) -> Vec<PullRequest> {
        self.refresh();
        let open: Vec<PullRequest> =
            self.requests.iter().filter(|r| r.state == PullState::Open).cloned().collect();
        self.reviewed.extend(open.iter().map(|r| (r.number, r.sha.clone())));
        open
    }

    /// Returns the state of a change request's reviews and checks, as in GitHub's GraphQL API. A review of an earlier
    /// head still counts, as at GitHub without the rule to dismiss stale reviews.
    pub(super) fn readiness(&self, request: &PullRequest) -> Value {
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

    /// Returns the tree of the merge; an error if there is a conflict.
    pub(super) fn merge_tree(&self, request: &PullRequest) -> Result<String> {
        let base = self.repo.head(&request.base)?;
        let tree = read(self.repo.folder(), &["merge-tree", "--write-tree", &base, &request.sha])?;
        Ok(tree.lines().next().unwrap_or_default().to_owned())
    }

    fn merge(&self, request: &PullRequest, squash: bool) -> Result<String> {
        let PullRequest { number, title, head, sha, base, .. } = request;
        if squash {
            let range = format!("refs/heads/{base}..{sha}");
            let messages = read(self.repo.folder(), &["log", "--format=* %B", &range])?;
            let message = format!("{title} (#{number})\n\n{messages}\n");
            return self.repo.land(sha, base, Landing::Squash(&message));
        }
        let message = format!("Merge pull request #{number} from acme/{head}\n\n{title}\n");
        self.repo.land(sha, base, Landing::Merge(&message))
    }

    /// Returns the promotions that are in `main` more than once, with the commits that carry them.
    fn repeated_promotions(&mut self) -> Result<BTreeMap<String, BTreeSet<String>>> {
        let head = self.repo.head("main")?;
        if head == self.checked {
            return Ok(BTreeMap::new());
        }
        let log = read(self.repo.folder(), &["log", "--format=%x00%h %s%n%b", "refs/heads/main"])?;
        self.checked = head;
        let mut commits: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for commit in log.split('\0') {
            let subject = commit.lines().next().unwrap_or_default();
            for promotion in commit.lines().filter_map(|line| line.trim().strip_prefix(TRAILER)) {
                commits.entry(promotion.into()).or_default().insert(subject.into());
            }
        }
        commits.retain(|_, carriers| carriers.len() > 1);
        Ok(commits)
    }

    /// Returns the message and the parents of a commit.
    pub(super) fn commit(&self, id: &str) -> Result<(String, Vec<String>)> {
        if id.len() < 7 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            bail!("{id:?} is not the id of a commit");
        }
        let text = read(self.repo.folder(), &["show", "-s", "--format=%P%x00%B", id])?;
        let (parents, message) = text.split_once('\0').context("git show shows no commit")?;
        Ok((message.to_owned(), parents.split_whitespace().map(str::to_owned).collect()))
    }
}
