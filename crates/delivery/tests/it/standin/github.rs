//! GitHub Enterprise Server, as docs.github.com/rest/pulls has it.

use serde_json::{Value, json};
use sluice_testkit::Commit;

use super::statuses::GITHUB;
use super::{Answer, Ask, Change, Extra, Is, Of, Pull, Request, Style, TOKEN, Wanted, Why, basic, named};

pub(super) struct Shape;

impl super::Shape for Shape {
    fn clone_path(&self) -> &'static str {
        "/acme/fleet"
    }

    fn api(&self) -> &'static str {
        "/api/v3/repos/acme/fleet"
    }

    fn beside(&self) -> &'static [(&'static str, &'static str)] {
        &[("/api/graphql", "/../graphql")]
    }

    fn login(&self) -> (&'static str, String) {
        ("authorization", format!("Bearer {TOKEN}"))
    }

    fn git_login(&self) -> String {
        basic("x-access-token", TOKEN)
    }

    fn read(&self, request: &Request) -> Result<Ask, Why<'static>> {
        let number = |text: &str| text.parse().map_err(|_| Why::NoPath);
        let (method, path) = request.parts();
        match (method, path.as_slice()) {
            ("GET", []) => Ok(Ask::Repository),
            ("GET", ["pulls"]) => {
                let head = request.query("head").map(|h| h.strip_prefix("acme:").unwrap_or("?").to_string());
                let size = request.number("per_page", 30).min(100);
                let from = (request.number("page", 1) - 1) * size;
                let open = request.query("state") != Some("all");
                Ok(Ask::List(Wanted { own: head.is_some(), head, open, from, size }))
            }
            ("POST", ["pulls"]) => open(request),
            ("GET", ["pulls", n]) => Ok(Ask::Read(number(n)?)),
            ("PATCH", ["pulls", n]) => change(request, number(n)?),
            ("POST", ["issues", n, "comments"]) => {
                let text = request.text("/body").ok_or(Why::Bad("body is missing"))?;
                Ok(Ask::Comment { number: number(n)?, text })
            }
            ("POST", ["issues", n, "labels"]) => {
                request.only(&["labels"])?;
                Ok(add(number(n)?, Extra::Label, request.list("labels")))
            }
            ("POST", ["issues", n, "assignees"]) => {
                request.only(&["assignees"])?;
                Ok(add(number(n)?, Extra::Assignee, request.list("assignees")))
            }
            ("POST", ["pulls", n, "requested_reviewers"]) => review(request, number(n)?),
            ("POST", ["..", "graphql"]) => graphql(request),
            ("PUT", ["pulls", n, "merge"]) => {
                request.only(&["sha", "merge_method", "commit_message"])?;
                let style = request.text("/merge_method").unwrap_or("merge".into());
                let style = Style::of(&style, "merge", "squash", "rebase");
                let style = Some(style.ok_or(Why::Bad("merge_method is not one that there is"))?);
                let head = Some(request.text("/sha").ok_or(Why::Bad("nothing holds it to a head"))?);
                let (number, message) = (number(n)?, request.text("/commit_message"));
                Ok(Ask::Merge { number, head, version: None, style, message, queue: false })
            }
            ("POST", ["statuses", sha]) => {
                request.only(&["state", "context", "description", "target_url"])?;
                GITHUB.read(request, sha)
            }
            ("GET", ["git", "commits", id]) => Ok(Ask::Commit((*id).into())),
            _ => Err(Why::NoPath),
        }
    }

    fn pull(&self, pull: &Pull, _listed: bool) -> Value {
        let label = if pull.fork { "stranger" } else { "acme" };
        let mut value = show(pull);
        value["head"]["label"] = format!("{label}:{}", pull.head).into();
        value["base"]["repo"] = json!({"owner": {"login": "acme"}});
        value["draft"] = pull.draft.into();
        value
    }

    fn added(&self, pull: &Pull, what: Extra, _names: &[String]) -> Value {
        match what {
            Extra::Label => named("name", &pull.labels),
            Extra::Assignee => json!({"number": pull.number, "assignees": named("login", &pull.assignees)}),
            Extra::Reviewer => self.pull(pull, false),
        }
    }

    fn stranger(&self, what: Extra, author: bool) -> Option<Why<'static>> {
        let words = match (what, author) {
            (Extra::Assignee, false) => return None,
            (_, true) => "Review cannot be requested from pull request author.",
            _ => "Reviews may only be requested from collaborators.",
        };
        Some(Why::Bad(words))
    }

    fn tell(&self, what: &'static str, pull: &Pull, from: usize) -> Option<Value> {
        let entry = pull.queued.then(|| json!({"state": "QUEUED"}));
        if what == "queued" {
            return Some(json!({"data": {"enqueuePullRequest": {"mergeQueueEntry": {"id": "MQE_1"}}}}));
        }
        let required = |name: &str| pull.requires.iter().any(|one| one == name);
        let context = |(name, is): &(&str, Is)| match *is {
            // One of each kind.
            Is::Pending => {
                json!({"name": name, "status": "IN_PROGRESS", "conclusion": null, "isRequired": required(name)})
            }
            Is::Green if name.contains('/') => {
                json!({"context": name, "state": "SUCCESS", "isRequired": required(name)})
            }
            is => {
                let conclusion = is.word("NEUTRAL", "", "TIMED_OUT");
                json!({"name": name, "status": "COMPLETED", "conclusion": conclusion, "isRequired": required(name)})
            }
        };
        let (reported, next) = pull.reported_from(from, 100);
        let contexts: Vec<Value> = reported.iter().map(context).collect();
        let more = json!({"hasNextPage": next.is_some(), "endCursor": next.map(|n| n.to_string())});
        let reviews: Vec<Value> =
            pull.approvals.iter().map(|sha| json!({"state": "APPROVED", "commit": {"oid": sha}})).collect();
        // Approvals of an earlier head still count for it.
        let decision = match pull.needs {
            0 => Value::Null,
            needs if pull.approvals.len() >= needs => "APPROVED".into(),
            _ => "REVIEW_REQUIRED".into(),
        };
        let clean = pull.required().iter().all(|(_, is)| *is == Is::Green) && decision != "REVIEW_REQUIRED";
        let state = match clean {
            true if pull.behind => "BEHIND",
            true => "CLEAN",
            false => "BLOCKED",
        };
        let allows = |style: Style| pull.style == style;
        let (merge, squash, rebase) = (allows(Style::Merge), allows(Style::Squash), allows(Style::Rebase));
        let requires: Value = pull.requires.clone().into();
        let pull = json!({
            "id": format!("PR_{}", pull.number), "headRefOid": pull.sha, "reviewDecision": decision,
            "mergeStateStatus": state, "mergeQueueEntry": entry,
            "latestOpinionatedReviews": {"nodes": reviews},
            "baseRef": {"refUpdateRule": {"requiredApprovingReviewCount": pull.needs}},
            "commits": {"nodes": [{"commit": {"oid": pull.sha, "statusCheckRollup": {"contexts": {"pageInfo": more, "nodes": contexts}}}}]},
        });
        let mut pull = pull;
        if what != "readiness" {
            pull["mergeStateStatus"] = Value::Null;
            pull["mergeable"] = "MERGEABLE".into();
            pull["baseRef"]["refUpdateRule"]["requiredStatusCheckContexts"] = requires;
        }
        // What the viewer used last says nothing of what the repository allows.
        Some(json!({"data": {"repository": {
            "viewerDefaultMergeMethod": if merge { "SQUASH" } else { "MERGE" }, "mergeCommitAllowed": merge,
            "squashMergeAllowed": squash, "rebaseMergeAllowed": rebase, "pullRequest": pull,
        }}}))
    }

    fn list(&self, page: Vec<Value>, _from: usize, _next: Option<usize>) -> Value {
        page.into()
    }

    fn commit(&self, commit: &Commit) -> Value {
        json!({"sha": commit.sha, "message": message(commit), "parents": parents(commit, "sha")})
    }

    fn refuse(&self, why: Why<'_>) -> Answer {
        let failed = |error: Value| (422, json!({"message": "Validation Failed", "errors": [error]}));
        match why {
            Why::Unauthorized => (401, json!({"message": "Bad credentials"})),
            Why::NoField(field) => {
                let message = format!("Field '{field}' doesn't exist on type 'PullRequest'");
                let error =
                    json!({"message": message, "extensions": {"code": "undefinedField", "fieldName": field}});
                (200, json!({"errors": [error]}))
            }
            Why::Exists(pull) => failed(json!({
                "resource": "PullRequest", "code": "custom",
                "message": format!("A pull request already exists for acme:{}.", pull.head),
            })),
            Why::NoBranch => failed(json!({"resource": "PullRequest", "field": "head", "code": "invalid"})),
            Why::Bad(what) => failed(json!({"message": what})),
            Why::HeadMoved => {
                (409, json!({"message": "Head branch was modified. Review and try the merge again."}))
            }
            Why::NoCommit => (422, json!({"message": "No commit found for SHA"})),
            Why::NotMergeable(words) => (405, json!({"message": words})),
            Why::NotOpen => failed(json!({"message": "Cannot change a closed one"})),
            _ => (404, json!({"message": "Not Found"})),
        }
    }
}

