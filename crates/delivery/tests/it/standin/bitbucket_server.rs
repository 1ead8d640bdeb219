//! Bitbucket Data Center below a context path. Each call is compared with `api_description/bitbucket_server.txt` of the
//! testkit.
//!
//! The description has statuses and fields, and not which exception is answered with which; these are the ones of
//! recorded answers. Too few rights are answered with 401, like an unknown token.
//! Left out: fields that no adapter reads, tasks, and auto-merge.

use serde_json::{Value, json};
use sluice_testkit::LoggedCommit;

use super::check_outcome::CheckOutcome;
use super::checks::{Obstacle, details};
use super::commit_statuses::{BITBUCKET, StatusFormat};
use super::fault::CallKind;
use super::forge_api::{ForgeAnswer, ForgeApi, TOKEN};
use super::github::{message, parents};
use super::parsed_call::{ListQuery, ParsedCall};
use super::pull::{MetadataKind, Pull, PullChange};
use super::rejection::CallRejection;
use super::request::{ForgeRequest, PullSelector};

pub(super) struct BitbucketServerApi;

const BRANCH: &str = "refs/heads/";

impl ForgeApi for BitbucketServerApi {
    fn clone_path(&self) -> &'static str {
        "/bitbucket/scm/ACME/fleet"
    }

    fn base_path(&self) -> &'static str {
        "/bitbucket/rest/api/1.0/projects/ACME/repos/fleet"
    }

    fn beside(&self) -> &'static [(&'static str, &'static str)] {
        &[("/bitbucket/rest/build-status/1.0", "/../build-status")]
    }

    fn login(&self) -> (&'static str, String) {
        ("authorization", format!("Bearer {TOKEN}"))
    }

    fn git_login(&self) -> String {
        format!("Bearer {TOKEN}")
    }

    fn etags(&self) -> bool {
        false
    }

    fn can_update_closed(&self) -> bool {
        false
    }

    fn status(&self, call: CallKind) -> u16 {
        match call {
            CallKind::Open | CallKind::Comment => 201,
            CallKind::Report => 204,
            _ => 200,
        }
    }

    fn longest_body(&self) -> usize {
        32_768
    }

    fn read(&self, request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
        let number = |text: &str| text.parse().map_err(|_| CallRejection::NoPath);
        let (method, path) = request.parts();
        match (method, path.as_slice()) {
            ("GET", []) => Ok(ParsedCall::Repository),
            ("GET", ["pull-requests"]) => {
                // Without a direction, the list has the pull requests into the branch.
                let head = match (request.query("at"), request.query("direction")) {
                    (Some(at), Some("OUTGOING")) => {
                        Some(at.strip_prefix(BRANCH).ok_or(CallRejection::Bad("at is no ref"))?.to_string())
                    }
                    _ => return Err(CallRejection::Bad("at and direction are asked for here")),
                };
                let open = match request.query("state").unwrap_or("OPEN") {
                    "OPEN" => true,
                    "ALL" => false,
                    _ => return Err(CallRejection::Bad("state is not one of those that there are")),
                };
                let known = ["at", "direction", "state", "order", "limit", "start"];
                if request.query.iter().any(|(key, _)| !known.contains(&key.as_str())) {
                    return Err(CallRejection::Bad("the query has an unknown parameter"));
                }
                let (from, size) = (request.number("start", 0), request.number("limit", 25));
                Ok(ParsedCall::List(ListQuery { head, own: false, open, from, size }))
            }
            ("POST", ["pull-requests"]) => {
                request.only(&["title", "description", "fromRef", "toRef", "draft"])?;
                let title = request.text("/title").ok_or(CallRejection::Bad("title is missing"))?;
                let body = request.text("/description").unwrap_or_default();
                let (head, base) = (branch(request, "fromRef")?, branch(request, "toRef")?);
                let draft = request.body["draft"] == true;
                Ok(ParsedCall::Open { title, body, head, base, draft })
            }
            ("GET", ["pull-requests", n]) => Ok(ParsedCall::Read(number(n)?)),
            ("PUT", ["pull-requests", n]) => {
                request.only(&["version", "title", "description", "toRef", "reviewers"])?;
                // Users that are not in the list are removed.
                let reviewers = request.body["reviewers"].as_array().into_iter().flatten();
                let reviewers = reviewers.map(|r| r["user"]["name"].as_str().unwrap().to_string()).collect();
                let version =
                    request.body["version"].as_u64().ok_or(CallRejection::Bad("version is missing"))?;
                let change = PullChange {
                    title: request.text("/title"),
                    body: request.text("/description"),
                    base: Some(branch(request, "toRef")?),
                    reviewers: Some(reviewers),
                    version: Some(version),
                };
                Ok(ParsedCall::Update { number: number(n)?, change })
            }
            ("POST", ["pull-requests", n, "decline"]) => {
                // Without a version, the version is -1, which no pull request has.
                let version = request.query("version").map_or(u64::MAX, |v| v.parse().unwrap());
                Ok(ParsedCall::Close { number: number(n)?, version: Some(version) })
            }
            ("GET", ["..", "build-status", "commits", sha]) => {
                let from = request.number("start", 0);
                Ok(ParsedCall::Facts { what: "builds", from, of: PullSelector::Id((*sha).into()) })
            }
            ("GET", ["pull-requests", n, "merge"]) => {
                Ok(ParsedCall::Facts { what: "merge", from: 0, of: PullSelector::Number(number(n)?) })
            }
            ("POST", ["pull-requests", n, "merge"]) => {
                let version = request.query("version").map_or(u64::MAX, |v| v.parse().unwrap());
                request.only(&["message"])?;
                let (number, version, message) = (number(n)?, Some(version), request.text("/message"));
                Ok(ParsedCall::Merge { number, head: None, version, style: None, message, queue: false })
            }
            ("POST", ["pull-requests", n, "participants"]) => {
                request.only(&["user", "role"])?;
                if request.text("/role").as_deref() != Some("REVIEWER") {
                    return Err(CallRejection::Bad("role is not one that there is"));
                }
                let name = request.text("/user/name").ok_or(CallRejection::Bad("user.name is missing"))?;
                Ok(super::github::add(number(n)?, MetadataKind::Reviewer, vec![name]))
            }
            ("POST", ["pull-requests", n, "comments"]) => {
                let text = request.text("/text").ok_or(CallRejection::Bad("text is missing"))?;
                Ok(ParsedCall::Comment { number: number(n)?, text })
            }
            // The second path is that of servers before 7.4, which later ones keep.
            ("POST", ["commits", sha, "builds"] | ["..", "build-status", "commits", sha]) => {
                request.only(&["key", "name", "state", "url", "description"])?;
                StatusFormat { longest: (255, 255, 450), ..BITBUCKET }.parse(request, sha)
            }
            ("GET", ["commits", id]) => Ok(ParsedCall::Commit((*id).into())),
            _ => Err(CallRejection::NoPath),
        }
    }

    fn pull(&self, pull: &Pull, _listed: bool) -> Value {
        let state = match (&pull.merged, pull.open) {
            (Some(_), _) => "MERGED",
            (_, true) => "OPEN",
            _ => "DECLINED",
        };
        let repository = |key: &str| json!({"slug": "fleet", "project": {"key": key}});
        let outcome = if pull.conflicts { "CONFLICTED" } else { "CLEAN" };
        // Only a call for the mergeability computes it again.
        let outcome = if pull.is_known() { outcome } else { "UNKNOWN" };
        let mut properties = json!({"mergeResult": {"outcome": outcome, "current": pull.is_known()}});
        if let Some(commit) = &pull.merged {
            properties = json!({"mergeCommit": {"id": commit}});
        }
        let reviewers: Vec<Value> = pull.reviewers.iter().map(|r| reviewer(pull, r)).collect();
        json!({
            "id": pull.number, "version": pull.version, "title": pull.title, "description": pull.body,
            "state": state, "open": pull.open, "closed": !pull.open,
            "createdDate": pull.created.as_millisecond(),
            "fromRef": {
                "id": format!("{BRANCH}{}", pull.head), "displayId": pull.head, "latestCommit": pull.sha,
                "repository": repository(if pull.fork { "~STRANGER" } else { "ACME" }),
            },
            "toRef": {
                "id": format!("{BRANCH}{}", pull.base), "displayId": pull.base,
                "repository": repository("ACME"),
            },
            "reviewers": reviewers, "properties": properties, "draft": pull.draft,
            "links": {"self": [{
                "href": format!("http://forge/bitbucket/projects/ACME/repos/fleet/pull-requests/{}", pull.number),
            }]},
        })
    }

    fn added(&self, _pull: &Pull, _what: MetadataKind, names: &[String]) -> Value {
        json!({"user": {"name": names[0]}, "role": "REVIEWER", "approved": false, "status": "UNAPPROVED"})
    }

    fn user_rejection(&self, _what: MetadataKind, author: bool) -> Option<CallRejection<'static>> {
        Some(if author { CallRejection::Bad("the author is no reviewer") } else { CallRejection::NoPull })
    }

    fn facts(&self, what: &'static str, pull: &Pull, from: usize) -> Option<Value> {
        if what == "builds" {
            let one = |(name, is): &(&str, CheckOutcome)| json!({"key": name, "name": name, "url": details(name), "state": is.word("SUCCESSFUL", "INPROGRESS", "FAILED")});
            let (reported, next) = pull.reported_from(from, 100);
            return Some(self.list(reported.iter().map(one).collect(), from, next));
        }
        // Approvals of an earlier head still count.
        let missing = pull.needs.saturating_sub(pull.approvals.len());
        let words = format!("You still need {missing} approval before this pull request can be merged.");
        let veto = (missing > 0).then(|| json!({"summaryMessage": "Not all", "detailedMessage": words}));
        let vetoes: Vec<Value> = veto.into_iter().collect();
        let outcome = if pull.conflicts { "CONFLICTED" } else { "CLEAN" };
        let may = vetoes.is_empty() && !pull.conflicts;
        Some(json!({"canMerge": may, "conflicted": pull.conflicts, "outcome": outcome, "vetoes": vetoes}))
    }

    fn list(&self, page: Vec<Value>, from: usize, next: Option<usize>) -> Value {
        json!({
            "size": page.len(), "limit": 100, "start": from, "values": page,
            "isLastPage": next.is_none(), "nextPageStart": next,
        })
    }

    fn commit(&self, commit: &LoggedCommit) -> Value {
        json!({
            "id": commit.sha, "displayId": &commit.sha[..11], "message": message(commit),
            "parents": parents(commit, "id"),
        })
    }

    fn error_answer(&self, why: CallRejection<'_>) -> ForgeAnswer {
        let error = |message: &str, name: &str| json!({"errors": [{"context": null, "message": message, "exceptionName": name}]});
        match why {
            CallRejection::Unauthorized => {
                let message = "Authentication failed. Please check your credentials and try again.";
                (401, error(message, "com.atlassian.bitbucket.auth.IncorrectPasswordAuthenticationException"))
            }
            CallRejection::Exists(pull) => {
                let message = "Only one pull request may be open for a given source and target branch";
                let mut value = error(message, "com.atlassian.bitbucket.pull.DuplicatePullRequestException");
                value["errors"][0]["existingPullRequest"] = self.pull(pull, false);
                (409, value)
            }
            CallRejection::OutOfDate => {
                let message = "You are attempting to modify a pull request based on out-of-date information.";
                (409, error(message, "com.atlassian.bitbucket.pull.PullRequestOutOfDateException"))
            }
            CallRejection::NotMergeable(Obstacle::Conflicts) => {
                let message = "The pull request has conflicts which must be resolved manually.";
                let mut value =
                    error(message, "com.atlassian.bitbucket.pull.PullRequestMergeVetoedException");
                (value["errors"][0]["conflicted"], value["errors"][0]["vetoes"]) = (true.into(), json!([]));
                (409, value)
            }
            CallRejection::NotMergeable(obstacle) => {
                let (words, message) = (obstacle.to_string(), "Repository hook vetoed the merge");
                let mut value =
                    error(message, "com.atlassian.bitbucket.pull.PullRequestMergeVetoedException");
                value["errors"][0]["conflicted"] = false.into();
                value["errors"][0]["vetoes"] =
                    json!([{"summaryMessage": "Not all", "detailedMessage": words}]);
                (409, value)
            }
            CallRejection::NotOpen => {
                let message = "The pull request is not open.";
                (409, error(message, "com.atlassian.bitbucket.pull.IllegalPullRequestStateException"))
            }
            CallRejection::Bad(what) => {
                (400, error(what, "com.atlassian.bitbucket.validation.ArgumentValidationException"))
            }
            _ => (404, error("Not found.", "com.atlassian.bitbucket.NoSuchResourceException")),
        }
    }
}

fn reviewer(pull: &Pull, name: &str) -> Value {
    let approved = pull.approvals.last().filter(|_| name == "jane");
    let status = if approved.is_some() { "APPROVED" } else { "UNAPPROVED" };
    let mut value = json!({"user": {"name": name}, "role": "REVIEWER", "status": status});
    if let Some(commit) = approved {
        value["lastReviewedCommit"] = commit.as_str().into();
    }
    value
}

/// Parses a branch of the repository.
fn branch(request: &ForgeRequest, side: &str) -> Result<String, CallRejection<'static>> {
    let at = |path: &str| request.text(&format!("/{side}/{path}"));
    let here = at("repository/slug").as_deref() == Some("fleet")
        && at("repository/project/key").as_deref() == Some("ACME");
    let id = at("id").filter(|_| here).ok_or(CallRejection::Bad("a ref needs its id and its repository"))?;
    id.strip_prefix(BRANCH).map(String::from).ok_or(CallRejection::Bad("a ref is written out"))
}
