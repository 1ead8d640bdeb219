//! Calls the API of a forge: with the token in one header, a timeout, a limit on the size of answers, and a rate
//! budget. Counts each call, and caches answers with their ETags.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION};
use reqwest::{Client, Method, Url};
use serde_json::{Value, json};
use sluice_core::lock::lock;

use super::authorization::AuthScheme;
use super::change_request::{ForgeChangeRequest, ForgeCommit};
use super::connection::ForgeConnection;
use super::error::{ForgeError, ForgeResult};
use super::rate_limit::{CallPurpose, CredentialBudget};
use super::rate_limit_headers;
use super::response::{self, ResponseBody, ResponseSize, Unread};
use super::shared::ForgeShared;
use crate::clock;
use crate::credentials::{Credentials, GitHubApp};
use crate::fair_queue::Slot;
use crate::fencing::FencingToken;
use crate::fingerprint::fingerprint;
use crate::foreign_text::{self, ForeignWords};
use crate::forge_kind::ForgeKind;
use crate::http_client::last_cause;

/// How long a new connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a cached answer about conflicts is valid.
const CONFLICT_ANSWER_VALID: Duration = Duration::from_secs(300);
/// The most bytes of a change request that is cached for conditional calls.
const MAX_CACHED_CHANGE_REQUEST: usize = 8 << 10;
/// The most characters that messages show of an address or cause from elsewhere.
const MAX_SHOWN_CHARS: usize = 200;

/// Calls one forge with one credential.
pub(super) struct ForgeHttp {
    pub(super) kind: ForgeKind,
    /// The name of the forge in messages: the host of the repository, or of an API elsewhere.
    pub(super) name: String,
    repository: String,
    base: Url,
    client: Client,
    headers: HeaderMap,
    /// The fields of answers that the adapter reads.
    fields: &'static str,
    credentials: Credentials,
    /// The rate budget of the credential.
    budget: Arc<CredentialBudget>,
    /// The fingerprint of the credential: cached answers are valid for this credential only.
    fingerprint: String,
    /// Every call that changes something checks this token.
    fencing_token: FencingToken,
    pipeline: String,
    /// No call is more urgent.
    urgency: CallPurpose,
    shared: Arc<ForgeShared>,
}

/// A call to the API of a forge.
pub(super) struct ApiCall<'a> {
    method: Method,
    url: Url,
    body: Option<&'a Value>,
    header: Option<(HeaderName, HeaderValue)>,
    purpose: CallPurpose,
    size: ResponseSize,
}

impl<'a> ApiCall<'a> {
    /// Returns a call that a delivery needs now.
    pub(super) fn new(method: Method, url: Url) -> Self {
        let (body, header, purpose, size) = (None, None, CallPurpose::Step, ResponseSize::Object);
        ApiCall { method, url, body, header, purpose, size }
    }

    /// Returns a read that can also be made later.
    fn look(url: Url) -> Self {
        ApiCall { purpose: CallPurpose::Look, ..ApiCall::new(Method::GET, url) }
    }

    pub(super) fn with_body(self, body: &'a Value) -> Self {
        ApiCall { body: Some(body), ..self }
    }

    pub(super) fn with_header(self, name: HeaderName, value: HeaderValue) -> Self {
        ApiCall { header: Some((name, value)), ..self }
    }
}

/// An answer.
pub(super) struct ApiReply {
    pub(super) status: u16,
    /// The content; `None` if it is not JSON.
    json: Option<Value>,
    pub(super) headers: HeaderMap,
    /// The slot of a large answer, which is held until the needed parts are taken from the answer.
    slot: Option<Slot>,
}

