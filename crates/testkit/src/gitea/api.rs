//! Calls of Gitea's API. Each call makes its own client, because a client belongs to the runtime of the test that made
//! it.

use anyhow::{Context, Result, bail};
use reqwest::Method;
use serde_json::Value;
use std::time::Duration;

/// The time limit of a call; long, because Gitea on SQLite is slow on a busy machine.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// The administrator, who owns the repositories.
pub(super) const USER: &str = "sluice";
/// The password of every user.
pub(super) const PASSWORD: &str = "open barley/+?";

/// The credentials of a call.
#[derive(Debug, Clone)]
pub(crate) enum ApiCredentials {
    Password(String, String),
    Token(String),
}

/// The API of one server, as one user.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub url: String,
    pub credentials: ApiCredentials,
}

impl Api {
    /// Sends `body`, unless it is null, and returns the JSON of the answer; null if the answer has none.
    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        crate::kubeconfig::install_tls_provider();
        // Without root certificates: Gitea is called without TLS, and reading them takes longer than most calls.
        let client = reqwest::Client::builder().timeout(CALL_TIMEOUT).tls_certs_only([]).build()?;
        let mut request = client.request(method.clone(), format!("{}/api/v1{path}", self.url));
        request = match &self.credentials {
            ApiCredentials::Password(user, password) => request.basic_auth(user, Some(password)),
            ApiCredentials::Token(token) => request.header("authorization", format!("token {token}")),
        };
        if !body.is_null() {
            request = request.json(body);
        }
        let answer =
            request.send().await.with_context(|| format!("Gitea does not answer {method} {path}"))?;
        let (status, text) = (answer.status(), answer.text().await?);
        if !status.is_success() {
            bail!("Gitea answers {status} to {method} {path}: {text}");
        }
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        self.call(Method::GET, path, &Value::Null).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Result<Value> {
        self.call(Method::POST, path, &body).await
    }
}
