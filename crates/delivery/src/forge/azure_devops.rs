//! Azure DevOps, and Azure DevOps Server at other hosts. Paths, fields and states are those of
//! learn.microsoft.com/rest/api/azure/devops/git: "Pull Requests", "Pull Request Threads", "Commits".

use std::collections::BTreeMap;

use reqwest::{Method, Url};
use serde_json::{Value, json};
use sluice_core::pipeline::MergeMode;

use super::api::{AddCall, ListFilter, MergeCall, impl_forge};
use super::authorization::AuthScheme;
use super::change_request::{
    ChangeRequestList, ChangeRequestState, ForgeChangeRequest, ForgeCommit, Metadata, MetadataKind, Proposal,
};
use super::commit_status::{CommitStatus, MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS};
use super::connection::ForgeConnection;
use super::error::ForgeResult;
use super::http::ForgeHttp;
use super::json::{names, text};
use super::pager::{self, ListPage, Reach};
use super::readiness::{Check, CheckState, Readiness, approvals};
use crate::address::{AddressError, RepositoryAddress};
use crate::forge_kind::ForgeKind;
use crate::outcome::ChangeRequest;

/// The version of the API. The service and every server since 2020 support this version.
const VERSION: (&str, &str) = ("api-version", "6.0");
/// The version for calls that were a preview in that version of the API.
const PREVIEW: (&str, &str) = ("api-version", "6.0-preview.1");
const BRANCH: &str = "refs/heads/";
const PAGE: u64 = 100;
/// The policy that limits the ways to merge, "Limit merge types" (learn.microsoft.com/rest/api/azure/devops/policy/types).
const MERGE_TYPES: &str = "fa4e907d-c16b-4a4c-9dfa-4916e5d171ab";
/// The settings of this policy, each with the strategy that it allows ("GitPullRequestMergeStrategy"), in the order of
/// preference. The first strategy is the default without such a policy.
const STRATEGIES: [(&str, &str); 5] = [
    ("allowNoFastForward", "noFastForward"),
    ("allowSquash", "squash"),
    ("useSquashMerge", "squash"),
    ("allowRebase", "rebase"),
    ("allowRebaseMerge", "rebaseMerge"),
];
/// The length from which lists shorten descriptions ("will be truncated up to 400 symbols": "Get Pull Requests").
const SHORTENED_FROM: usize = 400;

/// The fields of answers that Sluice reads.
const FIELDS: &str = "allowNoFastForward allowRebase allowRebaseMerge allowSquash comment commitId configuration context \
    creationDate description displayName forkSource genre id isBlocking isDeleted isDraft isEnabled \
    iterationId labels lastMergeCommit lastMergeSourceCommit mergeStatus minimumApproverCount name \
    parents project pullRequestId repository reviewers settings sourceRefCommit sourceRefName state \
    status statusName targetRefName targetUrl title typeKey useSquashMerge value vote";

pub(super) struct AzureDevOps {
    http: ForgeHttp,
    place: RepositoryPlace,
}

/// A repository in its collection and project.
#[derive(Debug)]
struct RepositoryPlace {
    /// The address of the organization or collection.
    collection: String,
    project: String,
    repository: String,
}

impl AzureDevOps {
    pub(super) fn new(connection: &ForgeConnection<'_>) -> ForgeResult<Self> {
        let address = &connection.address;
        let place = place(address)?;
        // A personal access token is the password of a user with an empty name (learn.microsoft.com, "Use personal access
        // tokens").
        let (kind, scheme) = (ForgeKind::AzureDevOps, AuthScheme::EmptyUser);
        let http = ForgeHttp::new(kind, &place.collection, scheme, connection)?;
        Ok(AzureDevOps { http: http.with_fields(FIELDS), place })
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        self.versioned(VERSION, path, query)
    }

    fn versioned(&self, version: (&str, &str), path: &[&str], query: &[(&str, &str)]) -> Url {
        let repository = [&self.place.project, "_apis", "git", "repositories", &self.place.repository];
        self.http.url(&[&repository, path].concat(), &[&[version], query].concat())
    }

    fn one(&self, number: u64, path: &[&str]) -> Url {
        self.url(&[&["pullrequests", &number.to_string()], path].concat(), &[])
    }

