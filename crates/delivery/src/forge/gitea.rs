//! Gitea, and Forgejo, which has the same API. Their lists cannot be filtered by head branch, so a lookup by base and head
//! comes first, and lists are read only as far back as necessary.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_core::pipeline::MergeMode;

use super::api::{AddCall, ForgeFuture, ListFilter, MergeCall, impl_forge};
use super::authorization::AuthScheme;
use super::change_request::{
    ChangeRequestList, ChangeRequestState, ForgeChangeRequest, ForgeCommit, MergedHead, Metadata,
    MetadataKind, Proposal,
};
use super::check_pattern::{CheckPattern, MatchingBudget};
use super::commit_status::{CommitStatus, MAX_DESCRIPTION_CHARS};
use super::connection::ForgeConnection;
use super::error::{ForgeError, ForgeResult};
use super::gitea_deletion::{
    closed_by_deletion, closed_with_branch, followed_another, recently_closed, with_since,
};
use super::http::ForgeHttp;
use super::json::{self, names, text, without_prefix};
use super::pager::{self, ListPage, Reach};
use super::pulls_of_github_and_gitea::{GitHubPulls, PullsPage};
use super::readiness::{Check, CheckState, Readiness, approvals};
use crate::forge_kind::ForgeKind;
use crate::outcome::ChangeRequest;

/// The prefixes of drafts, unless the server is configured otherwise (docs.gitea.com/usage/pull-request).
const DRAFTS: [&str; 2] = ["WIP:", "[WIP]"];
/// The merge styles that the merge call accepts (`Do` of MergePullRequestOption in /api/swagger).
const STYLES: [&str; 5] = ["merge", "rebase", "rebase-merge", "squash", "fast-forward-only"];
/// The most patterns of required checks.
const MAX_PATTERNS: usize = 500;
/// The fields of answers that Sluice reads.
const FIELDS: &str = "assignees base body closed_at commit commit_id context created_at default_merge_style dismissed draft \
    enable_status_check head html_url id label labels login merge_commit_sha mergeable merged name \
    number object official parents ref repo_id requested_reviewers required_approvals sha stale state \
    status status_check_contexts statuses target_url title type user";
/// The numbers of entries in a page of pull requests. If a page is too large, the next number is used, which divides
/// the one before.
const PAGE_SIZES: [u64; 2] = [50, 10];
/// A page with fewer entries is the last one: no server is configured for such small pages (`MAX_RESPONSE_ITEMS`, usually 50).
const FEW: usize = 10;

pub(super) struct Gitea(GitHubPulls);

impl Gitea {
    pub(super) fn new(kind: ForgeKind, connection: &ForgeConnection<'_>) -> ForgeResult<Self> {
        let address = &connection.address;
        let (prefix, owner, name) = address.repository()?;
        let base = format!("{}/{prefix}", address.origin());
        let base = format!("{}/api/v1", base.trim_end_matches('/'));
        let http = ForgeHttp::new(kind, &base, AuthScheme::Token, connection)?;
        let http = http.with_fields(FIELDS);
        Ok(Gitea(GitHubPulls { http, owner: owner.into(), name: name.into(), parse }))
    }

    /// Returns the pull requests of a list from the entry `at` on, the newest first. Anybody may open pull requests
    /// with long texts from forks, so a page that is too large is read in smaller ones, and a single entry that is too
    /// large is skipped. A server may return smaller pages than requested, so only an empty page is the last one.
    async fn page(&self, filter: ListFilter, at: u64) -> ForgeResult<ListPage<ForgeChangeRequest>> {
        let is_done = |page: &PullsPage| match filter {
            ListFilter::Open => page.listed == 0,
            // Pull requests from forks count, too.
            ListFilter::Since(since) => {
                page.listed == 0 || page.last.is_some_and(|last| last < pager::earliest(since))
            }
        };
        for size in PAGE_SIZES.into_iter().filter(|size| at.is_multiple_of(*size)) {
            match self.pulls(filter, at / size + 1, size).await {
                Err(ForgeError::TooLarge { .. }) => {}
                page => {
                    let page = page?;
                    let next = (!is_done(&page)).then_some(at + page.listed as u64);
                    return Ok(ListPage { entries: page.entries, next });
                }
            }
        }
        let mut entries = Vec::new();
        for at in at.. {
            match self.pulls(filter, at + 1, 1).await {
                Err(ForgeError::TooLarge { .. }) => {}
                page => {
                    let page = page?;
                    let is_last = is_done(&page);
                    entries.extend(page.entries);
                    if is_last {
                        break;
                    }
                }
            }
            if PAGE_SIZES.iter().any(|size| (at + 1).is_multiple_of(*size)) {
                return Ok(ListPage { entries, next: Some(at + 1) });
            }
        }
        Ok(ListPage { entries, next: None })
    }

