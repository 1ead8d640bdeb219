//! GitHub, and GitHub Enterprise Server at other hosts.

use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderValue};
use serde_json::{Value, json};
use sluice_core::pipeline::MergeMode;

use super::api::{AddCall, ListFilter, MergeCall, impl_forge};
use super::authorization::AuthScheme;
use super::change_request::{
    ChangeRequestList, ChangeRequestState, ForgeChangeRequest, ForgeCommit, Metadata, MetadataKind, Proposal,
};
use super::commit_status::CommitStatus;
use super::connection::ForgeConnection;
use super::error::{ForgeError, ForgeResult};
use super::http::{ApiCall, ForgeHttp};
use super::json::{self, names, text};
use super::pager::{self, Cursor, ListPage, Reach};
use super::pulls_of_github_and_gitea::{GitHubPulls, PullsPage};
use super::readiness::{Check, CheckState, Readiness, approvals};
use crate::address::{AddressError, RepositoryAddress};
use crate::forge_kind::ForgeKind;
use crate::outcome::ChangeRequest;

/// The fields of answers that Sluice reads.
const FIELDS: &str = "assignees base baseRef body commit commits conclusion context contexts created_at data detailsUrl draft \
    endCursor expires_at hasNextPage head headRefOid html_url id isRequired labels \
    latestOpinionatedReviews login mergeCommitAllowed mergeQueueEntry mergeStateStatus merge_commit_sha \
    mergeable merged merged_at name nodes number oid owner pageInfo parents pullRequest \
    rebaseMergeAllowed ref refUpdateRule repo repository requested_reviewers requested_teams \
    requiredApprovingReviewCount requiredStatusCheckContexts requiresLinearHistory reviewDecision sha \
    slug squashMergeAllowed state status statusCheckRollup targetUrl title token";

pub(super) struct GitHub(GitHubPulls);

impl GitHub {
    pub(super) fn new(connection: &ForgeConnection<'_>) -> ForgeResult<Self> {
        let address = &connection.address;
        let (prefix, owner, name) = address.repository()?;
        if !prefix.is_empty() {
            return Err(AddressError::Invalid(address.text.clone()).into());
        }
        let http = http(&api(address), connection)?;
        Ok(GitHub(GitHubPulls { http, owner: owner.into(), name: name.into(), parse }))
    }

    async fn page(&self, head: &str, state: &str, at: u64) -> ForgeResult<ListPage<ForgeChangeRequest>> {
        let (filter, page) = (format!("{}:{head}", self.0.owner), (at + 1).to_string());
        let query = [
            ("state", state),
            ("head", &filter),
            ("sort", "created"),
            ("direction", "desc"),
            ("per_page", "100"),
            ("page", &page),
        ];
        let PullsPage { entries, listed, .. } = self.0.page(&query).await?;
        Ok(ListPage { next: (listed >= 100).then_some(at + 1), entries })
    }
}

impl GitHub {
    /// Calls the GraphQL API: only this API has required checks and the merge queue. Returns the data, and whether
    /// checks are missing in it because the token may not read them, like fine-grained tokens.
    async fn graphql(&self, query: &str, variables: Value) -> ForgeResult<(Value, bool)> {
        // At GitHub Enterprise Server, the GraphQL API is at /api/graphql, beside /api/v3.
        let http = &self.0.http;
        let up = usize::from(http.url(&[], &[]).path().ends_with("/v3"));
        let body = json!({"query": query, "variables": variables});
        let (url, preview) = (http.beside(up, &["graphql"], &[]), HeaderValue::from_static(PREVIEW));
        let mut answer =
            http.call(ApiCall::new(Method::POST, url).with_body(&body).with_header(ACCEPT, preview)).await?;
        let data = answer.get_mut("data").map(Value::take).unwrap_or_default();
        let errors = answer["errors"].as_array().map_or(&[][..], Vec::as_slice);
        let of_checks = |error: &Value| {
            let mut path = error["path"].as_array().into_iter().flatten();
            error["type"] == "FORBIDDEN" && path.any(|part| part == "statusCheckRollup")
        };
        let Some(error) = errors.iter().find(|error| !of_checks(error)) else {
            return Ok((data, !errors.is_empty()));
        };
        let (forge, says) = (http.name.clone(), http.words(error));
        Err(match error["type"].as_str() {
            Some("FORBIDDEN" | "INSUFFICIENT_SCOPES") => {
                ForgeError::Forbidden { forge, says: says.to_string() }
            }
            _ => ForgeError::Refused { forge, status: 422, says },
        })
    }
}