    async fn page(
        &self,
        head: &str,
        status: &str,
        since: &str,
        at: u64,
    ) -> ForgeResult<ListPage<ForgeChangeRequest>> {
        let (branch, size, skip) = (format!("{BRANCH}{head}"), PAGE.to_string(), at.to_string());
        let mut query = vec![
            ("searchCriteria.sourceRefName", branch.as_str()),
            ("searchCriteria.status", status),
            ("$top", &size),
            ("$skip", &skip),
        ];
        if !since.is_empty() {
            // `minTime` means the time of creation, unless another time is requested.
            query.push(("searchCriteria.minTime", since));
        }
        let reduce = |answer: Value| {
            let list = answer["value"].as_array()?;
            let next = (list.len() as u64 >= PAGE).then_some(at + PAGE);
            Some(ListPage { entries: list.iter().filter_map(|value| self.parse(value)).collect(), next })
        };
        self.http.page(self.url(&["pullrequests"], &query), reduce).await
    }

    /// Returns the pull requests from a branch, the newest first, each with its whole description. The order of a list
    /// is not documented, so the list is read to its end.
    async fn all(
        &self,
        (head, base): (&str, &str),
        status: &str,
        since: &str,
    ) -> ForgeResult<ChangeRequestList> {
        let page = |at| self.page(head, status, since, at);
        let mut all = pager::change_requests(&self.http, (head, base), Reach::End, page).await?;
        all.found.sort_by_key(|found| std::cmp::Reverse(found.request.number));
        for found in &mut all.found {
            if found.body.encode_utf16().count() >= SHORTENED_FROM
                && let Some(whole) = self.http.read(self.one(found.request.number, &[])).await?
                && let Some(whole) = self.parse(&whole).and_then(ForgeChangeRequest::checked)
            {
                *found = whole;
            }
        }
        Ok(all)
    }

    /// Returns the statuses of a pull request itself, without those of its commits. Of each context, only the newest
    /// status counts, because "to update a status create a new status with the same genre and name". A status of an
    /// iteration (a push) counts only if the iteration made this head ("Pull Request Statuses", "Pull Request
    /// Iterations").
    async fn own_statuses(&self, number: u64, head: &str) -> ForgeResult<Vec<Value>> {
        let (id, of) = (number.to_string(), |one: &Value| one["iterationId"].as_u64().filter(|id| *id > 0));
        let url = self.versioned(PREVIEW, &["pullrequests", &id, "statuses"], &[]);
        let all = self.http.get(url).await?;
        let all = all["value"].as_array().ok_or_else(|| self.http.unreadable("a list"))?;
        let mut current = None;
        if all.iter().any(|one| of(one).is_some()) {
            let pushes = self.http.get(self.one(number, &["iterations"])).await?;
            let pushes = pushes["value"].as_array().into_iter().flatten();
            let made = pushes.filter(|push| push["sourceRefCommit"]["commitId"] == head);
            current = made.filter_map(|push| push["id"].as_u64()).max();
        }
        let mut newest: BTreeMap<String, &Value> = BTreeMap::new();
        for one in all.iter().filter(|one| of(one).is_none() || of(one) == current) {
            let known = newest.entry(context(one)).or_insert(one);
            if one["id"].as_u64() > known["id"].as_u64() {
                *known = one;
            }
        }
        Ok(newest.into_values().cloned().collect())
    }

    async fn patch(&self, number: u64, body: &Value) -> ForgeResult<ForgeChangeRequest> {
        self.http.change(Method::PATCH, self.one(number, &[]), body, |value| self.parse(value)).await
    }

    /// Parses a pull request from a branch of this repository. Pull requests from forks are skipped, because their
    /// branches can have the same names.
    fn parse(&self, value: &Value) -> Option<ForgeChangeRequest> {
        if !value["forkSource"].is_null() {
            return None;
        }
        let commit = |key: &str| text(&value[key]["commitId"]).unwrap_or_default();
        let state = match value["status"].as_str()? {
            "completed" => ChangeRequestState::Merged { commit: commit("lastMergeCommit") },
            "abandoned" => ChangeRequestState::Closed,
            _ => ChangeRequestState::Open,
        };
        let branch = |key: &str| value[key].as_str()?.strip_prefix(BRANCH).map(String::from);
        let number = value["pullRequestId"].as_u64()?;
        Some(ForgeChangeRequest {
            request: ChangeRequest {
                number,
                url: self.page_url(number)?,
                branch: branch("sourceRefName")?,
                head_commit: commit("lastMergeSourceCommit"),
                ..ChangeRequest::default()
            },
            base: branch("targetRefName")?,
            title: text(&value["title"])?,
            body: text(&value["description"]).unwrap_or_default(),
            conflicts: state == ChangeRequestState::Open && value["mergeStatus"] == "conflicts",
            state,
            is_draft: value["isDraft"].as_bool() == Some(true),
            author: None,
            metadata: Metadata {
                labels: names(&value["labels"], "name"),
                reviewers: names(&value["reviewers"], "id"),
                assignees: Vec::new(),
            },
            created: value["creationDate"].as_str()?.parse().ok()?,
        })
    }