impl ForgeHttp {
    /// Returns a client of one forge. The API is at `base`, unless the address of the repository names another API.
    pub(super) fn new(
        kind: ForgeKind,
        base: &str,
        scheme: AuthScheme,
        connection: &ForgeConnection<'_>,
    ) -> ForgeResult<Self> {
        let ForgeConnection { address, credentials, token, pipeline, urgency, shared } = connection;
        let host = &address.host;
        let bad = |e: url::ParseError| ForgeError::BadAnswer { forge: host.clone(), says: e.to_string() };
        let usual = Url::parse(base).map_err(bad)?;
        let base = address.api.as_deref().map_or(Ok(usual.clone()), Url::parse).map_err(bad)?;
        let is_usual = base.authority() == usual.authority();
        let name = if is_usual { host } else { base.authority() }.to_string();
        let none = || ForgeError::NoToken { forge: name.clone() };
        let authorization = scheme.authorization(credentials).ok_or_else(none)?;
        let mut value = HeaderValue::from_str(&authorization).map_err(|_| none())?;
        value.set_sensitive(true);
        let credential_id = credentials.app.as_ref().map_or(authorization, GitHubApp::fingerprint);
        let fingerprint = fingerprint([credential_id.as_bytes()]);
        // Another API than the usual one has its own budget. Otherwise its answers could pause a token that other pipelines
        // use at the usual API.
        let budget = shared.budgets.of(&name, &fingerprint);
        // A delivery does not begin if its first call would have to wait long.
        let limited = |until| ForgeError::RateLimited { forge: name.clone(), until };
        budget.check(CallPurpose::Step).map_err(limited)?;
        let connect_timeout = shared.timeout.min(CONNECT_TIMEOUT);
        let (ca_file, protocols) = (credentials.ca_file.as_deref(), ["h2", "http/1.1"]);
        let client = shared.clients.get(ca_file, "", &protocols, shared.timeout, |builder| {
            builder.connect_timeout(connect_timeout).pool_idle_timeout(POOL_IDLE_TIMEOUT)
        });
        let client = client.map_err(|says| ForgeError::BadCaFile { forge: name.clone(), says })?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        let (credentials, repository) = ((*credentials).clone(), address.text.clone());
        Ok(ForgeHttp {
            kind,
            name,
            repository,
            base,
            client,
            headers,
            fields: "",
            credentials,
            budget,
            fingerprint,
            fencing_token: token.clone(),
            pipeline: pipeline.clone(),
            urgency: *urgency,
            shared: Arc::clone(shared),
        })
    }

    /// Sets the fields of answers to keep, separated by spaces. All other fields are skipped.
    pub(super) fn with_fields(mut self, fields: &'static str) -> Self {
        self.fields = fields;
        self
    }

    /// Adds a header to every call.
    pub(super) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// Returns the address of a call. Each part of the path is escaped.
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

    /// Returns an address outside of the API: the address of the API without its last `up` parts, and then `path`.
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

    /// Returns the entries of a page, which Bitbucket Cloud and Bitbucket Data Center return as `values`.
    pub(super) fn values(&self, page: &mut Value) -> ForgeResult<Vec<Value>> {
        match page.get_mut("values").map(Value::take) {
            Some(Value::Array(values)) => Ok(values),
            _ => Err(self.unreadable("a list")),
        }
    }

    /// Sends a GET, and returns the content of a successful answer.
    pub(super) async fn get(&self, url: Url) -> ForgeResult<Value> {
        self.success(self.send(ApiCall::new(Method::GET, url)).await?)
    }

    /// Sends a body, and returns the content of a successful answer.
    pub(super) async fn post(&self, url: Url, body: &Value) -> ForgeResult<Value> {
        self.call(ApiCall::new(Method::POST, url).with_body(body)).await
    }

    /// Sends a body, and returns the content of a successful answer.
    pub(super) async fn put(&self, url: Url, body: &Value) -> ForgeResult<Value> {
        self.call(ApiCall::new(Method::PUT, url).with_body(body)).await
    }

    /// Sends a body, and returns the content of a successful answer.
    pub(super) async fn patch(&self, url: Url, body: &Value) -> ForgeResult<Value> {
        self.call(ApiCall::new(Method::PATCH, url).with_body(body)).await
    }

    /// Makes a call, and returns the content of a successful answer.
    pub(super) async fn call(&self, call: ApiCall<'_>) -> ForgeResult<Value> {
        self.success(self.send(call).await?)
    }

