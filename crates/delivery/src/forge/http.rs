//! How every forge is called: with the token in one header, a deadline, a bound on what is read, and
//! respect for what the forge says about calling less. Counts each call and remembers ETags.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION};
use reqwest::{Client, Method, Url};
use serde_json::{Value, json};

use super::answer::{self, Body, Large, Size, Unread};
use super::budget::{Budget, Budgets, Purpose};
use super::github_app::Lent;
use super::scheme::Scheme;
use super::{ForgeError, Found, headers, tls, words};
use crate::address::{Address, AllowedHosts};
use crate::clock;
use crate::credentials::{App, Credentials};
use crate::fingerprint::fingerprint;
use crate::git::hex_hash;
use crate::line::Place;
use crate::lru::Lru;
use crate::order::ForgeKind;
use crate::permit::Permit;
use crate::stats::Counters;

/// How long a call may take, where the deadline of git leaves so much.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a cached answer about conflicts is valid.
const ASIDE: Duration = Duration::from_secs(300);
/// The most clients that are kept: each has the roots of an authority of its own.
const CLIENTS: usize = 64;
/// The most bytes of change requests that are kept for conditional calls, and of one of them.
const SEEN_BYTES: usize = 16 << 20;
const SEEN_ONE: usize = 8 << 10;
/// The most commit ids that are kept, and answers about conflicts.
const IDS: usize = 20_000;
const ASIDES: usize = 4_096;

/// The most characters of a foreign address or cause that are shown.
const SHOWN: usize = 200;

/// What all forges of this process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) counters: Arc<Counters>,
    pub(crate) deadline: Duration,
    clients: Mutex<Lru<Client>>,
    pub(crate) budgets: Budgets,
    pub(super) lent: Lent,
    seen: Mutex<Lru<(HeaderValue, Found)>>,
    ids: Mutex<Lru<String>>,
    aside: Mutex<Lru<(Instant, bool)>>,
    large: Large,
    /// Where addresses that people write may lead.
    pub(super) hosts: AllowedHosts,
}

impl Shared {
    pub(crate) fn new(counters: Arc<Counters>, deadline: Duration, hosts: AllowedHosts) -> Self {
        Shared {
            counters,
            deadline: deadline.min(PATIENCE),
            clients: Mutex::new(Lru::new(CLIENTS)),
            budgets: Budgets::default(),
            lent: Lent::default(),
            seen: Mutex::new(Lru::new(SEEN_BYTES)),
            ids: Mutex::new(Lru::new(IDS)),
            aside: Mutex::new(Lru::new(ASIDES)),
            large: Large::default(),
            hosts,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One forge with one credential.
pub(super) struct ForgeHttp {
    pub(super) kind: ForgeKind,
    /// As messages name it.
    pub(super) name: String,
    repository: String,
    base: Url,
    client: Client,
    headers: HeaderMap,
    /// The fields of answers that the adapter reads.
    fields: &'static [&'static str],
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
    /// `None` where it is no JSON.
    json: Option<Value>,
    pub(super) headers: HeaderMap,
    /// The turn that a large one is parsed in, until it is reduced.
    place: Option<Place>,
}

impl ForgeHttp {
    /// The calls of one forge. Its API is at `base` unless the address names another.
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
        let base = Url::parse(address.api.as_deref().unwrap_or(base)).map_err(bad)?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        let (credentials, repository) = (credentials.clone(), address.text.clone());
        Ok(ForgeHttp {
            kind,
            name,
            repository,
            base,
            client,
            headers,
            fields: &[],
            credentials,
            budget,
            fingerprint,
            permit: Permit::default(),
            owner: String::new(),
            shared: shared.clone(),
        })
    }

    /// The same, which keeps these fields of answers and skips all others.
    pub(super) fn with_fields(mut self, fields: &'static [&'static str]) -> Self {
        self.fields = fields;
        self
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
        let reply = self.send(method, url, body, header, (Purpose::Step, Size::Object)).await?;
        self.success(reply)
    }

    /// Calls, and returns the whole answer, whatever its status.
    pub(super) async fn reply(&self, method: Method, url: Url, body: &Value) -> Result<Reply, ForgeError> {
        self.send(method, url, Some(body), None, (Purpose::Step, Size::Object)).await
    }

