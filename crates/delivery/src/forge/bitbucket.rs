//! Bitbucket Cloud. Paths, fields and states are those of developer.atlassian.com/cloud/bitbucket/rest,
//! "Pullrequests", "Merge queues" and "Commits". Bitbucket Cloud shortens the ids of commits, answers a second pull request
//! with the open one, and runs a long merge as a task.

use std::time::{Duration, Instant};

use reqwest::header::LOCATION;
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
use super::http::{ApiCall, ForgeHttp};
use super::json::{names, text};
use super::pager::{self, ListPage, Reach};
use super::readiness::{Check, CheckState, Readiness};
use crate::address::{AddressError, RepositoryAddress};
use crate::forge_kind::ForgeKind;
use crate::outcome::ChangeRequest;

/// The length of a whole commit id.
const WHOLE_ID: usize = 40;
/// The most characters of the key of a build status.
const MAX_KEY_CHARS: usize = 40;

/// How long a running merge task is polled.
const TASK_TIMEOUT: Duration = Duration::from_secs(15);
/// The first and the longest pause between two polls of a merge task.
const TASK_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// The fields of answers that Sluice reads.
const FIELDS: &str = "account_id branch commit created_on default_merge_strategy description destination draft full_name \
    hash href html id key links merge_commit name next parents participants queued repository reviewers \
    source state task_status title url uuid values";

pub(super) struct Bitbucket {
    http: ForgeHttp,
    workspace: String,
    slug: String,
}

impl Bitbucket {
    pub(super) fn new(connection: &ForgeConnection<'_>) -> ForgeResult<Self> {
        let address = &connection.address;
        let (base, workspace, slug) = place(address)?;
        // An access token is sent as Bearer. An API token, or an app password, is sent with its user
        // (developer.atlassian.com/cloud/bitbucket/rest, "Authentication methods").
        let scheme = AuthScheme::BearerOrUser;
        let http = ForgeHttp::new(ForgeKind::Bitbucket, &base, scheme, connection)?;
        Ok(Bitbucket { http: http.with_fields(FIELDS), workspace, slug })
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let repository = ["repositories", &self.workspace, &self.slug];
        self.http.url(&[&repository, path].concat(), query)
    }

    fn one(&self, number: u64, path: &[&str]) -> Url {
        self.url(&[&["pullrequests", &number.to_string()], path].concat(), &[])
    }

    /// Returns a page of the pull requests in these states, with at most 50 entries. The states are in the filter,
    /// because Bitbucket ignores the parameter `state` if there is a filter (github.com/elastic/kibana/pull/288824,
    /// github.com/MunifTanjim/node-bitbucket/issues/16).
    async fn page(&self, head: &str, states: &[&str], at: u64) -> ForgeResult<ListPage<ForgeChangeRequest>> {
        let states: Vec<String> = states.iter().map(|state| format!("state=\"{state}\"")).collect();
        let filter = format!("source.branch.name=\"{head}\" AND ({})", states.join(" OR "));
        let page = (at + 1).to_string();
        let query = [("q", filter.as_str()), ("sort", "-created_on"), ("pagelen", "50"), ("page", &page)];
        let reduce = |answer: Value| {
            let list = answer["values"].as_array()?;
            let next = answer["next"].is_string().then_some(at + 1);
            Some(ListPage { entries: list.iter().filter_map(parse).collect(), next })
        };
        self.http.page(self.url(&["pullrequests"], &query), reduce).await
    }

    /// Returns the whole id of a commit for an id that was shortened to 12 digits
    /// (github.com/jenkinsci/bitbucket-branch-source-plugin/pull/63).
    async fn whole(&self, id: String) -> ForgeResult<String> {
        if id.is_empty() || id.len() >= WHOLE_ID {
            return Ok(id);
        }
        if let Some(known) = self.http.known_id(&id) {
            return Ok(known);
        }
        let commit = self.http.read(self.url(&["commit", &id], &[])).await?;
        let Some(whole) = commit.and_then(|c| text(&c["hash"])) else { return Ok(id) };
        self.http.check_commit(&id, &whole.as_str().into())?;
        self.http.learn_id(&id, &whole);
        Ok(whole)
    }

