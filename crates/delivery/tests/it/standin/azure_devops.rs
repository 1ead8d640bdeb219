//! Azure DevOps. Each call is compared with `api_description/azure_devops.txt` of the testkit.
//!
//! They have no error answers; these are recorded ones. Left out: fields that no adapter reads, links, auto-complete,
//! and the pages of statuses and policies.

use serde_json::{Value, json};
use sluice_testkit::LoggedCommit;

use super::check_outcome::CheckOutcome;
use super::checks::details;
use super::commit_statuses::StatusFormat;
use super::fault::CallKind;
use super::forge_api::{ForgeAnswer, ForgeApi, TOKEN, basic};
use super::github::message;
use super::merge_style::Style;
use super::parsed_call::{ListQuery, ParsedCall};
use super::pull::{MetadataKind, Pull, PullChange};
use super::rejection::CallRejection;
use super::request::{ForgeRequest, PullSelector};

pub(super) struct AzureDevOpsApi;

/// "GitStatus" of learn.microsoft.com/rest/api/azure/devops/git/statuses/create.
const STATUS: StatusFormat = StatusFormat {
    context: "/context/name",
    description: "/description",
    url: "/targetUrl",
    longest: (255, 255, 2048),
    states: ["pending", "succeeded", "failed"],
};

const BRANCH: &str = "refs/heads/";
const PREVIEW: &str = "6.0-preview.1";
const VERSIONS: [&str; 2] = ["6.0", PREVIEW];