    async fn pulls(&self, filter: ListFilter, page: u64, size: u64) -> ForgeResult<PullsPage> {
        let state = if filter == ListFilter::Open { "open" } else { "all" };
        let (page, size) = (page.to_string(), size.to_string());
        self.0.page(&[("state", state), ("limit", &size), ("page", &page)]).await
    }

    /// Returns the newest status of each context of a commit.
    ///
    /// The call that returns exactly these statuses also accepts the names of branches and tags, and prefers them to
    /// ids (`ResolveRefCommit` of 1.25). So its answer counts only if the answer is about the commit. Forgejo, and
    /// older versions of Gitea, leave the commit out of an empty answer (`GetCombinedCommitStatusByRef`). After such an
    /// answer, all statuses of the commit are read with a call that accepts only ids of commits (`/statuses/{sha}` in
    /// routers/api/v1/api.go).
    async fn statuses(&self, commit: &str) -> ForgeResult<Vec<Check>> {
        let kind = self.0.http.kind;
        let path = ["commits", commit, "status"];
        match self.entries(Some(commit), &path, "statuses", |one| check(one, kind)).await {
            Err(ForgeError::OtherCommit { answered, .. }) if answered.is_empty() => {}
            done => return done,
        }
        let with_id = |one: &Value| (one["id"].as_u64(), check(one, kind));
        let mut all = self.entries(None, &["statuses", commit], "", with_id).await?;
        all.sort_by_key(|(id, _)| *id);
        let newest: BTreeMap<String, Check> =
            all.into_iter().map(|(_, check)| (check.name.clone(), check)).collect();
        Ok(newest.into_values().collect())
    }

    /// Returns all entries of a list, each reduced to the needed part. The list is under `key` of the answer, or is the
    /// answer if `key` is empty. If there is a commit, the answer must be about this commit.
    async fn entries<T>(
        &self,
        commit: Option<&str>,
        path: &[&str],
        key: &str,
        reduce: impl Fn(&Value) -> T,
    ) -> ForgeResult<Vec<T>> {
        let (reduce, http) = (&reduce, &self.0.http);
        pager::all(http, 1, |page| async move {
            let url = self.0.url(path, &[("limit", "50"), ("page", &page.to_string())]);
            let mut answer = http.get(url).await?;
            commit.map_or(Ok(()), |commit| http.check_commit(commit, &answer["sha"]))?;
            let list = if key.is_empty() { Some(&mut answer) } else { answer.get_mut(key) };
            let list = match list.map(Value::take) {
                Some(Value::Array(list)) => list,
                // Gitea writes an empty list as null.
                Some(Value::Null) => Vec::new(),
                _ => return Err(http.unreadable("a list")),
            };
            let next = (list.len() >= FEW).then_some(page + 1);
            Ok(ListPage { entries: list.iter().map(reduce).collect(), next })
        })
        .await
    }

