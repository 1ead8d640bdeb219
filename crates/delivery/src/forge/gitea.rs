//! Gitea and Forgejo. Their lists cannot be filtered by head branch, so a lookup by base and head
//! goes first, and pages are read only as far back as it can matter.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::http::{ForgeHttp, Scheme, Shared};
use super::pulls::{self, Pulls};
use super::{Commit, Draft, Forge, ForgeError, Found, State};
use crate::address::Address;
use crate::credentials::Credentials;
use crate::error::DeliveryError;
use crate::order::{ChangeRequest, ForgeKind};

/// So many pages of a list are read at most.
const PAGES: usize = 40;
/// How far the forge's clock may be behind ours.
const SKEW: SignedDuration = SignedDuration::from_hours(24);

pub(crate) struct Gitea(Pulls);

impl Gitea {
    pub(crate) fn new(
        address: &Address,
        credentials: &Credentials,
        shared: &Arc<Shared>,
    ) -> Result<Self, DeliveryError> {
        let (prefix, owner, name) = address.repository()?;
        let base = format!("{}/{prefix}", address.origin());
        let base = format!("{}/api/v1", base.trim_end_matches('/'));
        let http = ForgeHttp::new(ForgeKind::Gitea, &base, address, Scheme::Token, credentials, shared)?;
        Ok(Gitea(Pulls { http, owner: owner.into(), name: name.into(), parse }))
    }

    /// Reads a list, newest first, while `more` wants the last one of a page; keeps those of a branch.
    async fn list(
        &self,
        head: &str,
        state: &str,
        more: impl Fn(&Found) -> bool,
    ) -> Result<Vec<Found>, ForgeError> {
        let mut ours = Vec::new();
        for page in 1..=PAGES {
            let page = page.to_string();
            let found = self.0.page(&[("state", state), ("limit", "50"), ("page", &page)]).await?;
            let go_on = found.last().is_some_and(&more);
            ours.extend(found.into_iter().filter(|f| f.request.branch == head));
            // A server may give fewer than were asked for, so only an empty page is the last.
            if !go_on || (state == "open" && !ours.is_empty()) {
                break;
            }
        }
        Ok(ours)
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
        Ok(self.list(head, "open", |_| true).await?.into_iter().next())
    }

    async fn find(&self, head: &str, _base: &str, since: Timestamp) -> Result<Vec<Found>, ForgeError> {
        let since = since.saturating_sub(SKEW).unwrap_or(since);
        self.list(head, "all", |last| last.created >= since).await
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
        Ok(found.map(|c| pulls::commit(&c["commit"]["message"], &c["parents"])))
    }
}

fn parse(value: &Value) -> Option<Found> {
    let text = |v: &Value| v.as_str().map(String::from);
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
