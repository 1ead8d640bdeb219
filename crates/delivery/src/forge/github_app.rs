//! Tokens of GitHub Apps. The key of an App signs a request, and GitHub returns a token for one repository that is valid
//! for an hour, for the API and for git. Tokens are kept in memory until shortly before their end.
//! docs.github.com, "Generating a JSON Web Token (JWT) for a GitHub App" and "Generating an installation
//! access token for a GitHub App".

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use sluice_core::lock::lock;

use super::connection::ForgeConnection;
use super::error::{ForgeError, ForgeResult};
use super::github;
use super::json::text;
use super::rate_limit::CallPurpose;
use super::shared::ForgeShared;
use crate::address::RepositoryAddress;
use crate::clock;
use crate::credentials::{Credentials, GitHubApp};
use crate::fencing::FencingToken;
use crate::lru::Lru;
use crate::order::Order;

/// A token is used only if it is valid for at least this long: a delivery may take that time.
const MIN_REMAINING: Duration = Duration::from_secs(10 * 60);
/// The longest validity of a token (one hour), whatever a clock shows.
const MAX_LIFETIME: Duration = Duration::from_secs(3600);
/// The validity of a signed request, in seconds from now. GitHub allows ten minutes, and clocks differ.
const JWT_VALID: (i64, i64) = (-60, 9 * 60);

/// The most tokens that are kept.
const MAX_TOKENS: usize = 4_096;

/// The most bytes of a token. GitHub's have about 520 (docs.github.com, "Generating an installation access token").
const MAX_TOKEN_BYTES: usize = 4_096;

/// The tokens of GitHub Apps, by App and repository.
#[derive(Debug, Default)]
pub(crate) struct AppTokens(Mutex<Lru<TokenCell, MAX_TOKENS>>);

/// One token, or the lock of the delivery that requests it.
type TokenCell = Arc<tokio::sync::Mutex<Option<AppToken>>>;

struct AppToken {
    text: String,
    installation: String,
    until: Instant,
}

impl std::fmt::Debug for AppToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

impl AppTokens {
    /// The credentials of an order with a token of its App.
    pub(crate) async fn get(
        &self,
        app: &GitHubApp,
        order: &Order,
        address: &RepositoryAddress,
        shared: &Arc<ForgeShared>,
    ) -> ForgeResult<Credentials> {
        let cell = self.tokens().or_default(key(app, address));
        // A second delivery waits for the token that the first one requests.
        let mut kept = cell.lock().await;
        let fresh = kept.take().filter(|token| token.until > Instant::now());
        let token = match fresh {
            Some(token) => token,
            None => request_token(app, order, address, shared).await?,
        };
        let credentials = Credentials {
            token: Some(token.text.clone()),
            username: None,
            password: None,
            app: Some(GitHubApp { installation: Some(token.installation.clone()), ..app.clone() }),
            ..order.credentials.clone()
        };
        *kept = Some(token);
        Ok(credentials)
    }

    /// Forgets a token that GitHub rejected: an App may be removed and installed again.
    pub(crate) fn forget(&self, app: &GitHubApp, address: &RepositoryAddress) {
        self.tokens().remove(&key(app, address));
    }

    fn tokens(&self) -> MutexGuard<'_, Lru<TokenCell, MAX_TOKENS>> {
        lock(&self.0)
    }
}

fn key(app: &GitHubApp, address: &RepositoryAddress) -> String {
    format!("{} {}", app.fingerprint(), address.text)
}

