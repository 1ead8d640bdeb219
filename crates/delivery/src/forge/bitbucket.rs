//! Bitbucket Cloud. Paths, fields and states are those of developer.atlassian.com/cloud/bitbucket/rest,
//! "Pullrequests", "Merge queues" and "Commits". It shortens the ids of commits, returns the open pull request
//! to who opens a second one, and merges by a task where that takes long.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::LOCATION;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::api::{MergeCall, impl_forge};
use super::authorization::AuthScheme;
use super::change_request::{
    ChangeRequestState, ForgeChangeRequest, ForgeCommit, Metadata, MetadataKind, Proposal,
};
use super::commit_status::{CommitStatus, MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS};
use super::connection::ForgeConnection;
use super::error::ForgeError;
use super::http::{ApiCall, ForgeHttp};
use super::json::{names, text};
use super::pager::{self, Page, Reach};
use super::readiness::{Check, CheckState, Readiness};
use crate::address::{Address, AddressError};
use crate::forge_kind::ForgeKind;
use crate::order::MergeMode;
use crate::outcome::ChangeRequest;

/// The length of a whole id.
const WHOLE: usize = 40;
/// The most characters of the key of a build status.
const KEY: usize = 40;

/// How long a merge that is under way is asked about, and the pauses between.
const TASK_TIMEOUT: Duration = Duration::from_secs(15);
const TASK_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// The fields that are read of answers.
const FIELDS: &[&str] = &[
    "account_id",
    "branch",
    "commit",
    "created_on",
    "default_merge_strategy",
    "description",
    "destination",
    "draft",
    "full_name",
    "hash",
    "href",
    "html",
    "id",
    "key",
    "links",
    "merge_commit",
    "name",
    "next",
    "parents",
    "participants",
    "queued",
    "repository",
    "reviewers",
    "source",
    "state",
    "task_status",
    "title",
    "uuid",
    "values",
];

pub(super) struct Bitbucket {
    http: ForgeHttp,
    workspace: String,
    slug: String,
}

impl Bitbucket {
    pub(super) fn new(connection: &ForgeConnection<'_>) -> Result<Self, ForgeError> {
        let address = &connection.address;
        let (base, workspace, slug) = place(address)?;
        // An access token goes as Bearer; an API token, or an app password, with the user it is of
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

    /// A page of those in some states; 50 are the most that a page may hold. The states stand in the filter:
    /// where there is one, the parameter `state` is not looked at (github.com/elastic/kibana/pull/288824,
    /// github.com/MunifTanjim/node-bitbucket/issues/16).
    async fn page(
        &self,
        head: &str,
        states: &[&str],
        at: u64,
    ) -> Result<Page<ForgeChangeRequest>, ForgeError> {
        let states: Vec<String> = states.iter().map(|state| format!("state=\"{state}\"")).collect();
        let filter = format!("source.branch.name=\"{head}\" AND ({})", states.join(" OR "));
        let page = (at + 1).to_string();
        let query = [("q", filter.as_str()), ("sort", "-created_on"), ("pagelen", "50"), ("page", &page)];
        let reduce = |answer: Value| {
            let list = answer["values"].as_array()?;
            let next = answer["next"].is_string().then_some(at + 1);
            Some(Page { entries: list.iter().filter_map(parse).collect(), next })
        };
        self.http.page(self.url(&["pullrequests"], &query), reduce).await
    }

    async fn list(
        &self,
        head: &str,
        states: &[&str],
        reach: Reach,
    ) -> Result<Vec<ForgeChangeRequest>, ForgeError> {
        pager::change_requests(&self.http, head, reach, |at| self.page(head, states, at)).await
    }

    /// The whole of an id that was shortened to 12 digits
    /// (github.com/jenkinsci/bitbucket-branch-source-plugin/pull/63).
    async fn whole(&self, id: String) -> Result<String, ForgeError> {
        if id.is_empty() || id.len() >= WHOLE {
            return Ok(id);
        }
        if let Some(known) = self.http.known_id(&id) {
            return Ok(known);
        }
        let commit = self.http.read(self.url(&["commit", &id], &[])).await?;
        let Some(whole) = commit.and_then(|c| text(&c["hash"])) else { return Ok(id) };
        self.http.learn_id(&id, &whole);
        Ok(whole)
    }

    async fn with_whole_ids(&self, mut found: ForgeChangeRequest) -> Result<ForgeChangeRequest, ForgeError> {
        found.request.head_commit = self.whole(found.request.head_commit).await?;
        if let ChangeRequestState::Merged { commit } = found.state {
            found.state = ChangeRequestState::Merged { commit: self.whole(commit).await? };
        }
        Ok(found)
    }

    /// Whether an open one conflicts with its base. The forge sends on to "List file conflicts" with what it
    /// compares, and lets API tokens of people not in there (github.com/BitbucketPHP/Client/issues/121).
    async fn conflicts(&self, found: &ForgeChangeRequest) -> bool {
        let mut url = self.one(found.request.number, &["conflicts"]);
        url.set_query(Some("pagelen=1"));
        let some = |told: &Value| told["values"].as_array().is_some_and(|files| !files.is_empty());
        found.state == ChangeRequestState::Open
            && self.http.cached_answer(url, &found.request.head_commit, some).await
    }

    /// Asks about a merge that is under way until it has ended, for a while ("Get the merge task status for a pull
    /// request"). One that has not ended then is seen later, when the pull request is looked at.
    async fn finish(&self, number: u64, task: &str) -> Result<(), ForgeError> {
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

    /// The open ones from a branch, the oldest first.
    async fn all_open(&self, head: &str) -> Result<Vec<ForgeChangeRequest>, ForgeError> {
        let mut open = self.list(head, &["OPEN"], Reach::End).await?;
        open.retain(|found| found.state == ChangeRequestState::Open);
        open.sort_by_key(|found| found.request.number);
        Ok(open)
    }
}

/// Where the API is, the workspace and the repository.
fn place(address: &Address) -> Result<(String, String, String), AddressError> {
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
        // Something in front of it.
        _ => format!("{}/2.0", address.origin()),
    };
    Ok((base, workspace.clone(), slug.clone()))
}

impl_forge!(Bitbucket);

impl Bitbucket {
    async fn find_open(&self, head: &str, _base: &str) -> Result<Option<ForgeChangeRequest>, ForgeError> {
        Ok(self.all_open(head).await?.into_iter().next())
    }