impl ForgeApi for AzureDevOpsApi {
    fn clone_path(&self) -> &'static str {
        "/acme/platform/_git/fleet"
    }

    fn base_path(&self) -> &'static str {
        "/acme/platform/_apis/git/repositories/fleet"
    }

    fn beside(&self) -> &'static [(&'static str, &'static str)] {
        &[("/acme/platform/_apis/policy", "/../policy")]
    }

    fn login(&self) -> (&'static str, String) {
        ("authorization", basic("", TOKEN))
    }

    fn git_login(&self) -> String {
        basic("x-access-token", TOKEN)
    }

    fn etags(&self) -> bool {
        false
    }

    fn can_update_closed(&self) -> bool {
        false
    }

    fn longest_body(&self) -> usize {
        4_000
    }

    fn status(&self, call: CallKind) -> u16 {
        if call == CallKind::Open { 201 } else { 200 }
    }

    fn read(&self, request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
        check_version(request)?;
        let number = |text: &str| text.parse().map_err(|_| CallRejection::NoPath);
        let facts_of = |what: &'static str, of| Ok(ParsedCall::Facts { what, from: 0, of });
        let (method, path) = request.parts();
        match (method, path.as_slice()) {
            ("GET", []) => Ok(ParsedCall::Repository),
            ("GET", ["pullrequests"]) => read_list(request),
            ("POST", ["pullrequests"]) => read_open(request),
            ("GET", ["pullrequests", n]) => Ok(ParsedCall::Read(number(n)?)),
            ("PATCH", ["pullrequests", n]) => read_update(request, number(n)?),
            ("GET", ["..", "policy", "evaluations"]) => {
                let id = request.query("artifactId").filter(|_| is_preview(request));
                let id = id.ok_or(CallRejection::Bad("not as it is asked"))?;
                let n = id.strip_prefix("vstfs:///CodeReview/CodeReviewId/p-1/");
                facts_of("policies", PullSelector::Number(number(n.ok_or(CallRejection::NoPath)?)?))
            }
            ("GET", ["pullrequests", n, "statuses"]) => {
                needs_preview(request)?;
                facts_of("own statuses", PullSelector::Number(number(n)?))
            }
            ("GET", ["pullrequests", n, "iterations"]) => {
                facts_of("iterations", PullSelector::Number(number(n)?))
            }
            ("GET", ["commits", sha, "statuses"]) => facts_of("statuses", PullSelector::Id((*sha).into())),
            ("POST", ["pullrequests", n, "labels"]) => {
                request.only(&["name"])?;
                needs_preview(request)?;
                let name = request.text("/name").ok_or(CallRejection::Bad("name is missing"))?;
                Ok(super::github::add(number(n)?, MetadataKind::Label, vec![name]))
            }
            ("PUT", ["pullrequests", n, "reviewers", id]) => {
                request.only(&["vote"])?;
                Ok(super::github::add(number(n)?, MetadataKind::Reviewer, vec![(*id).into()]))
            }
            ("POST", ["pullrequests", n, "threads"]) => {
                request.only(&["comments", "status"])?;
                let text =
                    request.text("/comments/0/content").ok_or(CallRejection::Bad("a comment is missing"))?;
                Ok(ParsedCall::Comment { number: number(n)?, text })
            }
            ("POST", ["commits", sha, "statuses"]) => {
                request.only(&["context", "targetUrl", "state", "description"])?;
                if request.text("/context/genre").as_deref() != Some("sluice") {
                    return Err(CallRejection::Bad("the genre is who reports"));
                }
                STATUS.parse(request, sha)
            }
            ("GET", ["commits", id]) => Ok(ParsedCall::Commit((*id).into())),
            _ => Err(CallRejection::NoPath),
        }
    }

    fn pull(&self, pull: &Pull, listed: bool) -> Value {
        let status = match (&pull.merged, pull.open) {
            (Some(_), _) => "completed",
            (_, true) => "active",
            _ => "abandoned",
        };
        let mut body = pull.body.clone();
        if listed {
            body = body.chars().take(400).collect();
        }
        let queued = pull.open && (!pull.is_known() || pull.merging.is_some());
        let status_of_merge = match () {
            () if queued => "queued",
            () if pull.conflicts => "conflicts",
            () => "succeeded",
        };
        let mut value = json!({
            "pullRequestId": pull.number, "codeReviewId": pull.number, "status": status,
            "title": pull.title, "description": body,
            "creationDate": pull.created.to_string().replace('Z', ".6655471Z"),
            "sourceRefName": format!("{BRANCH}{}", pull.head), "targetRefName": format!("{BRANCH}{}", pull.base),
            "mergeStatus": status_of_merge,
            // At the time of the last merge, and so the head before while the next is queued.
            "lastMergeSourceCommit": {"commitId": if pull.is_known() || !pull.open { &pull.sha } else { &pull.before }},
            "repository": {"id": "3411ebc1-d5aa-464f-9615-0b527bc66719", "name": "fleet", "project": {"id": "p-1"}},
            "url": format!("http://forge/acme/_apis/git/repositories/3411ebc1/pullRequests/{}", pull.number),
        });
        // The commit for tests, until it is merged.
        if status_of_merge == "succeeded" {
            let commit = pull.merged.clone().unwrap_or("2".repeat(40));
            value["lastMergeCommit"] = json!({"commitId": commit});
        }
        let approved = pull.approvals.last() == Some(&pull.sha);
        let vote = |id: &str| if approved && id == "jane" { 10 } else { 0 };
        let reviewer = |id: &String| json!({"id": id, "vote": vote(id)});
        value["isDraft"] = pull.draft.into();
        value["reviewers"] = pull.reviewers.iter().map(reviewer).collect();
        if !listed {
            value["labels"] = pull.labels.iter().map(|name| json!({"name": name, "active": true})).collect();
        }
        if pull.fork {
            value["forkSource"] = json!({"name": value["sourceRefName"], "repository": {"id": "9"}});
        }
        value
    }

    fn added(&self, _pull: &Pull, what: MetadataKind, names: &[String]) -> Value {
        match what {
            MetadataKind::Label => json!({"id": "92cf83db", "name": names[0], "active": true}),
            _ => json!({"id": names[0], "vote": 0, "isFlagged": false}),
        }
    }

    fn user_rejection(&self, _what: MetadataKind, _author: bool) -> Option<CallRejection<'static>> {
        Some(CallRejection::Bad("The reviewer identity could not be found."))
    }

    fn facts(&self, what: &'static str, pull: &Pull, _from: usize) -> Option<Value> {
        if what == "own statuses" {
            // The oldest status of a context is still listed.
            let one = |(id, (name, is, of)): (usize, &(String, CheckOutcome, Option<u64>))| {
                let state = is.word("succeeded", "pending", "failed");
                json!({"id": id + 1, "state": state, "context": {"genre": null, "name": name}, "iterationId": of})
            };
            return Some(json!({"value": pull.statuses.iter().enumerate().map(one).collect::<Vec<_>>()}));
        }
        if what == "iterations" {
            let one = |id: u64, sha: &str| json!({"id": id, "sourceRefCommit": {"commitId": sha}});
            return Some(json!({"value": [one(1, &"1".repeat(40)), one(2, &pull.sha)]}));
        }
        if what == "statuses" {
            let one = |(name, is): &(&str, CheckOutcome)| {
                let url = details(name);
                let (genre, name) = name.split_once('/').unwrap_or(("", name));
                let state = is.word("succeeded", "pending", "failed");
                json!({"state": state, "context": {"genre": genre, "name": name}, "targetUrl": url})
            };
            return Some(json!({"value": pull.reported().iter().map(one).collect::<Vec<_>>()}));
        }
        let policy = |kind: &str, settings: Value, status: &str| {
            json!({
                "configuration": {
                    "isEnabled": true, "isBlocking": true, "isDeleted": false,
                    "type": {"displayName": kind}, "settings": settings,
                },
                "status": status,
            })
        };
        let build = |(name, is): &(&str, CheckOutcome)| {
            policy("Build", json!({"displayName": name}), is.word("approved", "running", "rejected"))
        };
        let mut policies: Vec<Value> = pull.required().iter().map(build).collect();
        if pull.needs > 0 {
            let status = if pull.missing() > 0 { "running" } else { "approved" };
            policies.push(policy(
                "Minimum number of reviewers",
                json!({"minimumApproverCount": pull.needs}),
                status,
            ));
        }
        let allowed = pull.style.word("allowNoFastForward", "allowSquash", "allowRebase");
        let mut styles = policy("Require a merge strategy", json!({allowed: true}), "queued");
        styles["configuration"]["type"]["id"] = "fa4e907d-c16b-4a4c-9dfa-4916e5d171ab".into();
        policies.push(styles);
        let optional = |(name, is): &(String, CheckOutcome)| {
            let mut one =
                policy("Build", json!({"displayName": name}), is.word("approved", "running", "rejected"));
            one["configuration"]["isBlocking"] = false.into();
            one
        };
        policies.extend(pull.optional.iter().map(optional));
        // One check that is started by hand, and optional approvals.
        policies.push(json!({"configuration": {"isEnabled": true, "isBlocking": false}, "status": "queued"}));
        let settings = json!({"minimumApproverCount": 1});
        policies.push(json!({"configuration": {"isEnabled": true, "isBlocking": false, "settings": settings}, "status": "running"}));
        Some(json!({"count": policies.len(), "value": policies}))
    }

    fn list(&self, page: Vec<Value>, _from: usize, _next: Option<usize>) -> Value {
        json!({"count": page.len(), "value": page})
    }

    fn commit(&self, commit: &LoggedCommit) -> Value {
        json!({"commitId": commit.sha, "comment": message(commit), "parents": commit.parents})
    }

    fn repository(&self, _style: Style) -> Value {
        json!({"id": "3411ebc1-d5aa-464f-9615-0b527bc66719", "name": "fleet"})
    }

    fn error_answer(&self, why: CallRejection<'_>) -> ForgeAnswer {
        let error = |message: &str, key: &str| {
            let name =
                format!("Microsoft.TeamFoundation.Git.Server.{key}, Microsoft.TeamFoundation.Git.Server");
            json!({
                "$id": "1", "innerException": null, "message": message, "typeName": name, "typeKey": key,
                "errorCode": 0, "eventId": 3000,
            })
        };
        match why {
            // Azure DevOps answers with its sign-in page.
            CallRejection::Unauthorized => (203, json!("<html>Azure DevOps Services | Sign In</html>")),
            CallRejection::Exists(_) => {
                let message =
                    "TF401179: An active pull request for the source and target branch already exists.";
                (409, error(message, "GitPullRequestExistsException"))
            }
            CallRejection::NoPull => (
                404,
                error(
                    "TF401180: The requested pull request was not found.",
                    "GitPullRequestNotFoundException",
                ),
            ),
            CallRejection::HeadMoved => {
                let message = "TF401192: The source branch has been modified since the last merge attempt.";
                (409, error(message, "GitPullRequestStaleException"))
            }
            CallRejection::NotMergeable(obstacle) => {
                (403, error(&obstacle.to_string(), "GitPullRequestUpdateRejectedByPolicyException"))
            }
            CallRejection::NotOpen => {
                let message = "TF401181: The pull request cannot be edited due to its state.";
                (400, error(message, "GitPullRequestNotEditableException"))
            }
            CallRejection::Bad(what) => (400, error(what, "InvalidArgumentValueException")),
            _ => (
                404,
                error(
                    "TF401019: It does not exist or you do not have permissions.",
                    "GitRepositoryNotFoundException",
                ),
            ),
        }
    }
}

