//! Tokens of a GitHub App. The App's key signs who asks; GitHub lends a token for one repository, good for
//! an hour, which then serves the API and git alike. Kept until shortly before it ends, never written down.
//! docs.github.com, "Generating a JSON Web Token (JWT) for a GitHub App" and "Generating an installation
//! access token for a GitHub App".

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use reqwest::Method;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use super::http::{ForgeHttp, Shared};
use super::scheme::Scheme;
use super::{ForgeError, github, text};
use crate::address::Address;
use crate::clock;
use crate::credentials::{App, Credentials};
use crate::error::DeliveryError;
use crate::lru::Lru;
use crate::order::{ForgeKind, Order};

/// A token is not used any more when it has less than this left: a delivery may take that long.
const MARGIN: Duration = Duration::from_secs(10 * 60);
/// No token lives longer than this (one hour), whatever a clock says.
const LIFETIME: Duration = Duration::from_secs(3600);
/// What a question of ours is good for; GitHub allows ten minutes, and clocks differ.
const QUESTION: (i64, i64) = (-60, 9 * 60);

/// The most tokens that are kept.
const KEPT: usize = 4_096;

/// The most bytes of a token. GitHub's have about 520 (docs.github.com, "Generating an installation access token").
const TOKEN: usize = 4_096;

/// The tokens that are lent, by the App and the repository.
#[derive(Debug)]
pub(crate) struct Lent(Mutex<Lru<Slot>>);

/// One token, or the place for it while it is asked for.
type Slot = Arc<tokio::sync::Mutex<Option<Token>>>;

impl Default for Lent {
    fn default() -> Self {
        Lent(Mutex::new(Lru::new(KEPT)))
    }
}

struct Token {
    text: String,
    installation: String,
    until: Instant,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

/// The credentials with a token of their App in them.
pub(crate) async fn lend(
    app: &App,
    address: &Address,
    order: &Order,
    shared: &Arc<Shared>,
) -> Result<Credentials, DeliveryError> {
    let slot = {
        let mut lent = shared.lent.0.lock().unwrap_or_else(PoisonError::into_inner);
        lent.or_default(format!("{} {}", app.fingerprint(), address.text))
    };
    // Who comes second waits for the token that the first one asks for.
    let mut kept = slot.lock().await;
    let fresh = kept.take().filter(|token| token.until > Instant::now());
    let token = match fresh {
        Some(token) => token,
        None => ask(app, address, order, shared).await?,
    };
    let with = Credentials {
        token: Some(token.text.clone()),
        username: None,
        password: None,
        app: Some(App { installation: Some(token.installation.clone()), ..app.clone() }),
        ..order.credentials.clone()
    };
    *kept = Some(token);
    Ok(with)
}

/// Forgets a token that GitHub does not take any more: an App may be taken out and put back.
pub(crate) fn forget(app: &App, address: &Address, shared: &Shared) {
    let mut lent = shared.lent.0.lock().unwrap_or_else(PoisonError::into_inner);
    lent.remove(&format!("{} {}", app.fingerprint(), address.text));
}

async fn ask(
    app: &App,
    address: &Address,
    order: &Order,
    shared: &Arc<Shared>,
) -> Result<Token, DeliveryError> {
    let (_, owner, name) = address.repository()?;
    let base = match &app.base {
        Some(base) => shared.hosts.api(base)?,
        None => github::api(address),
    };
    let forge = address.host.clone();
    let bad = |says: String| ForgeError::AppKey { forge: forge.clone(), says };
    let question = Credentials {
        token: Some(question(app, clock::now()).map_err(bad)?),
        app: Some(App { installation: None, ..app.clone() }),
        ca_file: order.credentials.ca_file.clone(),
        ..Credentials::default()
    };
    let mut http = ForgeHttp::new(ForgeKind::GitHub, &base, address, Scheme::Bearer, &question, shared)?
        .with_fields(github::FIELDS)
        .with_header("accept", "application/vnd.github+json")
        .with_header("x-github-api-version", "2022-11-28");
    http.owner = order.owner();
    let none =
        || ForgeError::NoApp { forge: forge.clone(), app: app.id.clone(), repository: address.text.clone() };
    let installation = match &app.installation {
        Some(id) => id.clone(),
        None => {
            let url = http.url(&["repos", owner, name, "installation"], &[]);
            let found = http.read(url).await.map_err(|error| about_app(error, app))?;
            found.and_then(|found| found["id"].as_u64()).ok_or_else(none)?.to_string()
        }
    };
    // Lent for this repository alone, whatever else the App may see.
    let body = json!({"repositories": [name]});
    let url = http.url(&["app", "installations", &installation, "access_tokens"], &[]);
    let asked = Instant::now();
    let answer = http.call(Method::POST, url, Some(&body)).await.map_err(|error| match error {
        ForgeError::NoRepository { .. } | ForgeError::Refused { status: 422, .. } => none(),
        error => about_app(error, app),
    })?;
    let token = text(&answer["token"]).filter(|token| (1..=TOKEN).contains(&token.len()));
    let token = token.ok_or_else(|| http.unreadable("a token"))?;
    let ends: Option<Timestamp> = answer["expires_at"].as_str().and_then(|at| at.parse().ok());
    let life = ends.and_then(|ends| Duration::try_from(ends.duration_since(clock::now())).ok());
    let until = asked + life.unwrap_or(LIFETIME).min(LIFETIME).saturating_sub(MARGIN);
    Ok(Token { text: token, installation, until })
}

/// The same error, in words about the App instead of a token: there is no token yet. GitHub answers 401 if id and key do
/// not belong together or the clocks differ, and 403 if the installation is suspended
/// (docs.github.com/apps/maintaining-github-apps/suspending-a-github-app-installation).
fn about_app(error: ForgeError, app: &App) -> ForgeError {
    let app = app.id.clone();
    match error {
        ForgeError::Authentication { forge, says } => ForgeError::AppNotAccepted { forge, app, says },
        ForgeError::Forbidden { forge, says } => ForgeError::AppForbidden { forge, app, says },
        error => error,
    }
}

/// Who asks, signed by the App's key.
fn question(app: &App, now: Timestamp) -> Result<String, String> {
    let key =
        PrivateKeyDer::from_pem_slice(&app.key).map_err(|_| "it is not a private key in PEM".to_string())?;
    let pair = match &key {
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
        _ => return Err("it is not an RSA key".into()),
    };
    let pair = pair.map_err(|e| format!("it is not an RSA key of 2048 bits or more: {e}"))?;
    let (from, to) = (now.as_second() + QUESTION.0, now.as_second() + QUESTION.1);
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