    /// Returns the content of a successful answer.
    pub(super) fn success(&self, reply: ApiReply) -> ForgeResult<Value> {
        match (reply.status, reply.json) {
            // This is half of an answer, or a page of another server, so a missing entry in it proves nothing.
            (200..300, None | Some(Value::String(_))) => Err(self.unreadable("JSON")),
            (200..300, Some(json)) => Ok(json),
            (_, json) => Err(self.refusal(&ApiReply { json, ..reply })),
        }
    }

    /// Reads a page of change requests, and takes the needed parts from it before the next call.
    pub(super) async fn page<T>(&self, url: Url, reduce: impl FnOnce(Value) -> Option<T>) -> ForgeResult<T> {
        let mut reply =
            self.send(ApiCall { size: ResponseSize::Page, ..ApiCall::new(Method::GET, url) }).await?;
        let _slot = reply.slot.take();
        let json = self.success(reply)?;
        reduce(json).ok_or_else(|| self.unreadable("a list"))
    }

    /// Looks for something in the first page of a list. Returns `None` also if there is no list, or if it is too large:
    /// anybody may write comments and pull requests.
    pub(super) async fn find<T>(
        &self,
        url: Url,
        find: impl FnOnce(&[Value]) -> Option<T>,
    ) -> ForgeResult<Option<T>> {
        let call = ApiCall { size: ResponseSize::Page, ..ApiCall::new(Method::GET, url) };
        let mut reply = match self.send(call).await {
            Err(ForgeError::TooLarge { .. }) => return Ok(None),
            reply => reply?,
        };
        let _slot = reply.slot.take();
        if matches!(reply.status, 404 | 410 | 422) {
            return Ok(None);
        }
        Ok(self.success(reply)?.as_array().and_then(|list| find(list)))
    }

    /// Returns the error for an answer that is larger than Sluice reads.
    pub(super) fn too_large(&self, what: impl Into<String>) -> ForgeError {
        ForgeError::TooLarge { forge: self.name.clone(), what: what.into() }
    }

    /// Checks by the id in an answer that the answer is about the requested commit. Forges also accept the names of
    /// branches and tags, and some prefer these to ids. So anybody who may push could name a tag like a commit.
    pub(super) fn check_commit(&self, asked: &str, answered: &Value) -> ForgeResult<()> {
        let answered = answered.as_str().unwrap_or_default();
        // The requested id is short if the forge shortens ids.
        if !asked.is_empty() && answered.starts_with(asked) {
            return Ok(());
        }
        let (forge, asked) = (self.name.clone(), asked.to_string());
        let answered = foreign_text::clean(answered, MAX_SHOWN_CHARS);
        Err(ForgeError::OtherCommit { forge, asked, answered })
    }

    /// How long all pages of a list may take together.
    pub(super) fn list_timeout(&self) -> Duration {
        self.shared.timeout * 2
    }

    /// Reads one object; `None` if it does not exist.
    pub(super) async fn read(&self, url: Url) -> ForgeResult<Option<Value>> {
        let reply = self.send(ApiCall::new(Method::GET, url)).await?;
        match reply.status {
            404 | 410 | 422 => Ok(None),
            _ => self.success(reply).map(Some),
        }
    }

    /// Reads a commit. Returns `None` if the commit does not exist, or if the id is empty. `id_key` is the key of ids
    /// in the answer, for the commit and for its parents. `parts` returns the message and the list of parents.
    pub(super) async fn read_commit(
        &self,
        id: &str,
        url: Url,
        id_key: &str,
        parts: impl Fn(&Value) -> (&Value, &Value),
    ) -> ForgeResult<Option<ForgeCommit>> {
        let found = if id.is_empty() { None } else { self.read(url).await? };
        let Some(commit) = found else { return Ok(None) };
        self.check_commit(id, &commit[id_key])?;
        let (message, parents) = parts(&commit);
        Ok(Some(ForgeCommit::parse(message, parents, id_key)))
    }

