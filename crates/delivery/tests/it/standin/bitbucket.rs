//! Bitbucket Cloud. Each call is compared with `api_description/bitbucket.txt` of the testkit. A branch's merge strategies are left out unless `fields` asks for them, a merge that takes long is answered
//! with 202 and a task, and where the base has a merge queue a merge puts the pull request into it.
//! A second POST for the same branches returns the pull request that is open.

use serde_json::{Value, json};
use sluice_testkit::LoggedCommit;

use super::check_outcome::CheckOutcome;
use super::checks::details;
use super::commit_statuses::BITBUCKET;
use super::forge_api::{ForgeAnswer, ForgeApi, TOKEN, basic};
use super::github::{message, parents};
use super::merge_style::Style;
use super::parsed_call::{ListQuery, ParsedCall};
use super::pull::{MetadataKind, Pull, PullChange};
use super::rejection::CallRejection;
use super::reported_status::ReportedStatus;
use super::request::{ForgeRequest, PullSelector};

pub(super) struct BitbucketApi;

/// The documented fields that an answer leaves out, as `fields` adds them ("Partial responses").
const ADDED_FIELDS: [&str; 2] =
    ["+destination.branch.default_merge_strategy", "+destination.branch.merge_strategies"];

/// The path of the task of a slow merge.
const TASK: &str = "/2.0/repositories/acme/fleet/pullrequests/1/merge/task-status/7f3c";

