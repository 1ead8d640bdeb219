//! GitLab, at gitlab.com and elsewhere. Paths, fields and states are those of
//! docs.gitlab.com/api/merge_requests, /api/notes and /api/commits.

use std::sync::Arc;

use jiff::Timestamp;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::http::{ForgeHttp, Scheme, Shared};
use super::pages::{Page, Reading};
use super::{Commit, Draft, Forge, ForgeError, Found, State, text};
use crate::address::{Address, AddressError};
use crate::credentials::Credentials;
use crate::error::DeliveryError;
use crate::order::{ChangeRequest, ForgeKind};

/// The most that a page may hold (docs.gitlab.com/api/rest, "Pagination").
const PAGE: usize = 100;

pub(crate) struct GitLab {
    pub(super) http: ForgeHttp,
    /// Groups, subgroups and name: one part of a path, with its slashes escaped
    /// (docs.gitlab.com/api/rest, "Namespaced paths").
    project: String,
}

impl GitLab {
    pub(crate) fn new(
        address: &Address,
        credentials: &Credentials,
        shared: &Arc<Shared>,
    ) -> Result<Self, DeliveryError> {
        let project = project(address)?;
        // One host for SSH behind a firewall (docs.gitlab.com/user/gitlab_com).
        let origin = match address.host_name() {
            "altssh.gitlab.com" => "https://gitlab.com".into(),
            _ => address.origin(),
        };
        let base = format!("{origin}/api/v4");
        // Personal, project and group tokens are taken as Bearer, like those of OAuth
        // (docs.gitlab.com/api/rest/authentication).
        let http = ForgeHttp::new(ForgeKind::GitLab, &base, address, Scheme::Bearer, credentials, shared)?;
        Ok(GitLab { http, project })
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        self.http.url(&[&["projects", self.project.as_str()], path].concat(), query)
    }

    fn one(&self, number: u64) -> Url {
        self.url(&["merge_requests", &number.to_string()], &[])
    }

    async fn page(&self, head: &str, state: &str, at: u64) -> Result<Page, ForgeError> {
        let (page, size) = ((at + 1).to_string(), PAGE.to_string());
        let query = [
            ("source_branch", head),
            ("state", state),
            ("order_by", "created_at"),
            ("sort", "desc"),
            ("per_page", size.as_str()),
            ("page", page.as_str()),
        ];
        let answer = self.http.call(Method::GET, self.url(&["merge_requests"], &query), None).await?;
        let list = answer.as_array().ok_or_else(|| self.http.unreadable("a list"))?;
        let next = (list.len() >= PAGE).then_some(at + 1);
        Ok(Page { found: list.iter().filter_map(parse).collect(), next })
    }

    async fn list(&self, head: &str, state: &str, mut to: Reading<'_>) -> Result<Vec<Found>, ForgeError> {
        while let Some(at) = to.at() {
            to.take(self.page(head, state, at).await?);
        }
        Ok(to.ours)
    }
}

/// The project's path. One dash parts it from the pages about it.
fn project(address: &Address) -> Result<String, AddressError> {
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

impl Forge for GitLab {
    async fn find_open(&self, head: &str, _base: &str) -> Result<Option<Found>, ForgeError> {
        Ok(self.list(head, "opened", Reading::first(head)).await?.into_iter().next())
    }

    async fn find(&self, head: &str, _base: &str, since: Timestamp) -> Result<Vec<Found>, ForgeError> {
        self.list(head, "all", Reading::since(head, since)).await
    }

    async fn open(&self, draft: &Draft) -> Result<Found, ForgeError> {
        let body = json!({
            "source_branch": draft.head, "target_branch": draft.base,
            "title": draft.title, "description": draft.body,
        });
        self.http.change(Method::POST, self.url(&["merge_requests"], &[]), &body, parse).await
    }

    async fn update(&self, number: u64, draft: &Draft) -> Result<Found, ForgeError> {
        let body = json!({"target_branch": draft.base, "title": draft.title, "description": draft.body});
        self.http.change(Method::PUT, self.one(number), &body, parse).await
    }

    async fn close(&self, number: u64) -> Result<(), ForgeError> {
        let body = json!({"state_event": "close"});
        self.http.call(Method::PUT, self.one(number), Some(&body)).await.map(drop)
    }

    async fn get(&self, number: u64) -> Result<Option<Found>, ForgeError> {
        self.http.request(self.one(number), self.url(&[], &[]), parse).await
    }

    async fn comment(&self, number: u64, text: &str) -> Result<(), ForgeError> {
        let url = self.url(&["merge_requests", &number.to_string(), "notes"], &[]);
        self.http.call(Method::POST, url, Some(&json!({"body": text}))).await.map(drop)
    }

    async fn commit(&self, id: &str) -> Result<Option<Commit>, ForgeError> {
        let found = self.http.read(self.url(&["repository", "commits", id], &[])).await?;
        Ok(found.map(|c| Commit::read(&c["message"], &c["parent_ids"], "id")))
    }
}

/// One of this project's own branches; those from forks have the same names and are nobody we know.
fn parse(value: &Value) -> Option<Found> {
    if value["source_project_id"].as_u64()? != value["target_project_id"].as_u64()? {
        return None;
    }
    // A squash without a merge commit has only the first; a fast-forward neither, and then the head is it.
    let merged = || {
        let keys = ["merge_commit_sha", "squash_commit_sha", "sha"];
        keys.iter().find_map(|key| text(&value[key])).unwrap_or_default()
    };
    let state = match value["state"].as_str()? {
        // Locked is one that is being merged.
        "opened" | "locked" => State::Open,
        "merged" => State::Merged { commit: merged() },
        _ => State::Closed,
    };
    let conflicts = value["has_conflicts"].as_bool() == Some(true)
        || value["detailed_merge_status"].as_str() == Some("conflict");
    Some(Found {
        request: ChangeRequest {
            number: value["iid"].as_u64()?,
            url: text(&value["web_url"])?,
            branch: text(&value["source_branch"])?,
            head_commit: text(&value["sha"]).unwrap_or_default(),
        },
        base: text(&value["target_branch"])?,
        title: text(&value["title"])?,
        body: text(&value["description"]).unwrap_or_default(),
        conflicts: conflicts && state == State::Open,
        state,
        created: value["created_at"].as_str()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
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
            match project(&Address::parse(text, false).unwrap()) {
                Ok(found) => assert_eq!(Some(found.as_str()), expected, "{text}"),
                Err(error) => {
                    assert_eq!(expected, None, "{text}");
                    assert!(error.to_string().contains("write https://host/group/project.git"), "{error}");
                }
            }
        }
    }

    #[test]
    fn what_was_merged_is_found_however_it_was_merged() {
        let merged = |merge: Value, squash: Value| {
            let value = json!({
                "iid": 1, "source_project_id": 1, "target_project_id": 1, "state": "merged",
                "web_url": "u", "source_branch": "h", "target_branch": "main", "title": "t", "sha": "head",
                "merge_commit_sha": merge, "squash_commit_sha": squash,
                "created_at": "2026-01-02T03:04:05.678Z",
            });
            parse(&value).unwrap().state
        };
        let is = |commit: &str| State::Merged { commit: commit.into() };
        assert_eq!(merged(json!("merge"), json!("squash")), is("merge"));
        assert_eq!(merged(Value::Null, json!("squash")), is("squash"));
        assert_eq!(merged(Value::Null, Value::Null), is("head"));
    }
}