    /// Returns the address of the page of a pull request. Answers do not contain this address.
    fn page_url(&self, number: u64) -> Option<String> {
        let RepositoryPlace { collection, project, repository } = &self.place;
        let mut url = Url::parse(collection).ok()?;
        url.path_segments_mut().ok()?.pop_if_empty().extend([
            project.as_str(),
            "_git",
            repository,
            "pullrequest",
            &number.to_string(),
        ]);
        Some(url.into())
    }
}

/// Returns the repository for any form of its address.
fn place(address: &RepositoryAddress) -> Result<RepositoryPlace, AddressError> {
    let not = || AddressError::NotOf {
        address: address.text.clone(),
        forge: "Azure DevOps",
        write: "https://dev.azure.com/organization/project/_git/repository or \
                git@ssh.dev.azure.com:v3/organization/project/repository; on your own server \
                https://host/collection/project/_git/repository",
    };
    let (host, parts) = (address.host_name(), address.parts());
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let of = |collection: String, project: &str, repository: &str| {
        Ok(RepositoryPlace { collection, project: project.into(), repository: repository.into() })
    };
    if matches!(host, "ssh.dev.azure.com" | "vs-ssh.visualstudio.com") {
        return match parts.as_slice() {
            ["v3", organization, project, repository] => {
                of(format!("https://dev.azure.com/{organization}"), project, repository)
            }
            _ => Err(not()),
        };
    }
    let [before @ .., "_git", repository] = parts.as_slice() else { return Err(not()) };
    // The first repository of a project has the name of the project, and its address may omit the project.
    let organization = host.strip_suffix(".visualstudio.com");
    match (organization, before) {
        (Some(name), ["DefaultCollection", rest @ ..] | rest) if rest.len() < 2 => {
            of(format!("https://dev.azure.com/{name}"), rest.first().unwrap_or(repository), repository)
        }
        (None, [organization]) if host == "dev.azure.com" => {
            of(format!("https://dev.azure.com/{organization}"), repository, repository)
        }
        (None, [collection @ .., project]) if !collection.is_empty() => {
            of(format!("{}/{}", address.origin(), collection.join("/")), project, repository)
        }
        _ => Err(not()),
    }
}

impl_forge!(AzureDevOps);

impl AzureDevOps {
    async fn list(&self, head: &str, base: &str, filter: ListFilter) -> ForgeResult<ChangeRequestList> {
        let ListFilter::Since(since) = filter else { return self.all((head, base), "active", "").await };
        let since = pager::earliest(since);
        let mut all = self.all((head, base), "all", &since.to_string()).await?;
        // A server that does not support the time limit returns all pull requests.
        all.found.retain(|found| found.created >= since);
        Ok(all)
    }

    async fn open(&self, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        let mut body = json!({
            "sourceRefName": format!("{BRANCH}{}", proposal.head),
            "targetRefName": format!("{BRANCH}{}", proposal.base),
            "title": proposal.title, "description": proposal.body,
        });
        if proposal.is_draft {
            body["isDraft"] = true.into();
        }
        let url = self.url(&["pullrequests"], &[]);
        self.http.change(Method::POST, url, &body, |value| self.parse(value)).await
    }

    async fn update(&self, number: u64, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        let body = json!({"title": proposal.title, "description": proposal.body});
        let found = self.patch(number, &body).await?;
        if found.base == proposal.base {
            return Ok(found);
        }
        // The base is changed only if it differs, because not every server allows this change.
        self.patch(number, &json!({"targetRefName": format!("{BRANCH}{}", proposal.base)})).await
    }

    // "Pull Request Labels - Create", "Pull Request Reviewers - Create Pull Request Reviewer".
    async fn add(&self, AddCall { found, kind, names }: AddCall<'_>) -> ForgeResult<Vec<String>> {
        let mut there = Vec::new();
        for name in names {
            let path = ["pullrequests", &found.request.number.to_string()];
            let added = match kind {
                MetadataKind::Label => {
                    let url = self.versioned(PREVIEW, &[&path[..], &["labels"]].concat(), &[]);
                    text(&self.http.post(url, &json!({"name": name})).await?["name"])
                }
                // The name is the id of an identity, because a token for code alone cannot look up people by name.
                MetadataKind::Reviewer => {
                    let url = self.url(&[&path[..], &["reviewers", name]].concat(), &[]);
                    text(&self.http.put(url, &json!({"vote": 0})).await?["id"])
                }
                MetadataKind::Assignee => return Err(self.http.lacks("assignees")),
            };
            there.extend(added);
        }
        Ok(there)
    }