    /// Returns the ids of labels. Missing labels are created, as GitHub and GitLab do automatically. Gitea accepts
    /// names instead of ids only since 1.22.
    async fn label_ids(&self, names: &[String]) -> ForgeResult<Vec<u64>> {
        let label = |l: &Value| Some((text(&l["name"])?, l["id"].as_u64()?));
        let labels = self.entries(None, &["labels"], "", label).await?;
        let known: Vec<(String, u64)> = labels.into_iter().flatten().collect();
        let mut ids = Vec::new();
        for name in names {
            let id = known.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, id)| *id);
            ids.push(match id {
                Some(id) => id,
                None => {
                    let body = json!({"name": name, "color": "#ededed"});
                    let made = self.0.http.post(self.0.url(&["labels"], &[]), &body).await?;
                    made["id"].as_u64().ok_or_else(|| self.0.http.unreadable("a label"))?
                }
            });
        }
        Ok(ids)
    }

    /// Returns the people who can be assigned. Gitea answers 500 to a change that assigns anybody else (`EditIssue` of
    /// 1.25).
    async fn assignable(&self) -> ForgeResult<Vec<String>> {
        let all = self.0.http.get(self.0.url(&["assignees"], &[])).await?;
        Ok(names(&all, "login"))
    }

    /// Returns a closed pull request as it is now: Gitea reads whether it was merged before it reads whether it is closed
    /// (`GetPullRequestByIndex` and `ToAPIPullRequest` of 1.25), so one that is merged in between looks like a rejected one.
    ///
    /// Gitea closes the pull requests of a deleted branch some time after the deletion (`pushDeleteBranch` in
    /// services/repository/push.go), also one that was opened in between from a new branch of the same name. Gitea records
    /// the deletion in the pull request after it has closed it. Forgejo (`CloseBranchPulls` in services/pull/pull.go) and
    /// older versions of Gitea do not record it.
    async fn with_cause_of_end(&self, found: ForgeChangeRequest) -> ForgeResult<ForgeChangeRequest> {
        if found.state != ChangeRequestState::Closed {
            return Ok(found);
        }
        let number = found.request.number;
        let Some(pull) = self.0.http.read(self.0.url(&["pulls", &number.to_string()], &[])).await? else {
            return Ok(found);
        };
        let mut found = self.0.http.checked(parse(&pull))?;
        if found.state == ChangeRequestState::Closed
            && let Some(closed) = closed_with_branch(&pull)
        {
            let url = with_since(self.0.issue(number, &["timeline"]), closed);
            let author = pull["user"]["login"].as_str();
            let by_author =
                |events: &[Value]| closed_by_deletion(events, closed).map(|user| Some(user) == author);
            // Its author is Sluice, which deletes no branch of an open pull request.
            let is_own = self.0.http.find(url, by_author).await?;
            if is_own == Some(true) || (is_own.is_some() && self.followed_another(&pull).await?) {
                found.state = ChangeRequestState::ClosedByForge;
            }
        }
        Ok(found)
    }

    /// Whether an earlier pull request from the same branch ended shortly before this one was opened.
    async fn followed_another(&self, pull: &Value) -> ForgeResult<bool> {
        let url = recently_closed(self.0.url(&["pulls"], &[]));
        let followed = self.0.http.find(url, |closed| Some(followed_another(pull, closed))).await?;
        Ok(followed.unwrap_or_default())
    }

    /// Returns the user of the token; `None` if the token may not read it. At Gitea, who may read a repository may open pull
    /// requests between its branches (`CreatePullRequest` in routers/api/v1/repo/pull.go of 1.25), and close those
    /// (`EditPullRequest`).
    async fn user(&self) -> ForgeResult<Option<String>> {
        match self.0.http.read(self.0.http.url(&["user"], &[])).await {
            Err(ForgeError::Forbidden { .. }) => Ok(None),
            user => Ok(user?.and_then(|user| text(&user["login"]))),
        }
    }

    /// Returns the head of a merged pull request. Gitea keeps the head as a ref, which follows the branch with a delay
    /// until the merge. If a commit was pushed at the time of the merge, the ref may be older or newer than the merged
    /// head (`AddTestPullRequestTask` of 1.25).
    async fn kept_head(&self, number: u64) -> ForgeResult<Option<MergedHead>> {
        let name = format!("refs/pull/{number}/head");
        let path = ["git", "refs", "pull", &number.to_string(), "head"];
        // Gitea returns all refs whose names begin with this path.
        let refs = self.0.http.read(self.0.url(&path, &[])).await?.unwrap_or_default();
        let one = refs.as_array().into_iter().flatten().find(|one| one["ref"] == name.as_str());
        let id = one.and_then(|one| text(&one["object"]["sha"]));
        Ok(id.map(|id| MergedHead { id, is_certain: false }))
    }
}

impl_forge! {
    Gitea,
    fn own_user(&self) -> ForgeFuture<'_, Option<String>> {
        Box::pin(self.user())
    }

    fn merged_head<'a>(&'a self, found: &'a ForgeChangeRequest) -> ForgeFuture<'a, Option<MergedHead>> {
        Box::pin(self.kept_head(found.request.number))
    }

    fn confirmed(&self, found: ForgeChangeRequest) -> ForgeFuture<'_, ForgeChangeRequest> {
        Box::pin(self.with_cause_of_end(found))
    }
}

