//! GitLab, at gitlab.com and elsewhere. Paths, fields and states are those of
//! docs.gitlab.com/api/merge_requests, /api/notes and /api/commits.

use reqwest::{Method, Url};
use serde_json::{Value, json};
use sluice_core::pipeline::MergeMode;

use super::api::{AddCall, ListFilter, MergeCall, impl_forge};
use super::authorization::AuthScheme;
use super::change_request::{
    ChangeRequestList, ChangeRequestState, ForgeChangeRequest, ForgeCommit, Metadata, MetadataKind, Proposal,
};
use super::commit_status::{CommitStatus, MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS, PromotionProgress};
use super::connection::ForgeConnection;
use super::error::{ForgeError, ForgeResult};
use super::http::ForgeHttp;
use super::json::{self, names, text, without_prefix};
use super::pager::{self, ListPage, Reach};
use super::readiness::{Check, CheckState, Readiness, approvals};
use crate::address::{AddressError, RepositoryAddress};
use crate::forge_kind::ForgeKind;
use crate::outcome::ChangeRequest;

/// The most entries of a page (docs.gitlab.com/api/rest, "Pagination").
const PAGE: usize = 100;
/// The prefixes of drafts (docs.gitlab.com/user/project/merge_requests/drafts).
const DRAFTS: [&str; 3] = ["Draft:", "[Draft]", "(Draft)"];

/// The most characters of a status's `target_url` (lib/api/commit_statuses.rb of gitlabhq/gitlabhq).
const TARGET_URL: usize = 255;

/// The fields of answers that Sluice reads.
const FIELDS: &str = "allow_failure approvals_left assignees created_at description detailed_merge_status draft \
    has_conflicts head_pipeline id iid labels merge_commit_sha merge_status merged_at name parent_ids \
    pipeline_id reviewers sha source_branch source_project_id squash_commit_sha state status \
    target_branch target_project_id target_url title username web_url";

pub(super) struct GitLab {
    http: ForgeHttp,
    /// The path of the project: groups, subgroups and name. In an address of the API, the path is one part, with
    /// escaped slashes (docs.gitlab.com/api/rest, "Namespaced paths").
    project: String,
}

impl GitLab {
    pub(super) fn new(connection: &ForgeConnection<'_>) -> ForgeResult<Self> {
        let address = &connection.address;
        let project = project(address)?;
        // gitlab.com has a second host for SSH behind a firewall (docs.gitlab.com/user/gitlab_com).
        let origin = match address.host_name() {
            "altssh.gitlab.com" => "https://gitlab.com".into(),
            _ => address.origin(),
        };
        let base = format!("{origin}/api/v4");
        // Personal, project and group tokens are accepted as Bearer, like those of OAuth
        // (docs.gitlab.com/api/rest/authentication).
        let http = ForgeHttp::new(ForgeKind::GitLab, &base, AuthScheme::Bearer, connection)?;
        Ok(GitLab { http: http.with_fields(FIELDS), project })
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        self.http.url(&[&["projects", self.project.as_str()], path].concat(), query)
    }

    fn one(&self, number: u64) -> Url {
        self.url(&["merge_requests", &number.to_string()], &[])
    }

    async fn page(&self, head: &str, state: &str, at: u64) -> ForgeResult<ListPage<ForgeChangeRequest>> {
        let (page, size, project) = ((at + 1).to_string(), PAGE.to_string(), self.project_id().await?);
        let query = [
            ("source_branch", head),
            // Without this id, merge requests from branches of this name in forks are listed, too.
            ("source_project_id", &project),
            ("state", state),
            ("order_by", "created_at"),
            ("sort", "desc"),
            ("per_page", size.as_str()),
            ("page", page.as_str()),
        ];
        let reduce = |answer: Value| {
            let list = answer.as_array()?;
            let next = (list.len() >= PAGE).then_some(at + 1);
            Some(ListPage { entries: list.iter().filter_map(parse).collect(), next })
        };
        self.http.page(self.url(&["merge_requests"], &query), reduce).await
    }