/// The two calls of the other API that are made.
fn graphql(request: &Request) -> Result<Ask, Why<'static>> {
    request.only(&["query", "variables"])?;
    let query = request.text("/query").ok_or(Why::Bad("query is missing"))?;
    if query.matches('{').count() != query.matches('}').count() {
        return Err(Why::Bad("Parse error"));
    }
    let accepts = request
        .headers
        .get_all("accept")
        .iter()
        .any(|h| h == "application/vnd.github.merge-info-preview+json");
    if query.contains("mergeStateStatus") && !accepts {
        return Err(Why::NoField("mergeStateStatus"));
    }
    if !query.starts_with("mutation") {
        let here = request.text("/variables/owner").as_deref() == Some("acme");
        let number = request.body["variables"]["number"].as_u64().filter(|_| here).ok_or(Why::NoPath)?;
        let from = request.text("/variables/after").map_or(0, |after| after.parse().unwrap());
        let what = if query.contains("mergeStateStatus") { "readiness" } else { "readiness, in older words" };
        return Ok(Ask::Tell { what, from, of: Of::Number(number) });
    }
    let id = request.text("/variables/id").ok_or(Why::Bad("id is missing"))?;
    let number = id.strip_prefix("PR_").and_then(|n| n.parse().ok()).ok_or(Why::NoPull)?;
    let head = Some(request.text("/variables/head").ok_or(Why::Bad("nothing holds it to a head"))?);
    Ok(Ask::Merge { number, head, version: None, style: None, message: None, queue: true })
}

