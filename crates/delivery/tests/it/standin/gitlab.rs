//! GitLab. Each call is compared with `api_description/gitlab.txt` of the testkit. How it behaves: its source
//! (gitlabhq/gitlabhq of GitLab 19: lib/api/merge_requests.rb; ee/lib/api/merge_trains.rb of an earlier one).
//!
//! lib/api/commit_statuses.rb and app/services/ci/create_commit_status_service.rb for commit statuses, notes, users and
//! approvals by docs.gitlab.com/api.
//!
//! GitLab ignores unknown fields and parameters; the stand-in rejects them. Left out: fields that no adapter
//! reads, the headers of pages, and quick actions.

use serde_json::{Value, json};
use sluice_testkit::LoggedCommit;

use super::accounts::{PEOPLE, number_of};
use super::check_outcome::CheckOutcome;
use super::checks::details;
use super::commit_statuses::StatusFormat;
use super::forge_api::{ForgeAnswer, ForgeApi, TOKEN, basic};
use super::github::message;
use super::parsed_call::{ListQuery, ParsedCall};
use super::pull::{MetadataKind, Pull, PullChange};
use super::rejection::CallRejection;
use super::reported_status::ReportedStatus;
use super::request::{ForgeRequest, PullSelector};

pub(super) struct GitLabApi;

/// The id of the pipeline of every merge request.
const PIPELINE: u64 = 5;

/// docs.gitlab.com/api/commits, "Set commit pipeline status".
const STATUS: StatusFormat = StatusFormat {
    context: "/name",
    description: "/description",
    url: "/target_url",
    longest: (255, 255, 255),
    states: ["pending", "success", "failed"],
};