impl Gitea {
    async fn list(&self, head: &str, base: &str, filter: ListFilter) -> ForgeResult<ChangeRequestList> {
        let between = self.0.http.read(self.0.url(&["pulls", base, head], &[])).await?;
        // If the base has a slash, an empty answer proves nothing: a proxy may change escaped slashes in a path, and
        // then the lookup is for other branches.
        if between.is_none() && !base.contains('/') {
            return Ok(ChangeRequestList::default());
        }
        // If there are several pull requests between the branches, the lookup returns any of them.
        let between = between.as_ref().and_then(parse).and_then(ForgeChangeRequest::checked);
        let between = between.filter(|found| found.request.branch == head && found.base == base);
        if filter == ListFilter::Open
            && let Some(open) = between.as_ref().filter(|found| found.state == ChangeRequestState::Open)
        {
            return Ok(ChangeRequestList { found: vec![open.clone()], unread: None });
        }
        let (reach, page) = (Reach::of(filter), |at| self.page(filter, at));
        let mut list = pager::change_requests(&self.0.http, (head, base), reach, page).await?;
        if let (Some(_), Some(between), ListFilter::Since(since)) = (&list.unread, between, filter)
            && between.created >= pager::earliest(since)
            && !list.found.iter().any(|found| found.request.number == between.request.number)
        {
            list.found.push(between);
        }
        Ok(list)
    }

    async fn open(&self, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        self.0.open(proposal, &proposal.title_with(DRAFTS[0]), Value::Null).await
    }

    async fn update(&self, number: u64, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        self.0.update(number, proposal, &proposal.title_with(DRAFTS[0])).await
    }

    async fn add(&self, AddCall { found, kind, names }: AddCall<'_>) -> ForgeResult<Vec<String>> {
        let (http, number) = (&self.0.http, found.request.number);
        Ok(match kind {
            MetadataKind::Label => {
                let url = self.0.issue(number, &["labels"]);
                let ids = self.label_ids(names).await?;
                let all = http.post(url, &json!({"labels": ids})).await?;
                json::names(&all, "name")
            }
            // Gitea returns only the reviewers of this call.
            MetadataKind::Reviewer => {
                self.0.ask_for_review(number, names).await?;
                names.to_vec()
            }
            MetadataKind::Assignee => {
                let known = self.assignable().await?;
                let is_known = |name: &&String| known.iter().any(|one| one.eq_ignore_ascii_case(name));
                // Gitea removes people who are not in the list.
                let all: Vec<&String> =
                    found.metadata.assignees.iter().chain(names.iter().filter(is_known)).collect();
                let body = json!({"assignees": all});
                let issue = http.patch(self.0.issue(number, &[]), &body).await?;
                json::names(&issue["assignees"], "login")
            }
        })
    }

    async fn close(&self, number: u64) -> ForgeResult<()> {
        self.0.close(number).await
    }

    async fn get(&self, number: u64) -> ForgeResult<Option<ForgeChangeRequest>> {
        self.0.get(number).await
    }

    async fn readiness(&self, found: &ForgeChangeRequest, merge: MergeMode) -> ForgeResult<Readiness> {
        let (http, head) = (&self.0.http, found.request.head_commit.as_str());
        let number = found.request.number.to_string();
        let branch = http.get(self.0.url(&["branches", &found.base], &[])).await?;
        let statuses = self.statuses(head).await?;
        let reviews = match merge {
            MergeMode::Never => Vec::new(),
            _ => self.entries(None, &["pulls", &number, "reviews"], "", Review::read).await?,
        };
        // Only the last review of each reviewer with write access is official.
        let of_head = |r: &&Review| !r.stale && r.commit == head;
        let given = reviews.iter().filter(|r| r.approves && of_head(r)).count() as u64;
        let missing = branch["required_approvals"].as_u64().unwrap_or(0).saturating_sub(given);
        let mut waits = Vec::new();
        if missing > 0 {
            waits.push(approvals(missing));
        }
        // Requested changes count for any head, as at all forges, until the reviewer changes the review.
        if reviews.iter().any(|r| r.asks_for_changes) {
            waits.push("the changes that a reviewer asks for".into());
        }
        let required = required(&branch).ok_or_else(|| {
            self.0.http.too_large(format!("{} requires more than {MAX_PATTERNS} checks", found.base))
        })?;
        let checks = checks(required, statuses);
        let mut readiness = Readiness { head: head.into(), checks, waits, ..Readiness::default() };
        // The merge style is read here, because no call may come between the last read of the base branch and the
        // merge.
        if merge != MergeMode::Never && readiness.obstacle(head).is_none() {
            readiness.merge_options = style(&http.get(self.0.url(&[], &[])).await?).into();
        }
        Ok(readiness)
    }