    async fn find(
        &self,
        head: &str,
        _base: &str,
        since: Timestamp,
    ) -> Result<Vec<ForgeChangeRequest>, ForgeError> {
        let states = ["OPEN", "MERGED", "DECLINED", "SUPERSEDED"];
        let found = self.list(head, &states, Reach::Since(since)).await?;
        let mut whole = Vec::new();
        for found in found {
            whole.push(self.with_whole_ids(found).await?);
        }
        Ok(whole)
    }

    async fn open(&self, proposal: &Proposal) -> Result<ForgeChangeRequest, ForgeError> {
        // A second one is answered with the first, whatever that says.
        if let Some(open) = self.find_open(&proposal.head, &proposal.base).await? {
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

    async fn update(&self, number: u64, proposal: &Proposal) -> Result<ForgeChangeRequest, ForgeError> {
        // Reviewers that are not named again are taken off it (Renovate, lib/modules/platform/bitbucket).
        let now = self.http.get(self.one(number, &[])).await?;
        let reviewers = now["reviewers"].as_array().into_iter().flatten();
        let reviewers: Vec<Value> = reviewers.map(|reviewer| json!({"uuid": reviewer["uuid"]})).collect();
        let body = json!({
            "title": proposal.title, "description": proposal.body, "reviewers": reviewers,
            "destination": {"branch": {"name": proposal.base}},
        });
        self.http.change(Method::PUT, self.one(number, &[]), &body, parse).await
    }

    async fn add(
        &self,
        found: &ForgeChangeRequest,
        kind: MetadataKind,
        names: &[String],
    ) -> Result<Vec<String>, ForgeError> {
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
        let kept = now["reviewers"].as_array().into_iter().flatten();
        let all = kept.map(|reviewer| json!({"uuid": reviewer["uuid"]})).chain(missing);
        let body = json!({
            "title": now["title"], "description": now["description"], "reviewers": all.collect::<Vec<_>>(),
        });
        Ok(reviewers(&self.http.put(url, &body).await?))
    }

    async fn close(&self, number: u64) -> Result<(), ForgeError> {
        self.http.call(ApiCall::new(Method::POST, self.one(number, &["decline"]))).await.map(drop)
    }

    async fn get(&self, number: u64) -> Result<Option<ForgeChangeRequest>, ForgeError> {
        let found = self.http.request(self.one(number, &[]), self.url(&[], &[]), parse).await?;
        let Some(mut found) = found else { return Ok(None) };
        found.conflicts = self.conflicts(&found).await;
        self.with_whole_ids(found).await.map(Some)
    }

    // "List commit statuses for a commit". Which of them are required, and how many approvals, only
    // administrators may read; it refuses to merge where that is enforced.
    async fn readiness(
        &self,
        found: &ForgeChangeRequest,
        _merge: MergeMode,
    ) -> Result<Readiness, ForgeError> {
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
            Ok(Page { entries: self.http.values(&mut answer)?.iter().map(check).collect(), next })
        })
        .await?;
        let mut waits = Vec::new();
        let people = now["participants"].as_array().into_iter().flatten();
        if people.into_iter().any(|one| one["state"] == "changes_requested") {
            waits.push("the changes that a reviewer asks for".into());
        }
        Ok(Readiness {
            head,
            checks,
            waits,
            // In the merge queue of its base.
            queued: now["queued"] == true,
            merge_options: now["destination"]["branch"]["default_merge_strategy"].clone(),
            ..Readiness::default()
        })
    }