async fn request_token(
    app: &GitHubApp,
    order: &Order,
    address: &RepositoryAddress,
    shared: &Arc<ForgeShared>,
) -> ForgeResult<AppToken> {
    let (_, owner, name) = address.repository()?;
    let mut own_address = address.clone();
    own_address.api = app.base.as_deref().map(|base| shared.hosts.api(base)).transpose()?;
    let forge = address.host.clone();
    let bad = |says: String| ForgeError::AppKey { forge: forge.clone(), says };
    let credentials = Credentials {
        token: Some(signed_jwt(app, clock::now()).map_err(bad)?),
        app: Some(GitHubApp { installation: None, ..app.clone() }),
        ca_file: order.credentials.ca_file.clone(),
        ..Credentials::default()
    };
    let connection = ForgeConnection {
        address: own_address,
        credentials: &credentials,
        // A request for a token changes nothing that others can see.
        token: FencingToken::default(),
        pipeline: order.owner(),
        urgency: CallPurpose::Step,
        shared,
    };
    let http = github::http(&github::api(address), &connection)?;
    let none = || ForgeError::NoApp {
        forge: http.name.clone(),
        app: app.id.clone(),
        repository: address.text.clone(),
    };
    let installation = match &app.installation {
        Some(id) => id.clone(),
        None => {
            let url = http.url(&["repos", owner, name, "installation"], &[]);
            let found = http.read(url).await.map_err(|error| about_app(error, app))?;
            found.and_then(|found| found["id"].as_u64()).ok_or_else(none)?.to_string()
        }
    };
    // A token for this repository alone, whatever else the App may see.
    let body = json!({"repositories": [name]});
    let url = http.url(&["app", "installations", &installation, "access_tokens"], &[]);
    let asked = Instant::now();
    let answer = http.post(url, &body).await.map_err(|error| match error {
        ForgeError::NoRepository { .. } | ForgeError::Refused { status: 422, .. } => none(),
        error => about_app(error, app),
    })?;
    let token = text(&answer["token"]).filter(|token| (1..=MAX_TOKEN_BYTES).contains(&token.len()));
    let token = token.ok_or_else(|| http.unreadable("a token"))?;
    let ends: Option<Timestamp> = answer["expires_at"].as_str().and_then(|at| at.parse().ok());
    let life = ends.and_then(|ends| Duration::try_from(ends.duration_since(clock::now())).ok());
    let until = asked + life.unwrap_or(MAX_LIFETIME).min(MAX_LIFETIME).saturating_sub(MIN_REMAINING);
    Ok(AppToken { text: token, installation, until })
}

/// The same error, about the App instead of a token: there is no token yet. GitHub answers 401 if id and key do
/// not belong together or the clocks differ, and 403 if the installation is suspended
/// (docs.github.com/apps/maintaining-github-apps/suspending-a-github-app-installation).
fn about_app(error: ForgeError, app: &GitHubApp) -> ForgeError {
    let app = app.id.clone();
    match error {
        ForgeError::Authentication { forge, says } => ForgeError::AppNotAccepted { forge, app, says },
        ForgeError::Forbidden { forge, says } => ForgeError::AppForbidden { forge, app, says },
        error => error,
    }
}

/// A JSON Web Token that identifies the App, signed by its key.
fn signed_jwt(app: &GitHubApp, now: Timestamp) -> Result<String, String> {
    let key =
        PrivateKeyDer::from_pem_slice(&app.key).map_err(|_| "it is not a private key in PEM".to_string())?;
    let pair = match &key {
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
        _ => return Err("it is not an RSA key".into()),
    };
    let pair = pair.map_err(|e| format!("it is not an RSA key of 2048 bits or more: {e}"))?;
    let (from, to) = (now.as_second() + JWT_VALID.0, now.as_second() + JWT_VALID.1);
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!(
        "{}.{}",
        part(json!({"alg": "RS256", "typ": "JWT"})),
        part(json!({"iat": from, "exp": to, "iss": app.id}))
    );
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
        .map_err(|_| "it cannot sign".to_string())?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_that_was_used_longest_ago_is_dropped() {
        let app = GitHubApp { id: "1".into(), installation: None, key: b"key".to_vec(), base: None };
        let (tokens, mut last) = (AppTokens::default(), None);
        let address = |n: usize| {
            RepositoryAddress::parse(&format!("https://github.com/acme/fleet-{n}"), false).unwrap()
        };
        for n in 0..MAX_TOKENS + 10 {
            last = Some(tokens.tokens().or_default(key(&app, &address(n))));
        }
        assert_eq!(tokens.tokens().iter().count(), MAX_TOKENS);
        assert!(tokens.tokens().get(&key(&app, &address(9))).is_none());
        let kept = tokens.tokens().or_default(key(&app, &address(MAX_TOKENS + 9)));
        assert!(last.is_some_and(|last| Arc::ptr_eq(&last, &kept)));
    }
}
