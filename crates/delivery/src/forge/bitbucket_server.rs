//! Bitbucket Data Center, and Bitbucket Server before it. Paths, fields and states are those of
//! developer.atlassian.com/server/bitbucket/rest, "Pull Requests" and "Repository". Each change names the
//! version that it changes, and is rejected if that is not the newest.

use jiff::Timestamp;
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
use super::error::{ForgeError, ForgeResult};
use super::http::ForgeHttp;
use super::json::text;
use super::pager::{self, ListPage, Reach};
use super::readiness::{Check, CheckState, Readiness, approvals};
use crate::address::{AddressError, RepositoryAddress};
use crate::forge_kind::ForgeKind;
use crate::outcome::ChangeRequest;

const BRANCH: &str = "refs/heads/";
/// The most tries of a change while others change the same pull request.
const MAX_TRIES: u32 = 3;

/// The fields of answers that Sluice reads.
const FIELDS: &str = "canMerge conflicted createdDate description detailedMessage draft fromRef href id isLastPage key \
    lastReviewedCommit latestCommit links mergeCommit mergeResult name nextPageStart outcome parents \
    project properties repository reviewers self slug state status summaryMessage title toRef url user \
    values version vetoes";

pub(super) struct BitbucketServer {
    http: ForgeHttp,
    /// The key of the project, or `~user` for that of a user.
    project: String,
    slug: String,
}

impl BitbucketServer {
    pub(super) fn new(connection: &ForgeConnection<'_>) -> ForgeResult<Self> {
        let address = &connection.address;
        let (server, project, slug) = place(address)?;
        let base = format!("{server}/rest/api/1.0");
        // HTTP access tokens go as Bearer (confluence.atlassian.com/bitbucketserver, "HTTP access tokens").
        let (kind, scheme) = (ForgeKind::BitbucketServer, AuthScheme::BearerOrUser);
        let http = ForgeHttp::new(kind, &base, scheme, connection)?
            .with_fields(FIELDS)
            // Without it, the server rejects a change as a cross-site request.
            .with_header("x-atlassian-token", "no-check");
        Ok(BitbucketServer { http, project, slug })
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        self.http.url(&[&["projects", &self.project, "repos", &self.slug], path].concat(), query)
    }

    fn one(&self, number: u64, path: &[&str], query: &[(&str, &str)]) -> Url {
        self.url(&[&["pull-requests", &number.to_string()], path].concat(), query)
    }

    async fn page(&self, head: &str, state: &str, at: u64) -> ForgeResult<ListPage<ForgeChangeRequest>> {
        let (branch, start) = (format!("{BRANCH}{head}"), at.to_string());
        let query = [
            ("at", branch.as_str()),
            ("direction", "OUTGOING"),
            ("state", state),
            ("order", "NEWEST"),
            ("limit", "100"),
            ("start", start.as_str()),
        ];
        let reduce = |answer: Value| {
            let list = answer["values"].as_array()?;
            Some(ListPage { entries: list.iter().filter_map(parse).collect(), next: next_page(&answer) })
        };
        self.http.page(self.url(&["pull-requests"], &query), reduce).await
    }

    fn branch(&self, name: &str) -> Value {
        let repository = json!({"slug": self.slug, "project": {"key": self.project}});
        json!({"id": format!("{BRANCH}{name}"), "repository": repository})
    }

    /// Changes the current version of a pull request. If others have changed it in between, tries again with the newest
    /// version.
    async fn change(&self, number: u64, change: PullRequestChange<'_>) -> ForgeResult<Value> {
        let mut tries = 1;
        loop {
            let now = self.http.get(self.one(number, &[], &[])).await?;
            match self.change_version(number, &now, &change).await {
                Err(ForgeError::Refused { status: 409, .. }) if tries < MAX_TRIES => tries += 1,
                done => return done,
            }
        }
    }

    async fn change_version(
        &self,
        number: u64,
        now: &Value,
        to: &PullRequestChange<'_>,
    ) -> ForgeResult<Value> {
        let PullRequestChange::Text(proposal) = to else {
            let version = now["version"].to_string();
            let url = self.one(number, &["decline"], &[("version", &version)]);
            return self.http.post(url, &json!({})).await;
        };
        // The server removes reviewers that are not in the list.
        let reviewers = now["reviewers"].as_array().into_iter().flatten();
        let reviewers: Vec<Value> = reviewers.map(|r| json!({"user": {"name": r["user"]["name"]}})).collect();
        let body = json!({
            "version": now["version"], "title": proposal.title, "description": proposal.body,
            "reviewers": reviewers, "toRef": self.branch(&proposal.base),
        });
        self.http.put(self.one(number, &[], &[]), &body).await
    }
}