impl ForgeApi for GitLabApi {
    fn clone_path(&self) -> &'static str {
        "/acme/team/fleet"
    }

    fn base_path(&self) -> &'static str {
        "/api/v4/projects/acme%2Fteam%2Ffleet"
    }

    fn beside(&self) -> &'static [(&'static str, &'static str)] {
        &[("/api/v4/users", "/../users")]
    }

    fn login(&self) -> (&'static str, String) {
        ("authorization", format!("Bearer {TOKEN}"))
    }

    fn git_login(&self) -> String {
        basic("oauth2", TOKEN)
    }

    fn statuses(&self, of_pipelines: &[&ReportedStatus]) -> Option<Value> {
        Some(of_pipelines.iter().zip(1..).map(|(status, id)| shown(status, id)).collect())
    }

    fn reads_commits_by_name(&self) -> bool {
        true
    }

    fn longest_body(&self) -> usize {
        1_048_576
    }

    fn budget(&self, _path: &str) -> Vec<(&'static str, String)> {
        let reset = jiff::Timestamp::now().as_second() + 60;
        vec![
            ("ratelimit-limit", "5000".into()),
            ("ratelimit-observed", "1".into()),
            ("ratelimit-remaining", "4999".into()),
            ("ratelimit-reset", reset.to_string()),
        ]
    }

    fn read(&self, request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
        let number = |text: &str| text.parse().map_err(|_| CallRejection::NoPath);
        let facts_of = |what: &'static str, number| {
            Ok(ParsedCall::Facts { what, from: 0, of: PullSelector::Number(number) })
        };
        let (method, path) = request.parts();
        match (method, path.as_slice()) {
            ("GET", []) => Ok(ParsedCall::Repository),
            ("GET", ["merge_requests"]) => read_list(request),
            ("POST", ["merge_requests"]) => read_open(request),
            ("GET", ["merge_requests", n]) => Ok(ParsedCall::Read(number(n)?)),
            ("PUT", ["merge_requests", n]) => read_update(request, number(n)?),
            ("POST", ["merge_requests", n, "notes"]) => {
                let text = request.text("/body").ok_or(CallRejection::Bad("body is missing"))?;
                Ok(ParsedCall::Comment { number: number(n)?, text })
            }
            ("GET", ["..", "users"]) => Ok(ParsedCall::User(
                request.query("username").ok_or(CallRejection::Bad("username is missing"))?.into(),
            )),
            ("GET", ["repository", "commits", sha, "statuses"]) => read_statuses(request, sha),
            ("GET", ["merge_requests", n, "approvals"]) => facts_of("approvals", number(n)?),
            ("GET", ["merge_trains", "merge_requests", n]) => facts_of("train", number(n)?),
            ("PUT", ["merge_requests", n, "merge"]) => read_merge(request, number(n)?, false),
            ("POST", ["merge_trains", "merge_requests", n]) => read_merge(request, number(n)?, true),
            ("POST", ["statuses", sha]) => {
                request.only(&["state", "ref", "name", "description", "target_url", "pipeline_id"])?;
                if request.text("/ref").as_deref() != Some("main") {
                    return Err(CallRejection::Bad("it is to stand on the base"));
                }
                STATUS.parse(request, sha)
            }
            ("GET", ["repository", "commits", id]) => Ok(ParsedCall::Commit((*id).into())),
            _ => Err(CallRejection::NoPath),
        }
    }

    fn pull(&self, pull: &Pull, listed: bool) -> Value {
        let state = match (&pull.merged, pull.open) {
            (Some(_), _) => "merged",
            (_, true) => "opened",
            _ => "closed",
        };
        let merged_at = pull.merged.as_ref().map(|_| "2026-01-02T03:04:05.678Z");
        let known = match (pull.is_known(), pull.conflicts) {
            (false, _) => "checking",
            (_, true) => "cannot_be_merged",
            _ => "can_be_merged",
        };
        let mut value = json!({
            "id": 1000 + pull.number, "iid": pull.number, "title": pull.title, "description": pull.body,
            "web_url": format!("http://forge/acme/team/fleet/-/merge_requests/{}", pull.number),
            "state": state, "source_branch": pull.head, "target_branch": pull.base, "sha": pull.sha,
            "merge_commit_sha": pull.merged.as_ref().filter(|merged| **merged != pull.sha), "squash_commit_sha": null,
            // Not before it is known that it cannot be merged.
            "has_conflicts": known == "cannot_be_merged", "merge_status": known,
            "detailed_merge_status": merge_status(pull), "merged_at": merged_at,
            "project_id": 1, "target_project_id": 1, "source_project_id": 1 + u64::from(pull.fork),
            "created_at": pull.created.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
            "draft": pull.title.starts_with("Draft:"), "labels": pull.labels,
            "reviewers": people(&pull.reviewers), "assignees": people(&pull.assignees),
        });
        // A "MergeRequestBasic" goes without.
        if !listed {
            value["head_pipeline"] = pipeline(pull);
        }
        value
    }

    fn user_rejection(&self, _what: MetadataKind, _author: bool) -> Option<CallRejection<'static>> {
        Some(CallRejection::Bad("there is no such user"))
    }

    fn facts(&self, what: &'static str, pull: &Pull, _from: usize) -> Option<Value> {
        let word = |is: CheckOutcome| is.word("success", "running", "failed");
        Some(match what {
            "statuses" => {
                let one = |(id, (name, is)): (usize, (&str, CheckOutcome))| {
                    json!({
                        "id": id, "name": name, "status": word(is), "sha": pull.sha, "ref": "main",
                        "allow_failure": false, "target_url": details(name),
                    })
                };
                pull.reported().into_iter().enumerate().map(one).collect()
            }
            "approvals" => json!({"approvals_required": pull.needs, "approvals_left": pull.missing()}),
            "train" if !pull.queued => return None,
            // The cars of the train; of one that is asked for, the car alone.
            "queued" => json!([car()]),
            _ => car(),
        })
    }

    fn list(&self, page: Vec<Value>, _from: usize, _next: Option<usize>) -> Value {
        page.into()
    }

    fn commit(&self, commit: &LoggedCommit) -> Value {
        json!({"id": commit.sha, "message": message(commit), "parent_ids": commit.parents})
    }

    fn reported(&self, status: &ReportedStatus, id: usize) -> Value {
        shown(status, id)
    }

    fn error_answer(&self, why: CallRejection<'_>) -> ForgeAnswer {
        match why {
            CallRejection::Unauthorized => (401, json!({"message": "401 Unauthorized"})),
            CallRejection::Exists(pull) => {
                let text = format!(
                    "Another open merge request already exists for this source branch: !{}",
                    pull.number
                );
                (409, json!({"message": [text]}))
            }
            CallRejection::NoCommit => (404, json!({"message": "404 Commit Not Found"})),
            CallRejection::HeadMoved => (409, json!({"message": "SHA does not match HEAD of source branch"})),
            CallRejection::NoTransition => {
                let words = "Cannot transition status via :enqueue from :pending (Reason(s): Status cannot \
                             transition via \"enqueue\")";
                (400, json!({"message": words}))
            }
            CallRejection::NotMergeable(_) | CallRejection::NotOpen => {
                (405, json!({"message": "405 Method Not Allowed"}))
            }
            CallRejection::Bad(what) => (400, json!({"error": what})),
            _ => (404, json!({"message": "404 Not found"})),
        }
    }
}

fn read_list(request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
    let state = request.query("state").unwrap_or("all");
    if !["all", "opened", "closed", "locked", "merged"].contains(&state) {
        return Err(CallRejection::Bad("state does not have a valid value"));
    }
    let known = ["source_branch", "source_project_id", "state", "order_by", "sort", "per_page", "page"];
    if request.query.iter().any(|(key, _)| !known.contains(&key.as_str())) {
        return Err(CallRejection::Bad("the query has an unknown parameter"));
    }
    let size = request.number("per_page", 20).min(100);
    Ok(ParsedCall::List(ListQuery {
        head: request.query("source_branch").map(String::from),
        own: request.query("source_project_id") == Some("1"),
        open: state == "opened",
        from: (request.number("page", 1) - 1) * size,
        size,
    }))
}

fn read_open(request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
    request.only(&["source_branch", "target_branch", "title", "description"])?;
    let text = |key: &str| request.text(key).ok_or(CallRejection::Bad("title is missing"));
    Ok(ParsedCall::Open {
        title: text("/title")?,
        body: request.text("/description").unwrap_or_default(),
        head: text("/source_branch")?,
        base: text("/target_branch")?,
        draft: false,
    })
}

