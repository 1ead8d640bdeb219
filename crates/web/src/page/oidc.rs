//! Signing in at the identity provider: the way there, and the way back.

use std::time::SystemTime;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{REFERRER_POLICY, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{DOCTYPE, html};
use serde::Deserialize;
use sluice_core::access::AccessError;

use super::answer::{problem_page, send};
use super::frame::Viewer;
use super::sign_in_page::{ReturnPath, SignInPage, inside};
use crate::hub::Hub;
use crate::oidc::{BegunSignIn, OidcError, Provider, error_code};
use crate::problem::Problem;
use crate::session::Tokens;
use crate::state::Api;

/// What the provider sends back
/// ([OpenID Connect Core](https://openid.net/specs/openid-connect-core-1_0.html#AuthResponse), sections 3.1.2.5 and 3.1.2.6).
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ProviderReply {
    code: Option<String>,
    state: String,
    error: Option<String>,
    iss: Option<String>,
}

/// Sends a person to the provider.
pub(super) async fn start<H: Hub>(State(api): State<Api<H>>, Query(back): Query<ReturnPath>) -> Response {
    let Some(provider) = api.provider.as_deref() else { return not_configured() };
    let flow = BegunSignIn::begin(&api.sessions, &inside(&back.to), SystemTime::now());
    let cookie = flow.as_ref().and_then(|flow| Some((flow, flow.cookie(&api.sessions)?)));
    let Some((flow, cookie)) = cookie else {
        let why = "the system has no random numbers: try again";
        return SignInPage::new(&api, &back.to, why).send(StatusCode::SERVICE_UNAVAILABLE);
    };
    match provider.sign_in_url(flow).await {
        Ok(address) => ([(SET_COOKIE, cookie)], Redirect::to(&address)).into_response(),
        // The page says why.
        Err(_) => SignInPage::new(&api, &back.to, "").send(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// Takes back a person whom the provider has signed in. Whatever happens, the sign-in cannot be continued afterwards.
pub(super) async fn callback<H: Hub>(
    State(api): State<Api<H>>,
    headers: HeaderMap,
    reply: Result<Query<ProviderReply>, QueryRejection>,
) -> Response {
    let Some(provider) = api.provider.as_deref() else { return not_configured() };
    let Query(reply) = reply.unwrap_or_default();
    let now = SystemTime::now();
    // An answer that this browser did not ask for must not sign it in, and may not end a sign-in that it did ask for.
    let flow = BegunSignIn::of(&api.sessions, &headers, now).filter(|flow| flow.state == reply.state);
    let Some(flow) = flow else {
        let why = "this sign-in was not begun in this browser, or more than ten minutes ago: sign in again";
        return SignInPage::new(&api, "", why).send(StatusCode::BAD_REQUEST);
    };
    let signed_in = match tokens(provider, &flow, &reply, now).await {
        Ok(tokens) => session(&api, provider, tokens, now).await,
        Err(error) => {
            tracing::warn!(issuer = provider.issuer(), %error, "a person cannot sign in at the identity provider");
            Err((status_of(&error), error.to_string()))
        }
    };
    let mut response = match signed_in {
        Ok(cookie) => {
            let mut response = onwards(&flow.to);
            response.headers_mut().append(SET_COOKIE, cookie);
            response
        }
        Err((status, why)) => SignInPage::new(&api, &flow.to, &why).send(status),
    };
    if let Some(forget) = BegunSignIn::forget(&api.sessions) {
        response.headers_mut().append(SET_COOKIE, forget);
    }
    response.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

async fn tokens(
    provider: &Provider,
    flow: &BegunSignIn,
    reply: &ProviderReply,
    now: SystemTime,
) -> Result<Tokens, OidcError> {
    match (&reply.code, &reply.error) {
        (Some(code), None) => provider.exchange(flow, code, reply.iss.as_deref(), now).await,
        (_, Some(error)) => Err(OidcError::Refused(error_code(error))),
        (None, None) => Err(OidcError::Refused(error_code(""))),
    }
}

/// Returns the session of somebody whose ID token the hub accepts.
async fn session<H: Hub>(
    api: &Api<H>,
    provider: &Provider,
    tokens: Tokens,
    now: SystemTime,
) -> Result<HeaderValue, (StatusCode, String)> {
    api.hub.identify(&tokens.token).await.map_err(|error| match error {
        AccessError::NotAccepted => {
            tracing::warn!(issuer = provider.issuer(), "the API server does not accept the ID tokens of the identity provider");
            let why = format!(
                "you have signed in, but the hub's API server does not accept the ID token: it must trust the issuer {} for \
                 the client {}",
                provider.issuer(),
                provider.client_id()
            );
            (StatusCode::FORBIDDEN, why)
        }
        AccessError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    })?;
    let no_cookie =
        || (StatusCode::SERVICE_UNAVAILABLE, "the system has no random numbers: try again".into());
    api.sessions.begin(tokens, now).ok_or_else(no_cookie)
}

fn status_of(error: &OidcError) -> StatusCode {
    match error {
        OidcError::NoAnswer(_) | OidcError::Discovery(_) => StatusCode::BAD_GATEWAY,
        OidcError::Busy => StatusCode::SERVICE_UNAVAILABLE,
        OidcError::Refused(_) | OidcError::IdToken(_) | OidcError::TooLong(_) => StatusCode::FORBIDDEN,
    }
}

fn not_configured() -> Response {
    let why = "no identity provider is set up here: start the controller with --oidc-issuer";
    problem_page(&Problem::not_found(why), &Viewer::default())
}

/// Returns a page that leads to another page of this server. Unlike after a redirect, the browser then sends the session:
/// it sends no `Strict` cookie as long as a navigation comes from another site, over all redirects
/// ([RFC 6265bis](https://httpwg.org/http-extensions/draft-ietf-httpbis-rfc6265bis.html), section 5.2).
pub(super) fn onwards(to: &str) -> Response {
    send(
        StatusCode::OK,
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="refresh" content={ "0; url=" (to) };
                    title { "Sluice" }
                    link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                }
                body { p { a href=(to) { "Continue" } } }
            }
        },
    )
}