    /// Returns the id of the project, which never changes.
    async fn project_id(&self) -> ForgeResult<String> {
        const KEY: &str = "id of the project";
        if let Some(known) = self.http.known_id(KEY) {
            return Ok(known);
        }
        let project = self.http.get(self.url(&[], &[])).await?;
        let id = project["id"].as_u64().ok_or_else(|| self.http.unreadable("a project"))?.to_string();
        self.http.learn_id(KEY, &id);
        Ok(id)
    }

    /// Returns the id of a user (docs.gitlab.com/api/users).
    async fn user(&self, name: &str) -> ForgeResult<u64> {
        let found = self.http.get(self.http.url(&["users"], &[("username", name)])).await?;
        found[0]["id"].as_u64().ok_or_else(|| {
            let says = format!("there is no user {name}").into();
            ForgeError::Refused { forge: self.http.name.clone(), status: 404, says }
        })
    }
}

/// Returns what a merge request waits for, apart from its checks. The states are those of
/// docs.gitlab.com/api/merge_requests, "Merge status".
fn waits(now: &Value, approvals_left: u64, readiness: &Readiness) -> Vec<String> {
    // GitLab before 15.6 has only the older field.
    let older = if now["merge_status"] == "can_be_merged" { "mergeable" } else { "checking" };
    let all_green = readiness.checks.iter().all(|check| check.state == CheckState::Green);
    let wait = match now["detailed_merge_status"].as_str().unwrap_or(older) {
        "mergeable" => return Vec::new(),
        // A check that is not green shows the reason already. If there is no such check, the pipeline has not begun, or
        // waits for a manual job.
        "ci_must_pass" | "ci_still_running" if all_green => "its pipeline".into(),
        "ci_must_pass" | "ci_still_running" => return Vec::new(),
        "not_approved" => approvals(approvals_left),
        "requested_changes" => "the changes that a reviewer asks for".into(),
        "discussions_not_resolved" => "its discussions to be resolved".into(),
        "conflict" => "its conflicts to be resolved".into(),
        // Sluice rebuilds the head itself, once nothing else is missing.
        "need_rebase" => return Vec::new(),
        "checking" | "unchecked" | "preparing" | "approvals_syncing" => {
            "GitLab to check whether it can be merged".into()
        }
        other => format!("what GitLab calls {other}"),
    };
    vec![wait]
}

/// Returns the failed and running jobs of the head's pipeline as checks, or the pipeline as one check. `ran_for` is the
/// commit of the pipeline, if that is not the head.
///
/// `head_pipeline` is the last known pipeline. If a push has no pipeline yet, or gets none, that is the pipeline of an
/// earlier head (github.com/sortie-ai/sortie/issues/828). GitLab itself compares `sha` and `source_sha`
/// (`diff_head_pipeline?`), but the API shows only `sha`. A pipeline for merged results runs for a merge commit, whose
/// second parent is the head (`MergeRequests::MergeToRefService`).
fn checks(now: &Value, ran_for: Option<&ForgeCommit>, jobs: &Value) -> Vec<Check> {
    let pipeline = &now["head_pipeline"];
    let second_parent = ran_for.and_then(|commit| commit.parents.get(1));
    let of_head = text(&now["sha"]).is_some_and(|head| {
        pipeline["sha"] == head.as_str() || second_parent.is_some_and(|parent| *parent == head)
    });
    let pipeline_state = if of_head { state(&pipeline["status"]) } else { CheckState::Pending };
    let jobs = jobs.as_array().into_iter().flatten();
    let jobs = jobs.filter(|job| job["allow_failure"].as_bool() != Some(true));
    let mut checks: Vec<Check> =
        jobs.filter_map(|job| check(job, true)).filter(|job| job.state != CheckState::Green).collect();
    if checks.is_empty() || pipeline_state == CheckState::Green {
        checks = vec![Check::new("pipeline", pipeline_state, true).with_url(&pipeline["web_url"])];
    }
    checks
}

/// Returns the jobs of the pipeline that are not among its checks.
fn other_checks(checks: &[Check], jobs: &Value) -> Vec<Check> {
    let jobs = jobs.as_array().into_iter().flatten().filter_map(|job| check(job, false));
    jobs.filter(|job| !checks.iter().any(|check| (&check.name, &check.url) == (&job.name, &job.url)))
        .collect()
}

/// Returns a job as a check.
fn check(job: &Value, required: bool) -> Option<Check> {
    Some(Check::new(text(&job["name"])?, state(&job["status"]), required).with_url(&job["target_url"]))
}