    async fn close(&self, number: u64) -> ForgeResult<()> {
        let body = json!({"status": "abandoned"});
        self.http.patch(self.one(number, &[]), &body).await.map(drop)
    }

    async fn get(&self, number: u64) -> ForgeResult<Option<ForgeChangeRequest>> {
        self.http.request(self.one(number, &[]), self.url(&[], &[]), |value| self.parse(value)).await
    }

    // learn.microsoft.com/rest/api/azure/devops/policy/evaluations/list, and git/statuses/list.
    async fn readiness(&self, found: &ForgeChangeRequest, _merge: MergeMode) -> ForgeResult<Readiness> {
        let number = found.request.number;
        let now = self.http.get(self.one(number, &[])).await?;
        let head = text(&now["lastMergeSourceCommit"]["commitId"]).unwrap_or_default();
        let project = now["repository"]["project"]["id"].as_str().unwrap_or_default();
        let artifact = format!("vstfs:///CodeReview/CodeReviewId/{project}/{number}");
        let path = [&self.place.project, "_apis", "policy", "evaluations"];
        let url = self.http.url(&path, &[PREVIEW, ("artifactId", &artifact)]);
        let policies = self.http.get(url).await?;
        let url = self.url(&["commits", &head, "statuses"], &[("latestOnly", "true")]);
        let statuses = self.http.get(url).await?;
        let mut readiness = Readiness { head, ..Readiness::default() };
        // This is the head of the last comparison with the base ("at the time of the last pull request merge").
        if matches!(now["mergeStatus"].as_str(), Some("queued" | "notSet")) {
            readiness.waits.push("Azure DevOps to check whether it can be merged".into());
        }
        readiness.add_policies(&now, &policies);
        readiness.checks.extend(statuses["value"].as_array().into_iter().flatten().map(check));
        readiness.checks.extend(self.own_statuses(number, &readiness.head).await?.iter().map(check));
        Ok(readiness)
    }

    // "Pull Requests - Update": the pull request is completed only at the named commit, after a delay.
    async fn merge(&self, call: &MergeCall<'_>) -> ForgeResult<()> {
        if call.mode == MergeMode::Queue {
            return Err(self.http.lacks("merge queue"));
        }
        let mut body =
            json!({"status": "completed", "lastMergeSourceCommit": {"commitId": call.readiness.head}});
        body["completionOptions"] = json!({"mergeCommitMessage": call.message.whole()});
        if call.readiness.merge_options.is_string() {
            body["completionOptions"]["mergeStrategy"] = call.readiness.merge_options.clone();
        }
        let url = self.one(call.found.request.number, &[]);
        self.http.patch(url, &body).await.map(drop)
    }

    async fn comment(&self, number: u64, text: &str) -> ForgeResult<()> {
        // The thread is closed, because a policy can require that all threads are closed.
        let body = json!({
            "comments": [{"parentCommentId": 0, "content": text, "commentType": "text"}],
            "status": "closed",
        });
        self.http.post(self.one(number, &["threads"]), &body).await.map(drop)
    }

    async fn commit(&self, id: &str) -> ForgeResult<Option<ForgeCommit>> {
        let url = self.url(&["commits", id], &[]);
        self.http.read_commit(id, url, "commitId", |c| (&c["comment"], &c["parents"])).await
    }

    // "Statuses - Create". A new status with the same genre and name replaces the earlier one.
    async fn report(&self, commit: &str, status: &CommitStatus<'_>) -> ForgeResult<()> {
        let name = status.name(MAX_NAME_CHARS);
        let (genre, name) = name.split_once('/').unwrap_or_default();
        let body = json!({
            "context": {"genre": genre, "name": name}, "targetUrl": status.url,
            "state": status.progress.word("pending", "succeeded", "failed"),
            "description": status.description(MAX_DESCRIPTION_CHARS),
        });
        self.http.post(self.url(&["commits", commit, "statuses"], &[]), &body).await.map(drop)
    }
}

