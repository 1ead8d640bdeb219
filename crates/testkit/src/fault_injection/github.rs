//! GitHub's REST API as docs.github.com/rest/pulls documents it: parameters, objects and errors, for every imitation of
//! GitHub in the tests.

use serde_json::{Value, json};

/// A status and a body.
pub type ApiAnswer = (u16, Value);

/// The parameters of "List pull requests".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullQuery {
    /// The head branch, without its owner.
    pub head: Option<String>,
    /// Whether closed pull requests are listed, too.
    pub all: bool,
    /// The index of the first entry.
    pub from: usize,
    /// The number of entries on a page.
    pub size: usize,
}

impl PullQuery {
    /// Reads the parameters of a query for the repository of an owner.
    pub fn read<'a>(owner: &str, parameter: impl Fn(&str) -> Option<&'a str>) -> Self {
        let number = |name: &str, default: usize| {
            parameter(name).and_then(|text| text.parse().ok()).unwrap_or(default).max(1)
        };
        // The name of no branch, if the head is in another owner's repository.
        let branch = |head: &str| match head.split_once(':') {
            Some((of, branch)) if of == owner => branch.to_owned(),
            _ => "?".to_owned(),
        };
        let size = number("per_page", 30).min(100);
        let from = (number("page", 1) - 1) * size;
        let (head, all) = (parameter("head").map(branch), parameter("state") == Some("all"));
        PullQuery { head, all, from, size }
    }
}

/// The fields of a pull request that all answers contain.
#[derive(Clone, Debug)]
pub struct PullRequestFields<'a> {
    /// The number in its repository.
    pub number: u64,
    /// The title.
    pub title: &'a str,
    /// The description.
    pub body: &'a str,
    /// The address of its page.
    pub page: String,
    /// The head branch, its label (`owner:branch`) and its commit.
    pub head: (&'a str, String, &'a str),
    /// The base branch and its label.
    pub base: (&'a str, String),
    /// Whether it is open.
    pub is_open: bool,
    /// The commit of its merge.
    pub merged: Option<&'a str>,
    /// The time it was opened.
    pub created: jiff::Timestamp,
}

/// Returns the JSON object of a pull request: `pull-request` of the description.
pub fn pull_request(pull: &PullRequestFields<'_>) -> Value {
    // The description requires the head of the base, which Sluice does not read.
    let base_sha = "0".repeat(40);
    let side = |name: &str, label: &str, sha: &str| {
        let owner = label.split(':').next();
        json!({"ref": name, "label": label, "sha": sha, "repo": {"id": 1, "owner": {"login": owner}}})
    };
    json!({
        "number": pull.number, "title": pull.title, "body": pull.body, "html_url": pull.page,
        "state": if pull.is_open { "open" } else { "closed" },
        "merged": pull.merged.is_some(), "merge_commit_sha": pull.merged, "mergeable": null, "labels": [],
        "merged_at": pull.merged.map(|_| "2026-01-02T03:04:05Z"), "created_at": pull.created.to_string(),
        "head": side(pull.head.0, &pull.head.1, pull.head.2),
        "base": side(pull.base.0, &pull.base.1, &base_sha),
    })
}

/// Removes the fields that a pull request does not have in a list: `pull-request-simple` of the description.
pub fn simplify(pull: &mut Value) {
    if let Some(fields) = pull.as_object_mut() {
        fields.remove("merged");
        fields.remove("mergeable");
    }
}

/// Returns the JSON object of a commit.
pub fn commit(sha: &str, message: &str, parents: &[String]) -> Value {
    let parents: Vec<Value> = parents.iter().map(|sha| json!({"sha": sha})).collect();
    json!({"sha": sha, "message": message, "parents": parents})
}

/// Why GitHub rejects a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError<'a> {
    /// The token is unknown.
    BadCredentials,
    /// The path or object does not exist.
    NotFound,
    /// There is an open pull request from this branch, `owner:branch`.
    Exists(&'a str),
    /// The head branch does not exist.
    NoBranch,
    /// The pull request cannot be merged.
    NotMergeable,
    /// The head is another commit than the expected one.
    HeadMoved,
    /// Another error, with its status and message.
    Other(u16, &'a str),
}

/// Returns the answer with an error.
pub fn error_answer(error: ApiError<'_>) -> ApiAnswer {
    let with_message = |status: u16, message: &str| {
        let page = "https://docs.github.com/rest";
        (status, json!({"message": message, "documentation_url": page, "status": status.to_string()}))
    };
    let validation_failed = |error: Value| {
        let (status, mut value) = with_message(422, "Validation Failed");
        value["errors"] = json!([error]);
        (status, value)
    };
    match error {
        ApiError::BadCredentials => with_message(401, "Bad credentials"),
        ApiError::NotFound => with_message(404, "Not Found"),
        ApiError::Exists(head) => validation_failed(json!({
            "resource": "PullRequest", "code": "custom",
            "message": format!("A pull request already exists for {head}."),
        })),
        ApiError::NoBranch => {
            validation_failed(json!({"resource": "PullRequest", "field": "head", "code": "invalid"}))
        }
        ApiError::NotMergeable => with_message(405, "Pull Request is not mergeable"),
        ApiError::HeadMoved => with_message(409, "Head branch was modified. Review and try the merge again."),
        ApiError::Other(status, message) => with_message(status, message),
    }
}
