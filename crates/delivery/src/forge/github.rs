//! GitHub, and GitHub Enterprise Server at other hosts.

use std::sync::Arc;

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use super::http::{ForgeHttp, Scheme, Shared};
use super::{Draft, Forge, ForgeError, Found, State};
use crate::address::{Address, AddressError};
use crate::credentials::Credentials;
use crate::error::DeliveryError;
use crate::order::{ChangeRequest, ForgeKind};

pub(crate) struct GitHub {
    http: ForgeHttp,
    owner: String,
    name: String,
}

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
        Ok(GitHub { http, owner: owner.into(), name: name.into() })
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> reqwest::Url {
        self.http.url(&[&["repos", &self.owner, &self.name], path].concat(), query)
    }

    async fn list(&self, head: &str, state: &str) -> Result<Vec<Found>, ForgeError> {
        let head = format!("{}:{head}", self.owner);
        let query = [
            ("state", state),
            ("head", &head),
            ("sort", "created"),
            ("direction", "desc"),
            ("per_page", "100"),
        ];
        let answer = self.http.call(Method::GET, self.url(&["pulls"], &query), None).await?;
        let list = answer.as_array().ok_or_else(|| self.http.unreadable("a list"))?;
        // A forge that does not know the filter would show everybody's.
        let ours = |found: &Found| head.ends_with(&format!(":{}", found.request.branch));
        Ok(list.iter().filter_map(parse).filter(ours).collect())
    }

    fn one(&self, answer: &Value) -> Result<Found, ForgeError> {
        parse(answer).ok_or_else(|| self.http.unreadable("a change request"))
    }
}

/// Where the API is.
fn api(address: &Address) -> String {
    let host = address.host.split(':').next().unwrap_or_default();
    match host {
        "github.com" | "www.github.com" | "ssh.github.com" => "https://api.github.com".into(),
        host if host.ends_with(".ghe.com") => format!("https://api.{host}"),
        _ => format!("{}/api/v3", address.origin()),
    }
}

impl Forge for GitHub {
    async fn find_open(&self, head: &str, _base: &str) -> Result<Option<Found>, ForgeError> {
        Ok(self.list(head, "open").await?.into_iter().next())
    }

    async fn find(&self, head: &str, _base: &str, _since: Timestamp) -> Result<Vec<Found>, ForgeError> {
        self.list(head, "all").await
    }

    async fn open(&self, draft: &Draft) -> Result<Found, ForgeError> {
        let body = json!({"title": draft.title, "body": draft.body, "head": draft.head, "base": draft.base});
        self.one(&self.http.call(Method::POST, self.url(&["pulls"], &[]), Some(&body)).await?)
    }

    async fn update(&self, number: u64, draft: &Draft) -> Result<Found, ForgeError> {
        let body = json!({"title": draft.title, "body": draft.body, "base": draft.base});
        let url = self.url(&["pulls", &number.to_string()], &[]);
        self.one(&self.http.call(Method::PATCH, url, Some(&body)).await?)
    }

    async fn close(&self, number: u64) -> Result<(), ForgeError> {
        let url = self.url(&["pulls", &number.to_string()], &[]);
        self.http.call(Method::PATCH, url, Some(&json!({"state": "closed"}))).await.map(drop)
    }

    async fn get(&self, number: u64) -> Result<Option<Found>, ForgeError> {
        let url = self.url(&["pulls", &number.to_string()], &[]);
        let found = self.http.read_changed(url, parse).await?;
        if found.is_none() {
            // It is gone only if its repository is still there to say so.
            self.http.call(Method::GET, self.url(&[], &[]), None).await?;
        }
        Ok(found)
    }

    async fn comment(&self, number: u64, text: &str) -> Result<(), ForgeError> {
        let url = self.url(&["issues", &number.to_string(), "comments"], &[]);
        self.http.call(Method::POST, url, Some(&json!({"body": text}))).await.map(drop)
    }

    async fn message(&self, commit: &str) -> Result<Option<String>, ForgeError> {
        let answer = self.http.read(self.url(&["git", "commits", commit], &[])).await?;
        Ok(answer.and_then(|a| a["message"].as_str().map(String::from)))
    }
}

fn parse(value: &Value) -> Option<Found> {
    let text = |v: &Value| v.as_str().map(String::from);
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
        created: value["created_at"].as_str()?.parse().ok()?,
    })
}
