//! Gitea, compared with the source of 1.25.5 (code.gitea.io/gitea: routers/api/v1/repo, services/convert,
//! services/pull/check.go, modules/structs), which also runs beside it in the contract; and Forgejo, which kept that
//! API. Of Forgejo, only its empty answer about statuses was compared (routers/api/v1/repo/status.go).
//!
//! Gitea ignores unknown fields; the stand-in rejects them. Left out: fields that no adapter reads, and the
//! headers of pages.

use serde_json::{Value, json};
use sluice_testkit::LoggedCommit;

use super::check_outcome::CheckOutcome;
use super::checks::{Obstacle, details};
use super::commit_statuses::{GITHUB, StatusFormat};
use super::fault::CallKind;
use super::forge_api::{ForgeAnswer, ForgeApi, TOKEN, basic, named};
use super::github::{add, change, message, open, parents, review, show};
use super::merge_style::Style;
use super::parsed_call::{ListQuery, ParsedCall};
use super::pull::{MetadataKind, Pull};
use super::rejection::CallRejection;
use super::request::{ForgeRequest, PullSelector};

pub(super) struct GiteaApi {
    pub(super) is_forgejo: bool,
}

impl ForgeApi for GiteaApi {
    fn clone_path(&self) -> &'static str {
        "/acme/fleet"
    }

    fn base_path(&self) -> &'static str {
        "/api/v1/repos/acme/fleet"
    }

    fn login(&self) -> (&'static str, String) {
        ("authorization", format!("token {TOKEN}"))
    }

    fn git_login(&self) -> String {
        basic("x-access-token", TOKEN)
    }

    fn etags(&self) -> bool {
        false
    }

    fn status(&self, call: CallKind) -> u16 {
        // Of a change as well.
        if matches!(
            call,
            CallKind::Open | CallKind::Comment | CallKind::Update | CallKind::Close | CallKind::Report
        ) {
            201
        } else {
            200
        }
    }

    fn added_status(&self, what: MetadataKind) -> u16 {
        if what == MetadataKind::Label { 200 } else { 201 }
    }

    fn merged(&self, _pull: &Pull) -> Value {
        Value::Null
    }

    fn ended(&self, pull: &Pull) -> CallRejection<'static> {
        if pull.merged.is_some() {
            CallRejection::NotMergeable(Obstacle::Merged)
        } else {
            CallRejection::NoPull
        }
    }

    fn looks_at_the_head_first(&self) -> bool {
        false
    }

    fn read(&self, request: &ForgeRequest) -> Result<ParsedCall, CallRejection<'static>> {
        let number = |text: &str| text.parse().map_err(|_| CallRejection::NoPath);
        let (method, path) = request.parts();
        match (method, path.as_slice()) {
            ("GET", []) => Ok(ParsedCall::Repository),
            ("GET", ["pulls"]) => {
                let size = request.number("limit", 30).min(50);
                let from = (request.number("page", 1) - 1) * size;
                let open = request.query("state") != Some("all");
                Ok(ParsedCall::List(ListQuery { open, from, size, ..ListQuery::default() }))
            }
            ("GET", ["pulls", n, "reviews"]) => {
                Ok(ParsedCall::Facts { what: "reviews", from: 0, of: PullSelector::Number(number(n)?) })
            }
            ("GET", ["pulls", base, head]) => {
                Ok(ParsedCall::Between { base: (*base).into(), head: (*head).into() })
            }
            ("POST", ["pulls"]) => match request.body.get("draft") {
                // A draft is marked in the title only.
                Some(_) => Err(CallRejection::Bad("the body has an unknown field")),
                None => open(request),
            },
            ("GET", ["pulls", n]) => Ok(ParsedCall::Read(number(n)?)),
            ("PATCH", ["pulls", n]) => change(request, number(n)?),
            ("POST", ["issues", n, "comments"]) => {
                let text = request.text("/body").ok_or(CallRejection::Bad("body is missing"))?;
                Ok(ParsedCall::Comment { number: number(n)?, text })
            }
            ("GET", ["labels"]) => {
                let size = request.number("limit", 30).min(50);
                Ok(ParsedCall::Labels { from: (request.number("page", 1) - 1) * size, size })
            }
            ("POST", ["labels"]) => {
                request.only(&["name", "color"])?;
                request.text("/color").ok_or(CallRejection::Bad("a label needs a color"))?;
                Ok(ParsedCall::NewLabel(
                    request.text("/name").ok_or(CallRejection::Bad("a label needs a name"))?,
                ))
            }
            ("POST", ["issues", n, "labels"]) => {
                request.only(&["labels"])?;
                let ids = request.body["labels"].as_array().into_iter().flatten();
                let ids = ids.map(|id| id.as_u64().map(|id| id.to_string()));
                let ids: Option<Vec<String>> = ids.collect();
                Ok(add(
                    number(n)?,
                    MetadataKind::Label,
                    ids.ok_or(CallRejection::Bad("labels are numbers here"))?,
                ))
            }
            ("GET", ["assignees"]) => Ok(ParsedCall::Assignable),
            ("PATCH", ["issues", n]) => {
                request.only(&["assignees"])?;
                let names = request.list("assignees");
                Ok(ParsedCall::Add {
                    number: number(n)?,
                    what: MetadataKind::Assignee,
                    names,
                    replaces: true,
                })
            }
            ("POST", ["pulls", n, "requested_reviewers"]) => review(request, number(n)?),
            ("GET", ["branches", "main"]) => {
                Ok(ParsedCall::Facts { what: "branch", from: 0, of: PullSelector::Base })
            }
            ("GET", ["commits", sha, "status"]) => {
                if request.number("limit", 30) != 50 {
                    return Err(CallRejection::Bad("this stand-in has pages of 50"));
                }
                let from = (request.number("page", 1) - 1) * 50;
                Ok(ParsedCall::Facts { what: "status", from, of: PullSelector::Head((*sha).into()) })
            }
            ("GET", ["statuses", sha]) => {
                let from = (request.number("page", 1) - 1) * 50;
                Ok(ParsedCall::Facts { what: "all statuses", from, of: PullSelector::Id((*sha).into()) })
            }
            ("POST", ["pulls", n, "merge"]) => {
                request.only(&["Do", "head_commit_id", "MergeMessageField"])?;
                let style = Style::of(&request.text("/Do").unwrap_or_default(), "merge", "squash", "rebase");
                let style = Some(style.ok_or(CallRejection::Bad("Do is not one that there is"))?);
                let (number, message) = (number(n)?, request.text("/MergeMessageField"));
                let head = Some(
                    request
                        .text("/head_commit_id")
                        .ok_or(CallRejection::Bad("nothing holds it to a head"))?,
                );
                Ok(ParsedCall::Merge { number, head, version: None, style, message, queue: false })
            }
            ("GET", ["git", "refs", "pull", n, "head"]) => {
                Ok(ParsedCall::Facts { what: "ref", from: 0, of: PullSelector::Number(number(n)?) })
            }
            ("POST", ["statuses", sha]) => {
                request.only(&["state", "context", "description", "target_url"])?;
                StatusFormat { longest: (usize::MAX, usize::MAX, usize::MAX), ..GITHUB }.parse(request, sha)
            }
            ("GET", ["git", "commits", id]) => Ok(ParsedCall::Commit((*id).into())),
            _ => Err(CallRejection::NoPath),
        }
    }

    fn pull(&self, pull: &Pull, _listed: bool) -> Value {
        let mut value = show(pull);
        // Also of one that was merged.
        value["head"]["sha"] = pull.tip.as_str().into();
        value["base"]["repo_id"] = 1.into();
        value["head"]["repo_id"] = (1 + u64::from(pull.fork)).into();
        let draft = pull.title.starts_with("WIP:");
        value["draft"] = draft.into();
        // Nor while it still looks.
        value["mergeable"] = (pull.is_known() && !pull.conflicts && !draft).into();
        value
    }

    fn added(&self, pull: &Pull, what: MetadataKind, names: &[String]) -> Value {
        match what {
            MetadataKind::Label => named("name", &pull.labels),
            MetadataKind::Assignee => {
                json!({"number": pull.number, "assignees": named("login", &pull.assignees)})
            }
            MetadataKind::Reviewer => {
                let review = |name| json!({"user": {"login": name}, "state": "REQUEST_REVIEW"});
                names.iter().map(review).collect()
            }
        }
    }

    fn user_rejection(&self, what: MetadataKind, author: bool) -> Option<CallRejection<'static>> {
        Some(match (what, author) {
            (MetadataKind::Reviewer, true) => CallRejection::Bad("poster of pr can't be reviewer"),
            (MetadataKind::Reviewer, false) => CallRejection::NoPull,
            // Gitea answers an unknown user with an internal error.
            _ => CallRejection::Internal,
        })
    }

    fn facts(&self, what: &'static str, pull: &Pull, from: usize) -> Option<Value> {
        Some(match what {
            "ref" => {
                let name = |number: u64| format!("refs/pull/{number}/head");
                let of = |number: u64, sha: &str| json!({"ref": name(number), "object": {"type": "commit", "sha": sha}});
                // All that begin so.
                json!([of(pull.number * 10, &"1".repeat(40)), of(pull.number, &pull.sha)])
            }
            "branch" => json!({
                "name": "main", "enable_status_check": !pull.requires.is_empty(),
                "status_check_contexts": pull.requires, "required_approvals": pull.needs,
            }),
            "status" => {
                let one = |(name, is): &(&str, CheckOutcome)| json!({"context": name, "status": is.word("success", "pending", "failure"), "target_url": details(name)});
                let (reported, _) = pull.reported_from(from, 50);
                match reported.is_empty() && self.is_forgejo {
                    true => json!({"sha": "", "statuses": null}),
                    false => {
                        json!({"sha": pull.sha, "statuses": reported.iter().map(one).collect::<Vec<_>>()})
                    }
                }
            }
            "all statuses" => {
                let all = pull.reported().into_iter().enumerate().rev().skip(from).take(50);
                all.map(|(id, (name, is))| json!({"id": id, "context": name, "status": is.word("success", "pending", "failure"), "target_url": details(name)})).collect()
            }
            _ => {
                let one = |sha: &String| {
                    json!({
                        "state": "APPROVED", "commit_id": sha, "stale": *sha != pull.sha,
                        "official": true, "dismissed": false,
                    })
                };
                pull.approvals.iter().map(one).collect()
            }
        })
    }

    fn list(&self, page: Vec<Value>, _from: usize, _next: Option<usize>) -> Value {
        page.into()
    }

    fn commit(&self, commit: &LoggedCommit) -> Value {
        json!({"sha": commit.sha, "commit": {"message": message(commit)}, "parents": parents(commit, "sha")})
    }

    fn repository(&self, style: Style) -> Value {
        let style = style.word("merge", "squash", "rebase");
        json!({"id": 1, "name": "fleet", "default_merge_style": style})
    }

    fn error_answer(&self, why: CallRejection<'_>) -> ForgeAnswer {
        let with_message = |status: u16, message: &str| {
            (status, json!({"message": message, "url": "http://forge/api/swagger"}))
        };
        match why {
            CallRejection::Unauthorized => with_message(401, "invalid username, password or token"),
            CallRejection::Exists(pull) => {
                let (number, head, base) = (pull.number, &pull.head, &pull.base);
                with_message(
                    409,
                    &format!(
                        "pull request already exists for these targets [id: {number}, issue_id: {number}, head_repo_id: 1, \
                     base_repo_id: 1, head_branch: {head}, base_branch: {base}]"
                    ),
                )
            }
            CallRejection::HeadMoved => with_message(409, "head out of date"),
            CallRejection::NotMergeable(obstacle) => with_message(405, &refusal(&obstacle)),
            CallRejection::Bad(what) => with_message(422, what),
            CallRejection::Internal => with_message(500, ""),
            _ => (404, json!({"message": "not found", "url": "http://forge/api/swagger", "errors": null})),
        }
    }
}

/// Returns why a merge is rejected (`CheckPullMergeable` and `CheckPullBranchProtections`).
fn refusal(obstacle: &Obstacle) -> String {
    let words = match obstacle {
        Obstacle::Unknown | Obstacle::Conflicts => "Please try again later",
        Obstacle::Draft => "Work in progress PRs cannot be merged",
        Obstacle::Check(_) => "Not all required status checks successful",
        Obstacle::Approvals(_) => "Does not have enough approvals",
        Obstacle::Behind => "The head branch is behind the base branch",
        Obstacle::Merged => "The PR is already merged",
        Obstacle::Style(style) => {
            let style = style.word("merge", "squash", "rebase");
            return format!("{style} is not allowed an allowed merge style for this repository");
        }
    };
    words.into()
}