fn check_version(request: &ForgeRequest) -> Result<(), CallRejection<'static>> {
    match request.query("api-version") {
        None if request.method != "GET" => {
            Err(CallRejection::Bad("No api-version was supplied for the request."))
        }
        Some(version) if !VERSIONS.contains(&version) => {
            Err(CallRejection::Bad("The requested REST API version is out of range for this server."))
        }
        _ => Ok(()),
    }
}

fn is_preview(request: &ForgeRequest) -> bool {
    request.query("api-version") == Some(PREVIEW)
}

/// Rejects a call of a resource that only the preview of the API has, if the call names another version.
fn needs_preview(request: &ForgeRequest) -> Result<(), CallRejection<'static>> {
    match is_preview(request) {
        true => Ok(()),
        false => Err(CallRejection::Bad("The requested version 6.0 of the resource is under preview.")),
    }
}

fn read_list(request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
    let open = match request.query("searchCriteria.status").unwrap_or("active") {
        "active" => true,
        "all" => false,
        _ => return Err(CallRejection::Bad("The status is not one of those that there are.")),
    };
    let head = request.query("searchCriteria.sourceRefName");
    let head = head.map(|h| h.strip_prefix(BRANCH).unwrap_or("?").to_string());
    let (from, size) = (request.number("$skip", 0), request.number("$top", 100));
    Ok(ParsedCall::List(ListQuery { head, own: false, open, from, size }))
}