/// GitHub Enterprise Server has `mergeStateStatus` only with this preview ("Schema previews" of
/// docs.github.com/enterprise-server, "Merge info preview").
const PREVIEW: &str = "application/vnd.github.merge-info-preview+json";

const READINESS: &str = "query($owner: String!, $name: String!, $number: Int!, $after: String) { \
    repository(owner: $owner, name: $name) { mergeCommitAllowed squashMergeAllowed rebaseMergeAllowed \
    pullRequest(number: $number) { \
    id headRefOid STATE reviewDecision QUEUE \
    latestOpinionatedReviews(first: 100, writersOnly: true) { nodes { state commit { oid } } } \
    baseRef { refUpdateRule { requiredApprovingReviewCount requiresLinearHistory REQUIRED } } \
    commits(last: 1) { nodes { commit { oid statusCheckRollup { contexts(first: 100, after: $after) { pageInfo { hasNextPage endCursor } nodes { \
    ... on CheckRun { name status conclusion detailsUrl isRequired(pullRequestNumber: $number) } \
    ... on StatusContext { context state targetUrl isRequired(pullRequestNumber: $number) } } } } } } } } } }";

/// The field that replaces `STATE` in `READINESS` and says whether GitHub would merge, and the field that replaces
/// `REQUIRED`. The second row is for servers without `mergeStateStatus` (github.com/getstackit/stackit/issues/1143),
/// and also reads the required checks.
const STATES: [(&str, &str); 2] = [("mergeStateStatus", ""), ("mergeable", "requiredStatusCheckContexts")];

/// Returns the merge methods that a repository and a branch allow, in the order in which Sluice tries them: "Merge
/// commit, squash, rebase" (docs.github.com/graphql/reference, Repository: `mergeCommitAllowed`, `squashMergeAllowed`,
/// `rebaseMergeAllowed`; RefUpdateRule: `requiresLinearHistory`). `viewerDefaultMergeMethod` is not used, because it is
/// the method that the viewer used last. Rulesets can forbid more methods, which only a rejected merge shows.
fn methods(repository: &Value) -> Vec<&'static str> {
    let rule = &repository["pullRequest"]["baseRef"]["refUpdateRule"];
    let all = [
        ("merge", repository["mergeCommitAllowed"] == true && rule["requiresLinearHistory"] != true),
        ("squash", repository["squashMergeAllowed"] == true),
        ("rebase", repository["rebaseMergeAllowed"] == true),
    ];
    let allowed: Vec<&str> = all.iter().filter(|(_, allowed)| *allowed).map(|(method, _)| *method).collect();
    if allowed.is_empty() { vec!["merge"] } else { allowed }
}

/// Whether a merge was rejected only for its method: "Merge commits are not allowed on this repository.", "Squash
/// merges are not allowed on this repository." and similar messages of rulesets.
fn is_about_the_method(error: &ForgeError) -> bool {
    match error {
        ForgeError::Refused { status: 405, says, .. } => {
            says.has("not allowed") && (says.has("merge") || says.has("rebase"))
        }
        _ => false,
    }
}

/// Returns the commit at the head of a pull request.
fn commit(pull: &Value) -> &Value {
    &pull["commits"]["nodes"][0]["commit"]
}

