//! A GitHub App instead of a token: requests are signed, its token is used for the API and for git, and it is requested
//! again in time.

use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use sluice_delivery::{Credentials, Delivered, DeliveryStrategy, Order};
use sluice_testkit::api_description::{self, CallChecker};

use crate::any_forge::ForgeFixture;
use crate::change_request::proposed;
use crate::fixture::{again, bench};
use crate::standin::{CallKind, ForgeFault, TOKEN};

/// The server that issues tokens. It has the public key of the App.
#[derive(Clone)]
struct Desk {
    url: String,
    key: Vec<u8>,
    book: Arc<Mutex<ForgeState>>,
    checker: Arc<CallChecker>,
}

struct ForgeState {
    installed: bool,
    suspended: bool,
    lends: &'static str,
    life: SignedDuration,
    calls: Vec<String>,
}

impl Desk {
    async fn open() -> Desk {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f"])
            .arg(&path)
            .status();
        assert!(made.unwrap().success());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let life = SignedDuration::from_hours(1);
        let book = ForgeState { installed: true, suspended: false, lends: TOKEN, life, calls: Vec::new() };
        let desk = Desk {
            url: format!("http://{}", listener.local_addr().unwrap()),
            key: std::fs::read(path).unwrap(),
            book: Arc::new(Mutex::new(book)),
            checker: CallChecker::new(api_description::GITHUB, &[]).unwrap(),
        };
        let router = desk.checker.in_front_of(Router::new().fallback(serve).with_state(desk.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        desk
    }

    fn order(&self, fixture: &ForgeFixture, version: &str, more: &[(&str, &str)]) -> Order {
        let mut data = std::collections::BTreeMap::from([
            ("githubAppID".to_string(), b"12345\n".to_vec()),
            ("githubAppPrivateKey".to_string(), self.key.clone()),
            ("githubAppBaseURL".to_string(), self.url.clone().into_bytes()),
        ]);
        data.extend(more.iter().map(|(k, v)| (k.to_string(), v.as_bytes().to_vec())));
        Order { credentials: Credentials::from_secret(&data).unwrap(), ..fixture.order(version) }
    }

    fn book<T>(&self, look: impl FnOnce(&mut ForgeState) -> T) -> T {
        look(&mut self.book.lock().unwrap())
    }

    /// Returns the calls since the last time. None may differ from the published description.
    fn calls(&self) -> Vec<String> {
        assert_eq!(self.checker.differences(), Vec::<String>::new());
        self.book(|book| std::mem::take(&mut book.calls))
    }

    /// Whether the one who asks is the App.
    fn is_signed(&self, headers: &HeaderMap) -> Option<()> {
        let PrivateKeyDer::Pkcs1(der) = PrivateKeyDer::from_pem_slice(&self.key).ok()? else { return None };
        let pair = RsaKeyPair::from_der(der.secret_pkcs1_der()).ok()?;
        let shown = headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")?;
        let (text, signature) = shown.rsplit_once('.')?;
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref());
        public.verify(text.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
        let part = |n: usize| -> Option<Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text.split('.').nth(n)?).ok()?).ok()
        };
        assert_eq!(part(0)?["alg"], "RS256");
        let (claims, now) = (part(1)?, Timestamp::now().as_second());
        let (from, to) = (claims["iat"].as_i64()?, claims["exp"].as_i64()?);
        assert!(from <= now && now < to && to - now <= 600, "{claims}");
        (claims["iss"] == "12345").then_some(())
    }
}