/// Returns the state of a job or pipeline.
fn state(status: &Value) -> CheckState {
    match status.as_str() {
        Some("success" | "skipped" | "manual") => CheckState::Green,
        Some("failed" | "canceled" | "canceling") => CheckState::Failed,
        _ => CheckState::Pending,
    }
}

/// Returns the path of the project. In the address of a page, a part that is a single dash comes after this path.
fn project(address: &RepositoryAddress) -> Result<String, AddressError> {
    let parts = address.parts();
    if parts.len() < 2 || parts.iter().any(|part| part == "-") {
        return Err(AddressError::NotOf {
            address: address.text.clone(),
            forge: "GitLab",
            write: "https://host/group/project.git, with the subgroups in between",
        });
    }
    Ok(parts.join("/"))
}

impl_forge!(GitLab);

impl GitLab {
    async fn list(&self, head: &str, base: &str, filter: ListFilter) -> ForgeResult<ChangeRequestList> {
        let state = if filter == ListFilter::Open { "opened" } else { "all" };
        pager::change_requests(&self.http, (head, base), Reach::of(filter), |at| self.page(head, state, at))
            .await
    }

    async fn open(&self, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        let body = json!({
            "source_branch": proposal.head, "target_branch": proposal.base,
            "title": proposal.title_with(DRAFTS[0]), "description": proposal.body,
        });
        self.http.change(Method::POST, self.url(&["merge_requests"], &[]), &body, parse).await
    }

    async fn update(&self, number: u64, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        let body = json!({"target_branch": proposal.base, "title": proposal.title_with(DRAFTS[0]), "description": proposal.body});
        self.http.change(Method::PUT, self.one(number), &body, parse).await
    }

    async fn add(&self, AddCall { found, kind, names }: AddCall<'_>) -> ForgeResult<Vec<String>> {
        let url = self.one(found.request.number);
        let (key, field) = match kind {
            MetadataKind::Label => {
                let body = json!({"add_labels": names.join(",")});
                let now = self.http.put(url, &body).await?;
                return Ok(json::names(&now["labels"], "name"));
            }
            MetadataKind::Reviewer => ("reviewers", "reviewer_ids"),
            MetadataKind::Assignee => ("assignees", "assignee_ids"),
        };
        // GitLab removes people who are not in the list. Without a licence, GitLab accepts only one person.
        let now = self.http.get(url.clone()).await?;
        let there = now[key].as_array().into_iter().flatten().filter_map(|user| user["id"].as_u64());
        let mut ids: Vec<u64> = there.collect();
        for name in names {
            ids.push(self.user(name).await?);
        }
        let now = self.http.put(url, &json!({field: ids})).await?;
        Ok(json::names(&now[key], "username"))
    }

    async fn close(&self, number: u64) -> ForgeResult<()> {
        let body = json!({"state_event": "close"});
        self.http.put(self.one(number), &body).await.map(drop)
    }

    async fn get(&self, number: u64) -> ForgeResult<Option<ForgeChangeRequest>> {
        self.http.request(self.one(number), self.url(&[], &[]), parse).await
    }

    async fn readiness(&self, found: &ForgeChangeRequest, merge: MergeMode) -> ForgeResult<Readiness> {
        let number = found.request.number.to_string();
        let now = self.http.get(self.one(found.request.number)).await?;
        let mut readiness = Readiness { head: text(&now["sha"]).unwrap_or_default(), ..Readiness::default() };
        if now["head_pipeline"].is_object() {
            let path = ["repository", "commits", &readiness.head, "statuses"];
            // Other pipelines can run for the same commit. GitLab before 17.8 ignores `pipeline_id`.
            let pipeline = now["head_pipeline"]["id"].to_string();
            let query = [("per_page", "100"), ("pipeline_id", pipeline.as_str())];
            let jobs = self.http.get(self.url(&path, &query)).await?;
            let ran_for = match now["head_pipeline"]["sha"].as_str() {
                Some(id) if id != readiness.head => self.commit(id).await?,
                _ => None,
            };
            readiness.checks = checks(&now, ran_for.as_ref(), &jobs);
            readiness.other_checks = other_checks(&readiness.checks, &jobs);
        }
        let missing = match now["detailed_merge_status"].as_str() {
            Some("not_approved") if merge != MergeMode::Never => {
                let url = self.url(&["merge_requests", &number, "approvals"], &[]);
                let approvals = self.http.get(url).await?;
                approvals["approvals_left"].as_u64().unwrap_or(1).max(1)
            }
            _ => 0,
        };
        readiness.waits = waits(&now, missing, &readiness);
        readiness.behind = now["detailed_merge_status"] == "need_rebase";
        if merge == MergeMode::Queue {
            let entry = self.http.read(self.url(&["merge_trains", "merge_requests", &number], &[])).await?;
            readiness.queued = entry.is_some_and(|entry| entry["merged_at"].is_null());
        }
        Ok(readiness)
    }