fn read_update(request: &ForgeRequest, number: u64) -> Result<ParsedCall, CallRejection<'static>> {
    request.only(&[
        "target_branch",
        "title",
        "description",
        "state_event",
        "add_labels",
        "reviewer_ids",
        "assignee_ids",
    ])?;
    if let Some(added) = added(request, number)? {
        return Ok(added);
    }
    match request.text("/state_event").as_deref() {
        Some("close") => return Ok(ParsedCall::Close { number, version: None }),
        Some(_) => return Err(CallRejection::Bad("state_event does not have a valid value")),
        None => {}
    }
    let (title, body) = (request.text("/title"), request.text("/description"));
    let base = request.text("/target_branch");
    Ok(ParsedCall::Update { number, change: PullChange { title, body, base, ..PullChange::default() } })
}

/// Parses the list of the statuses of a commit: those with a name, or those of a pipeline.
fn read_statuses(request: &ForgeRequest, sha: &str) -> Result<ParsedCall, CallRejection<'static>> {
    if let Some(context) = request.query("name") {
        return Ok(ParsedCall::Statuses(sha.into(), context.into()));
    }
    if request.query("pipeline_id") != Some(PIPELINE.to_string().as_str()) {
        return Err(CallRejection::Bad("it shows the jobs of other pipelines, too"));
    }
    Ok(ParsedCall::Facts { what: "statuses", from: 0, of: PullSelector::Id(sha.into()) })
}

/// Parses a merge, or with `queue` the addition to the merge train.
fn read_merge(
    request: &ForgeRequest,
    number: u64,
    queue: bool,
) -> Result<ParsedCall, CallRejection<'static>> {
    request.only(if queue { &["sha"] } else { &["sha", "squash_commit_message"] })?;
    let head = Some(request.text("/sha").ok_or(CallRejection::Bad("nothing holds it to a head"))?);
    let message = request.text("/squash_commit_message");
    Ok(ParsedCall::Merge { number, head, version: None, style: None, message, queue })
}

/// Parses an update that replaces a whole list. Users are numbers; those that are not in the list are removed.
fn added(request: &ForgeRequest, number: u64) -> Result<Option<ParsedCall>, CallRejection<'static>> {
    if let Some(labels) = request.text("/add_labels") {
        let names = labels.split(',').map(String::from).collect();
        return Ok(Some(ParsedCall::Add { number, what: MetadataKind::Label, names, replaces: false }));
    }
    for (key, what) in [("reviewer_ids", MetadataKind::Reviewer), ("assignee_ids", MetadataKind::Assignee)] {
        let Some(ids) = request.body[key].as_array() else { continue };
        let name = |id: &Value| PEOPLE.get(id.as_u64()?.checked_sub(1)? as usize).map(|n| n.to_string());
        let names: Option<Vec<String>> = ids.iter().map(name).collect();
        let names = names.ok_or(CallRejection::Bad("no user has this id"))?;
        return Ok(Some(ParsedCall::Add { number, what, names, replaces: true }));
    }
    Ok(None)
}

/// Returns a status that was reported.
fn shown(status: &ReportedStatus, id: usize) -> Value {
    json!({
        "id": id, "name": status.context, "status": status.is.word("success", "pending", "failed"),
        "sha": status.commit, "ref": "main", "allow_failure": false, "pipeline_id": status.pipeline,
    })
}

/// Returns a car of the merge train.
fn car() -> Value {
    json!({"id": 1, "status": "fresh", "merged_at": null})
}

fn people(names: &[String]) -> Value {
    names.iter().map(|name| json!({"id": number_of(name), "username": name})).collect()
}

fn merge_status(pull: &Pull) -> &'static str {
    let required = pull.required();
    match () {
        () if !pull.open => "not_open",
        () if !pull.is_known() => "checking",
        () if pull.conflicts => "conflict",
        () if pull.title.starts_with("Draft:") => "draft_status",
        () if required.iter().any(|(_, is)| *is != CheckOutcome::Green) => "ci_must_pass",
        () if pull.missing() > 0 => "not_approved",
        () if pull.behind => "need_rebase",
        () => "mergeable",
    }
}

/// The one that was noted last: until there is one for the head, that of an earlier head. Where the result of
/// the merge is what was checked, it has the commit of that.
fn pipeline(pull: &Pull) -> Value {
    let Some((_, _, last)) = pull.checks.last() else { return Value::Null };
    let sha = if pull.reported().is_empty() { last } else { &pull.sha };
    let status = pull.combined(sha).word("success", "running", "failed");
    match pull.results.iter().find(|(of, _)| of == sha) {
        Some((_, result)) => {
            json!({"id": PIPELINE, "sha": result, "ref": format!("refs/merge-requests/{}/merge", pull.number), "status": status, "web_url": details("pipeline")})
        }
        None => {
            json!({"id": PIPELINE, "sha": sha, "ref": format!("refs/merge-requests/{}/head", pull.number), "status": status, "web_url": details("pipeline")})
        }
    }
}
