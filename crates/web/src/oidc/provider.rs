//! The identity provider: where people sign in, and what it gives for a code or a refresh token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use sluice_core::lock::lock;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::begun_sign_in::BegunSignIn;
use super::discovery_document::Metadata;
use super::error::OidcError;
use super::id_token::Claims;
use super::options::OidcOptions;
use crate::form_text::{escaped, form};
use crate::page_url::PageUrl;
use crate::provider_http::ProviderRequest;
use crate::session::{CLOCK_MARGIN, MAX_TOKEN_BYTES, Session, Tokens, seconds};

/// How long the discovery document counts.
const METADATA_LIFETIME: Duration = Duration::from_secs(3600);
/// The pause after the first failed discovery. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// How many codes and refresh tokens are exchanged at a time.
const CONCURRENT_EXCHANGES: usize = 8;
/// How long an exchange waits for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the tokens for a refresh token are kept for other tabs of the browser: the provider may take each refresh token
/// once only ([RFC 9700](https://www.rfc-editor.org/rfc/rfc9700), section 4.14.2).
const RENEWED_LIFETIME: Duration = Duration::from_secs(30);

/// The identity provider.
pub(crate) struct Provider {
    pub(super) options: OidcOptions,
    /// Where the provider sends people back to.
    pub(super) redirect_uri: String,
    sign_in_url: String,
    discovery: Mutex<Discovery>,
    /// One discovery at a time.
    discovering: tokio::sync::Mutex<()>,
    exchanges: Semaphore,
    /// The tokens for the refresh tokens of the last seconds, by their digests.
    renewed: Mutex<HashMap<[u8; 32], (Instant, Renewed)>>,
}

/// The tokens for a refresh token. Those who wait for them hold the lock.
type Renewed = Arc<tokio::sync::Mutex<Option<Tokens>>>;

/// What is known of the provider.
#[derive(Default)]
struct Discovery {
    found: Option<(Instant, Arc<Metadata>)>,
    /// The last failure since then, and how long the pause after it is.
    failed: Option<(Instant, Duration, OidcError)>,
}

/// The answer of the token endpoint.
#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    id_token: Option<String>,
    #[serde(default)]
    refresh_token: Option<String>,
}

impl Provider {
    /// Returns a provider that sends people back to these pages.
    pub(crate) fn new(options: OidcOptions, page_url: &PageUrl) -> Provider {
        Provider {
            options,
            redirect_uri: page_url.of("/sign-in/callback"),
            sign_in_url: page_url.of("/sign-in"),
            discovery: Mutex::default(),
            discovering: tokio::sync::Mutex::default(),
            exchanges: Semaphore::new(CONCURRENT_EXCHANGES),
            renewed: Mutex::default(),
        }
    }

    /// Returns the issuer.
    pub(crate) fn issuer(&self) -> &str {
        &self.options.issuer
    }

    /// Returns the id of Sluice at the provider.
    pub(crate) fn client_id(&self) -> &str {
        &self.options.client_id
    }

    /// Returns the issuer's host, for people.
    pub(crate) fn name(&self) -> &str {
        let rest = self.options.issuer.trim_start_matches("https://");
        rest.split('/').next().unwrap_or(rest)
    }

    /// Returns why the provider cannot be used now, as far as is known without asking it.
    pub(crate) fn failure(&self) -> Option<OidcError> {
        self.known()?.err()
    }

    /// Returns the address at which people sign out of the provider, if it is known and there is one
    /// ([RP-Initiated Logout](https://openid.net/specs/openid-connect-rpinitiated-1_0.html), section 2). It has no token in
    /// it, so the provider asks the person.
    pub(crate) fn sign_out_url(&self) -> Option<String> {
        let metadata = self.known()?.ok()?;
        let address = metadata.end_session_endpoint.as_deref()?;
        Some(with_query(
            address,
            &[("client_id", &self.options.client_id), ("post_logout_redirect_uri", &self.sign_in_url)],
        ))
    }