    // `head_commit_id` in MergePullRequestOption of /api/swagger: 409 if the head is another commit.
    async fn merge(&self, call: &MergeCall<'_>) -> ForgeResult<()> {
        if call.mode == MergeMode::Queue {
            return Err(self.0.http.lacks("merge queue"));
        }
        let style = &call.readiness.merge_options;
        let url = self.0.url(&["pulls", &call.found.request.number.to_string(), "merge"], &[]);
        // Gitea puts this text below a title of its own (`MergeMessageField` there).
        let body = json!({"Do": style, "head_commit_id": call.readiness.head, "MergeMessageField": call.message.trailers});
        match self.0.http.post(url, &body).await {
            // Gitea answers this if a rule requires heads on top of the base (`CheckPullBranchProtections` of 1.25).
            // Only administrators of the repository can read that rule.
            Err(ForgeError::Refused { says, .. }) if says.has("behind the base branch") => {
                Err(ForgeError::Behind { forge: self.0.http.name.clone() })
            }
            other => other.map(drop),
        }
    }

    async fn comment(&self, number: u64, text: &str) -> ForgeResult<()> {
        self.0.comment(number, text).await
    }

    async fn commit(&self, id: &str) -> ForgeResult<Option<ForgeCommit>> {
        self.0.commit(id, |c| (&c["commit"]["message"], &c["parents"])).await
    }

    // `repoCreateStatus` of /api/swagger; context and description are of any length (`CommitStatus` in
    // models/git/commit_status.go of go-gitea/gitea).
    async fn report(&self, commit: &str, status: &CommitStatus<'_>) -> ForgeResult<()> {
        self.0.report(commit, status, MAX_DESCRIPTION_CHARS).await
    }
}

/// Returns the default merge style of a repository. Forgejo also has default styles that its merge call does not accept
/// (modules/structs/repo.go). For these, returns the style of a merge commit.
fn style(repository: &Value) -> &str {
    let style = repository["default_merge_style"].as_str().filter(|style| STYLES.contains(style));
    style.unwrap_or("merge")
}

/// A review of any commit.
struct Review {
    approves: bool,
    asks_for_changes: bool,
    stale: bool,
    commit: String,
}

impl Review {
    fn read(review: &Value) -> Self {
        let counts = |state: &str| {
            review["state"] == state && review["official"] == true && review["dismissed"] != true
        };
        Review {
            approves: counts("APPROVED"),
            asks_for_changes: counts("REQUEST_CHANGES"),
            stale: review["stale"].as_bool() == Some(true),
            commit: text(&review["commit_id"]).unwrap_or_default(),
        }
    }
}

/// Returns the patterns of the checks that a branch requires, or `None` if there are too many.
fn required(branch: &Value) -> Option<Vec<String>> {
    let wants = branch["enable_status_check"].as_bool() == Some(true);
    let required = if wants { names(&branch["status_check_contexts"], "context") } else { Vec::new() };
    (required.len() <= MAX_PATTERNS).then_some(required)
}

/// Returns a status of a commit as a check. Gitea merges with `warning` and `skipped` as with `success`
/// (`CommitStatusStates.Combine` in modules/commitstatus of 1.25); for Forgejo, a `warning` is worse than pending
/// (`commitStatusPriorities` in modules/structs).
fn check(one: &Value, kind: ForgeKind) -> Check {
    let state = match one["status"].as_str() {
        Some("success" | "skipped") => CheckState::Green,
        Some("warning") if kind == ForgeKind::Gitea => CheckState::Green,
        Some("pending") => CheckState::Pending,
        _ => CheckState::Failed,
    };
    Check::new(text(&one["context"]).unwrap_or_default(), state, false).with_url(&one["target_url"])
}

/// Returns the checks of a commit: all checks that have reported, and the missing checks that the branch requires.
/// Required checks are patterns.
fn checks(required: Vec<String>, mut checks: Vec<Check>) -> Vec<Check> {
    let mut missing = Vec::new();
    let mut budget = MatchingBudget::of(checks.iter().map(|check| check.name.as_str()));
    for pattern in required {
        let pattern = CheckPattern::new(pattern, &mut budget);
        let mut reported = false;
        for check in checks.iter_mut().filter(|check| pattern.fits(&check.name)) {
            (check.required, reported) = (true, true);
        }
        if !reported {
            missing.push(Check::new(pattern.text, CheckState::Pending, true));
        }
    }
    checks.extend(missing);
    checks
}