    // "Merge a merge request" and docs.gitlab.com/api/merge_trains: with `sha`, 409 if the head is another commit.
    async fn merge(&self, call: &MergeCall<'_>) -> ForgeResult<()> {
        let number = call.found.request.number.to_string();
        let done = if call.mode == MergeMode::Queue {
            let url = self.url(&["merge_trains", "merge_requests", &number], &[]);
            self.http.post(url, &json!({"sha": call.readiness.head})).await
        } else {
            let url = self.url(&["merge_requests", &number, "merge"], &[]);
            // GitLab uses this message only for a squash.
            let body = json!({"sha": call.readiness.head, "squash_commit_message": call.message.whole()});
            self.http.put(url, &body).await
        };
        match done {
            // GitLab also answers 401 to a known user: "This user does not have permission to accept this merge
            // request". The token is valid, because the readiness was read with it.
            Err(ForgeError::Authentication { forge, says }) => {
                Err(ForgeError::MayNotMerge { forge, base: call.found.base.clone(), says })
            }
            done => done.map(drop),
        }
    }

    async fn comment(&self, number: u64, text: &str) -> ForgeResult<()> {
        let url = self.url(&["merge_requests", &number.to_string(), "notes"], &[]);
        self.http.post(url, &json!({"body": text})).await.map(drop)
    }

    async fn commit(&self, id: &str) -> ForgeResult<Option<ForgeCommit>> {
        let url = self.url(&["repository", "commits", id], &[]);
        self.http.read_commit(id, url, "id", |c| (&c["message"], &c["parent_ids"])).await
    }

    async fn report(&self, commit: &str, status: &CommitStatus<'_>) -> ForgeResult<()> {
        let pipeline = match status.progress {
            PromotionProgress::Pending => None,
            PromotionProgress::Success | PromotionProgress::Failure => {
                self.pipeline_of_pending(commit, status).await?
            }
        };
        match self.set_status(commit, status, pipeline).await {
            // The pipeline is gone, or full (app/services/ci/create_commit_status_service.rb of gitlabhq/gitlabhq).
            Err(ForgeError::NoRepository { .. } | ForgeError::Refused { status: 422, .. })
                if pipeline.is_some() =>
            {
                self.set_status(commit, status, None).await
            }
            done => done,
        }
    }
}

impl GitLab {
    /// Returns the pipeline with the pending status of this name. Without `pipeline_id`, GitLab puts a status into the
    /// newest pipeline of the commit. If that is another pipeline, the pending status would never change
    /// (app/services/ci/create_commit_status_service.rb of gitlabhq/gitlabhq).
    async fn pipeline_of_pending(&self, commit: &str, status: &CommitStatus<'_>) -> ForgeResult<Option<u64>> {
        let name = status.name(MAX_NAME_CHARS);
        let query = [("ref", status.base), ("name", name.as_str())];
        let url = self.url(&["repository", "commits", commit, "statuses"], &query);
        let statuses = self.http.get(url).await?;
        let pending = statuses.as_array().into_iter().flatten().find(|status| status["status"] == "pending");
        Ok(pending.and_then(|status| status["pipeline_id"].as_u64()))
    }