    /// Returns what an answer of success says.
    pub(super) fn success(&self, reply: Reply) -> Result<Value, ForgeError> {
        match (reply.status, reply.json) {
            // Half of an answer, or somebody's page: what it does not say is not what is not there.
            (200..300, None | Some(Value::String(_))) => Err(self.unreadable("JSON")),
            (200..300, Some(json)) => Ok(json),
            (_, json) => Err(self.refusal(&Reply { json, ..reply })),
        }
    }

    /// Reads a page of change requests, and reduces it before anything else is waited for.
    pub(super) async fn page<T>(
        &self,
        url: Url,
        reduce: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, ForgeError> {
        let mut reply = self.send(Method::GET, url, None, None, (Purpose::Step, Size::Page)).await?;
        let _place = reply.place.take();
        let json = self.success(reply)?;
        reduce(json).ok_or_else(|| self.unreadable("a list"))
    }

    /// The forge sends more than Sluice reads.
    pub(super) fn too_large(&self, what: impl Into<String>) -> ForgeError {
        ForgeError::TooLarge { forge: self.name.clone(), what: what.into() }
    }

    /// How long all pages of a list may take together.
    pub(super) fn list_timeout(&self) -> Duration {
        self.shared.deadline * 2
    }

    /// Reads one thing; `None` where there is no such thing.
    pub(super) async fn read(&self, url: Url) -> Result<Option<Value>, ForgeError> {
        let reply = self.send(Method::GET, url, None, None, (Purpose::Step, Size::Object)).await?;
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
        lock(&self.shared.aside).insert(key, (Instant::now(), so), 1);
        so
    }

    /// Looks at something that the forge may have elsewhere; `None` where it does not show it. Only the same
    /// server is followed: nobody else is given the credentials.
    async fn look_on(&self, url: Url) -> Result<Option<Value>, ForgeError> {
        let look = (Purpose::Look, Size::Object);
        let mut reply = self.send(Method::GET, url.clone(), None, None, look).await?;
        let elsewhere = reply.headers.get(LOCATION).filter(|_| (300..400).contains(&reply.status));
        let elsewhere = elsewhere.and_then(|to| url.join(to.to_str().ok()?).ok());
        if let Some(to) = elsewhere.filter(|to| to.origin() == url.origin()) {
            reply = self.send(Method::GET, to, None, None, look).await?;
        }
        Ok(reply.json.filter(|_| (200..300).contains(&reply.status)))
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
        parse(&answer).and_then(Found::checked).ok_or_else(|| self.unreadable("a change request"))
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
        // No hash of a commit is longer.
        if short.len().max(id.len()) > 64 {
            return;
        }
        let key = format!("{} {} {short}", self.fingerprint, self.repository);
        lock(&self.shared.ids).insert(key, id.into(), 1);
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
        let reply = self.send(Method::GET, url, None, etag, (Purpose::Look, Size::Object)).await?;
        match (reply.status, known) {
            (304, Some((_, found))) => Ok(Some(found)),
            (200..300, _) => {
                let found = reply.json.as_ref().and_then(parse).and_then(Found::checked);
                let mut found = found.ok_or_else(|| self.unreadable("a change request"))?;
                // Only its state is asked for this way; many are remembered.
                found.body = String::new();
                if let Some(etag) = reply.headers.get(ETAG) {
                    let weight = key.len() + etag.len() + found.weight();
                    if weight <= SEEN_ONE {
                        // Headers of one answer share their memory.
                        let etag = HeaderValue::from_bytes(etag.as_bytes()).unwrap_or(etag.clone());
                        lock(&self.shared.seen).insert(key, (etag, found.clone()), weight);
                    }
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
        (purpose, size): (Purpose, Size),
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
        match self.exchange(request, size).await {
            Ok(reply) => {
                self.shared.counters.forge_call(self.kind.name(), label, reply.status);
                self.obey(&reply)?;
                Ok(reply)
            }
            Err(unread) => {
                self.shared.counters.forge_call(self.kind.name(), label, 0);
                Err(self.failure(unread))
            }
        }
    }

    async fn exchange(&self, request: reqwest::RequestBuilder, size: Size) -> Result<Reply, Unread> {
        let response = request.send().await.map_err(Unread::Http)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // Azure DevOps shows its sign-in page in place of refusing a token: with 203, or on the way to it.
        let to = headers.get(LOCATION).and_then(|l| l.to_str().ok()).unwrap_or_default();
        let signs_in = status == 203 || (status == 302 && to.to_ascii_lowercase().contains("signin"));
        if signs_in && self.kind == ForgeKind::AzureDevOps {
            let json = Some(json!({"message": "it shows the sign-in page"}));
            return Ok(Reply { status: 401, json, headers, place: None });
        }
        let Body { bytes, place } = self.shared.large.read(response, &self.owner).await?;
        let json = match bytes.is_empty() {
            true => Some(Value::Null),
            false => match answer::parse(&bytes, self.fields, size) {
                // That it is refused is clear without the words.
                Err(_) if !(200..300).contains(&status) => None,
                parsed => parsed?,
            },
        };
        Ok(Reply { status, json, headers, place })
    }

    /// Takes down what the forge says about its budget, and stops where it says so.
    fn obey(&self, reply: &Reply) -> Result<(), ForgeError> {
        let mut told = headers::budget(&reply.headers, clock::now());
        let words = || self.says(reply).to_ascii_lowercase().contains("rate limit");
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
        let (forge, says) = (self.name.clone(), self.says(reply));
        match self.meant(reply) {
            300..=399 => ForgeError::Redirected { forge, location: self.location(reply) },
            401 => ForgeError::Authentication { forge, says },
            403 => ForgeError::Forbidden { forge, says },
            404 => ForgeError::NoRepository { forge, repository: self.repository.clone() },
            500..=599 => ForgeError::Unreachable { forge, says: format!("status {}: {says}", reply.status) },
            status => ForgeError::Refused { forge, status, says },
        }
    }

    /// The status of a refusal by what it is about, where a forge uses another. Bitbucket Data Center answers with
    /// 401 also whom it knows and who has too few rights ("insufficient permissions":
    /// developer.atlassian.com/server/bitbucket/rest, "Merge pull request"), and Azure DevOps with 403 what a policy
    /// of the branch rejects, for every user.
    fn meant(&self, reply: &Reply) -> u16 {
        let json = reply.json.as_ref().unwrap_or(&Value::Null);
        let errors = || json["errors"].as_array().into_iter().flatten();
        let is_about_rights =
            |error: &Value| error["exceptionName"] == "com.atlassian.bitbucket.AuthorisationException";
        match (self.kind, reply.status) {
            (ForgeKind::BitbucketServer, 401) if errors().any(is_about_rights) => 403,
            (ForgeKind::AzureDevOps, 403)
                if json["typeKey"] == "GitPullRequestUpdateRejectedByPolicyException" =>
            {
                409
            }
            (_, status) => status,
        }
    }

    /// Where an answer sends on to, without what may be secret in it.
    fn location(&self, reply: &Reply) -> String {
        let to = reply.headers.get(LOCATION).and_then(|to| self.base.join(to.to_str().ok()?).ok());
        let shown = to.map(|mut to| {
            to.set_query(None);
            to.set_fragment(None);
            let _ = (to.set_username(""), to.set_password(None));
            words::clean(&self.credentials.redact(to.as_str()), SHOWN)
        });
        shown.unwrap_or_else(|| "another address".into())
    }

    /// The forge's own words, in a line.
    fn says(&self, reply: &Reply) -> String {
        let says = reply.json.as_ref().map(|json| self.message(json)).unwrap_or_default();
        if says.is_empty() { "it gives no reason".into() } else { says }
    }

    /// What the message fields of a part of an answer say, in a line and without secrets; empty if there are none.
    pub(super) fn message(&self, json: &Value) -> String {
        words::message(json, |text| self.credentials.redact(text))
    }

    fn failure(&self, unread: Unread) -> ForgeError {
        let forge = self.name.clone();
        let error = match unread {
            Unread::Http(error) => error,
            Unread::TooLarge(what) => return self.too_large(what),
            Unread::TooSlow(after) => return ForgeError::Timeout { forge, after },
        };
        if error.is_timeout() {
            return ForgeError::Timeout { forge, after: self.shared.deadline };
        }
        // The address may hold nothing secret, but the cause at the end of the chain says it best.
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        let says = words::clean(&self.credentials.redact(&cause.to_string()), SHOWN);
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
    lock(&shared.clients).insert(key, made.clone(), 1);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_takes_too_long_is_told_its_own_deadline() {
        let of =
            |git| Shared::new(Arc::default(), Duration::from_secs(git), AllowedHosts::default()).deadline;
        assert_eq!((of(120), of(5)), (PATIENCE, Duration::from_secs(5)));
    }
}