    async fn with_whole_ids(&self, mut found: ForgeChangeRequest) -> ForgeResult<ForgeChangeRequest> {
        found.request.head_commit = self.whole(found.request.head_commit).await?;
        if let ChangeRequestState::Merged { commit } = found.state {
            found.state = ChangeRequestState::Merged { commit: self.whole(commit).await? };
        }
        Ok(found)
    }

    /// Whether an open pull request conflicts with its base. Bitbucket redirects to "List file conflicts", which rejects
    /// the API tokens of people (github.com/BitbucketPHP/Client/issues/121).
    async fn conflicts(&self, found: &ForgeChangeRequest) -> bool {
        let mut url = self.one(found.request.number, &["conflicts"]);
        url.set_query(Some("pagelen=1"));
        let has_files = |answer: &Value| answer["values"].as_array().is_some_and(|files| !files.is_empty());
        found.state == ChangeRequestState::Open
            && self.http.cached_answer(url, &found.request.head_commit, has_files).await
    }

    /// Polls a merge task for a while ("Get the merge task status for a pull request"). If it does not end in that time, a
    /// later look at the pull request shows the result.
    async fn finish(&self, number: u64, task: &str) -> ForgeResult<()> {
        let (began, mut pause) = (Instant::now(), TASK_PAUSES.0);
        while began.elapsed() < TASK_TIMEOUT {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(TASK_PAUSES.1);
            let url = self.one(number, &["merge", "task-status", task]);
            let status = self.http.get(url).await?;
            if status["task_status"] != "PENDING" {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Returns the address of the API, the workspace and the repository.
fn place(address: &RepositoryAddress) -> Result<(String, String, String), AddressError> {
    let not = |write| AddressError::NotOf { address: address.text.clone(), forge: "Bitbucket Cloud", write };
    let parts = address.parts();
    if parts.iter().any(|part| part == "scm") {
        return Err(not("type bitbucket-server, for this is an address of Bitbucket Data Center"));
    }
    let [workspace, slug] = parts.as_slice() else {
        return Err(not("https://bitbucket.org/workspace/repository.git"));
    };
    let base = match address.host_name() {
        "bitbucket.org" | "www.bitbucket.org" | "altssh.bitbucket.org" => {
            "https://api.bitbucket.org/2.0".into()
        }
        // Any other host is a proxy in front of Bitbucket.
        _ => format!("{}/2.0", address.origin()),
    };
    Ok((base, workspace.clone(), slug.clone()))
}

impl_forge!(Bitbucket);

impl Bitbucket {
    async fn list(&self, head: &str, base: &str, filter: ListFilter) -> ForgeResult<ChangeRequestList> {
        let (states, reach): (&[&str], _) = match filter {
            ListFilter::Open => (&["OPEN"], Reach::End),
            ListFilter::Since(since) => (&["OPEN", "MERGED", "DECLINED", "SUPERSEDED"], Reach::Since(since)),
        };
        let page = |at| self.page(head, states, at);
        let mut list = pager::change_requests(&self.http, (head, base), reach, page).await?;
        if filter == ListFilter::Open {
            // There can be several open pull requests. Sluice keeps the oldest.
            list.found.retain(|found| found.state == ChangeRequestState::Open);
            list.found.sort_by_key(|found| found.request.number);
            return Ok(list);
        }
        let mut whole = Vec::new();
        for found in list.found {
            whole.push(self.with_whole_ids(found).await?);
        }
        Ok(ChangeRequestList { found: whole, ..list })
    }

    async fn open(&self, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        // Bitbucket answers a second opening with the open pull request, even if the text differs.
        if let Some(open) =
            self.list(&proposal.head, &proposal.base, ListFilter::Open).await?.found.into_iter().next()
        {
            return self.update(open.request.number, proposal).await;
        }
        let mut body = json!({
            "title": proposal.title, "description": proposal.body,
            "source": {"branch": {"name": proposal.head}}, "destination": {"branch": {"name": proposal.base}},
        });
        if proposal.is_draft {
            body["draft"] = true.into();
        }
        let opened = self.http.change(Method::POST, self.url(&["pullrequests"], &[]), &body, parse).await?;
        match proposal.is_same_text(&opened) {
            true => Ok(opened),
            false => self.update(opened.request.number, proposal).await,
        }
    }

    async fn update(&self, number: u64, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        let now = self.http.get(self.one(number, &[])).await?;
        let body = json!({
            "title": proposal.title, "description": proposal.body, "reviewers": kept_reviewers(&now),
            "destination": {"branch": {"name": proposal.base}},
        });
        self.http.change(Method::PUT, self.one(number, &[]), &body, parse).await
    }

    async fn add(&self, AddCall { found, kind, names }: AddCall<'_>) -> ForgeResult<Vec<String>> {
        if kind != MetadataKind::Reviewer {
            return Err(self.http.lacks("labels and assignees"));
        }
        let url = self.one(found.request.number, &[]);
        let now = self.http.get(url.clone()).await?;
        let there = reviewers(&now);
        let missing = names.iter().filter(|name| !there.iter().any(|one| one.eq_ignore_ascii_case(name)));
        let missing: Vec<Value> = missing.map(|name| identity(name)).collect();
        if missing.is_empty() {
            return Ok(there);
        }
        let all = [kept_reviewers(&now), missing].concat();
        let body = json!({"title": now["title"], "description": now["description"], "reviewers": all});
        Ok(reviewers(&self.http.put(url, &body).await?))
    }

    async fn close(&self, number: u64) -> ForgeResult<()> {
        self.http.call(ApiCall::new(Method::POST, self.one(number, &["decline"]))).await.map(drop)
    }

    async fn get(&self, number: u64) -> ForgeResult<Option<ForgeChangeRequest>> {
        let found = self.http.request(self.one(number, &[]), self.url(&[], &[]), parse).await?;
        let Some(mut found) = found else { return Ok(None) };
        found.conflicts = self.conflicts(&found).await;
        self.with_whole_ids(found).await.map(Some)
    }

    // "List commit statuses for a commit". Only administrators may read which checks and how many approvals are
    // required. If these are enforced and missing, Bitbucket rejects the merge.
    async fn readiness(&self, found: &ForgeChangeRequest, _merge: MergeMode) -> ForgeResult<Readiness> {
        let mut url = self.one(found.request.number, &[]);
        url.query_pairs_mut().append_pair("fields", STRATEGY);
        let now = self.http.get(url).await?;
        let head = self.whole(text(&now["source"]["commit"]["hash"]).unwrap_or_default()).await?;
        let commit = head.as_str();
        let checks = pager::all(&self.http, 1, |page| async move {
            let page_text = page.to_string();
            let url = self.url(&["commit", commit, "statuses"], &[("pagelen", "100"), ("page", &page_text)]);
            let mut answer = self.http.get(url).await?;
            let next = answer["next"].is_string().then_some(page + 1);
            let statuses = self.http.values(&mut answer)?;
            // Each status names its commit ("commitstatus": `links.commit`).
            let of =
                |one: &Value| Some(Value::from(one["links"]["commit"]["href"].as_str()?.rsplit('/').next()?));
            let read = statuses.iter().map(|one| match of(one) {
                Some(of) => self.http.check_commit(commit, &of).map(|()| (check(one), true)),
                None => Ok((check(one), false)),
            });
            Ok(ListPage { entries: read.collect::<Result<Vec<_>, _>>()?, next })
        })
        .await?;
        // If no status shows the commit, the commit itself is read, to check the id.
        if checks.is_empty() || checks.iter().any(|(_, names_commit)| !names_commit) {
            self.commit(commit).await?;
        }
        let checks = checks.into_iter().map(|(check, _)| check).collect();
        let mut waits = Vec::new();
        let people = now["participants"].as_array().into_iter().flatten();
        if people.into_iter().any(|one| one["state"] == "changes_requested") {
            waits.push("the changes that a reviewer asks for".into());
        }
        Ok(Readiness {
            head,
            checks,
            waits,
            // Whether the pull request is in the merge queue of its base.
            queued: now["queued"] == true,
            merge_options: now["destination"]["branch"]["default_merge_strategy"].clone(),
            ..Readiness::default()
        })
    }

    // The call has no parameter for the expected head, so Bitbucket merges the newest head. Therefore Sluice reads the
    // head directly before this call. If the base has an active merge queue, the same call puts the pull request into
    // that ("Merge queues").
    async fn merge(&self, call: &MergeCall<'_>) -> ForgeResult<()> {
        let mut body = json!({"type": "pullrequest_merge_parameters", "message": call.message.whole()});
        if call.readiness.merge_options.is_string() {
            body["merge_strategy"] = call.readiness.merge_options.clone();
        }
        let url = self.one(call.found.request.number, &["merge"]);
        let reply = self.http.send(ApiCall::new(Method::POST, url).with_body(&body)).await?;
        if reply.status != 202 {
            return self.http.success(reply).map(drop);
        }
        let task = reply.headers.get(LOCATION).and_then(|to| to.to_str().ok()).and_then(task);
        let task = task.ok_or_else(|| self.http.unreadable("a task in the header Location"))?;
        self.finish(call.found.request.number, &task).await
    }

    async fn comment(&self, number: u64, text: &str) -> ForgeResult<()> {
        let body = json!({"content": {"raw": text}});
        self.http.post(self.one(number, &["comments"]), &body).await.map(drop)
    }

    async fn commit(&self, id: &str) -> ForgeResult<Option<ForgeCommit>> {
        let url = self.url(&["commit", id], &[]);
        self.http.read_commit(id, url, "hash", |c| (&c["message"], &c["parents"])).await
    }

    // "Create a build status for a commit": a status with the same key is overwritten. A key has 40 characters at most
    // (github.com/buildbot/buildbot/issues/7049).
    async fn report(&self, commit: &str, status: &CommitStatus<'_>) -> ForgeResult<()> {
        let body = json!({
            "key": status.name(MAX_KEY_CHARS), "name": status.name(MAX_NAME_CHARS),
            "state": status.progress.word("INPROGRESS", "SUCCESSFUL", "FAILED"), "url": status.url,
            "description": status.description(MAX_DESCRIPTION_CHARS),
        });
        let url = self.url(&["commit", commit, "statuses", "build"], &[]);
        self.http.post(url, &body).await.map(drop)
    }
}

/// Returns the reviewers of a pull request for an update, because Bitbucket removes reviewers who are not in the update
/// (Renovate, lib/modules/platform/bitbucket).
fn kept_reviewers(pull: &Value) -> Vec<Value> {
    let reviewers = pull["reviewers"].as_array().into_iter().flatten();
    reviewers.map(|reviewer| json!({"uuid": reviewer["uuid"]})).collect()
}

/// The parameter that adds the merge strategy of the base to an answer: a partial response can add fields that are not
/// returned by default (developer.atlassian.com/cloud/bitbucket/rest/intro, "Partial responses").
const STRATEGY: &str = "+destination.branch.default_merge_strategy";

/// The id of a merge task, from its address: `…/merge/task-status/{task_id}`.
fn task(location: &str) -> Option<String> {
    let (_, id) = location.split_once("/merge/task-status/")?;
    let id = id.split(['?', '#']).next()?.trim_end_matches('/');
    let is_id = !id.is_empty()
        && id.len() <= 256
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    is_id.then(|| id.to_string())
}

/// A build status of a commit ("Commit statuses": SUCCESSFUL, FAILED, INPROGRESS, STOPPED).
fn check(one: &Value) -> Check {
    let state = match one["state"].as_str() {
        Some("SUCCESSFUL") => CheckState::Green,
        Some("INPROGRESS") => CheckState::Pending,
        _ => CheckState::Failed,
    };
    let name = text(&one["name"]).or(text(&one["key"])).unwrap_or_default();
    Check::new(name, state, false).with_url(&one["url"])
}

/// A person, by account id or by uuid in braces. Bitbucket has no user names since 2019
/// (developer.atlassian.com/cloud/bitbucket, "Removal of usernames").
fn identity(name: &str) -> Value {
    if name.starts_with('{') { json!({"uuid": name}) } else { json!({"account_id": name}) }
}

/// The reviewers of a pull request, by both of their ids.
fn reviewers(value: &Value) -> Vec<String> {
    [names(&value["reviewers"], "uuid"), names(&value["reviewers"], "account_id")].concat()
}

/// Parses a pull request from a branch of this repository. Pull requests from forks are skipped, because their branches
/// can have the same names.
fn parse(value: &Value) -> Option<ForgeChangeRequest> {
    let place = |side: &str| value[side]["repository"]["full_name"].as_str();
    if place("source")? != place("destination")? {
        return None;
    }
    let state = match value["state"].as_str()? {
        "MERGED" => {
            ChangeRequestState::Merged { commit: text(&value["merge_commit"]["hash"]).unwrap_or_default() }
        }
        "DECLINED" | "SUPERSEDED" => ChangeRequestState::Closed,
        _ => ChangeRequestState::Open,
    };
    Some(ForgeChangeRequest {
        request: ChangeRequest {
            number: value["id"].as_u64()?,
            url: text(&value["links"]["html"]["href"])?,
            branch: text(&value["source"]["branch"]["name"])?,
            head_commit: text(&value["source"]["commit"]["hash"]).unwrap_or_default(),
            ..ChangeRequest::default()
        },
        base: text(&value["destination"]["branch"]["name"])?,
        title: text(&value["title"])?,
        body: text(&value["description"]).unwrap_or_default(),
        state,
        // Another call returns conflicts.
        conflicts: false,
        is_draft: value["draft"].as_bool() == Some(true),
        author: None,
        metadata: Metadata { reviewers: reviewers(value), ..Metadata::default() },
        created: value["created_on"].as_str()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_merge_task_is_checked() {
        let base = "https://api.bitbucket.org/2.0/repositories/a/b/pullrequests/1/merge/task-status/";
        assert_eq!(task(&format!("{base}7f3c-1_A")).as_deref(), Some("7f3c-1_A"));
        for odd in ["", "..", "a/b", "a%2Fb", &"a".repeat(300)] {
            assert_eq!(task(&format!("{base}{odd}")), None, "{odd}");
        }
        assert_eq!(task("https://elsewhere/"), None);
    }

    #[test]
    fn the_address_of_a_repository_is_parsed_or_refused_with_its_form() {
        let cases = [
            ("https://bitbucket.org/acme/fleet.git", Ok("https://api.bitbucket.org/2.0 acme fleet")),
            ("https://me@bitbucket.org/acme/fleet", Ok("https://api.bitbucket.org/2.0 acme fleet")),
            ("git@bitbucket.org:acme/fleet.git", Ok("https://api.bitbucket.org/2.0 acme fleet")),
            ("ssh://git@altssh.bitbucket.org:443/acme/fleet", Ok("https://api.bitbucket.org/2.0 acme fleet")),
            ("https://proxy.example.com/acme/fleet", Ok("https://proxy.example.com/2.0 acme fleet")),
            ("https://bitbucket.org/acme", Err("write https://bitbucket.org/workspace/repository.git")),
            (
                "https://bitbucket.org/acme/fleet/src/main",
                Err("write https://bitbucket.org/workspace/repository.git"),
            ),
            ("https://bitbucket.example.com/scm/ACME/fleet.git", Err("write type bitbucket-server")),
        ];
        for (text, expected) in cases {
            match (place(&RepositoryAddress::parse(text, false).unwrap()), expected) {
                (Ok((base, workspace, slug)), Ok(expected)) => {
                    assert_eq!(format!("{base} {workspace} {slug}"), expected);
                }
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
