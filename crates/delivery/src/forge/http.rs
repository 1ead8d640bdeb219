//! How every forge is called: with the token in one header, a deadline, a bound on what is read, and
//! respect for what the forge says about calling less. Counts each call and remembers ETags.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, LOCATION};
use reqwest::{Client, Method, Url};
use serde_json::Value;

use super::{ForgeError, Found, tls};
use crate::address::Address;
use crate::credentials::Credentials;
use crate::git::hex_hash;
use crate::order::ForgeKind;
use crate::stats::Counters;

/// So many answers are remembered for conditional calls.
const REMEMBERED: usize = 20_000;
/// How long a call may take, where the deadline of git leaves so much.
const PATIENCE: Duration = Duration::from_secs(30);
/// No answer that matters is longer.
const LONGEST: usize = 16 << 20;

/// What all forges of this process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) counters: Arc<Counters>,
    pub(crate) deadline: Duration,
    clients: Mutex<HashMap<String, Client>>,
    paused: Mutex<HashMap<String, Timestamp>>,
    seen: Mutex<HashMap<String, (HeaderValue, Found)>>,
}

impl Shared {
    pub(crate) fn new(counters: Arc<Counters>, deadline: Duration) -> Self {
        let (clients, paused, seen) = Default::default();
        Shared { counters, deadline: deadline.min(PATIENCE), clients, paused, seen }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a forge wants to be told who calls.
pub(super) enum Scheme {
    Bearer,
    Token,
}

/// One forge with one credential.
pub(super) struct ForgeHttp {
    kind: ForgeKind,
    /// As messages name it.
    pub(super) name: String,
    repository: String,
    base: Url,
    client: Client,
    headers: HeaderMap,
    credentials: Credentials,
    /// The budget that calls come out of: one for each credential.
    budget: String,
    shared: Arc<Shared>,
}

/// An answer.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) json: Value,
    headers: HeaderMap,
}

impl ForgeHttp {
    pub(super) fn new(
        kind: ForgeKind,
        base: &str,
        address: &Address,
        scheme: Scheme,
        credentials: &Credentials,
        shared: &Arc<Shared>,
    ) -> Result<Self, ForgeError> {
        let name = address.host.clone();
        let none = || ForgeError::NoToken { forge: name.clone() };
        let authorization = match (&credentials.token, &scheme) {
            (Some(token), Scheme::Bearer) => format!("Bearer {token}"),
            (Some(token), Scheme::Token) => format!("token {token}"),
            // On GitHub a password for git is a token; elsewhere it may be a real one.
            (None, Scheme::Bearer) => format!("Bearer {}", credentials.password.as_deref().ok_or_else(none)?),
            (None, Scheme::Token) => {
                use base64::Engine;
                let (user, password) = credentials.basic().ok_or_else(none)?;
                let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
                format!("Basic {pair}")
            }
        };
        let mut value = HeaderValue::from_str(&authorization).map_err(|_| none())?;
        value.set_sensitive(true);
        let budget = format!("{name} {}", &hex_hash(authorization.as_bytes())[..16]);
        let client = client(&name, credentials, shared)?;
        let bad = |e: url::ParseError| ForgeError::BadAnswer { forge: name.clone(), says: e.to_string() };
        let base = Url::parse(base).map_err(bad)?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        let (credentials, repository) = (credentials.clone(), address.text.clone());
        Ok(ForgeHttp {
            kind,
            name,
            repository,
            base,
            client,
            headers,
            credentials,
            budget,
            shared: shared.clone(),
        })
    }

    /// A header that goes with every call.
    pub(super) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// The address of a call: each part of the path is escaped as a whole.
    pub(super) fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// Calls, and takes only success for an answer.
    pub(super) async fn call(
        &self,
        method: Method,
        url: Url,
        body: Option<&Value>,
    ) -> Result<Value, ForgeError> {
        let reply = self.send(method, url, body, None).await?;
        match reply.status {
            200..300 => Ok(reply.json),
            _ => Err(self.refusal(&reply)),
        }
    }