impl Readiness {
    /// Adds the policies of the target branch, and the votes. A policy that does not block counts as a check once it
    /// has begun, because many policies are started only by hand.
    fn add_policies(&mut self, now: &Value, policies: &Value) {
        for one in policies["value"].as_array().into_iter().flatten() {
            let policy = &one["configuration"];
            if policy["isEnabled"] != true || policy["isDeleted"] == true {
                continue;
            }
            let blocks = policy["isBlocking"] == true;
            if !blocks && matches!(one["status"].as_str(), None | Some("queued" | "notApplicable")) {
                continue;
            }
            let state = match one["status"].as_str() {
                Some("approved" | "notApplicable") => CheckState::Green,
                Some("rejected" | "broken") => CheckState::Failed,
                _ => CheckState::Pending,
            };
            let (kind, settings) = (&policy["type"], &policy["settings"]);
            if kind["id"] == MERGE_TYPES && !blocks {
                continue;
            }
            if kind["id"] == MERGE_TYPES {
                // This policy is no check: it limits the strategy of the merge.
                let allowed = STRATEGIES.iter().find(|(setting, _)| settings[*setting] == true);
                self.merge_options = allowed.map(|(_, strategy)| (*strategy).into()).unwrap_or_default();
                continue;
            }
            match settings["minimumApproverCount"].as_u64() {
                Some(_) if state == CheckState::Green || !blocks => {}
                Some(needed) => {
                    let votes = now["reviewers"].as_array().into_iter().flatten();
                    let given = votes.filter(|r| r["vote"].as_i64() >= Some(5)).count() as u64;
                    self.waits.push(approvals(needed.saturating_sub(given).max(1)));
                }
                None => {
                    let name = [&settings["displayName"], &settings["statusName"], &kind["displayName"]];
                    let name = name.into_iter().find_map(text).unwrap_or_else(|| "a policy".into());
                    self.checks.push(Check::new(name, state, blocks));
                }
            }
        }
        let votes = now["reviewers"].as_array().into_iter().flatten();
        if votes.into_iter().any(|r| r["vote"].as_i64().is_some_and(|vote| vote < 0)) {
            self.waits.push("the changes that a reviewer asks for".into());
        }
    }
}

/// Returns the context of a status as one text.
fn context(one: &Value) -> String {
    let parts = [&one["context"]["genre"], &one["context"]["name"]];
    let parts: Vec<String> = parts.into_iter().filter_map(text).filter(|part| !part.is_empty()).collect();
    parts.join("/")
}

/// Returns a status as a check, which is not required: statuses alone do not block a merge.
fn check(one: &Value) -> Check {
    let state = match one["state"].as_str() {
        Some("succeeded" | "notApplicable") => CheckState::Green,
        Some("failed" | "error") => CheckState::Failed,
        _ => CheckState::Pending,
    };
    Check::new(context(one), state, false).with_url(&one["targetUrl"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_repository_is_read_or_refused_with_its_form() {
        let cloud = Ok("https://dev.azure.com/acme platform fleet");
        let usual = Err("write https://dev.azure.com/organization/project/_git/repository");
        let cases = [
            ("https://dev.azure.com/acme/platform/_git/fleet", cloud),
            ("https://acme@dev.azure.com/acme/platform/_git/fleet", cloud),
            ("https://dev.azure.com/acme/_git/fleet", Ok("https://dev.azure.com/acme fleet fleet")),
            (
                "https://dev.azure.com/acme/My%20Platform/_git/a+b",
                Ok("https://dev.azure.com/acme My Platform a+b"),
            ),
            ("https://acme.visualstudio.com/platform/_git/fleet", cloud),
            ("https://acme.visualstudio.com/DefaultCollection/platform/_git/fleet", cloud),
            ("https://acme.visualstudio.com/_git/fleet", Ok("https://dev.azure.com/acme fleet fleet")),
            ("git@ssh.dev.azure.com:v3/acme/platform/fleet", cloud),
            ("acme@vs-ssh.visualstudio.com:v3/acme/platform/fleet", cloud),
            (
                "https://tfs.example.com:8080/tfs/Main/platform/_git/fleet",
                Ok("https://tfs.example.com:8080/tfs/Main platform fleet"),
            ),
            ("https://dev.azure.com/acme/platform/fleet", usual),
            ("https://dev.azure.com/acme/platform/_git/fleet/pullrequest/1", usual),
            ("https://acme.visualstudio.com/a/b/_git/fleet", usual),
            ("git@ssh.dev.azure.com:acme/platform/fleet", usual),
            ("https://tfs.example.com/platform/_git/fleet", usual),
        ];
        for (text, expected) in cases {
            match (place(&RepositoryAddress::parse(text, false).unwrap()), expected) {
                (Ok(RepositoryPlace { collection, project, repository }), Ok(expected)) => {
                    assert_eq!(format!("{collection} {project} {repository}"), expected);
                }
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
