//! GitHub Enterprise Server. Each call is compared with `api_description/github.txt` of the testkit.
//!
//! The description has no error texts; these are the ones that clients of GitHub have recorded. Left out: fields that
//! no adapter reads, the `Link` header, secondary limits, merges that a ruleset refuses, and plans without drafts.

use serde_json::{Value, json};
use sluice_testkit::LoggedCommit;
use sluice_testkit::fault_injection::github::{self, ApiError, PullQuery};

use super::check_outcome::CheckOutcome;
use super::checks::{Obstacle, details};
use super::commit_statuses::GITHUB;
use super::forge_api::{ForgeAnswer, ForgeApi, TOKEN, basic, named};
use super::graphql::Query;
use super::merge_style::Style;
use super::parsed_call::{ListQuery, ParsedCall};
use super::pull::{MetadataKind, Pull, PullChange};
use super::rejection::CallRejection;
use super::request::{ForgeRequest, PullSelector};

pub(super) struct GitHubApi;

impl ForgeApi for GitHubApi {
    fn clone_path(&self) -> &'static str {
        "/acme/fleet"
    }

    fn base_path(&self) -> &'static str {
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

    fn budget(&self, path: &str) -> Vec<(&'static str, String)> {
        let resource = if path.ends_with("/graphql") { "graphql" } else { "core" };
        let reset = jiff::Timestamp::now().as_second() + 3600;
        vec![
            ("x-ratelimit-limit", "5000".into()),
            ("x-ratelimit-remaining", "4999".into()),
            ("x-ratelimit-used", "1".into()),
            ("x-ratelimit-reset", reset.to_string()),
            ("x-ratelimit-resource", resource.into()),
        ]
    }

    fn read(&self, request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
        if request.headers.get("x-github-api-version").is_some_and(|version| version != "2022-11-28") {
            return Err(CallRejection::Bad("the version of the API is not one that there is"));
        }
        let number = |text: &str| text.parse().map_err(|_| CallRejection::NoPath);
        let (method, path) = request.parts();
        match (method, path.as_slice()) {
            ("GET", []) => Ok(ParsedCall::Repository),
            ("GET", ["pulls"]) => {
                let PullQuery { head, all, from, size } = PullQuery::read("acme", |name| request.query(name));
                Ok(ParsedCall::List(ListQuery { own: head.is_some(), head, open: !all, from, size }))
            }
            ("POST", ["pulls"]) => open(request),
            ("GET", ["pulls", n]) => Ok(ParsedCall::Read(number(n)?)),
            ("PATCH", ["pulls", n]) => change(request, number(n)?),
            ("POST", ["issues", n, "comments"]) => {
                let text = request.text("/body").ok_or(CallRejection::Bad("body is missing"))?;
                Ok(ParsedCall::Comment { number: number(n)?, text })
            }
            ("POST", ["issues", n, "labels"]) => {
                request.only(&["labels"])?;
                Ok(add(number(n)?, MetadataKind::Label, request.list("labels")))
            }
            ("POST", ["issues", n, "assignees"]) => {
                request.only(&["assignees"])?;
                Ok(add(number(n)?, MetadataKind::Assignee, request.list("assignees")))
            }
            ("POST", ["pulls", n, "requested_reviewers"]) => review(request, number(n)?),
            ("POST", ["..", "graphql"]) => graphql(request),
            ("PUT", ["pulls", n, "merge"]) => {
                request.only(&["sha", "merge_method", "commit_message"])?;
                let style = request.text("/merge_method").unwrap_or("merge".into());
                let style = Style::of(&style, "merge", "squash", "rebase");
                let style = Some(style.ok_or(CallRejection::Bad("merge_method is not one that there is"))?);
                let head =
                    Some(request.text("/sha").ok_or(CallRejection::Bad("nothing holds it to a head"))?);
                let (number, message) = (number(n)?, request.text("/commit_message"));
                Ok(ParsedCall::Merge { number, head, version: None, style, message, queue: false })
            }
            ("POST", ["statuses", sha]) => {
                request.only(&["state", "context", "description", "target_url"])?;
                GITHUB.parse(request, sha)
            }
            ("GET", ["git", "commits", id]) => Ok(ParsedCall::Commit((*id).into())),
            _ => Err(CallRejection::NoPath),
        }
    }

    fn pull(&self, pull: &Pull, listed: bool) -> Value {
        let label = if pull.fork && !pull.same_owner { "stranger" } else { "acme" };
        let mut value = show(pull);
        value["html_url"] = format!("http://forge/acme/fleet/pull/{}", pull.number).into();
        value["head"]["label"] = format!("{label}:{}", pull.head).into();
        value["base"]["label"] = format!("acme:{}", pull.base).into();
        value["base"]["repo"] = json!({"id": 1, "owner": {"login": "acme"}});
        value["head"]["repo"] = json!({"id": 1 + u64::from(pull.fork), "owner": {"login": label}});
        value["draft"] = pull.draft.into();
        let (teams, people): (Vec<String>, Vec<String>) =
            pull.reviewers.iter().cloned().partition(|name| name.contains('/'));
        let teams: Vec<String> = teams.iter().map(|team| team.replace("acme/", "")).collect();
        value["requested_reviewers"] = named("login", &people);
        value["requested_teams"] = named("slug", &teams);
        if listed {
            github::simplify(&mut value);
        } else if !pull.is_known() {
            value["mergeable"] = Value::Null;
        }
        // The commit for tests, until it is merged.
        value["merge_commit_sha"] = match &pull.merged {
            Some(merged) => merged.as_str().into(),
            None if pull.is_known() => "2".repeat(40).into(),
            None => Value::Null,
        };
        value
    }

    fn added(&self, pull: &Pull, what: MetadataKind, _names: &[String]) -> Value {
        match what {
            MetadataKind::Label => named("name", &pull.labels),
            MetadataKind::Assignee => {
                json!({"number": pull.number, "assignees": named("login", &pull.assignees)})
            }
            MetadataKind::Reviewer => self.pull(pull, true),
        }
    }

    fn added_status(&self, what: MetadataKind) -> u16 {
        if what == MetadataKind::Label { 200 } else { 201 }
    }

    fn merged(&self, pull: &Pull) -> Value {
        json!({"sha": pull.merged, "merged": true, "message": "Pull Request successfully merged"})
    }

    fn ended(&self, _pull: &Pull) -> CallRejection<'static> {
        CallRejection::NotMergeable(Obstacle::Conflicts)
    }

    fn user_rejection(&self, what: MetadataKind, author: bool) -> Option<CallRejection<'static>> {
        let words = match (what, author) {
            (MetadataKind::Assignee, false) => return None,
            (_, true) => "Review cannot be requested from pull request author.",
            _ => "Reviews may only be requested from collaborators.",
        };
        Some(CallRejection::Bad(words))
    }

    fn facts(&self, what: &'static str, pull: &Pull, from: usize) -> Option<Value> {
        let entry = pull.queued.then(|| json!({"state": "QUEUED"}));
        if what == "queued" {
            return Some(json!({"data": {"enqueuePullRequest": {"mergeQueueEntry": {"id": "MQE_1"}}}}));
        }
        let required = |name: &str| pull.requires.iter().any(|one| one == name);
        let context = |(name, is): &(&str, CheckOutcome)| match *is {
            // One of each kind.
            CheckOutcome::Pending => {
                json!({"__typename": "CheckRun", "name": name, "status": "IN_PROGRESS", "conclusion": null, "detailsUrl": details(name), "isRequired": required(name)})
            }
            CheckOutcome::Green if name.contains('/') => {
                json!({"__typename": "StatusContext", "context": name, "state": "SUCCESS", "targetUrl": details(name), "isRequired": required(name)})
            }
            is => {
                let conclusion = is.word("NEUTRAL", "", "TIMED_OUT");
                json!({"__typename": "CheckRun", "name": name, "status": "COMPLETED", "conclusion": conclusion, "detailsUrl": details(name), "isRequired": required(name)})
            }
        };
        let (reported, next) = pull.reported_from(from, 100);
        let contexts: Vec<Value> = reported.iter().map(context).collect();
        let more = json!({"hasNextPage": next.is_some(), "endCursor": next.map(|n| n.to_string())});
        let reviews: Vec<Value> =
            pull.approvals.iter().map(|sha| json!({"state": "APPROVED", "commit": {"oid": sha}})).collect();
        // Approvals of an earlier head still count.
        let decision = match pull.needs {
            0 => Value::Null,
            needs if pull.approvals.len() >= needs => "APPROVED".into(),
            _ => "REVIEW_REQUIRED".into(),
        };
        let requires: Value = pull.requires.clone().into();
        let blocked =
            pull.required().iter().any(|(_, is)| *is != CheckOutcome::Green) || decision == "REVIEW_REQUIRED";
        let reported = pull.combined(&pull.sha);
        let state = match () {
            () if !pull.is_known() => "UNKNOWN",
            () if pull.conflicts => "DIRTY",
            () if pull.draft => "DRAFT",
            () if blocked => "BLOCKED",
            () if pull.behind => "BEHIND",
            () if reported != CheckOutcome::Green => "UNSTABLE",
            () => "CLEAN",
        };
        let mergeable = match state {
            "UNKNOWN" => "UNKNOWN",
            "DIRTY" => "CONFLICTING",
            _ => "MERGEABLE",
        };
        let allows = |style: Style| pull.style == style;
        let (merge, squash, rebase) = (allows(Style::Merge), allows(Style::Squash), allows(Style::Rebase));
        // Null without reported checks, and without rules for the caller.
        let rollup = match pull.reported().is_empty() {
            true => Value::Null,
            false => json!({"contexts": {"pageInfo": more, "nodes": contexts}}),
        };
        let rule = match pull.requires.is_empty() && pull.needs == 0 {
            true => Value::Null,
            false => json!({
                "requiredApprovingReviewCount": pull.needs, "requiredStatusCheckContexts": requires,
                "requiresLinearHistory": pull.style != Style::Merge,
            }),
        };
        let pull = json!({
            "id": format!("PR_{}", pull.number), "headRefOid": pull.sha, "isDraft": pull.draft,
            "reviewDecision": decision, "mergeStateStatus": state, "mergeable": mergeable,
            "mergeQueueEntry": entry, "latestOpinionatedReviews": {"nodes": reviews},
            "baseRef": {"refUpdateRule": rule},
            "commits": {"nodes": [{"commit": {"oid": pull.sha, "statusCheckRollup": rollup}}]},
        });
        // The last method of the viewer is not the one that the repository allows.
        Some(json!({"data": {"repository": {
            "viewerDefaultMergeMethod": if merge { "SQUASH" } else { "MERGE" }, "mergeCommitAllowed": merge,
            "squashMergeAllowed": squash, "rebaseMergeAllowed": rebase, "pullRequest": pull,
        }}}))
    }

    fn list(&self, page: Vec<Value>, _from: usize, _next: Option<usize>) -> Value {
        page.into()
    }

    fn commit(&self, commit: &LoggedCommit) -> Value {
        github::commit(&commit.sha, &message(commit), &commit.parents)
    }

    fn select(&self, request: &ForgeRequest, answer: Value) -> Value {
        let query = request.text("/query").filter(|_| request.path.last().is_some_and(|p| p == "graphql"));
        match query.map(|query| Query::parse(&query)) {
            Some(Ok(query)) if answer["data"].is_object() => json!({"data": query.select(&answer["data"])}),
            _ => answer,
        }
    }

    fn request_error(&self, request: &ForgeRequest, why: CallRejection<'_>) -> ForgeAnswer {
        let is_query = request.path.last().is_some_and(|part| part == "graphql");
        let is_refused = is_query && !matches!(why, CallRejection::Unauthorized | CallRejection::Query(_));
        let (status, value) = self.error_answer(why);
        match is_refused {
            // GraphQL reports what a mutation refuses in the answer.
            true => (
                200,
                json!({"data": null, "errors": [{"message": value["message"], "type": "UNPROCESSABLE"}]}),
            ),
            false => (status, value),
        }
    }

    fn error_answer(&self, why: CallRejection<'_>) -> ForgeAnswer {
        github::error_answer(match &why {
            CallRejection::Unauthorized => ApiError::BadCredentials,
            CallRejection::Query(errors) => return (200, json!({"errors": errors})),
            CallRejection::Exists(pull) => {
                return github::error_answer(ApiError::Exists(&format!("acme:{}", pull.head)));
            }
            CallRejection::NoBranch => ApiError::NoBranch,
            CallRejection::Bad(what) => ApiError::Other(422, what),
            CallRejection::HeadMoved => ApiError::HeadMoved,
            CallRejection::NotMergeable(obstacle) => {
                return github::error_answer(ApiError::Other(405, &merge_error(obstacle)));
            }
            CallRejection::NoCommit => ApiError::Other(422, "No commit found for SHA"),
            _ => ApiError::NotFound,
        })
    }
}