async fn serve(
    State(desk): State<Desk>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    if desk.is_signed(&headers).is_none() {
        return (
            StatusCode::UNAUTHORIZED,
            json!({"message": "A JSON web token could not be decoded"}).to_string(),
        );
    }
    let mut book = desk.book.lock().unwrap();
    book.calls.push(uri.path().to_string());
    match uri.path() {
        "/repos/acme/fleet/installation" if book.installed => (StatusCode::OK, json!({"id": 77}).to_string()),
        "/app/installations/77/access_tokens" if book.suspended => {
            (StatusCode::FORBIDDEN, json!({"message": "This installation has been suspended"}).to_string())
        }
        "/app/installations/77/access_tokens" if book.installed && method == Method::POST => {
            let asked: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(asked, json!({"repositories": ["fleet"]}));
            let ends = Timestamp::now() + book.life;
            (StatusCode::CREATED, json!({"token": book.lends, "expires_at": ends.to_string()}).to_string())
        }
        _ => (StatusCode::NOT_FOUND, json!({"message": "Not Found"}).to_string()),
    }
}

#[tokio::test]
async fn an_app_token_is_requested_once_and_reused() {
    let (desk, fixture, bench) = (Desk::open().await, ForgeFixture::github().await, bench());
    let order = desk.order(&fixture, "6.1.8", &[]);
    let request = proposed(&bench.delivery, &order).await;
    bench.delivery.follow(&order, &request).await.unwrap();
    proposed(&bench.delivery, &desk.order(&fixture, "6.1.9", &[])).await;
    assert_eq!(desk.calls(), ["/repos/acme/fleet/installation", "/app/installations/77/access_tokens"]);
    // One that says where it is installed need not ask for that.
    let order = desk.order(&fixture, "6.2.0", &[("githubAppInstallationID", "77")]);
    proposed(&bench.delivery, &order).await;
    assert_eq!(desk.calls(), ["/app/installations/77/access_tokens"]);
    // The installation has one budget, whichever its tokens; asking has its own.
    let left: Vec<_> = bench.delivery.stats().forge_budgets.iter().map(|purse| purse.left).collect();
    assert!(left.len() == 2 && left.contains(&Some(4999)), "{left:?}");
}

#[tokio::test]
async fn a_slow_api_of_one_tenant_does_not_delay_another_at_the_same_branch() {
    let (desk, fixture, bench) = (Desk::open().await, ForgeFixture::github().await, bench());
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}", silent.local_addr().unwrap());
    let strategy = DeliveryStrategy::Commit { url: fixture.standin().url.clone(), branch: "main".into() };
    let slow = desk.order(&fixture, "6.1.7", &[("githubAppBaseURL", &api)]);
    let slow = Order { strategy: strategy.clone(), namespace: "slow".into(), ..slow };
    let delivery = bench.delivery.clone();
    let stuck = tokio::spawn(async move { delivery.deliver(&slow).await });
    let _connection = silent.accept().await.unwrap();
    let other = Order { strategy, ..fixture.order("6.1.8") };
    let done = tokio::time::timeout(std::time::Duration::from_secs(20), bench.delivery.deliver(&other)).await;
    assert!(matches!(done, Ok(Ok(Delivered::Committed { .. }))), "{done:?}");
    assert!(!stuck.is_finished());
    stuck.abort();
}

#[tokio::test]
async fn a_commit_is_pushed_with_the_token_of_the_app() {
    let (desk, fixture, bench) = (Desk::open().await, ForgeFixture::github().await, bench());
    let mut order = desk.order(&fixture, "6.1.8", &[]);
    let url = fixture.standin().url.clone();
    order.strategy = DeliveryStrategy::Commit { url, branch: "main".into() };
    desk.book(|book| book.lends = "taken-back");
    let error = bench.delivery.deliver(&order).await.unwrap_err();
    assert_eq!(error.reason(), "AuthenticationFailed", "{error}");
    desk.book(|book| book.lends = TOKEN);
    for _ in 0..2 {
        let done = bench.delivery.deliver(&again(&order)).await.unwrap();
        assert_eq!(done, Delivered::Committed { commit: fixture.repo().head("main").unwrap() });
    }
    assert_eq!(fixture.repo().log("main").unwrap().len(), 2);
    assert_eq!(desk.calls().len(), 4, "what was taken back is asked for again, once");
}

