//! Calls about pull requests that are the same at GitHub and Gitea.

use jiff::Timestamp;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::change_request::{ForgeChangeRequest, ForgeCommit, Proposal};
use super::commit_status::{CommitStatus, MAX_NAME_CHARS};
use super::error::ForgeResult;
use super::http::ForgeHttp;

/// The pull requests of one repository.
pub(super) struct GitHubPulls {
    pub(super) http: ForgeHttp,
    pub(super) owner: String,
    pub(super) name: String,
    pub(super) parse: fn(&Value) -> Option<ForgeChangeRequest>,
}

/// One page of a list of pull requests.
pub(super) struct PullsPage {
    /// The entries that can be read, without those from forks.
    pub(super) entries: Vec<ForgeChangeRequest>,
    /// The number of all entries.
    pub(super) listed: usize,
    /// When the last one of all was opened.
    pub(super) last: Option<Timestamp>,
}

impl GitHubPulls {
    /// An address below that of the repository.
    pub(super) fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        self.http.url(&[&["repos", &self.owner, &self.name], path].concat(), query)
    }

    fn pull(&self, number: u64) -> Url {
        self.url(&["pulls", &number.to_string()], &[])
    }

    /// One page of a list.
    pub(super) async fn page(&self, query: &[(&str, &str)]) -> ForgeResult<PullsPage> {
        let reduce = |answer: Value| {
            let list = answer.as_array()?;
            let entries = list.iter().filter_map(self.parse).collect();
            let last = list.last().and_then(|last| last["created_at"].as_str()?.parse().ok());
            Some(PullsPage { entries, listed: list.len(), last })
        };
        self.http.page(self.url(&["pulls"], query), reduce).await
    }

    /// Opens a pull request, with further fields.
    pub(super) async fn open(
        &self,
        proposal: &Proposal,
        title: &str,
        more: Value,
    ) -> ForgeResult<ForgeChangeRequest> {
        let mut body =
            json!({"title": title, "body": proposal.body, "head": proposal.head, "base": proposal.base});
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        let url = self.url(&["pulls"], &[]);
        self.http.change(Method::POST, url, &body, self.parse).await
    }

    pub(super) async fn update(
        &self,
        number: u64,
        proposal: &Proposal,
        title: &str,
    ) -> ForgeResult<ForgeChangeRequest> {
        let body = json!({"title": title, "body": proposal.body, "base": proposal.base});
        self.http.change(Method::PATCH, self.pull(number), &body, self.parse).await
    }

    /// Requests a review by people, and by teams as `organization/team`.
    pub(super) async fn ask_for_review(&self, number: u64, names: &[String]) -> ForgeResult<Value> {
        let (teams, people): (Vec<&String>, Vec<&String>) = names.iter().partition(|n| n.contains('/'));
        let teams: Vec<&str> = teams.iter().filter_map(|team| team.split('/').next_back()).collect();
        let url = self.url(&["pulls", &number.to_string(), "requested_reviewers"], &[]);
        let body = json!({"reviewers": people, "team_reviewers": teams});
        self.http.post(url, &body).await
    }

    /// The address of a pull request as an issue.
    pub(super) fn issue(&self, number: u64, path: &[&str]) -> Url {
        self.url(&[&["issues", &number.to_string()], path].concat(), &[])
    }

    pub(super) async fn close(&self, number: u64) -> ForgeResult<()> {
        self.http.patch(self.pull(number), &json!({"state": "closed"})).await.map(drop)
    }

    pub(super) async fn get(&self, number: u64) -> ForgeResult<Option<ForgeChangeRequest>> {
        self.http.request(self.pull(number), self.url(&[], &[]), self.parse).await
    }

    pub(super) async fn comment(&self, number: u64, text: &str) -> ForgeResult<()> {
        let url = self.issue(number, &["comments"]);
        self.http.post(url, &json!({"body": text})).await.map(drop)
    }

    /// Sets a status of a commit. Its description has at most `most` characters.
    pub(super) async fn report(
        &self,
        commit: &str,
        status: &CommitStatus<'_>,
        most: usize,
    ) -> ForgeResult<()> {
        let body = json!({
            "state": status.progress.word("pending", "success", "failure"), "context": status.name(MAX_NAME_CHARS),
            "description": status.description(most), "target_url": status.url,
        });
        self.http.post(self.url(&["statuses", commit], &[]), &body).await.map(drop)
    }

    /// A commit. `parts` returns its message and the list of its parents.
    pub(super) async fn commit(
        &self,
        id: &str,
        parts: impl Fn(&Value) -> (&Value, &Value),
    ) -> ForgeResult<Option<ForgeCommit>> {
        self.http.read_commit(id, self.url(&["git", "commits", id], &[]), "sha", parts).await
    }
}