/// Returns why a merge is rejected.
fn merge_error(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::Unknown | Obstacle::Conflicts => "Pull Request is not mergeable".into(),
        Obstacle::Draft => "Pull Request is still a draft".into(),
        Obstacle::Check(name) => format!("Required status check \"{name}\" is expected."),
        Obstacle::Style(style) => {
            let kind = style.word("Merge commits", "Squash merges", "Rebase merges");
            format!("{kind} are not allowed on this repository.")
        }
        other => other.to_string(),
    }
}

/// Parses the two GraphQL calls.
fn graphql(request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
    request.only(&["query", "variables"])?;
    let query = request.text("/query").ok_or(CallRejection::Bad("query is missing"))?;
    Query::parse(&query).map_err(CallRejection::Query)?;
    let accepts = request
        .headers
        .get_all("accept")
        .iter()
        .any(|h| h == "application/vnd.github.merge-info-preview+json");
    if query.contains("mergeStateStatus") && !accepts {
        let message = "Field 'mergeStateStatus' doesn't exist on type 'PullRequest'";
        return Err(CallRejection::Query(
            json!([{"message": message, "extensions": {"code": "undefinedField"}}]),
        ));
    }
    if !query.starts_with("mutation") {
        let here = request.text("/variables/owner").as_deref() == Some("acme");
        let number =
            request.body["variables"]["number"].as_u64().filter(|_| here).ok_or(CallRejection::NoPath)?;
        let from = request.text("/variables/after").map_or(0, |after| after.parse().unwrap());
        return Ok(ParsedCall::Facts { what: "readiness", from, of: PullSelector::Number(number) });
    }
    let id = request.text("/variables/id").ok_or(CallRejection::Bad("id is missing"))?;
    let number = id.strip_prefix("PR_").and_then(|n| n.parse().ok()).ok_or(CallRejection::NoPull)?;
    let head = Some(request.text("/variables/head").ok_or(CallRejection::Bad("nothing holds it to a head"))?);
    Ok(ParsedCall::Merge { number, head, version: None, style: None, message: None, queue: true })
}