/// The most characters of the description of a commit status.
const MAX_DESCRIPTION_CHARS: usize = 140;

/// Returns the readiness of a pull request. Only approvals of the current head count.
fn readiness(pull: &Value, contexts: Option<Vec<Check>>, merge: MergeMode) -> Readiness {
    let head = text(&pull["headRefOid"]).unwrap_or_default();
    let hidden = contexts.is_none();
    let of_head = commit(pull)["oid"] == head.as_str();
    let mut checks = contexts.filter(|_| of_head).unwrap_or_default();
    let reviews = pull["latestOpinionatedReviews"]["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let is = |review: &&Value, state: &str| review["state"] == state;
    let given = reviews.iter().filter(|r| is(r, "APPROVED") && r["commit"]["oid"] == head.as_str()).count();
    // If no review is required, `reviewDecision` is empty, even if a reviewer requests changes.
    let has_requested_changes = reviews.iter().any(|r| is(&r, "CHANGES_REQUESTED"));
    for name in names(&pull["baseRef"]["refUpdateRule"]["requiredStatusCheckContexts"], "") {
        if !checks.iter().any(|check| check.name == name) {
            checks.push(Check::new(name, CheckState::Pending, true));
        }
    }
    let mut readiness = Readiness {
        checks,
        are_checks_hidden: hidden,
        queued: pull["mergeQueueEntry"].is_object(),
        ..Readiness::default()
    };
    let needed =
        pull["baseRef"]["refUpdateRule"]["requiredApprovingReviewCount"].as_u64().unwrap_or(1).max(1);
    match pull["reviewDecision"].as_str() {
        decision if has_requested_changes || decision == Some("CHANGES_REQUESTED") => {
            readiness.waits.push("the changes that a reviewer asks for".into());
        }
        // Reviews are required. Valid approvals of an earlier head are not enough for this head.
        Some("REVIEW_REQUIRED" | "APPROVED") => {
            let missing = needed.saturating_sub(given as u64);
            // If there are enough approvals, another one can still be missing, for example that of a code owner.
            let missing = if pull["reviewDecision"] == "APPROVED" { missing } else { missing.max(1) };
            if missing > 0 {
                readiness.waits.push(approvals(missing));
            }
        }
        _ => {}
    }
    readiness.head = head;
    let has_no_obstacle = readiness.obstacle(&readiness.head).is_none();
    match merge_state(pull) {
        Some("DIRTY") => readiness.waits.push("its conflicts to be resolved".into()),
        // A merge queue updates the branch itself.
        Some("BEHIND") => readiness.behind = merge != MergeMode::Queue,
        // A check has not reported, or has failed.
        Some("UNSTABLE") if hidden => {
            readiness.waits.push("its checks, which this token may not read".into());
        }
        Some("UNKNOWN") => readiness.waits.push("GitHub to check whether it can be merged".into()),
        // A required check has not reported, or a rule is not met. With a merge queue, this is the state before the
        // pull request is in the queue.
        Some("BLOCKED") if has_no_obstacle && merge != MergeMode::Queue => {
            readiness
                .waits
                .push("a required check to report, or another rule of the branch to be met".into());
        }
        _ => {}
    }
    readiness
}

/// Returns whether GitHub would merge, as a value of `mergeStateStatus`.
fn merge_state(pull: &Value) -> Option<&str> {
    match pull["mergeable"].as_str() {
        Some("CONFLICTING") => Some("DIRTY"),
        // The state may also be CLEAN. If there is another obstacle, GitHub reports it when Sluice merges.
        Some("MERGEABLE") => Some("UNSTABLE"),
        Some(_) => Some("UNKNOWN"),
        None => pull["mergeStateStatus"].as_str(),
    }
}

fn check(value: &Value) -> Check {
    let state = match (value["status"].as_str(), value["conclusion"].as_str(), value["state"].as_str()) {
        (Some("COMPLETED"), Some("SUCCESS" | "NEUTRAL" | "SKIPPED"), _) => CheckState::Green,
        (Some("COMPLETED"), _, _) => CheckState::Failed,
        (Some(_), _, _) => CheckState::Pending,
        (_, _, Some("SUCCESS")) => CheckState::Green,
        (_, _, Some("PENDING" | "EXPECTED")) => CheckState::Pending,
        _ => CheckState::Failed,
    };
    let name = text(&value["name"]).or(text(&value["context"])).unwrap_or_default();
    let required = value["isRequired"].as_bool() == Some(true);
    let key = if value["detailsUrl"].is_string() { "detailsUrl" } else { "targetUrl" };
    Check::new(name, state, required).with_url(&value[key])
}

/// Returns a client of GitHub's API at this address.
pub(super) fn http(base: &str, connection: &ForgeConnection<'_>) -> ForgeResult<ForgeHttp> {
    let http = ForgeHttp::new(ForgeKind::GitHub, base, AuthScheme::Bearer, connection)?;
    Ok(http
        .with_fields(FIELDS)
        .with_header("accept", "application/vnd.github+json")
        .with_header("x-github-api-version", "2022-11-28"))
}

/// Returns the address of the API.
pub(super) fn api(address: &RepositoryAddress) -> String {
    match address.host_name() {
        "github.com" | "www.github.com" | "ssh.github.com" => "https://api.github.com".into(),
        host if host.ends_with(".ghe.com") => format!("https://api.{host}"),
        _ => format!("{}/api/v3", address.origin()),
    }
}

impl GitHub {
    async fn merge_by(&self, call: &MergeCall<'_>, method: &str) -> ForgeResult<()> {
        let url = self.0.url(&["pulls", &call.found.request.number.to_string(), "merge"], &[]);
        let mut body = json!({"sha": call.readiness.head, "merge_method": method});
        match method {
            "rebase" => {}
            // GitHub puts this message below the title of the pull request.
            "squash" => body["commit_message"] = call.message.trailers.as_str().into(),
            _ => body["commit_message"] = call.message.whole().into(),
        }
        self.0.http.put(url, &body).await.map(drop)
    }
}

impl_forge!(GitHub);

impl GitHub {
    async fn list(&self, head: &str, base: &str, filter: ListFilter) -> ForgeResult<ChangeRequestList> {
        let state = if filter == ListFilter::Open { "open" } else { "all" };
        pager::change_requests(&self.0.http, (head, base), Reach::of(filter), |at| self.page(head, state, at))
            .await
    }

    async fn open(&self, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        if !proposal.is_draft {
            return self.0.open(proposal, &proposal.title, Value::Null).await;
        }
        // Private repositories have drafts only in some plans.
        match self.0.open(proposal, &proposal.title, json!({"draft": true})).await {
            Err(ForgeError::Refused { status: 422, says, .. }) if says.has("draft pull requests") => {
                self.0.open(proposal, &proposal.title, Value::Null).await
            }
            other => other,
        }
    }

    async fn update(&self, number: u64, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        self.0.update(number, proposal, &proposal.title).await
    }

    // docs.github.com/rest/issues/labels, /rest/issues/assignees, /rest/pulls/review-requests.
    async fn add(&self, AddCall { found, kind, names }: AddCall<'_>) -> ForgeResult<Vec<String>> {
        let (http, number) = (&self.0.http, found.request.number);
        Ok(match kind {
            MetadataKind::Label => {
                let url = self.0.issue(number, &["labels"]);
                let all = http.post(url, &json!({"labels": names})).await?;
                json::names(&all, "name")
            }
            MetadataKind::Reviewer => reviewers(&self.0.ask_for_review(number, names).await?),
            // GitHub silently skips people who may not be assigned.
            MetadataKind::Assignee => {
                let url = self.0.issue(number, &["assignees"]);
                let issue = http.post(url, &json!({"assignees": names})).await?;
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

    // docs.github.com/graphql/reference/objects: PullRequest, CheckRun, StatusContext, RefUpdateRule.
    async fn readiness(&self, found: &ForgeChangeRequest, merge: MergeMode) -> ForgeResult<Readiness> {
        // Servers before 3.12 have no merge queue.
        let queue = if merge == MergeMode::Queue { "mergeQueueEntry { state }" } else { "" };
        let (mut cursor, mut contexts) = (Cursor::from(0), Vec::new());
        let (mut after, mut head) = (Value::Null, None);
        let mut states = STATES.into_iter();
        let (mut state, mut required) = states.next().unwrap_or_default();
        loop {
            let query =
                READINESS.replace("QUEUE", queue).replace("STATE", state).replace("REQUIRED", required);
            let (owner, name, number) = (&self.0.owner, &self.0.name, found.request.number);
            let variables = json!({"owner": owner, "name": name, "number": number, "after": after});
            let (data, hidden) = match self.graphql(&query, variables).await {
                Err(ForgeError::Refused { says, .. })
                    if says.has(&format!("'{state}' doesn't exist").to_ascii_lowercase()) =>
                {
                    let Some(other) = states.next() else {
                        return Err(self.0.http.unreadable("a pull request"));
                    };
                    (state, required) = other;
                    continue;
                }
                other => other?,
            };
            let repository = &data["repository"];
            let pull = &repository["pullRequest"];
            // A page for another head does not belong to this list.
            if pull.is_null() || *head.get_or_insert(pull["headRefOid"].clone()) != pull["headRefOid"] {
                return Err(self.0.http.unreadable("a pull request"));
            }
            let page = &commit(pull)["statusCheckRollup"]["contexts"];
            let more = page["pageInfo"]["hasNextPage"] == true;
            contexts.extend(page["nodes"].as_array().into_iter().flatten().map(check));
            cursor.advance(more.then_some(0));
            // GitHub's `endCursor` says where the next page begins. `cursor` says whether Sluice may read that page.
            if cursor.at(&self.0.http, contexts.len())?.is_some() {
                after = page["pageInfo"]["endCursor"].clone();
                continue;
            }
            let mut readiness = readiness(pull, (!hidden).then_some(contexts), merge);
            readiness.merge_options = json!({"id": pull["id"], "methods": methods(repository)});
            return Ok(readiness);
        }
    }

    // docs.github.com/rest/pulls/pulls, "Merge a pull request": 409 if the head is not `sha`.
    async fn merge(&self, call: &MergeCall<'_>) -> ForgeResult<()> {
        if call.mode == MergeMode::Queue {
            // The call fails if the head is not the expected one.
            let mutation = "mutation($id: ID!, $head: GitObjectID!) { enqueuePullRequest(input: \
                            {pullRequestId: $id, expectedHeadOid: $head}) { mergeQueueEntry { id } } }";
            let variables = json!({"id": call.readiness.merge_options["id"], "head": call.readiness.head});
            return self.graphql(mutation, variables).await.map(drop);
        }
        let mut methods = call.readiness.merge_options["methods"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .peekable();
        while let Some(method) = methods.next() {
            match self.merge_by(call, method).await {
                // The rejected call took time, in which somebody may have changed the base.
                Err(error) if is_about_the_method(&error) && methods.peek().is_some() => {
                    let now = self.0.get(call.found.request.number).await?;
                    if now.is_none_or(|now| now.base != call.found.base) {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
        Err(self.0.http.unreadable("the ways to merge"))
    }

    async fn comment(&self, number: u64, text: &str) -> ForgeResult<()> {
        self.0.comment(number, text).await
    }

    async fn commit(&self, id: &str) -> ForgeResult<Option<ForgeCommit>> {
        self.0.commit(id, |c| (&c["message"], &c["parents"])).await
    }

    // docs.github.com/rest/commits/statuses, "Create a commit status"; 422, "description is too long (maximum is 140
    // characters)".
    async fn report(&self, commit: &str, status: &CommitStatus<'_>) -> ForgeResult<()> {
        self.0.report(commit, status, MAX_DESCRIPTION_CHARS).await
    }
}

/// Returns the requested reviewers: people by login, teams as `organization/team`.
fn reviewers(pull: &Value) -> Vec<String> {
    let owner = pull["base"]["repo"]["owner"]["login"].as_str().unwrap_or_default();
    let teams = names(&pull["requested_teams"], "slug").into_iter().map(|team| format!("{owner}/{team}"));
    names(&pull["requested_reviewers"], "login").into_iter().chain(teams).collect()
}

/// Parses a pull request from a branch of this repository. Pull requests from forks are skipped: the filter of lists
/// also returns those from forks of the same owner, and `head.repo` is null if the fork was deleted.
fn parse(value: &Value) -> Option<ForgeChangeRequest> {
    if value["head"]["repo"]["id"] != value["base"]["repo"]["id"] {
        return None;
    }
    let merged = !value["merged_at"].is_null() || value["merged"].as_bool() == Some(true);
    let state = match value["state"].as_str()? {
        "open" => ChangeRequestState::Open,
        _ if merged => {
            ChangeRequestState::Merged { commit: text(&value["merge_commit_sha"]).unwrap_or_default() }
        }
        _ => ChangeRequestState::Closed,
    };
    Some(ForgeChangeRequest {
        request: ChangeRequest {
            number: value["number"].as_u64()?,
            url: text(&value["html_url"])?,
            branch: text(&value["head"]["ref"])?,
            head_commit: text(&value["head"]["sha"])?,
            ..ChangeRequest::default()
        },
        base: text(&value["base"]["ref"])?,
        title: text(&value["title"])?,
        body: text(&value["body"]).unwrap_or_default(),
        state,
        conflicts: value["mergeable"].as_bool() == Some(false),
        is_draft: value["draft"].as_bool() == Some(true),
        author: None,
        metadata: Metadata {
            labels: names(&value["labels"], "name"),
            reviewers: reviewers(value),
            assignees: names(&value["assignees"], "login"),
        },
        created: value["created_at"].as_str()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_merge_method_is_an_allowed_one() {
        let of = |merge: bool, squash: bool, rebase: bool, linear: bool| {
            methods(&json!({
                "viewerDefaultMergeMethod": "REBASE", "mergeCommitAllowed": merge,
                "squashMergeAllowed": squash, "rebaseMergeAllowed": rebase,
                "pullRequest": {"baseRef": {"refUpdateRule": {"requiresLinearHistory": linear}}},
            }))
        };
        assert_eq!(of(true, true, true, false), ["merge", "squash", "rebase"]);
        assert_eq!(of(true, true, true, true), ["squash", "rebase"]);
        assert_eq!(of(false, false, true, false), ["rebase"]);
        assert_eq!(methods(&json!({})), ["merge"]);
    }

    #[test]
    fn requested_changes_block_a_merge_even_if_no_review_is_required() {
        let waits = |decision: Value, state: &str| {
            let pull = json!({
                "headRefOid": "a", "mergeStateStatus": "CLEAN", "reviewDecision": decision,
                "latestOpinionatedReviews": {"nodes": [{"state": state, "commit": {"oid": "a"}}]},
            });
            readiness(&pull, Some(Vec::new()), MergeMode::WhenGreen).waits
        };
        let asked = ["the changes that a reviewer asks for"];
        assert_eq!(waits(json!("CHANGES_REQUESTED"), "CHANGES_REQUESTED"), asked);
        assert_eq!(waits(Value::Null, "CHANGES_REQUESTED"), asked);
        assert!(waits(Value::Null, "APPROVED").is_empty());
        assert!(waits(json!("APPROVED"), "APPROVED").is_empty());
    }
}