    /// Returns whether `is` holds for the answer to a call. The result is cached for [`CONFLICT_ANSWER_VALID`], by the
    /// address and `state`. Without an answer the result is false, because a check that is not essential must not fail
    /// the delivery.
    pub(super) async fn cached_answer(&self, url: Url, state: &str, is: impl Fn(&Value) -> bool) -> bool {
        let key = format!("{} {url} {state}", self.fingerprint);
        let known = lock(&self.shared.conflicts).get(&key).copied();
        if let Some((_, holds)) = known.filter(|(asked, _)| asked.elapsed() < CONFLICT_ANSWER_VALID) {
            return holds;
        }
        let holds =
            self.read_elsewhere(url).await.is_ok_and(|answer| answer.is_some_and(|answer| is(&answer)));
        lock(&self.shared.conflicts).insert(key, (Instant::now(), holds), 1);
        holds
    }

    /// Reads an object that may be at another address; `None` if the forge does not return it. Redirects are followed only
    /// to the same server, because the call has the credentials.
    async fn read_elsewhere(&self, url: Url) -> ForgeResult<Option<Value>> {
        let mut reply = self.send(ApiCall::look(url.clone())).await?;
        let elsewhere = reply.headers.get(LOCATION).filter(|_| (300..400).contains(&reply.status));
        let elsewhere = elsewhere.and_then(|to| url.join(to.to_str().ok()?).ok());
        if let Some(to) = elsewhere.filter(|to| to.origin() == url.origin()) {
            reply = self.send(ApiCall::look(to)).await?;
        }
        Ok(reply.json.filter(|_| (200..300).contains(&reply.status)))
    }

    /// Changes a change request, and reads the answer.
    pub(super) async fn change(
        &self,
        method: Method,
        url: Url,
        body: &Value,
        parse: impl Fn(&Value) -> Option<ForgeChangeRequest>,
    ) -> ForgeResult<ForgeChangeRequest> {
        let answer = self.call(ApiCall::new(method, url).with_body(body)).await?;
        self.checked(parse(&answer))
    }

    /// Returns the change request of an answer, or an error if it could not be parsed or cannot be used.
    pub(super) fn checked(&self, parsed: Option<ForgeChangeRequest>) -> ForgeResult<ForgeChangeRequest> {
        parsed.and_then(ForgeChangeRequest::checked).ok_or_else(|| self.unreadable("a change request"))
    }

    /// Reads one change request. Returns `None` only if the repository exists and the change request does not.
    pub(super) async fn request(
        &self,
        url: Url,
        repository: Url,
        parse: impl Fn(&Value) -> Option<ForgeChangeRequest>,
    ) -> ForgeResult<Option<ForgeChangeRequest>> {
        let found = self.read_changed(url, parse).await?;
        if found.is_none() {
            self.get(repository).await?;
        }
        Ok(found)
    }

    /// Returns the whole id for a shortened id of a commit, or the id for another key, if it was read before.
    pub(super) fn known_id(&self, short: &str) -> Option<String> {
        lock(&self.shared.commit_ids)
            .get(&format!("{} {} {short}", self.fingerprint, self.repository))
            .cloned()
    }

    /// Caches a whole id.
    pub(super) fn learn_id(&self, short: &str, id: &str) {
        // No id of a commit is longer than 64 characters.
        if short.len().max(id.len()) > 64 {
            return;
        }
        let key = format!("{} {} {short}", self.fingerprint, self.repository);
        lock(&self.shared.commit_ids).insert(key, id.into(), 1);
    }

