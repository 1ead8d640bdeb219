//! How every forge is called: with the token in one header, a deadline, a bound on what is read, and
//! respect for what the forge says about calling less. Counts each call and remembers ETags.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use reqwest::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION};
use reqwest::{Client, Method, Url};
use serde_json::Value;

use super::budget::{Budget, Budgets, Purpose, Told};
use super::github_app::Lent;
use super::scheme::Scheme;
use super::{ForgeError, Found, tls};
use crate::address::Address;
use crate::clock;
use crate::credentials::{App, Credentials};
use crate::fingerprint::fingerprint;
use crate::git::hex_hash;
use crate::order::ForgeKind;
use crate::permit::Permit;
use crate::stats::Counters;

/// So many answers are remembered for conditional calls.
const REMEMBERED: usize = 20_000;
/// How long a call may take, where the deadline of git leaves so much.
const PATIENCE: Duration = Duration::from_secs(30);
/// No answer that matters is longer.
const LONGEST: usize = 16 << 20;

/// How long what is told aside is believed.
const ASIDE: Duration = Duration::from_secs(300);

/// What all forges of this process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) counters: Arc<Counters>,
    pub(crate) deadline: Duration,
    clients: Mutex<HashMap<String, Client>>,
    pub(crate) budgets: Budgets,
    pub(super) lent: Lent,
    seen: Mutex<HashMap<String, (HeaderValue, Found)>>,
    ids: Mutex<HashMap<String, String>>,
    aside: Mutex<HashMap<String, (Instant, bool)>>,
}

impl Shared {
    pub(crate) fn new(counters: Arc<Counters>, deadline: Duration) -> Self {
        let (clients, budgets, lent, seen, ids, aside) = Default::default();
        Shared { counters, deadline: deadline.min(PATIENCE), clients, budgets, lent, seen, ids, aside }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    budget: Arc<Budget>,
    /// What is remembered is so of this credential only.
    fingerprint: String,
    /// Nothing is changed without it.
    pub(super) permit: Permit,
    pub(super) owner: String,
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
        let authorization = scheme.authorization(credentials).ok_or_else(none)?;
        let mut value = HeaderValue::from_str(&authorization).map_err(|_| none())?;
        value.set_sensitive(true);
        let payer = credentials.app.as_ref().map_or(authorization, App::fingerprint);
        let fingerprint = fingerprint([payer.as_bytes()]);
        let budget = shared.budgets.of(&name, &fingerprint);
        // Nothing is begun that could not go on.
        let limited = |until| ForgeError::RateLimited { forge: name.clone(), until };
        budget.open(Purpose::Step).map_err(limited)?;
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
            fingerprint,
            permit: Permit::default(),
            owner: String::new(),
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

    /// An address beside the API's own: so many parts up, and down again.
    pub(super) fn beside(&self, up: usize, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.url(&[], query);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty();
            for _ in 0..up {
                segments.pop();
            }
            segments.extend(path);
        }
        url
    }

    /// The entries of a page, as both Bitbuckets have them.
    pub(super) fn values(&self, page: &mut Value) -> Result<Vec<Value>, ForgeError> {
        match page.get_mut("values").map(Value::take) {
            Some(Value::Array(values)) => Ok(values),
            _ => Err(self.unreadable("a list")),
        }
    }

    /// Calls, and takes only success for an answer.
    pub(super) async fn call(
        &self,
        method: Method,
        url: Url,
        body: Option<&Value>,
    ) -> Result<Value, ForgeError> {
        self.call_with(method, url, body, None).await
    }