fn read_open(request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
    request.only(&["sourceRefName", "targetRefName", "title", "description", "isDraft"])?;
    let branch = |key: &str| {
        let name = request.text(key).and_then(|r| r.strip_prefix(BRANCH).map(String::from));
        name.ok_or(CallRejection::Bad("A ref is written out."))
    };
    Ok(ParsedCall::Open {
        title: request.text("/title").ok_or(CallRejection::Bad("title is missing"))?,
        body: request.text("/description").unwrap_or_default(),
        head: branch("/sourceRefName")?,
        base: branch("/targetRefName")?,
        draft: request.body["isDraft"] == true,
    })
}

/// Parses an update of a pull request, which by its status can complete or abandon the pull request.
fn read_update(request: &ForgeRequest, number: u64) -> Result<ParsedCall, CallRejection<'static>> {
    request.only(&[
        "title",
        "description",
        "targetRefName",
        "status",
        "lastMergeSourceCommit",
        "completionOptions",
    ])?;
    match request.text("/status").as_deref() {
        Some("completed") => return read_completion(request, number),
        Some("abandoned") => return Ok(ParsedCall::Close { number, version: None }),
        _ => {}
    }
    let (title, body) = (request.text("/title"), request.text("/description"));
    let base = request.text("/targetRefName").map(|r| r.replace(BRANCH, ""));
    Ok(ParsedCall::Update { number, change: PullChange { title, body, base, ..PullChange::default() } })
}

fn read_completion(request: &ForgeRequest, number: u64) -> Result<ParsedCall, CallRejection<'static>> {
    let style = request.text("/completionOptions/mergeStrategy").unwrap_or_default();
    if !["", "noFastForward", "squash", "rebase", "rebaseMerge"].contains(&style.as_str()) {
        return Err(CallRejection::Bad("mergeStrategy is not one that there is"));
    }
    let style = Style::of(&style, "noFastForward", "squash", "rebase").unwrap_or(Style::Merge);
    let head = request.text("/lastMergeSourceCommit/commitId");
    let head = head.ok_or(CallRejection::Bad("nothing holds it to a head"))?;
    let message = request.text("/completionOptions/mergeCommitMessage");
    Ok(ParsedCall::Merge {
        number,
        head: Some(head),
        version: None,
        style: Some(style),
        message,
        queue: false,
    })
}