    /// Reads one change request by a conditional call.
    async fn read_changed(
        &self,
        url: Url,
        parse: impl Fn(&Value) -> Option<ForgeChangeRequest>,
    ) -> ForgeResult<Option<ForgeChangeRequest>> {
        let key = format!("{} {url}", self.fingerprint);
        let known = lock(&self.shared.change_requests).get(&key).cloned();
        let header = known.as_ref().map(|(etag, _)| (IF_NONE_MATCH, etag.clone()));
        let reply = self.send(ApiCall { header, ..ApiCall::look(url) }).await?;
        match (reply.status, known) {
            (304, Some((_, found))) => Ok(Some(found)),
            (200..300, _) => {
                let mut found = self.checked(reply.json.as_ref().and_then(parse))?;
                // The text is dropped, because only the state is needed, and many change requests are cached.
                found.body = String::new();
                if let Some(etag) = reply.headers.get(ETAG) {
                    let weight = key.len() + etag.len() + found.weight();
                    if weight <= MAX_CACHED_CHANGE_REQUEST {
                        // The cache gets a copy, because the original would keep the memory of all headers of the
                        // answer.
                        let etag = HeaderValue::from_bytes(etag.as_bytes()).unwrap_or(etag.clone());
                        lock(&self.shared.change_requests).insert(key, (etag, found.clone()), weight);
                    }
                }
                Ok(Some(found))
            }
            (404 | 410, _) => Ok(None),
            _ => Err(self.refusal(&reply)),
        }
    }

    /// Returns the error for a feature that this forge does not have. The validation of the pipeline rejects such a
    /// feature, too.
    pub(super) fn lacks(&self, what: &str) -> ForgeError {
        let says = format!("{} has no {what}", self.kind.name());
        ForgeError::Refused { forge: self.name.clone(), status: 400, says: says.into() }
    }

    /// Returns the error for an answer without the expected content.
    pub(super) fn unreadable(&self, what: &str) -> ForgeError {
        ForgeError::BadAnswer { forge: self.name.clone(), says: format!("{what} was expected") }
    }

    /// Makes a call, and returns the answer, whatever its status.
    pub(super) async fn send(&self, call: ApiCall<'_>) -> ForgeResult<ApiReply> {
        let ApiCall { method, url, body, header, purpose, size } = call;
        let limited = |until| ForgeError::RateLimited { forge: self.name.clone(), until };
        let _slot = self.budget.reserve(purpose.min(self.urgency), &self.pipeline).await.map_err(limited)?;
        if !method.is_safe() && self.fencing_token.check().is_err() {
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
                self.record_rate_limit(&reply)?;
                Ok(reply)
            }
            Err(unread) => {
                self.shared.counters.forge_call(self.kind.name(), label, 0);
                Err(self.failure(unread))
            }
        }
    }

    async fn exchange(
        &self,
        request: reqwest::RequestBuilder,
        size: ResponseSize,
    ) -> Result<ApiReply, Unread> {
        let response = request.send().await.map_err(Unread::Http)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // Azure DevOps returns its sign-in page instead of rejecting a token: with 203, or by a redirect.
        let to = headers.get(LOCATION).and_then(|l| l.to_str().ok()).unwrap_or_default();
        let signs_in = status == 203 || (status == 302 && to.to_ascii_lowercase().contains("signin"));
        if signs_in && self.kind == ForgeKind::AzureDevOps {
            let json = Some(json!({"message": "the answer is its sign-in page"}));
            return Ok(ApiReply { status: 401, json, headers, slot: None });
        }
        let ResponseBody { bytes, slot } = self.shared.large.read(response, &self.pipeline).await?;
        let json = match bytes.is_empty() {
            true => Some(Value::Null),
            false => match response::parse(&bytes, self.fields, size) {
                // For an error the status is enough, so a message that cannot be parsed is left out.
                Err(_) if !(200..300).contains(&status) => None,
                parsed => parsed?,
            },
        };
        Ok(ApiReply { status, json, headers, slot })
    }

    /// Records the rate limit that an answer reports. Fails if the call was rejected because of the limit.
    fn record_rate_limit(&self, reply: &ApiReply) -> ForgeResult<()> {
        let names_rate_limit = || self.says(reply).has("rate limit");
        let report = rate_limit_headers::report(reply.status, &reply.headers, names_rate_limit, clock::now());
        match self.budget.record(report) {
            Some(until) => Err(ForgeError::RateLimited { forge: self.name.clone(), until }),
            None => Ok(()),
        }
    }

    /// Returns the error for an answer with an error status.
    pub(super) fn refusal(&self, reply: &ApiReply) -> ForgeError {
        let (forge, words) = (self.name.clone(), self.says(reply));
        let says = words.to_string();
        match self.meaning(reply) {
            300..=399 => ForgeError::Redirected { forge },
            401 => ForgeError::Authentication { forge, says },
            403 => ForgeError::Forbidden { forge, says },
            404 => ForgeError::NoRepository { forge, repository: self.repository.clone() },
            500..=599 => ForgeError::Unreachable { forge, says: format!("status {}: {says}", reply.status) },
            status => ForgeError::Refused { forge, status, says: words },
        }
    }

    /// Returns the status of a rejection, corrected for forges that use another one. Bitbucket Data Center also answers
    /// 401 to a known user with too few permissions ("insufficient permissions":
    /// developer.atlassian.com/server/bitbucket/rest, "Merge pull request"). Azure DevOps answers 403 to every user if
    /// a policy of the branch rejects a call.
    fn meaning(&self, reply: &ApiReply) -> u16 {
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

    /// Returns the message of an answer, in one line.
    fn says(&self, reply: &ApiReply) -> ForeignWords {
        let says = reply.json.as_ref().map(|json| self.words(json)).filter(|says| !says.shown.is_empty());
        says.unwrap_or_else(|| "no reason given".to_string().into())
    }

    /// Returns the message fields of a part of an answer, in one line. They are empty if there are none.
    pub(super) fn words(&self, json: &Value) -> ForeignWords {
        let shown = foreign_text::message(json, |text| self.credentials.redact(text));
        ForeignWords::new(foreign_text::message(json, str::to_string), shown)
    }

    fn failure(&self, unread: Unread) -> ForgeError {
        let forge = self.name.clone();
        let error = match unread {
            Unread::Http(error) => error,
            Unread::TooLarge(what) => return self.too_large(what),
            Unread::TooSlow(after) => return ForgeError::Timeout { forge, after },
        };
        if error.is_timeout() {
            return ForgeError::Timeout { forge, after: self.shared.timeout };
        }
        let cause = last_cause(error);
        let says = foreign_text::clean(&self.credentials.redact(&cause), MAX_SHOWN_CHARS);
        if cause.contains("certificate") {
            return ForgeError::Certificate { forge, says };
        }
        ForgeError::Unreachable { forge, says }
    }
}