pub(super) fn add(number: u64, what: MetadataKind, names: Vec<String>) -> ParsedCall {
    ParsedCall::Add { number, what, names, replaces: false }
}

pub(super) fn review(request: &ForgeRequest, number: u64) -> Result<ParsedCall, CallRejection<'static>> {
    request.only(&["reviewers", "team_reviewers"])?;
    let teams = request.list("team_reviewers").into_iter().map(|team| format!("acme/{team}"));
    Ok(add(number, MetadataKind::Reviewer, request.list("reviewers").into_iter().chain(teams).collect()))
}

pub(super) fn open(request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
    request.only(&["title", "body", "head", "base", "draft"])?;
    let draft = request.body["draft"] == true;
    let text = |key: &str| request.text(key).ok_or(CallRejection::Bad("title, head or base is missing"));
    let body = request.text("/body").unwrap_or_default();
    Ok(ParsedCall::Open { title: text("/title")?, body, head: text("/head")?, base: text("/base")?, draft })
}

pub(super) fn change(request: &ForgeRequest, number: u64) -> Result<ParsedCall, CallRejection<'static>> {
    request.only(&["title", "body", "base", "state"])?;
    if request.text("/state").as_deref() == Some("closed") {
        return Ok(ParsedCall::Close { number, version: None });
    }
    let (title, body, base) = (request.text("/title"), request.text("/body"), request.text("/base"));
    Ok(ParsedCall::Update { number, change: PullChange { title, body, base, ..PullChange::default() } })
}

pub(super) fn show(pull: &Pull) -> Value {
    let mut value = github::pull_request(&github::PullRequestFields {
        number: pull.number,
        title: &pull.title,
        body: &pull.body,
        page: format!("http://forge/acme/fleet/pulls/{}", pull.number),
        head: (&pull.head, pull.head.clone(), &pull.sha),
        base: (&pull.base, pull.base.clone()),
        is_open: pull.open,
        merged: pull.merged.as_deref(),
        created: pull.created,
    });
    value["mergeable"] = (!pull.conflicts).into();
    value["labels"] = named("name", &pull.labels);
    value["requested_reviewers"] = named("login", &pull.reviewers);
    value["assignees"] = named("login", &pull.assignees);
    value
}

pub(super) fn message(commit: &LoggedCommit) -> String {
    format!("{}\n\n{}", commit.subject, commit.body)
}

/// The parents of a commit, each with its id under a key.
pub(super) fn parents(commit: &LoggedCommit, key: &str) -> Vec<Value> {
    commit.parents.iter().map(|parent| json!({key: parent})).collect()
}