/// Parses a pull request from a branch of this repository. Pull requests from forks are skipped, because their branches
/// can have the same names.
fn parse(value: &Value) -> Option<ForgeChangeRequest> {
    if value["head"]["repo_id"].as_i64()? != value["base"]["repo_id"].as_i64()? {
        return None;
    }
    let merged = value["merged"].as_bool() == Some(true);
    let state = match value["state"].as_str()? {
        _ if merged => {
            ChangeRequestState::Merged { commit: text(&value["merge_commit_sha"]).unwrap_or_default() }
        }
        "open" => ChangeRequestState::Open,
        _ => ChangeRequestState::Closed,
    };
    let whole = text(&value["title"])?;
    let (title, prefixed) = without_prefix(&whole, &DRAFTS);
    let is_draft = prefixed || value["draft"].as_bool() == Some(true);
    Some(ForgeChangeRequest {
        request: ChangeRequest {
            number: value["number"].as_u64()?,
            url: text(&value["html_url"])?,
            // The label keeps the name of a deleted branch; `ref` changes.
            branch: text(&value["head"]["label"])?,
            head_commit: text(&value["head"]["sha"])?,
            ..ChangeRequest::default()
        },
        base: text(&value["base"]["ref"])?,
        title: title.into(),
        body: text(&value["body"]).unwrap_or_default(),
        state,
        // Gitea never reports a draft as mergeable.
        conflicts: value["mergeable"].as_bool() == Some(false) && !is_draft,
        is_draft,
        author: text(&value["user"]["login"]),
        metadata: Metadata {
            labels: names(&value["labels"], "name"),
            reviewers: names(&value["requested_reviewers"], "login"),
            assignees: names(&value["assignees"], "login"),
        },
        created: value["created_at"].as_str()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_default_style_is_a_merge_commit() {
        let cases = [
            (json!("squash"), "squash"),
            (json!("fast-forward-only"), "fast-forward-only"),
            (json!("rebase-update-only"), "merge"),
            (json!("manually-merged"), "merge"),
            (Value::Null, "merge"),
        ];
        for (default, taken) in cases {
            assert_eq!(style(&json!({"default_merge_style": default})), taken);
        }
    }

    #[test]
    fn the_state_of_a_status_depends_on_the_forge() {
        let state = |kind, status: &str| check(&json!({"context": "ci", "status": status}), kind).state;
        let cases = [
            ("success", CheckState::Green, CheckState::Green),
            ("skipped", CheckState::Green, CheckState::Green),
            ("warning", CheckState::Green, CheckState::Failed),
            ("pending", CheckState::Pending, CheckState::Pending),
            ("failure", CheckState::Failed, CheckState::Failed),
            ("error", CheckState::Failed, CheckState::Failed),
            ("running_with_failure", CheckState::Failed, CheckState::Failed),
        ];
        for (status, gitea, forgejo) in cases {
            assert_eq!(state(ForgeKind::Gitea, status), gitea, "{status}");
            assert_eq!(state(ForgeKind::Forgejo, status), forgejo, "{status}");
        }
    }

    #[test]
    fn required_checks_are_patterns() {
        let branch =
            |patterns: Vec<String>| json!({"enable_status_check": true, "status_check_contexts": patterns});
        let green = || vec![Check::new("ci/build", CheckState::Green, false)];
        let of = |patterns: &[&str]| {
            let patterns = patterns.iter().map(|p| p.to_string()).collect();
            let checks = checks(required(&branch(patterns)).unwrap(), green());
            checks.into_iter().map(|c| (c.name, c.required)).collect::<Vec<_>>()
        };
        assert_eq!(of(&["ci/*"]), [("ci/build".to_string(), true)]);
        assert_eq!(of(&["cd/*"]), [("ci/build".to_string(), false), ("cd/*".to_string(), true)]);
        assert!(required(&branch(vec!["a".into(); MAX_PATTERNS + 1])).is_none());
        assert_eq!(required(&json!({"status_check_contexts": ["a"]})).unwrap().len(), 0);
    }
}