/// Returns the name of a method in metrics.
fn label(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PATCH", "PUT"];
    known.into_iter().find(|known| *method == **known).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::super::shared::MAX_COMMIT_IDS;
    use super::*;
    use crate::address::{AllowedHosts, RepositoryAddress};

    /// A client of a repository, whose API may be elsewhere.
    fn client(api: Option<&str>) -> ForgeHttp {
        let shared = &Arc::new(ForgeShared::new(Arc::default(), CONNECT_TIMEOUT, AllowedHosts::default()));
        let credentials = &Credentials { token: Some("t".into()), ..Credentials::default() };
        let mut address = RepositoryAddress::parse("https://git.example.com/acme/fleet", false).unwrap();
        address.api = api.map(String::from);
        let (token, pipeline, urgency) = (FencingToken::default(), "apps/podinfo".into(), CallPurpose::Step);
        let connection = ForgeConnection { address, credentials, token, pipeline, urgency, shared };
        ForgeHttp::new(ForgeKind::Gitea, "https://h", AuthScheme::Bearer, &connection).unwrap()
    }

    #[test]
    fn messages_name_the_host_that_answers() {
        assert_eq!(client(None).name, "git.example.com");
        assert_eq!(client(Some("https://api.example.com:8443/v1")).name, "api.example.com:8443");
    }

    #[test]
    fn the_id_of_a_commit_that_was_used_longest_ago_is_forgotten() {
        let http = client(None);
        (0..MAX_COMMIT_IDS + 10).for_each(|n| http.learn_id(&n.to_string(), "id"));
        assert_eq!(lock(&http.shared.commit_ids).iter().count(), MAX_COMMIT_IDS);
        let is_known = [0, 9, 10, MAX_COMMIT_IDS + 9].map(|n| http.known_id(&n.to_string()).is_some());
        assert_eq!(is_known, [false, false, true, true]);
    }
}