    /// Returns what the provider says about itself. It is asked at most once at a time, and with pauses after failures. An
    /// earlier answer counts while it cannot be asked.
    ///
    /// # Errors
    /// When it has never answered.
    pub(crate) async fn metadata(&self) -> Result<Arc<Metadata>, OidcError> {
        if let Some(known) = self.known() {
            return known;
        }
        let _one = self.discovering.lock().await;
        if let Some(known) = self.known() {
            return known;
        }
        let found = self.discover().await;
        let mut discovery = lock(&self.discovery);
        match found {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                *discovery = Discovery { found: Some((Instant::now(), metadata.clone())), failed: None };
                Ok(metadata)
            }
            Err(error) => {
                let earlier = discovery.failed.as_ref().map(|(_, pause, _)| (*pause * 2).min(MAX_PAUSE));
                let pause = earlier.unwrap_or(FIRST_PAUSE);
                tracing::warn!(issuer = self.options.issuer, %error, retry_after_seconds = pause.as_secs(), "cannot discover the identity provider");
                discovery.failed = Some((Instant::now(), pause, error.clone()));
                discovery.found.as_ref().map(|(_, metadata)| metadata.clone()).ok_or(error)
            }
        }
    }

    /// Returns what is known without asking; `None` if it is time to ask.
    fn known(&self) -> Option<Result<Arc<Metadata>, OidcError>> {
        let discovery = lock(&self.discovery);
        let found = discovery.found.as_ref();
        if let Some((at, metadata)) = found
            && at.elapsed() < METADATA_LIFETIME
        {
            return Some(Ok(metadata.clone()));
        }
        let (at, pause, error) = discovery.failed.as_ref()?;
        (at.elapsed() < *pause)
            .then(|| found.map(|(_, metadata)| metadata.clone()).ok_or_else(|| error.clone()))
    }

    async fn discover(&self) -> Result<Metadata, OidcError> {
        let url = Metadata::address(&self.options.issuer);
        let request = ProviderRequest { url, ..ProviderRequest::default() };
        let answer = self.options.http.send(request).await.map_err(OidcError::NoAnswer)?;
        if answer.status != 200 {
            return Err(OidcError::Discovery(format!("the status is {}", answer.status)));
        }
        Metadata::parse(&answer.body, &self.options.issuer)
    }

    /// Returns the tokens for a code. `issuer` is the one that the answer with the code names, if any: it keeps a code of
    /// another provider from being sent to this one ([RFC 9207](https://www.rfc-editor.org/rfc/rfc9207), section 2.4).
    ///
    /// # Errors
    /// When the provider refuses it, or its ID token is not for this sign-in.
    pub(crate) async fn exchange(
        &self,
        flow: &BegunSignIn,
        code: &str,
        issuer: Option<&str>,
        now: SystemTime,
    ) -> Result<Tokens, OidcError> {
        let metadata = self.metadata().await?;
        let is_named = issuer.is_some() || !metadata.authorization_response_iss_parameter_supported;
        if !is_named || issuer.is_some_and(|issuer| issuer != self.options.issuer) {
            return Err(OidcError::IdToken("the answer is of another issuer"));
        }
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect_uri),
            ("code_verifier", &flow.verifier),
        ];
        let answer = self.ask(&metadata, &fields).await?;
        let (tokens, claims) = self.tokens(answer, now)?;
        if claims.nonce.as_deref() != Some(&flow.nonce) {
            return Err(OidcError::IdToken("it is of another sign-in"));
        }
        Ok(tokens)
    }

    /// Returns other tokens for a session whose token has ended
    /// ([OpenID Connect Core](https://openid.net/specs/openid-connect-core-1_0.html#RefreshTokens), section 12). `None` if
    /// the session has no refresh token.
    ///
    /// # Errors
    /// When the provider refuses it, or its ID token is not for the same person.
    pub(crate) async fn renew(
        &self,
        session: &Session,
        now: SystemTime,
    ) -> Result<Option<Tokens>, OidcError> {
        let Some(refresh_token) = &session.refresh_token else { return Ok(None) };
        let metadata = self.metadata().await?;
        // The tabs of a browser wait for each other.
        let renewed = self.renewed(refresh_token);
        let mut renewed = renewed.lock().await;
        if let Some(tokens) = &*renewed {
            return Ok(Some(tokens.clone()));
        }
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        let answer = self.ask(&metadata, &fields).await?;
        let (mut tokens, claims) = self.tokens(answer, now)?;
        let earlier = Claims::read(&session.token)?;
        if claims.sub != earlier.sub || claims.nonce.is_some() && claims.nonce != earlier.nonce {
            return Err(OidcError::IdToken("it is for somebody else"));
        }
        tokens.refresh_token = tokens.refresh_token.or_else(|| session.refresh_token.clone());
        if claims.exp <= seconds(now + CLOCK_MARGIN) {
            // The session would have to be renewed again, without end.
            return Err(OidcError::IdToken("it ends too soon"));
        }
        *renewed = Some(tokens.clone());
        Ok(Some(tokens))
    }

    fn renewed(&self, refresh_token: &str) -> Renewed {
        let mut renewed = lock(&self.renewed);
        renewed.retain(|_, (at, _)| at.elapsed() < RENEWED_LIFETIME);
        let key = Sha256::digest(refresh_token).into();
        renewed.entry(key).or_insert_with(|| (Instant::now(), Renewed::default())).1.clone()
    }

    /// Returns the tokens of an answer, and what the ID token says.
    fn tokens(&self, answer: TokenAnswer, now: SystemTime) -> Result<(Tokens, Claims), OidcError> {
        let token = answer.id_token.ok_or(OidcError::IdToken("there is none in its answer"))?;
        if token.len() > MAX_TOKEN_BYTES {
            return Err(OidcError::TooLong(token.len()));
        }
        let claims = Claims::read(&token)?;
        claims.check(&self.options.issuer, &self.options.client_id, now)?;
        Ok((Tokens { token, ends: Some(claims.exp), refresh_token: answer.refresh_token }, claims))
    }

    /// Asks the token endpoint ([RFC 6749](https://www.rfc-editor.org/rfc/rfc6749), sections 2.3.1, 4.1.3 and 5).
    async fn ask(&self, metadata: &Metadata, fields: &[(&str, &str)]) -> Result<TokenAnswer, OidcError> {
        let turn = timeout(TURN_TIMEOUT, self.exchanges.acquire()).await;
        let _turn = turn.map_err(|_| OidcError::Busy)?.map_err(|_| OidcError::Busy)?;
        let (id, secret) = (self.options.client_id.as_str(), self.options.client_secret.as_deref());
        let mut fields = fields.to_vec();
        let mut authorization = String::new();
        match secret {
            Some(secret) if metadata.takes_basic() => {
                let pair = STANDARD.encode(format!("{}:{}", escaped(id), escaped(secret)));
                authorization = format!("Basic {pair}");
            }
            Some(secret) => fields.extend([("client_id", id), ("client_secret", secret)]),
            None => fields.push(("client_id", id)),
        }
        let url = metadata.token_endpoint.clone();
        let request = ProviderRequest { url, form: Some(form(&fields)), authorization };
        let answer = self.options.http.send(request).await.map_err(OidcError::NoAnswer)?;
        if answer.status != 200 {
            return Err(OidcError::Refused(refusal(answer.status, &answer.body)));
        }
        serde_json::from_slice(&answer.body).map_err(|_| OidcError::IdToken("its answer is no JSON"))
    }
}

/// Returns the code of a refusal (RFC 6749, section 5.2). What else the provider writes may contain what was sent to it.
fn refusal(status: u16, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => error_code(&refusal.error),
        Err(_) => format!("the status is {status}"),
    }
}

/// Returns a text as a code of an error, or that it is none. Codes are words with underscores.
pub(crate) fn error_code(text: &str) -> String {
    let is_code = text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_code && !text.is_empty() { text.into() } else { "for no known reason".into() }
}

/// Adds fields to the query of an address.
pub(super) fn with_query(address: &str, fields: &[(&str, &str)]) -> String {
    let separator = if address.contains('?') { '&' } else { '?' };
    format!("{address}{separator}{}", form(fields))
}
