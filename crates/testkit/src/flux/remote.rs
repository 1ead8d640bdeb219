//! Asking a git server where a branch is, with one small HTTP request: `git ls-remote` would do
//! the same with three processes, five times a second.

use anyhow::{Context, Result, anyhow, bail};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// User and password for a git server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Credentials {
    pub user: String,
    pub password: String,
}

/// The references of a repository, by their full names.
type References = HashMap<String, String>;

/// Whom is asked, and as whom.
type Question = (String, Option<Credentials>);

/// What servers said last. All stand-ins of a process know it together: each question costs the
/// server a process or two.
static KNOWN: LazyLock<Mutex<HashMap<Question, (Instant, References)>>> = LazyLock::new(Mutex::default);

/// Asks servers, when what they said last is too old.
pub(crate) struct Remotes {
    client: reqwest::Client,
    fresh: Duration,
}

impl Remotes {
    pub fn new(fresh: Duration) -> Result<Remotes> {
        crate::kubeconfig::install_tls_provider();
        let client = reqwest::Client::builder().timeout(Duration::from_secs(20)).build()?;
        Ok(Remotes { client, fresh: fresh.mul_f32(0.9) })
    }

    /// The commit that a reference such as `refs/heads/main` points to.
    pub async fn commit(&self, url: &str, reference: &str, who: Option<&Credentials>) -> Result<String> {
        let references = self.references(url, who).await?;
        references.get(reference).cloned().with_context(|| {
            let short = reference.rsplit('/').next().unwrap_or(reference);
            format!("couldn't find remote ref \"{short}\"")
        })
    }

    async fn references(&self, url: &str, who: Option<&Credentials>) -> Result<References> {
        let key = (url.to_owned(), who.cloned());
        if let Some((when, references)) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&key)
            && when.elapsed() < self.fresh
        {
            return Ok(references.clone());
        }
        let references = self.ask(url, who).await?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, (Instant::now(), references.clone()));
        Ok(references)
    }

    async fn ask(&self, url: &str, who: Option<&Credentials>) -> Result<References> {
        let address = format!("{}/info/refs?service=git-upload-pack", url.trim_end_matches('/'));
        let mut request = self.client.get(address);
        if let Some(who) = who {
            request = request.basic_auth(&who.user, Some(&who.password));
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

/// Reads git's advertisement: lines that begin with their own length in four hexadecimal digits.
fn parse(mut bytes: &[u8]) -> Result<References> {
    let mut references = References::new();
    while let Some((digits, _)) = bytes.split_at_checked(4) {
        let length = usize::from_str_radix(std::str::from_utf8(digits)?, 16).context("this is not git")?;
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
    fn an_advertisement_is_read() {
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
