//! GitHub, and GitHub Enterprise Server at other hosts.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::http::{ForgeHttp, Scheme, Shared};
use super::pages::{Page, Reading};
use super::pulls::Pulls;
use super::{Commit, Draft, Forge, ForgeError, Found, State, text};
use crate::address::{Address, AddressError};
use crate::credentials::Credentials;
use crate::error::DeliveryError;
use crate::order::{ChangeRequest, ForgeKind};

pub(crate) struct GitHub(pub(super) Pulls);

impl GitHub {
    pub(crate) fn new(
        address: &Address,
        credentials: &Credentials,
        shared: &Arc<Shared>,
    ) -> Result<Self, DeliveryError> {
        let (prefix, owner, name) = address.repository()?;
        if !prefix.is_empty() {
            return Err(AddressError::Invalid(address.text.clone()).into());
        }
        let base = api(address);
        let http = ForgeHttp::new(ForgeKind::GitHub, &base, address, Scheme::Bearer, credentials, shared)?
            .with_header("accept", "application/vnd.github+json")
            .with_header("x-github-api-version", "2022-11-28");
        Ok(GitHub(Pulls { http, owner: owner.into(), name: name.into(), parse }))
    }

    async fn list(&self, state: &str, mut to: Reading<'_>) -> Result<Vec<Found>, ForgeError> {
        let filter = format!("{}:{}", self.0.owner, to.head);
        while let Some(at) = to.at() {
            let page = (at + 1).to_string();
            let query = [
                ("state", state),
                ("head", &filter),
                ("sort", "created"),
                ("direction", "desc"),
                ("per_page", "100"),
                ("page", &page),
            ];
            let found = self.0.page(&query).await?;
            to.take(Page { next: (found.len() >= 100).then_some(at + 1), found });
        }
        Ok(to.ours)
    }
}

/// Where the API is.
pub(super) fn api(address: &Address) -> String {
    match address.host_name() {
        "github.com" | "www.github.com" | "ssh.github.com" => "https://api.github.com".into(),
        host if host.ends_with(".ghe.com") => format!("https://api.{host}"),
        _ => format!("{}/api/v3", address.origin()),
    }
}

impl Forge for GitHub {
    async fn find_open(&self, head: &str, _base: &str) -> Result<Option<Found>, ForgeError> {
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
        Ok(found.map(|c| Commit::read(&c["message"], &c["parents"], "sha")))
    }
}

fn parse(value: &Value) -> Option<Found> {
    let merged = !value["merged_at"].is_null() || value["merged"].as_bool() == Some(true);
    let state = match value["state"].as_str()? {
        "open" => State::Open,
        _ if merged => State::Merged { commit: text(&value["merge_commit_sha"]).unwrap_or_default() },
        _ => State::Closed,
    };
    Some(Found {
        request: ChangeRequest {
            number: value["number"].as_u64()?,
            url: text(&value["html_url"])?,
            branch: text(&value["head"]["ref"])?,
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