impl ForgeApi for BitbucketApi {
    fn clone_path(&self) -> &'static str {
        "/acme/fleet"
    }

    fn base_path(&self) -> &'static str {
        "/2.0/repositories/acme/fleet"
    }

    fn login(&self) -> (&'static str, String) {
        ("authorization", format!("Bearer {TOKEN}"))
    }

    fn git_login(&self) -> String {
        basic("x-token-auth", TOKEN)
    }

    fn etags(&self) -> bool {
        false
    }

    fn can_update_closed(&self) -> bool {
        false
    }

    // Not documented, and not excluded by the documentation.
    fn reads_commits_by_name(&self) -> bool {
        true
    }

    fn returns_the_first(&self) -> bool {
        true
    }

    fn read(&self, request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
        let number = |text: &str| text.parse().map_err(|_| CallRejection::NoPath);
        let (method, path) = request.parts();
        match (method, path.as_slice()) {
            ("GET", []) => Ok(ParsedCall::Repository),
            ("GET", ["pullrequests"]) => list(request),
            ("POST", ["pullrequests"]) => {
                request.only(&["title", "description", "source", "destination", "draft"])?;
                let text =
                    |key: &str| request.text(key).ok_or(CallRejection::Bad("title or source is missing"));
                Ok(ParsedCall::Open {
                    title: text("/title")?,
                    body: request.text("/description").unwrap_or_default(),
                    head: text("/source/branch/name")?,
                    base: text("/destination/branch/name")?,
                    draft: request.body["draft"] == true,
                })
            }
            ("GET", ["pullrequests", n]) => match request.query("fields") {
                Some(fields) if fields.split(',').all(|field| ADDED_FIELDS.contains(&field)) => {
                    Ok(ParsedCall::Facts {
                        what: "with strategies",
                        from: 0,
                        of: PullSelector::Number(number(n)?),
                    })
                }
                Some(_) => Err(CallRejection::Bad("fields: not a field that is left out by default")),
                None => Ok(ParsedCall::Read(number(n)?)),
            },
            ("GET", ["pullrequests", n, "merge", "task-status", "7f3c"]) => Ok(ParsedCall::Task(number(n)?)),
            ("PUT", ["pullrequests", n]) => {
                request.only(&["title", "description", "destination", "reviewers"])?;
                // Users that are not in the list are removed.
                let reviewers = request.body["reviewers"].as_array().into_iter().flatten();
                let id = |r: &Value| r["uuid"].as_str().or(r["account_id"].as_str()).unwrap().to_string();
                let reviewers = reviewers.map(id).collect();
                let change = PullChange {
                    title: request.text("/title"),
                    body: request.text("/description"),
                    base: request.text("/destination/branch/name"),
                    reviewers: Some(reviewers),
                    version: None,
                };
                Ok(ParsedCall::Update { number: number(n)?, change })
            }
            ("POST", ["pullrequests", n, "decline"]) => {
                Ok(ParsedCall::Close { number: number(n)?, version: None })
            }
            ("POST", ["pullrequests", n, "comments"]) => {
                let text =
                    request.text("/content/raw").ok_or(CallRejection::Bad("content.raw is missing"))?;
                Ok(ParsedCall::Comment { number: number(n)?, text })
            }
            ("GET", ["commit", sha, "statuses"]) => {
                let from = (request.number("page", 1) - 1) * 100;
                Ok(ParsedCall::Facts { what: "statuses", from, of: PullSelector::Head((*sha).into()) })
            }
            ("GET", ["pullrequests", n, "conflicts"]) => {
                Ok(ParsedCall::Facts { what: "elsewhere", from: 0, of: PullSelector::Number(number(n)?) })
            }
            ("GET", ["file-conflicts", compared]) => {
                let head = compared.split("..").next().unwrap_or_default();
                Ok(ParsedCall::Facts { what: "conflicts", from: 0, of: PullSelector::Head(head.into()) })
            }
            ("POST", ["pullrequests", n, "merge"]) => {
                request.only(&["type", "merge_strategy", "message"])?;
                let style = request.text("/merge_strategy").unwrap_or("merge_commit".into());
                let style = Style::of(&style, "merge_commit", "squash", "fast_forward");
                let style = Some(style.ok_or(CallRejection::Bad("merge_strategy: not one that there is"))?);
                let (number, message) = (number(n)?, request.text("/message"));
                Ok(ParsedCall::Merge { number, head: None, version: None, style, message, queue: false })
            }
            ("POST", ["commit", sha, "statuses", "build"]) => {
                request.only(&["key", "name", "state", "url", "description"])?;
                BITBUCKET.parse(request, sha)
            }
            ("GET", ["commit", id]) => Ok(ParsedCall::Commit((*id).into())),
            _ => Err(CallRejection::NoPath),
        }
    }

    fn pull(&self, pull: &Pull, listed: bool) -> Value {
        let state = match (&pull.merged, pull.open) {
            (Some(_), _) => "MERGED",
            (_, true) => "OPEN",
            _ => "DECLINED",
        };
        let short = |id: &str| json!({"hash": &id[..12]});
        let owner = if pull.fork { "stranger/fleet" } else { "acme/fleet" };
        let mut value = json!({
            "type": "pullrequest", "id": pull.number, "title": pull.title, "description": pull.body,
            "links": {"html": {"href": format!("http://forge/acme/fleet/pull-requests/{}", pull.number)}},
            "state": state, "created_on": pull.created.to_string().replace('Z', ".000001+00:00"),
            "source": {
                "branch": {"name": pull.head}, "commit": short(&pull.sha), "repository": {"full_name": owner},
            },
            "destination": {"branch": {"name": pull.base}, "repository": {"full_name": "acme/fleet"}},
            "merge_commit": pull.merged.as_deref().map(short), "draft": pull.draft, "queued": pull.queued,
        });
        if !listed {
            // Lists omit the reviewers "for performance reasons".
            let reviewers: Vec<Value> = pull.reviewers.iter().map(|r| json!({"uuid": r})).collect();
            value["reviewers"] = reviewers.into();
        }
        value
    }

    fn user_rejection(&self, _what: MetadataKind, author: bool) -> Option<CallRejection<'static>> {
        Some(CallRejection::Bad(match author {
            true => "Sluice is the author and cannot be included as a reviewer.",
            false => "reviewers: Malformed reviewers list",
        }))
    }

    fn facts(&self, what: &'static str, pull: &Pull, from: usize) -> Option<Value> {
        let file = json!({"type": "file_conflict", "path": "apps/prod.yaml", "scenario": "content"});
        match what {
            "with strategies" => {
                let mut value = self.pull(pull, false);
                let style = pull.style.word("merge_commit", "squash", "fast_forward");
                value["destination"]["branch"]["default_merge_strategy"] = style.into();
                value["destination"]["branch"]["merge_strategies"] = json!([style]);
                return Some(value);
            }
            "task" => {
                let merged = pull.merged.is_some();
                let status = if merged { "SUCCESS" } else { "PENDING" };
                let mut task = json!({"task_status": status, "links": {"self": {"href": TASK}}});
                if merged {
                    task["merge_result"] = self.pull(pull, false);
                }
                return Some(task);
            }
            "slow merge" => return Some(json!({"location": TASK})),
            "queued" => return Some(self.pull(pull, false)),
            "elsewhere" => {
                let compared = format!("{}..{}", pull.sha, pull.base);
                let to = format!("/2.0/repositories/acme/fleet/file-conflicts/{compared}?pagelen=1");
                return Some(json!({"location": to}));
            }
            "conflicts" => return Some(json!({"values": if pull.conflicts { vec![file] } else { vec![] }})),
            _ => {}
        }
        let (reported, next) = pull.reported_from(from, 100);
        let of = format!("http://forge/2.0/repositories/acme/fleet/commit/{}", pull.sha);
        let one = |(name, is): &(&str, CheckOutcome)| json!({"links": {"commit": {"href": of}}, "key": name, "name": name, "url": details(name), "state": is.word("SUCCESSFUL", "INPROGRESS", "FAILED")});
        let mut page = json!({"values": reported.iter().map(one).collect::<Vec<_>>()});
        if next.is_some() {
            page["next"] = "http://forge/2.0/repositories/acme/fleet/commit/0/statuses?page=2".into();
        }
        Some(page)
    }

    fn list(&self, page: Vec<Value>, _from: usize, next: Option<usize>) -> Value {
        let mut list = json!({"values": page, "pagelen": 50});
        if next.is_some() {
            list["next"] = "http://forge/2.0/repositories/acme/fleet/pullrequests?page=2".into();
        }
        list
    }

    fn commit(&self, commit: &LoggedCommit) -> Value {
        json!({"type": "commit", "hash": commit.sha, "message": message(commit), "parents": parents(commit, "hash")})
    }

    fn repository(&self, _style: Style) -> Value {
        json!({"type": "repository", "name": "fleet", "full_name": "acme/fleet"})
    }

    fn reported(&self, status: &ReportedStatus, _id: usize) -> Value {
        json!({"type": "build", "key": status.context, "state": status.is.word("SUCCESSFUL", "INPROGRESS", "FAILED")})
    }

    fn error_answer(&self, why: CallRejection<'_>) -> ForgeAnswer {
        let error = |message: &str| json!({"type": "error", "error": {"message": message}});
        match why {
            CallRejection::Unauthorized => {
                (401, error("Token is invalid, expired, or not supported for this endpoint."))
            }
            CallRejection::NotOpen => (400, error("This pull request is already closed.")),
            CallRejection::NotMergeable(obstacle) => (400, error(&obstacle.to_string())),
            CallRejection::NoBranch => (400, error("source: branch not found")),
            CallRejection::Bad(what) => (400, error(what)),
            _ => (404, error("Resource not found")),
        }
    }
}

/// Lists open pull requests by default. A filter selects the branch and the states, and replaces the parameter `state`.
/// A page has at most 50 entries.
fn list(request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
    let size = request.number("pagelen", 10);
    if size > 50 {
        return Err(CallRejection::Bad("Invalid pagelen"));
    }
    let (mut head, mut open) = (None, request.query("state").is_none_or(|state| state == "OPEN"));
    if let Some(q) = request.query("q") {
        let named = q.strip_prefix("source.branch.name=\"").and_then(|rest| rest.split_once('"'));
        let (name, states) = named.ok_or(CallRejection::Bad("Invalid filter"))?;
        let states = states.replace("state=", "");
        open = match states.as_str() {
            " AND (\"OPEN\")" => true,
            "" | " AND (\"OPEN\" OR \"MERGED\" OR \"DECLINED\" OR \"SUPERSEDED\")" => false,
            _ => return Err(CallRejection::Bad("Invalid filter")),
        };
        head = Some(name.to_string());
    }
    let from = (request.number("page", 1) - 1) * size;
    Ok(ParsedCall::List(ListQuery { head, own: false, open, from, size }))
}