    /// The same, with a header of its own.
    pub(super) async fn call_with(
        &self,
        method: Method,
        url: Url,
        body: Option<&Value>,
        header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Value, ForgeError> {
        let reply = self.send(method, url, body, header, Purpose::Step).await?;
        self.success(reply)
    }

    fn success(&self, reply: Reply) -> Result<Value, ForgeError> {
        match reply.status {
            // Half of an answer, or somebody's page: what it does not say is not what is not there.
            200..300 if reply.json.is_string() => Err(self.unreadable("JSON")),
            200..300 => Ok(reply.json),
            _ => Err(self.refusal(&reply)),
        }
    }

    /// Reads one thing; `None` where there is no such thing.
    pub(super) async fn read(&self, url: Url) -> Result<Option<Value>, ForgeError> {
        let reply = self.send(Method::GET, url, None, None, Purpose::Step).await?;
        match reply.status {
            404 | 410 | 422 => Ok(None),
            _ => self.success(reply).map(Some),
        }
    }

    /// Whether something is so, which the forge tells beside the thing itself: asked again after a while only,
    /// or when `state` is another. Where it does not tell, it is not so: what needs no answer fails for none.
    pub(super) async fn aside(&self, url: Url, state: &str, is: impl Fn(&Value) -> bool) -> bool {
        let key = format!("{} {url} {state}", self.fingerprint);
        let known = lock(&self.shared.aside).get(&key).copied();
        if let Some((_, so)) = known.filter(|(asked, _)| asked.elapsed() < ASIDE) {
            return so;
        }
        let so = self.look_on(url).await.is_ok_and(|told| told.is_some_and(|told| is(&told)));
        let mut aside = lock(&self.shared.aside);
        aside.retain(|_, (asked, _)| asked.elapsed() < ASIDE);
        aside.insert(key, (Instant::now(), so));
        so
    }

    /// Looks at something that the forge may have elsewhere; `None` where it does not show it. Only the same
    /// server is followed: nobody else is given the credentials.
    async fn look_on(&self, url: Url) -> Result<Option<Value>, ForgeError> {
        let mut reply = self.send(Method::GET, url.clone(), None, None, Purpose::Look).await?;
        let elsewhere = reply.headers.get(LOCATION).filter(|_| (300..400).contains(&reply.status));
        let elsewhere = elsewhere.and_then(|to| url.join(to.to_str().ok()?).ok());
        if let Some(to) = elsewhere.filter(|to| to.origin() == url.origin()) {
            reply = self.send(Method::GET, to, None, None, Purpose::Look).await?;
        }
        Ok((200..300).contains(&reply.status).then_some(reply.json))
    }

    /// Changes something, and reads the change request that comes back.
    pub(super) async fn change(
        &self,
        method: Method,
        url: Url,
        body: &Value,
        parse: impl Fn(&Value) -> Option<Found>,
    ) -> Result<Found, ForgeError> {
        let answer = self.call(method, url, Some(body)).await?;
        parse(&answer).ok_or_else(|| self.unreadable("a change request"))
    }

    /// Reads one change request. It is gone only if its repository is still there to say so.
    pub(super) async fn request(
        &self,
        url: Url,
        repository: Url,
        parse: impl Fn(&Value) -> Option<Found>,
    ) -> Result<Option<Found>, ForgeError> {
        let found = self.read_changed(url, parse).await?;
        if found.is_none() {
            self.call(Method::GET, repository, None).await?;
        }
        Ok(found)
    }

    /// The whole of a commit's id that the forge has shortened, if it was read before.
    pub(super) fn known_id(&self, short: &str) -> Option<String> {
        lock(&self.shared.ids).get(&format!("{} {} {short}", self.fingerprint, self.repository)).cloned()
    }

    /// Remembers the whole of an id.
    pub(super) fn learn_id(&self, short: &str, id: &str) {
        let mut ids = lock(&self.shared.ids);
        if ids.len() >= REMEMBERED {
            ids.clear();
        }
        ids.insert(format!("{} {} {short}", self.fingerprint, self.repository), id.into());
    }

    /// Reads one change request, and only if it has changed since the last time.
    async fn read_changed(
        &self,
        url: Url,
        parse: impl Fn(&Value) -> Option<Found>,
    ) -> Result<Option<Found>, ForgeError> {
        let key = format!("{} {url}", self.fingerprint);
        let known = lock(&self.shared.seen).get(&key).cloned();
        let etag = known.as_ref().map(|(etag, _)| (IF_NONE_MATCH, etag.clone()));
        let reply = self.send(Method::GET, url, None, etag, Purpose::Look).await?;
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

    /// This kind of forge has no such thing. The pipeline's definition refuses to ask for it.
    pub(super) fn lacks(&self, what: &str) -> ForgeError {
        let says = format!("{} has no {what}", self.kind.name());
        ForgeError::Refused { forge: self.name.clone(), status: 400, says }
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
        header: Option<(HeaderName, HeaderValue)>,
        purpose: Purpose,
    ) -> Result<Reply, ForgeError> {
        let limited = |until| ForgeError::RateLimited { forge: self.name.clone(), until };
        let _turn = self.budget.turn(purpose, &self.owner).await.map_err(limited)?;
        if !method.is_safe() && self.permit.check().is_err() {
            return Err(ForgeError::Revoked);
        }
        let label = label(&method);
        let mut headers = self.headers.clone();
        headers.extend(header);
        let mut request = self.client.request(method, url).headers(headers);
        if let Some(body) = body {
            request = request.json(body);
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
        // Azure DevOps shows its sign-in page in place of refusing a token: with 203, or on the way to it.
        let to = headers.get(LOCATION).and_then(|l| l.to_str().ok()).unwrap_or_default();
        let signs_in = status == 203 || (status == 302 && to.to_ascii_lowercase().contains("signin"));
        if signs_in && self.kind == ForgeKind::AzureDevOps {
            let json = Value::String("it shows the sign-in page".into());
            return Ok(Reply { status: 401, json, headers });
        }
        let text = || Value::String(String::from_utf8_lossy(&bytes).chars().take(300).collect());
        let json = match bytes.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
        };
        Ok(Reply { status, json, headers })
    }

    /// Takes down what the forge says about its budget, and stops where it says so.
    fn obey(&self, reply: &Reply) -> Result<(), ForgeError> {
        let mut told = budget(&reply.headers, clock::now());
        let words = || self.says(&reply.json).to_ascii_lowercase().contains("rate limit");
        told.refused = matches!(reply.status, 403 | 429 | 503)
            && (told.after.is_some() || told.left == Some(0) || reply.status == 429 || words());
        if !told.refused && !(200..300).contains(&reply.status) {
            // What a failure says of the time to come back is about that failure.
            told.after = None;
        }
        match self.budget.hear(told) {
            Some(until) => Err(ForgeError::RateLimited { forge: self.name.clone(), until }),
            None => Ok(()),
        }
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
        let mut words = Vec::new();
        told(json, &mut words);
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

/// The sentences of an answer, wherever it has them: `message` and `errors` at GitHub and Bitbucket Data
/// Center, `message` as a list or by field and `error_description` at GitLab, `error` at Bitbucket.
fn told(json: &Value, words: &mut Vec<String>) {
    match json {
        Value::String(text) => words.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|part| told(part, words)),
        Value::Object(fields) => {
            let before = words.len();
            for key in ["message", "error", "error_description", "detail", "errors"] {
                match fields.get(key) {
                    Some(Value::Object(of)) if key == "message" || key == "errors" => {
                        for (field, what) in of {
                            let mut said = Vec::new();
                            told(what, &mut said);
                            words.push(format!("{field} {}", said.join(", ")));
                        }
                    }
                    Some(part) => told(part, words),
                    None => {}
                }
            }
            if words.len() == before {
                words.extend(fields.get("field").and_then(Value::as_str).map(|f| {
                    let code = fields.get("code").unwrap_or(&Value::Null);
                    format!("{f} {code}")
                }));
            }
        }
        _ => {}
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

/// What the head of an answer says about the budget.
fn budget(headers: &HeaderMap, now: Timestamp) -> Told {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    let either = |name: &str| number(&format!("x-{name}")).or_else(|| number(name));
    let count = |name: &str| either(name).map(|n| u64::try_from(n).unwrap_or(0));
    // A time by the forge's clock, which need not be ours.
    let there = date(headers).unwrap_or(now);
    let ours = |at: Timestamp| now.checked_add(at.duration_since(there)).ok();
    let told = Told {
        left: count("ratelimit-remaining"),
        limit: count("ratelimit-limit"),
        reset: either("ratelimit-reset").and_then(|at| Timestamp::from_second(at).ok()).and_then(ours),
        after: retry_after(headers, now),
        refused: false,
    };
    // GitHub counts the calls of its other API by themselves. That all of those are spent is told with a
    // success, and only there; what is left of them says nothing of all other calls.
    let other = headers.get("x-ratelimit-resource").is_some_and(|resource| resource != "core");
    match told.left {
        Some(1..) if other => Told { after: told.after, ..Told::default() },
        _ => told,
    }
}

/// When the answer was given, by the clock of who gave it.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get("date")?.to_str().ok()?;
    jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp())
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

    #[test]
    fn what_is_left_of_another_budget_is_not_what_is_left_of_this() {
        let now = Timestamp::constant(1_800_000_000, 0);
        let told = |left: &'static str, resource: &'static str| {
            let headers = [("remaining", left), ("resource", resource), ("limit", "5000")];
            let name = |name| reqwest::header::HeaderName::try_from(format!("x-ratelimit-{name}")).unwrap();
            let headers = headers.map(|(key, value)| (name(key), HeaderValue::from_static(value)));
            let told = budget(&HeaderMap::from_iter(headers), now);
            (told.left, told.limit)
        };
        assert_eq!(told("17", "core"), (Some(17), Some(5000)));
        assert_eq!(told("17", "graphql"), (None, None));
        assert_eq!(told("0", "graphql"), (Some(0), Some(5000)));
    }

    #[test]
    fn what_a_forge_says_is_found_wherever_it_says_it() {
        let says = |text: &str| {
            let mut words = Vec::new();
            told(&serde_json::from_str(text).unwrap(), &mut words);
            words.join("; ")
        };
        let cases = [
            (r#"{"message": "Not Found"}"#, "Not Found"),
            (
                r#"{"message": "Validation Failed", "errors": [{"message": "No commits between"}]}"#,
                "Validation Failed; No commits between",
            ),
            (r#"{"errors": [{"field": "head", "code": "invalid"}]}"#, r#"head "invalid""#),
            (r#"{"message": ["Another open merge request"]}"#, "Another open merge request"),
            (r#"{"message": {"title": ["is too long"]}}"#, "title is too long"),
            (
                r#"{"error": "insufficient_scope", "error_description": "needs api"}"#,
                "insufficient_scope; needs api",
            ),
            (r#"{"type": "error", "error": {"message": "No.", "detail": "Why."}}"#, "No.; Why."),
            (r#"{"$id": "1", "message": "TF401179: An active", "errorCode": 0}"#, "TF401179: An active"),
            (r#""plain""#, "plain"),
        ];
        for (text, expected) in cases {
            assert_eq!(says(text), expected, "{text}");
        }
    }
}