    /// Sets a status (docs.gitlab.com/api/commits, "Set commit pipeline status"). GitLab answers 400 if the status
    /// already has this state (spec/requests/api/commit_statuses_spec.rb of gitlabhq/gitlabhq). GitLab answers 409
    /// during another update of the pipeline: "Retry the request"
    /// (doc/ci/ci_cd_for_external_repos/external_commit_statuses.md there).
    async fn set_status(
        &self,
        commit: &str,
        status: &CommitStatus<'_>,
        pipeline: Option<u64>,
    ) -> ForgeResult<()> {
        let body = status_body(status, pipeline);
        match self.http.post(self.url(&["statuses", commit], &[]), &body).await {
            Err(ForgeError::Refused { status: 400, says, .. }) if says.has("cannot transition status") => {
                Ok(())
            }
            Err(ForgeError::Refused { forge, status: 409, says }) => Err(ForgeError::Unreachable {
                forge,
                says: format!("the commit's pipeline is locked: {says}"),
            }),
            done => done.map(drop),
        }
    }
}

/// Returns the parameters of "Set commit pipeline status". A `target_url` that is too long is left out.
fn status_body(status: &CommitStatus<'_>, pipeline: Option<u64>) -> Value {
    let mut body = json!({
        "state": status.progress.word("pending", "success", "failed"), "name": status.name(MAX_NAME_CHARS),
        "ref": status.base, "description": status.description(MAX_DESCRIPTION_CHARS),
    });
    if status.url.chars().count() <= TARGET_URL {
        body["target_url"] = status.url.into();
    }
    if let Some(pipeline) = pipeline {
        body["pipeline_id"] = pipeline.into();
    }
    body
}