/// A change of a pull request.
enum PullRequestChange<'a> {
    Text(&'a Proposal),
    Decline,
}

/// Returns the address of the server, the key of the project and the name of the repository.
fn place(address: &RepositoryAddress) -> Result<(String, String, String), AddressError> {
    let not =
        |write| AddressError::NotOf { address: address.text.clone(), forge: "Bitbucket Data Center", write };
    if address.host_name() == "bitbucket.org" {
        return Err(not("type bitbucket, for bitbucket.org is Bitbucket Cloud"));
    }
    let usual = "https://host/scm/KEY/repository.git, after the server's context path if it has one, or \
                 ssh://git@host:7999/KEY/repository.git";
    let parts = address.parts();
    let [context @ .., project, slug] = parts.as_slice() else { return Err(not(usual)) };
    let context = match (address.scheme.as_str(), context) {
        ("ssh", []) => &[],
        ("ssh", _) | (_, []) => return Err(not(usual)),
        (_, [context @ .., scm]) if scm == "scm" => context,
        _ => return Err(not(usual)),
    };
    let server = [&[address.origin()], context].concat().join("/");
    Ok((server, project.clone(), slug.clone()))
}

impl_forge!(BitbucketServer);

impl BitbucketServer {
    async fn list(&self, head: &str, base: &str, filter: ListFilter) -> ForgeResult<ChangeRequestList> {
        let state = if filter == ListFilter::Open { "OPEN" } else { "ALL" };
        pager::change_requests(&self.http, (head, base), Reach::of(filter), |at| self.page(head, state, at))
            .await
    }

    async fn open(&self, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        let mut body = json!({
            "title": proposal.title, "description": proposal.body,
            "fromRef": self.branch(&proposal.head), "toRef": self.branch(&proposal.base),
        });
        if proposal.is_draft {
            // Since 8.18 (confluence.atlassian.com/bitbucketserver, "Bitbucket Data Center 8.18 release
            // notes"). Older servers do not know the field and open it for review.
            body["draft"] = true.into();
        }
        self.http.change(Method::POST, self.url(&["pull-requests"], &[]), &body, parse).await
    }

    async fn update(&self, number: u64, proposal: &Proposal) -> ForgeResult<ForgeChangeRequest> {
        let answer = self.change(number, PullRequestChange::Text(proposal)).await?;
        self.http.checked(parse(&answer))
    }

    async fn add(&self, AddCall { found, kind, names }: AddCall<'_>) -> ForgeResult<Vec<String>> {
        if kind != MetadataKind::Reviewer {
            return Err(self.http.lacks("labels and assignees"));
        }
        let mut there = found.metadata.reviewers.clone();
        for name in names {
            let url = self.one(found.request.number, &["participants"], &[]);
            let body = json!({"user": {"name": name}, "role": "REVIEWER"});
            let added = self.http.post(url, &body).await?;
            there.extend(text(&added["user"]["name"]));
        }
        Ok(there)
    }

    async fn close(&self, number: u64) -> ForgeResult<()> {
        self.change(number, PullRequestChange::Decline).await.map(drop)
    }

    async fn get(&self, number: u64) -> ForgeResult<Option<ForgeChangeRequest>> {
        self.http.request(self.one(number, &[], &[]), self.url(&[], &[]), parse).await
    }

    // "Test if pull request can be merged"; the states of builds are those of
    // developer.atlassian.com/server/bitbucket/how-tos/updating-build-status-for-commits.
    async fn readiness(&self, found: &ForgeChangeRequest, mode: MergeMode) -> ForgeResult<Readiness> {
        let number = found.request.number;
        let now = self.http.get(self.one(number, &[], &[])).await?;
        let head = text(&now["fromRef"]["latestCommit"]).unwrap_or_default();
        let merge = match mode {
            MergeMode::Never => Value::Null,
            _ => self.http.get(self.one(number, &["merge"], &[])).await?,
        };
        let commit = head.as_str();
        let checks = pager::all(&self.http, 0, |start| async move {
            let (path, start) = (["build-status", "1.0", "commits", commit], start.to_string());
            let url = self.http.beside(2, &path, &[("limit", "100"), ("start", &start)]);
            let mut answer = self.http.get(url).await?;
            let next = next_page(&answer);
            Ok(ListPage { entries: self.http.values(&mut answer)?.iter().map(check).collect(), next })
        })
        .await?;
        Ok(Readiness {
            head,
            checks,
            waits: waits(&now, &merge),
            merge_options: now["version"].clone(),
            ..Readiness::default()
        })
    }

