//! Gitea, and Forgejo which kept its API. Their lists cannot be filtered by head branch, so a lookup by base and head
//! goes first, and pages are read only as far back as it can matter.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::http::{ForgeHttp, Scheme, Shared};
use super::pages::{Page, Reading};
use super::pulls::Pulls;
use super::{Commit, Draft, Forge, ForgeError, Found, State, text};
use crate::address::Address;
use crate::credentials::Credentials;
use crate::error::DeliveryError;
use crate::order::{ChangeRequest, ForgeKind};

pub(crate) struct Gitea(pub(super) Pulls);

impl Gitea {
    pub(crate) fn new(
        kind: ForgeKind,
        address: &Address,
        credentials: &Credentials,
        shared: &Arc<Shared>,
    ) -> Result<Self, DeliveryError> {
        let (prefix, owner, name) = address.repository()?;
        let base = format!("{}/{prefix}", address.origin());
        let base = format!("{}/api/v1", base.trim_end_matches('/'));
        let http = ForgeHttp::new(kind, &base, address, Scheme::Token, credentials, shared)?;
        Ok(Gitea(Pulls { http, owner: owner.into(), name: name.into(), parse }))
    }

    /// A page of a list, newest first. A server may give fewer than were asked for, so only an empty one
    /// is the last.
    async fn page(&self, state: &str, at: u64) -> Result<Page, ForgeError> {
        let page = (at + 1).to_string();
        let found = self.0.page(&[("state", state), ("limit", "50"), ("page", &page)]).await?;
        Ok(Page { next: (!found.is_empty()).then_some(at + 1), found })
    }

    async fn list(&self, state: &str, mut reading: Reading<'_>) -> Result<Vec<Found>, ForgeError> {
        while let Some(at) = reading.at() {
            reading.take(self.page(state, at).await?);
        }
        Ok(reading.ours)
    }
}

impl Forge for Gitea {
    async fn find_open(&self, head: &str, base: &str) -> Result<Option<Found>, ForgeError> {
        // Gives any one of them; there is only one where a branch has been used once.
        let any = self.0.http.read(self.0.url(&["pulls", base, head], &[])).await?;
        if let Some(found) =
            any.as_ref().and_then(parse).filter(|f| f.state == State::Open && f.request.branch == head)
        {
            return Ok(Some(found));
        }
        Ok(self.list("open", Reading::first(head)).await?.into_iter().next())
    }

    async fn find(&self, head: &str, _base: &str, since: Timestamp) -> Result<Vec<Found>, ForgeError> {
        self.list("all", Reading::since(head, since)).await
    }

    async fn open(&self, draft: &Draft) -> Result<Found, ForgeError> {
        self.0.open(draft).await
    }

    async fn update(&self, number: u64, draft: &Draft) -> Result<Found, ForgeError> {
        self.0.update(number, draft).await
    }

    async fn close(&self, number: u64) -> Result<(), ForgeError> {
        self.0.close(number).await
    }

    async fn get(&self, number: u64) -> Result<Option<Found>, ForgeError> {
        self.0.get(number).await
    }

    async fn comment(&self, number: u64, text: &str) -> Result<(), ForgeError> {
        self.0.comment(number, text).await
    }

    async fn commit(&self, id: &str) -> Result<Option<Commit>, ForgeError> {
        let found = self.0.commit(id).await?;
        Ok(found.map(|c| Commit::read(&c["commit"]["message"], &c["parents"], "sha")))
    }
}

/// One of this repository's own branches; those from forks have the same names and are nobody we know.
fn parse(value: &Value) -> Option<Found> {
    if value["head"]["repo_id"].as_i64()? != value["base"]["repo_id"].as_i64()? {
        return None;
    }
    let merged = value["merged"].as_bool() == Some(true);
    let state = match value["state"].as_str()? {
        _ if merged => State::Merged { commit: text(&value["merge_commit_sha"]).unwrap_or_default() },
        "open" => State::Open,
        _ => State::Closed,
    };
    Some(Found {
        request: ChangeRequest {
            number: value["number"].as_u64()?,
            url: text(&value["html_url"])?,
            // The branch's name stays here when the branch is gone; `ref` then becomes another.
            branch: text(&value["head"]["label"])?,
            head_commit: text(&value["head"]["sha"])?,
        },
        base: text(&value["base"]["ref"])?,
        title: text(&value["title"])?,
        body: text(&value["body"]).unwrap_or_default(),
        state,
        conflicts: value["mergeable"].as_bool() == Some(false),
        created: value["created_at"].as_str()?.parse().ok()?,
    })
}