pub(super) fn add(number: u64, what: Extra, names: Vec<String>) -> Ask {
    Ask::Add { number, what, names, replaces: false }
}

pub(super) fn review(request: &Request, number: u64) -> Result<Ask, Why<'static>> {
    request.only(&["reviewers", "team_reviewers"])?;
    let teams = request.list("team_reviewers").into_iter().map(|team| format!("acme/{team}"));
    Ok(add(number, Extra::Reviewer, request.list("reviewers").into_iter().chain(teams).collect()))
}

pub(super) fn open(request: &Request) -> Result<Ask, Why<'static>> {
    request.only(&["title", "body", "head", "base", "draft"])?;
    let draft = request.body["draft"] == true;
    let text = |key: &str| request.text(key).ok_or(Why::Bad("title, head or base is missing"));
    let body = request.text("/body").unwrap_or_default();
    Ok(Ask::Open { title: text("/title")?, body, head: text("/head")?, base: text("/base")?, draft })
}

pub(super) fn change(request: &Request, number: u64) -> Result<Ask, Why<'static>> {
    request.only(&["title", "body", "base", "state"])?;
    if request.text("/state").as_deref() == Some("closed") {
        return Ok(Ask::Close { number, version: None });
    }
    let (title, body, base) = (request.text("/title"), request.text("/body"), request.text("/base"));
    Ok(Ask::Update { number, change: Change { title, body, base, ..Change::default() } })
}

pub(super) fn show(pull: &Pull) -> Value {
    json!({
        "number": pull.number, "title": pull.title, "body": pull.body,
        "html_url": format!("http://forge/acme/fleet/pulls/{}", pull.number),
        "state": if pull.open { "open" } else { "closed" },
        "mergeable": !pull.conflicts,
        "merged": pull.merged.is_some(), "merge_commit_sha": pull.merged,
        "merged_at": pull.merged.as_ref().map(|_| "2026-01-02T03:04:05Z"),
        "created_at": pull.created.to_string(),
        "head": {"ref": pull.head, "label": pull.head, "sha": pull.sha},
        "base": {"ref": pull.base, "label": pull.base},
        "labels": named("name", &pull.labels),
        "requested_reviewers": named("login", &pull.reviewers),
        "assignees": named("login", &pull.assignees),
    })
}

pub(super) fn message(commit: &Commit) -> String {
    format!("{}\n\n{}", commit.subject, commit.body)
}

/// The parents of a commit, each with its id under a key.
pub(super) fn parents(commit: &Commit, key: &str) -> Vec<Value> {
    commit.parents.iter().map(|parent| json!({key: parent})).collect()
}