    // The version changes with the head: then 409.
    async fn merge(&self, call: &MergeCall<'_>) -> ForgeResult<()> {
        if call.mode == MergeMode::Queue {
            return Err(self.http.lacks("merge queue"));
        }
        let url = self.one(
            call.found.request.number,
            &["merge"],
            &[("version", &call.readiness.merge_options.to_string())],
        );
        // The server puts it below a subject of its own, unless that is switched off ("PullRequestMergeRequest": `autoSubject`).
        let body = json!({"message": call.message.whole()});
        self.http.post(url, &body).await.map(drop)
    }

    async fn comment(&self, number: u64, text: &str) -> ForgeResult<()> {
        let url = self.one(number, &["comments"], &[]);
        self.http.post(url, &json!({"text": text})).await.map(drop)
    }

    async fn commit(&self, id: &str) -> ForgeResult<Option<ForgeCommit>> {
        let url = self.url(&["commits", id], &[]);
        self.http.read_commit(id, url, "id", |c| (&c["message"], &c["parents"])).await
    }

    // "Store a build status" of developer.atlassian.com/server/bitbucket/rest, "Builds and Deployments". Servers before
    // 7.4 have only the call that is deprecated since 7.14 ("Create build status for commit").
    async fn report(&self, commit: &str, status: &CommitStatus<'_>) -> ForgeResult<()> {
        let body = json!({
            "key": status.name(MAX_NAME_CHARS), "name": status.name(MAX_NAME_CHARS), "url": status.url,
            "state": status.progress.word("INPROGRESS", "SUCCESSFUL", "FAILED"),
            "description": status.description(MAX_DESCRIPTION_CHARS),
        });
        let url = self.url(&["commits", commit, "builds"], &[]);
        let done = match self.http.post(url, &body).await {
            Err(ForgeError::NoRepository { .. }) => {
                let url = self.http.beside(2, &["build-status", "1.0", "commits", commit], &[]);
                self.http.post(url, &body).await
            }
            done => done,
        };
        done.map(drop)
    }
}

/// A build of a commit.
fn check(one: &Value) -> Check {
    let state = match one["state"].as_str() {
        Some("SUCCESSFUL") => CheckState::Green,
        Some("INPROGRESS" | "UNKNOWN") => CheckState::Pending,
        _ => CheckState::Failed,
    };
    let name = text(&one["name"]).or(text(&one["key"])).unwrap_or_default();
    Check::new(name, state, false).with_url(&one["url"])
}

/// Where the next page of a list begins, if there is one.
fn next_page(answer: &Value) -> Option<u64> {
    let last = answer["isLastPage"].as_bool() != Some(false);
    if last { None } else { answer["nextPageStart"].as_u64() }
}

/// What a pull request waits for: the vetoes against its merge, in the words of the server, and an approval of this very
/// head if there are only approvals of earlier heads.
fn waits(now: &Value, merge: &Value) -> Vec<String> {
    let reviewers = now["reviewers"].as_array().map_or(&[][..], Vec::as_slice);
    let mut waits = Vec::new();
    if reviewers.iter().any(|r| r["status"] == "NEEDS_WORK") {
        waits.push("the changes that a reviewer asks for".into());
    }
    let approved: Vec<&Value> = reviewers.iter().filter(|r| r["status"] == "APPROVED").collect();
    let of_head = |r: &&Value| {
        r["lastReviewedCommit"].is_null() || r["lastReviewedCommit"] == now["fromRef"]["latestCommit"]
    };
    if !approved.is_empty() && !approved.iter().any(of_head) {
        waits.push(approvals(1));
    }
    let vetoes = merge["vetoes"].as_array().into_iter().flatten();
    waits.extend(vetoes.filter_map(|v| text(&v["detailedMessage"]).or(text(&v["summaryMessage"]))));
    // Not every version has `canMerge`: the description of 9.4 does not.
    match (merge["conflicted"].as_bool(), merge["canMerge"].as_bool()) {
        _ if !waits.is_empty() => {}
        (Some(true), _) => waits.push("its conflicts to be resolved".into()),
        (_, Some(false)) => waits.push("the server to let it be merged".into()),
        _ => {}
    }
    waits
}

