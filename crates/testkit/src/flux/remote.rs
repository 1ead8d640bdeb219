//! Reads the references of a git server with one small HTTP request. `git ls-remote` needs three processes, and the
//! stand-in asks five times a second.

use anyhow::{Context, Result, anyhow, bail};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// User and password for a git server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GitCredentials {
    pub user: String,
    pub password: String,
}

/// The references of a repository, by their full names.
type References = HashMap<String, String>;

/// An address, and the credentials for it.
type RemoteKey = (String, Option<GitCredentials>);

/// The last answers of the servers, for all stand-ins of the process: each request costs the server a process or two.
static CACHE: LazyLock<Mutex<HashMap<RemoteKey, (Instant, References)>>> = LazyLock::new(Mutex::default);

/// Reads references, from the cache if they are recent.
pub(crate) struct Remotes {
    client: reqwest::Client,
    /// How long a cached answer is valid.
    max_age: Duration,
}

impl Remotes {
    pub fn new(poll_interval: Duration) -> Result<Remotes> {
        crate::kubeconfig::install_tls_provider();
        // Without root certificates: the git servers of tests have no TLS.
        let client =
            reqwest::Client::builder().timeout(Duration::from_secs(20)).tls_certs_only([]).build()?;
        Ok(Remotes { client, max_age: poll_interval.mul_f32(0.9) })
    }

    /// Returns the commit of a reference such as `refs/heads/main`.
    pub async fn commit(
        &self,
        url: &str,
        reference: &str,
        credentials: Option<&GitCredentials>,
    ) -> Result<String> {
        let references = self.references(url, credentials).await?;
        references.get(reference).cloned().with_context(|| {
            let short = reference.rsplit('/').next().unwrap_or(reference);
            format!("couldn't find remote ref \"{short}\"")
        })
    }

    async fn references(&self, url: &str, credentials: Option<&GitCredentials>) -> Result<References> {
        let key = (url.to_owned(), credentials.cloned());
        if let Some((when, references)) = CACHE.lock().unwrap_or_else(PoisonError::into_inner).get(&key)
            && when.elapsed() < self.max_age
        {
            return Ok(references.clone());
        }
        let references = self.request(url, credentials).await?;
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        cache.insert(key, (Instant::now(), references.clone()));
        Ok(references)
    }

    async fn request(&self, url: &str, credentials: Option<&GitCredentials>) -> Result<References> {
        let address = format!("{}/info/refs?service=git-upload-pack", url.trim_end_matches('/'));
        let mut request = self.client.get(address);
        if let Some(GitCredentials { user, password }) = credentials {
            request = request.basic_auth(user, Some(password));
        }
        let answer = request.send().await.map_err(|e| anyhow!("{}", root_cause(&e)))?;
        match answer.status().as_u16() {
            200 => parse(&answer.bytes().await?),
            401 => bail!("authentication required"),
            404 => bail!("repository not found"),
            other => bail!("unexpected client error: unexpected requesting status code: {other}"),
        }
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Parses git's list of references: lines that begin with their own length in four hexadecimal digits.
fn parse(mut bytes: &[u8]) -> Result<References> {
    let mut references = References::new();
    while let Some((digits, _)) = bytes.split_at_checked(4) {
        let length =
            usize::from_str_radix(std::str::from_utf8(digits)?, 16).context("not an answer of git")?;
        let (line, rest) = bytes.split_at_checked(length.max(4)).context("the answer was cut off")?;
        bytes = rest;
        let text = String::from_utf8_lossy(line.get(4..).unwrap_or_default());
        let text = text.split('\0').next().unwrap_or_default().trim_end();
        if let Some((sha, name)) = text.split_once(' ')
            && name.starts_with("refs/")
        {
            references.insert(name.to_owned(), sha.to_owned());
        }
    }
    Ok(references)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_references_is_parsed() {
        let line = |text: &str| format!("{:04x}{text}\n", text.len() + 5);
        let head = line("aaaa0000000000000000000000000000000000aa HEAD\0multi_ack side-band");
        let main = line("bbbb0000000000000000000000000000000000bb refs/heads/main");
        let text = format!("{}0000{head}{main}0000", line("# service=git-upload-pack"));
        let references = parse(text.as_bytes()).unwrap();
        assert_eq!(references["refs/heads/main"], "bbbb0000000000000000000000000000000000bb");
        assert_eq!(references.len(), 1);
        assert!(parse(b"<html>").is_err());
    }
}