    /// Reads one thing; `None` where there is no such thing.
    pub(super) async fn read(&self, url: Url) -> Result<Option<Value>, ForgeError> {
        let reply = self.send(Method::GET, url, None, None).await?;
        match reply.status {
            200..300 => Ok(Some(reply.json)),
            404 | 410 | 422 => Ok(None),
            _ => Err(self.refusal(&reply)),
        }
    }

    /// Reads one change request, and only if it has changed since the last time.
    pub(super) async fn read_changed(
        &self,
        url: Url,
        parse: impl Fn(&Value) -> Option<Found>,
    ) -> Result<Option<Found>, ForgeError> {
        let key = format!("{} {url}", self.budget);
        let known = lock(&self.shared.seen).get(&key).cloned();
        let reply = self.send(Method::GET, url, None, known.as_ref().map(|(etag, _)| etag)).await?;
        match (reply.status, known) {
            (304, Some((_, found))) => Ok(Some(found)),
            (200..300, _) => {
                let mut found = parse(&reply.json).ok_or_else(|| self.unreadable("a change request"))?;
                // Only its state is asked for this way; many are remembered.
                found.body = String::new();
                if let Some(etag) = reply.headers.get(ETAG) {
                    let mut seen = lock(&self.shared.seen);
                    if seen.len() >= REMEMBERED {
                        seen.clear();
                    }
                    seen.insert(key, (etag.clone(), found.clone()));
                }
                Ok(Some(found))
            }
            (404 | 410, _) => Ok(None),
            _ => Err(self.refusal(&reply)),
        }
    }

    /// The answer does not hold what it should.
    pub(super) fn unreadable(&self, what: &str) -> ForgeError {
        ForgeError::BadAnswer { forge: self.name.clone(), says: format!("{what} was expected") }
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        body: Option<&Value>,
        etag: Option<&HeaderValue>,
    ) -> Result<Reply, ForgeError> {
        if let Some(until) = self.paused_until() {
            return Err(ForgeError::RateLimited { forge: self.name.clone(), until });
        }
        let label = label(&method);
        let mut request = self.client.request(method, url).headers(self.headers.clone());
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        match self.exchange(request).await {
            Ok(reply) => {
                self.shared.counters.forge_call(self.kind.name(), label, reply.status);
                self.obey(&reply)?;
                Ok(reply)
            }
            Err(error) => {
                self.shared.counters.forge_call(self.kind.name(), label, 0);
                Err(self.failure(error))
            }
        }
    }

