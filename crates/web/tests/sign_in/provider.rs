//! An identity provider without a network, which does what it is told: also what a broken or hostile one does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sluice_web::{OidcOptions, ProviderAnswer, ProviderHttp, ProviderRequest};

pub const ISSUER: &str = "https://id.example.com/realm";
pub const CLIENT: &str = "sluice";
pub const SECRET: &str = "s3cret/+";
const TOKEN_ENDPOINT: &str = "https://id.example.com/token";

/// An identity provider.
#[derive(Clone, Default)]
pub struct Provider(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The sign-ins by their codes.
    codes: HashMap<String, HashMap<String, String>>,
    /// The people by their refresh tokens.
    refresh_tokens: HashMap<String, String>,
    next: usize,
    requests: Vec<ProviderRequest>,
    /// What is answered instead, by the end of the address.
    instead: HashMap<String, Result<ProviderAnswer, String>>,
    /// Fields of the discovery document and claims of ID tokens that differ.
    document: Vec<(String, Value)>,
    claims: Vec<(String, Value)>,
}

impl Provider {
    pub fn options(&self) -> OidcOptions {
        OidcOptions {
            issuer: ISSUER.into(),
            client_id: CLIENT.into(),
            client_secret: Some(SECRET.into()),
            scopes: None,
            http: Arc::new(self.clone()),
        }
    }

    /// Answers this to requests for addresses with this end.
    pub fn answer(&self, end: &str, answer: Result<(u16, &str), &str>) {
        let answer = answer.map(|(status, body)| ProviderAnswer { status, body: body.into() });
        self.0.lock().unwrap().instead.insert(end.into(), answer.map_err(str::to_string));
    }

    /// Answers as usual again.
    pub fn recover(&self) {
        self.0.lock().unwrap().instead.clear();
    }

    /// Puts this into the discovery document.
    pub fn document(&self, name: &str, value: Value) {
        self.0.lock().unwrap().document.push((name.into(), value));
    }

    /// Puts only these claims into ID tokens, besides the usual ones.
    pub fn claims(&self, claims: &[(&str, Value)]) {
        let claims = claims.iter().map(|(name, value)| (name.to_string(), value.clone()));
        self.0.lock().unwrap().claims = claims.collect();
    }

    /// How often the provider was asked.
    pub fn asked(&self, end: &str) -> usize {
        self.0.lock().unwrap().requests.iter().filter(|request| request.url.ends_with(end)).count()
    }

    /// A person signs in at the address to which the browser was sent. Returns the way back: its path and query.
    pub fn sign_in(&self, address: &str, email: &str) -> String {
        let (page, query) = address.split_once('?').unwrap();
        assert_eq!(page, "https://id.example.com/auth");
        let mut asked = fields(query);
        assert_eq!(asked["response_type"], "code");
        assert_eq!(asked["client_id"], CLIENT);
        assert_eq!(asked["code_challenge_method"], "S256");
        assert_eq!(asked["scope"], "openid email offline_access");
        let redirect = asked["redirect_uri"].clone();
        let path = redirect.split_once("://").unwrap().1.split_once('/').unwrap().1;
        asked.insert("email".into(), email.into());
        let mut state = self.0.lock().unwrap();
        state.next += 1;
        let code = format!("code{}", state.next);
        let back = format!("/{path}?code={code}&state={}", asked["state"]);
        state.codes.insert(code, asked);
        back
    }
}

impl ProviderHttp for Provider {
    fn send(&self, request: ProviderRequest) -> BoxFuture<'_, Result<ProviderAnswer, String>> {
        let mut state = self.0.lock().unwrap();
        state.requests.push(request.clone());
        let instead = state.instead.iter().find(|(end, _)| request.url.ends_with(*end));
        let answer = match instead {
            Some((_, answer)) => answer.clone(),
            None if request.form.is_none() => Ok(state.describe(&request.url)),
            None => Ok(state.exchange(&request)),
        };
        Box::pin(async { answer })
    }
}

impl State {
    fn describe(&self, url: &str) -> ProviderAnswer {
        assert_eq!(url, format!("{ISSUER}/.well-known/openid-configuration"));
        let mut document = json!({
            "issuer": ISSUER, "authorization_endpoint": "https://id.example.com/auth",
            "token_endpoint": TOKEN_ENDPOINT, "end_session_endpoint": "https://id.example.com/out",
            "scopes_supported": ["openid", "email", "offline_access"],
        });
        for (name, value) in &self.document {
            document[name] = value.clone();
        }
        ProviderAnswer { status: 200, body: document.to_string().into() }
    }

    fn exchange(&mut self, request: &ProviderRequest) -> ProviderAnswer {
        assert_eq!(request.url, TOKEN_ENDPOINT);
        let refused = |code: &str| ProviderAnswer {
            status: 400,
            body: json!({"error": code, "error_description": "code1 s3cret"}).to_string().into(),
        };
        let client = format!("Basic {}", STANDARD.encode("sluice:s3cret/%2B"));
        if request.authorization != client {
            return refused("invalid_client");
        }
        let asked = fields(request.form.as_deref().unwrap());
        let (email, nonce) = match asked["grant_type"].as_str() {
            "authorization_code" => {
                let Some(begun) = self.codes.remove(&asked["code"]) else { return refused("invalid_grant") };
                let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&asked["code_verifier"]));
                if challenge != begun["code_challenge"] || asked["redirect_uri"] != begun["redirect_uri"] {
                    return refused("invalid_grant");
                }
                (begun["email"].clone(), json!(begun["nonce"]))
            }
            _ => match self.refresh_tokens.remove(&asked["refresh_token"]) {
                Some(email) => (email, Value::Null),
                None => return refused("invalid_grant"),
            },
        };
        self.next += 1;
        let refresh_token = format!("refresh{}", self.next);
        self.refresh_tokens.insert(refresh_token.clone(), email.clone());
        let id_token = self.id_token(&email, nonce);
        let answer = json!({"id_token": id_token, "refresh_token": refresh_token, "token_type": "Bearer"});
        ProviderAnswer { status: 200, body: answer.to_string().into() }
    }

    fn id_token(&self, email: &str, nonce: Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims =
            json!({"iss": ISSUER, "sub": email, "aud": CLIENT, "email": email, "exp": now + 3600});
        if !nonce.is_null() {
            claims["nonce"] = nonce;
        }
        for (name, value) in &self.claims {
            claims[name] = value.clone();
        }
        // The hub of the tests takes this for a signature.
        format!("e30.{}.signed", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }
}

/// Returns the fields of a query or a form.
fn fields(query: &str) -> HashMap<String, String> {
    let value = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            });
        }
        String::from_utf8(bytes).unwrap()
    };
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, text)| (name.into(), value(text))).collect()
}