    // It takes no head to be held to: what is merged is what was looked at a moment before. Where the base has an
    // active merge queue, the same call puts it into that ("Merge queues").
    async fn merge(&self, call: &MergeCall<'_>) -> Result<(), ForgeError> {
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

    async fn comment(&self, number: u64, text: &str) -> Result<(), ForgeError> {
        let body = json!({"content": {"raw": text}});
        self.http.post(self.one(number, &["comments"]), &body).await.map(drop)
    }

    async fn commit(&self, id: &str) -> Result<Option<ForgeCommit>, ForgeError> {
        if id.is_empty() {
            return Ok(None);
        }
        let found = self.http.read(self.url(&["commit", id], &[])).await?;
        Ok(found.map(|c| ForgeCommit::parse(&c["message"], &c["parents"], "hash")))
    }

    // "Create a build status for a commit": one of the same key is overwritten. A key has 40 characters at most
    // (github.com/buildbot/buildbot/issues/7049).
    async fn report(&self, commit: &str, status: &CommitStatus<'_>) -> Result<(), ForgeError> {
        let body = json!({
            "key": status.name(KEY), "name": status.name(MAX_NAME_CHARS),
            "state": status.progress.word("INPROGRESS", "SUCCESSFUL", "FAILED"), "url": status.url,
            "description": status.description(MAX_DESCRIPTION_CHARS),
        });
        let url = self.url(&["commit", commit, "statuses", "build"], &[]);
        self.http.post(url, &body).await.map(drop)
    }
}

/// The parameter that has an answer say how its base is merged into: a partial response adds what is left out by
/// default (developer.atlassian.com/cloud/bitbucket/rest/intro, "Partial responses").
const STRATEGY: &str = "+destination.branch.default_merge_strategy";

/// The id of a merge's task, out of the address to ask it at: `…/merge/task-status/{task_id}`.
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
    Check::new(text(&one["name"]).or(text(&one["key"])).unwrap_or_default(), state, false)
}

/// Who somebody is: an account's id, or its uuid in braces. Names are nobody's since 2019
/// (developer.atlassian.com/cloud/bitbucket, "Removal of usernames").
fn identity(name: &str) -> Value {
    if name.starts_with('{') { json!({"uuid": name}) } else { json!({"account_id": name}) }
}

/// Who is asked to review one, by both of their ids.
fn reviewers(value: &Value) -> Vec<String> {
    [names(&value["reviewers"], "uuid"), names(&value["reviewers"], "account_id")].concat()
}

/// One of this repository's own branches; those from forks have the same names and are nobody we know.
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
            notes: Vec::new(),
            queued: false,
        },
        base: text(&value["destination"]["branch"]["name"])?,
        title: text(&value["title"])?,
        body: text(&value["description"]).unwrap_or_default(),
        state,
        // It tells that elsewhere.
        conflicts: false,
        is_draft: value["draft"].as_bool() == Some(true),
        metadata: Metadata { reviewers: reviewers(value), ..Metadata::default() },
        created: value["created_on"].as_str()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_of_a_merge_is_one_of_this_repository() {
        let base = "https://api.bitbucket.org/2.0/repositories/a/b/pullrequests/1/merge/task-status/";
        assert_eq!(task(&format!("{base}7f3c-1_A")).as_deref(), Some("7f3c-1_A"));
        for odd in ["", "..", "a/b", "a%2Fb", &"a".repeat(300)] {
            assert_eq!(task(&format!("{base}{odd}")), None, "{odd}");
        }
        assert_eq!(task("https://elsewhere/"), None);
    }

    #[test]
    fn addresses() {
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
            match (place(&Address::parse(text, false).unwrap()), expected) {
                (Ok((base, workspace, slug)), Ok(expected)) => {
                    assert_eq!(format!("{base} {workspace} {slug}"), expected);
                }
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