    async fn exchange(&self, request: reqwest::RequestBuilder) -> Result<Reply, reqwest::Error> {
        let mut response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if bytes.len() + chunk.len() > LONGEST {
                break;
            }
            bytes.extend_from_slice(&chunk);
        }
        let json = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).chars().take(300).collect()));
        Ok(Reply { status, json, headers })
    }

    fn paused_until(&self) -> Option<Timestamp> {
        let mut paused = lock(&self.shared.paused);
        let until = *paused.get(&self.budget)?;
        if until > Timestamp::now() {
            return Some(until);
        }
        paused.remove(&self.budget);
        None
    }

    /// Takes down what the forge says about its budget, and stops where it says so.
    fn obey(&self, reply: &Reply) -> Result<(), ForgeError> {
        let number = |name: &str| reply.headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
        let left = number("x-ratelimit-remaining").or_else(|| number("ratelimit-remaining"));
        if let Some(left) = left {
            self.shared.counters.budget(&self.name, u64::try_from(left).unwrap_or(0));
        }
        if !matches!(reply.status, 403 | 429 | 503) {
            return Ok(());
        }
        let now = Timestamp::now();
        let says = self.says(&reply.json).to_ascii_lowercase();
        let reset = || number("x-ratelimit-reset").or_else(|| number("ratelimit-reset"));
        let until = if let Some(until) = retry_after(&reply.headers, now) {
            until
        } else if left == Some(0)
            && let Some(Ok(until)) = reset().map(Timestamp::from_second)
        {
            until
        } else if reply.status == 429 || says.contains("rate limit") {
            now.saturating_add(SignedDuration::from_mins(1)).unwrap_or(now)
        } else {
            return Ok(());
        };
        // A clock that is off, here or there, does not stop us for a day.
        let latest = now.saturating_add(SignedDuration::from_hours(2)).unwrap_or(now);
        let earliest = now.saturating_add(SignedDuration::from_secs(1)).unwrap_or(now);
        let until = until.clamp(earliest, latest);
        lock(&self.shared.paused).insert(self.budget.clone(), until);
        Err(ForgeError::RateLimited { forge: self.name.clone(), until })
    }

    /// What an answer that is not success means.
    pub(super) fn refusal(&self, reply: &Reply) -> ForgeError {
        let (forge, says) = (self.name.clone(), self.says(&reply.json));
        match reply.status {
            300..=399 => {
                let location =
                    reply.headers.get(LOCATION).and_then(|l| l.to_str().ok()).unwrap_or("elsewhere");
                ForgeError::Redirected { forge, location: self.credentials.redact(location) }
            }
            401 => ForgeError::Authentication { forge, says },
            403 => ForgeError::Forbidden { forge, says },
            404 => ForgeError::NoRepository { forge, repository: self.repository.clone() },
            500..=599 => ForgeError::Unreachable { forge, says: format!("status {}: {says}", reply.status) },
            status => ForgeError::Refused { forge, status, says },
        }
    }

    /// The forge's own words, in a line.
    fn says(&self, json: &Value) -> String {
        let mut words: Vec<String> = Vec::new();
        match json {
            Value::String(text) => words.push(text.clone()),
            other => {
                words.extend(other["message"].as_str().map(String::from));
                for error in other["errors"].as_array().into_iter().flatten() {
                    words.extend(error["message"].as_str().or(error.as_str()).map(String::from));
                    if error["message"].is_null() {
                        words.extend(
                            error["field"].as_str().map(|field| format!("{field} {}", error["code"])),
                        );
                    }
                }
            }
        }
        let text = self.credentials.redact(&words.join("; "));
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
    }

    fn failure(&self, error: reqwest::Error) -> ForgeError {
        let forge = self.name.clone();
        if error.is_timeout() {
            return ForgeError::Timeout { forge, after: self.shared.deadline };
        }
        // The address may hold nothing secret, but the cause at the end of the chain says it best.
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        let says = self.credentials.redact(&cause.to_string());
        if says.contains("certificate") {
            return ForgeError::Certificate { forge, says };
        }
        ForgeError::Unreachable { forge, says }
    }
}

fn client(name: &str, credentials: &Credentials, shared: &Shared) -> Result<Client, ForgeError> {
    let key = credentials.ca_file.as_deref().map(hex_hash).unwrap_or_default();
    if let Some(client) = lock(&shared.clients).get(&key) {
        return Ok(client.clone());
    }
    let made = tls::client(credentials.ca_file.as_deref(), shared.deadline)
        .map_err(|says| ForgeError::BadCaFile { forge: name.into(), says })?;
    lock(&shared.clients).insert(key, made.clone());
    Ok(made)
}

fn label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// `Retry-After`, in seconds or as a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    match text.parse::<i64>() {
        Ok(seconds) => now.saturating_add(SignedDuration::from_secs(seconds)).ok(),
        // What is written in Go often says UTC, where the rule is GMT.
        Err(_) => jiff::fmt::rfc2822::parse(&text.replace(" UTC", " GMT")).ok().map(|date| date.timestamp()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_takes_too_long_is_told_its_own_deadline() {
        let of = |git| Shared::new(Arc::default(), Duration::from_secs(git)).deadline;
        assert_eq!((of(120), of(5)), (PATIENCE, Duration::from_secs(5)));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let read = |text: &'static str| {
            let headers =
                HeaderMap::from_iter([(reqwest::header::RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&headers, now).map(|t| t.to_string())
        };
        assert_eq!(read("60").as_deref(), Some("2026-01-02T03:05:05Z"));
        assert_eq!(read("Wed, 21 Oct 2026 07:28:00 GMT").as_deref(), Some("2026-10-21T07:28:00Z"));
        assert_eq!(read("Wed, 21 Oct 2026 07:28:00 UTC").as_deref(), Some("2026-10-21T07:28:00Z"));
        assert_eq!(read("soon"), None);
    }
}