#[tokio::test]
async fn a_token_is_requested_again_before_its_end_and_when_it_is_rejected() {
    let (desk, fixture, bench) = (Desk::open().await, ForgeFixture::github().await, bench());
    let order = |version| desk.order(&fixture, version, &[("githubAppInstallationID", "77")]);
    desk.book(|book| book.life = SignedDuration::from_mins(9));
    let request = proposed(&bench.delivery, &order("6.1.8")).await;
    desk.book(|book| book.life = SignedDuration::from_hours(1));
    bench.delivery.follow(&order("6.1.8"), &request).await.unwrap();
    bench.delivery.follow(&order("6.1.8"), &request).await.unwrap();
    assert_eq!(desk.calls().len(), 2);

    let (desk, fixture) = (Desk::open().await, ForgeFixture::github().await);
    let order = desk.order(&fixture, "6.1.8", &[("githubAppInstallationID", "77")]);
    desk.book(|book| book.lends = "taken-back");
    let error = bench.delivery.deliver(&order).await.unwrap_err();
    assert_eq!(error.reason(), "AuthenticationFailed", "{error}");
    desk.book(|book| book.lends = TOKEN);
    proposed(&bench.delivery, &again(&order)).await;
    assert_eq!(desk.calls().len(), 2);
}

#[tokio::test]
async fn another_app_key_has_a_rate_budget_of_its_own() {
    let (desk, strangers, fixture, bench) =
        (Desk::open().await, Desk::open().await, ForgeFixture::github().await, bench());
    let order = |desk: &Desk, version| desk.order(&fixture, version, &[("githubAppInstallationID", "77")]);
    let enough = ForgeFault::Answer(429, vec![("retry-after", "3600".into())], "{}");
    fixture.standin().inject_fault(CallKind::Open, enough);
    let error = bench.delivery.deliver(&order(&strangers, "6.1.8")).await.unwrap_err();
    assert_eq!(error.reason(), "RateLimited", "{error}");
    proposed(&bench.delivery, &order(&desk, "6.1.9")).await;
}

#[tokio::test]
async fn errors_of_an_app_are_reported() {
    let (desk, fixture, bench) = (Desk::open().await, ForgeFixture::github().await, bench());
    let fails = async |order: Order| {
        let error = bench.delivery.deliver(&order).await.unwrap_err();
        (error.reason(), error.to_string())
    };
    let ec = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
    for key in ["s3cret", ec] {
        let (reason, words) = fails(desk.order(&fixture, "6.1.8", &[("githubAppPrivateKey", key)])).await;
        assert!(reason == "AppKeyInvalid" && words.contains("githubAppPrivateKey"), "{reason} {words}");
        assert!(!words.contains("s3cret"), "{words}");
    }
    let other = Desk::open().await;
    let wrong = String::from_utf8(other.key.clone()).unwrap();
    let (reason, words) = fails(desk.order(&fixture, "6.1.8", &[("githubAppPrivateKey", &wrong)])).await;
    assert!(reason == "AuthenticationFailed" && words.contains("could not be decoded"), "{reason} {words}");
    assert!(words.contains("githubAppID and githubAppPrivateKey"), "{words}");
    desk.book(|book| book.suspended = true);
    let (reason, words) = fails(desk.order(&fixture, "6.1.8", &[])).await;
    assert!(reason == "PermissionDenied" && words.contains("has been suspended"), "{reason} {words}");
    desk.book(|book| book.suspended = false);
    desk.book(|book| book.installed = false);
    for more in [&[][..], &[("githubAppInstallationID", "77")]] {
        let (reason, words) = fails(desk.order(&fixture, "6.1.8", more)).await;
        assert!(reason == "AppNotInstalled" && words.contains("12345"), "{reason} {words}");
    }
    assert!(fixture.pulls().await.is_empty());
}