/// Parses a merge request from a branch of this project. Merge requests from forks are skipped, because their branches
/// can have the same names.
fn parse(value: &Value) -> Option<ForgeChangeRequest> {
    if value["source_project_id"].as_u64()? != value["target_project_id"].as_u64()? {
        return None;
    }
    // A squash without a merge commit has only the second id. A fast-forward has neither of them, and the merged commit
    // is the head.
    let merged = || {
        let keys = ["merge_commit_sha", "squash_commit_sha", "sha"];
        keys.iter().find_map(|key| text(&value[key])).unwrap_or_default()
    };
    let state = match value["state"].as_str()? {
        // Locked: the merge is in progress.
        "opened" | "locked" => ChangeRequestState::Open,
        "merged" => ChangeRequestState::Merged { commit: merged() },
        _ => ChangeRequestState::Closed,
    };
    let conflicts = value["has_conflicts"].as_bool() == Some(true)
        || value["detailed_merge_status"].as_str() == Some("conflict");
    let whole = text(&value["title"])?;
    let (title, prefixed) = without_prefix(&whole, &DRAFTS);
    Some(ForgeChangeRequest {
        request: ChangeRequest {
            number: value["iid"].as_u64()?,
            url: text(&value["web_url"])?,
            branch: text(&value["source_branch"])?,
            head_commit: text(&value["sha"]).unwrap_or_default(),
            ..ChangeRequest::default()
        },
        base: text(&value["target_branch"])?,
        title: title.into(),
        body: text(&value["description"]).unwrap_or_default(),
        conflicts: conflicts && state == ChangeRequestState::Open,
        is_draft: prefixed || value["draft"].as_bool() == Some(true),
        author: None,
        metadata: Metadata {
            labels: names(&value["labels"], "name"),
            reviewers: names(&value["reviewers"], "username"),
            assignees: names(&value["assignees"], "username"),
        },
        state,
        created: value["created_at"].as_str()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_is_the_path_of_the_address() {
        let cases = [
            ("https://gitlab.com/acme/fleet.git", Some("acme/fleet")),
            ("https://gitlab.example.com:8443/acme/team/eu/fleet", Some("acme/team/eu/fleet")),
            ("git@gitlab.com:acme/team/fleet.git", Some("acme/team/fleet")),
            ("ssh://git@gitlab.example.com:2222/acme/fleet.git", Some("acme/fleet")),
            ("ssh://git@altssh.gitlab.com:443/acme/fleet.git", Some("acme/fleet")),
            ("https://gitlab.com/fleet", None),
            ("https://gitlab.com/acme/fleet/-/tree/main", None),
        ];
        for (text, expected) in cases {
            match project(&RepositoryAddress::parse(text, false).unwrap()) {
                Ok(found) => assert_eq!(Some(found.as_str()), expected, "{text}"),
                Err(error) => {
                    assert_eq!(expected, None, "{text}");
                    assert!(error.to_string().contains("write https://host/group/project.git"), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_status_has_no_address_that_is_too_long() {
        let sent = |length: usize| {
            let url = "u".repeat(length);
            let (context, description) = ("sluice/apps/podinfo/prod", "it runs");
            let status = CommitStatus {
                progress: PromotionProgress::Success,
                context,
                description,
                url: &url,
                base: "main",
            };
            status_body(&status, Some(7))
        };
        assert_eq!(sent(255)["target_url"].as_str().map(str::len), Some(255));
        assert_eq!(sent(256).get("target_url"), None);
        assert_eq!(sent(256)["pipeline_id"], 7);
    }

    #[test]
    fn the_merged_commit_is_found_for_every_merge_method() {
        let merged = |merge: Value, squash: Value| {
            let value = json!({
                "iid": 1, "source_project_id": 1, "target_project_id": 1, "state": "merged",
                "web_url": "u", "source_branch": "h", "target_branch": "main", "title": "t", "sha": "head",
                "merge_commit_sha": merge, "squash_commit_sha": squash,
                "created_at": "2026-01-02T03:04:05.678Z",
            });
            parse(&value).unwrap().state
        };
        let is = |commit: &str| ChangeRequestState::Merged { commit: commit.into() };
        assert_eq!(merged(json!("merge"), json!("squash")), is("merge"));
        assert_eq!(merged(Value::Null, json!("squash")), is("squash"));
        assert_eq!(merged(Value::Null, Value::Null), is("head"));
    }

    #[test]
    fn a_pipeline_of_an_earlier_head_does_not_count() {
        let commit = |parents: &[&str]| ForgeCommit {
            message: String::new(),
            parents: parents.iter().map(|id| id.to_string()).collect(),
        };
        // The head is `b`, the head before it is `a`, and the base is `c`.
        let table: [(&str, &str, &[&str], CheckState); 8] = [
            ("b", "sluice/apps/podinfo/prod", &[], CheckState::Green),
            ("a", "sluice/apps/podinfo/prod", &["c"], CheckState::Pending),
            ("b", "refs/merge-requests/5/head", &[], CheckState::Green),
            ("a", "refs/merge-requests/5/head", &["c"], CheckState::Pending),
            ("m", "refs/merge-requests/5/merge", &["c", "b"], CheckState::Green),
            ("m", "refs/merge-requests/5/merge", &["c", "a"], CheckState::Pending),
            ("m", "refs/merge-requests/5/merge", &["b", "a"], CheckState::Pending),
            ("m", "refs/merge-requests/5/merge", &[], CheckState::Pending),
        ];
        for (sha, r#ref, parents, expected) in table {
            let pipeline = json!({"sha": sha, "ref": r#ref, "status": "success"});
            let now = json!({"sha": "b", "head_pipeline": pipeline});
            let checks = checks(&now, Some(&commit(parents)).filter(|_| sha != "b"), &json!([]));
            assert_eq!(checks, [Check::new("pipeline", expected, true)], "{now}");
        }
        let nothing = checks(&json!({"head_pipeline": {"status": "success"}}), None, &json!([]));
        assert_eq!(nothing, [Check::new("pipeline", CheckState::Pending, true)]);
    }

    #[test]
    fn a_blocked_pipeline_is_waited_for_although_no_job_has_failed() {
        let of = |status: &str, pipeline: &str| {
            let now = json!({
                "sha": "a", "detailed_merge_status": status, "head_pipeline": {"sha": "a", "status": pipeline},
            });
            let checks = checks(&now, None, &json!([]));
            let waits = waits(&now, 0, &Readiness { checks: checks.clone(), ..Readiness::default() });
            Readiness { head: "a".into(), checks, waits, ..Readiness::default() }.obstacle("a")
        };
        assert_eq!(of("mergeable", "success"), None);
        assert_eq!(of("ci_must_pass", "manual").as_deref(), Some("waits for its pipeline"));
        assert_eq!(of("ci_must_pass", "skipped").as_deref(), Some("waits for its pipeline"));
        assert_eq!(of("ci_must_pass", "failed").as_deref(), Some("checks failed: pipeline"));
        assert_eq!(of("ci_still_running", "running").as_deref(), Some("waits for checks: pipeline pending"));
    }
}