fn reviewers(value: &Value) -> Vec<String> {
    value["reviewers"].as_array().into_iter().flatten().filter_map(|r| text(&r["user"]["name"])).collect()
}

/// A pull request from a branch of this repository. Those from forks are skipped: their branches can have the same names.
fn parse(value: &Value) -> Option<ForgeChangeRequest> {
    let place = |side: &str| {
        let repository = &value[side]["repository"];
        Some((repository["slug"].as_str()?, repository["project"]["key"].as_str()?))
    };
    if place("fromRef")? != place("toRef")? {
        return None;
    }
    let properties = &value["properties"];
    let state = match value["state"].as_str()? {
        "OPEN" => ChangeRequestState::Open,
        "MERGED" => {
            ChangeRequestState::Merged { commit: text(&properties["mergeCommit"]["id"]).unwrap_or_default() }
        }
        _ => ChangeRequestState::Closed,
    };
    let branch = |side: &str| value[side]["id"].as_str()?.strip_prefix(BRANCH).map(String::from);
    Some(ForgeChangeRequest {
        request: ChangeRequest {
            number: value["id"].as_u64()?,
            url: text(&value["links"]["self"][0]["href"])?,
            branch: branch("fromRef")?,
            head_commit: text(&value["fromRef"]["latestCommit"])?,
            ..ChangeRequest::default()
        },
        base: branch("toRef")?,
        title: text(&value["title"])?,
        body: text(&value["description"]).unwrap_or_default(),
        conflicts: state == ChangeRequestState::Open && properties["mergeResult"]["outcome"] == "CONFLICTED",
        state,
        is_draft: value["draft"].as_bool() == Some(true),
        author: None,
        metadata: Metadata { reviewers: reviewers(value), ..Metadata::default() },
        created: Timestamp::from_millisecond(value["createdDate"].as_i64()?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let usual = "write https://host/scm/KEY/repository.git";
        let cases = [
            ("https://git.example.com/scm/ACME/fleet.git", Ok("https://git.example.com ACME fleet")),
            (
                "https://example.com:7990/bitbucket/scm/acme/fleet",
                Ok("https://example.com:7990/bitbucket acme fleet"),
            ),
            ("https://git.example.com/scm/~jane/fleet.git", Ok("https://git.example.com ~jane fleet")),
            ("ssh://git@git.example.com:7999/acme/fleet.git", Ok("https://git.example.com acme fleet")),
            ("ssh://git@git.example.com:7999/~jane/fleet.git", Ok("https://git.example.com ~jane fleet")),
            ("git@git.example.com:acme/fleet.git", Ok("https://git.example.com acme fleet")),
            ("https://git.example.com/projects/ACME/repos/fleet", Err(usual)),
            ("https://git.example.com/acme/fleet.git", Err(usual)),
            ("https://git.example.com/fleet.git", Err(usual)),
            ("https://bitbucket.org/acme/fleet.git", Err("write type bitbucket,")),
        ];
        for (text, expected) in cases {
            match (place(&RepositoryAddress::parse(text, false).unwrap()), expected) {
                (Ok((server, project, slug)), Ok(expected)) => {
                    assert_eq!(format!("{server} {project} {slug}"), expected);
                }
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn conflicts_are_waited_for_even_without_a_veto() {
        let of = |merge: Value| waits(&json!({}), &merge);
        let conflicts = ["its conflicts to be resolved"];
        assert_eq!(of(json!({"conflicted": true, "outcome": "CONFLICTED", "vetoes": []})), conflicts);
        assert_eq!(of(json!({"canMerge": false, "conflicted": true, "vetoes": []})), conflicts);
        assert_eq!(of(json!({"canMerge": false, "vetoes": []})), ["the server to let it be merged"]);
        assert!(of(json!({"conflicted": false, "outcome": "CLEAN", "vetoes": []})).is_empty());
    }
}
