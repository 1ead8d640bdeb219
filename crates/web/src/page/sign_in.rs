//! Signing in with a token of the hub, going on with a session whose token has ended, and signing out.

use std::time::SystemTime;

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::answer::{problem_page, send};
use super::frame::Viewer;
use super::oidc::onwards;
use super::person::{NoPerson, Person, proxy_token};
use super::sign_in_page::{ReturnPath, SignInPage, inside, link_page};
use crate::hub::Hub;
use crate::oidc::OidcError;
use crate::origin_check::{check_origin, not_from_here};
use crate::problem::Problem;
use crate::session::{MAX_TOKEN_BYTES, Tokens};
use crate::state::Api;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SignIn {
    token: String,
    to: String,
}

pub(super) async fn form<H: Hub>(
    State(api): State<Api<H>>,
    headers: HeaderMap,
    Query(back): Query<ReturnPath>,
) -> Response {
    let why = match Person::of(&api, &headers).await {
        Ok(_) => return Redirect::to(&inside(&back.to)).into_response(),
        Err(NoPerson::Refused(problem)) => problem.detail,
        Err(NoPerson::SignedOut) => {
            if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
                // The person followed a link, and the browser has not sent the session.
                return onwards(&back.again());
            }
            match renewed(&api, &headers).await {
                Ok(Some(cookie)) => {
                    return ([(SET_COOKIE, cookie)], Redirect::to(&inside(&back.to))).into_response();
                }
                Ok(None) => nobody(&api, &headers).into(),
                Err(error) => error.to_string(),
            }
        }
    };
    if api.sign_in_link.is_some() {
        return send(StatusCode::OK, link_page());
    }
    let mut page = SignInPage::new(&api, &back.to, &why);
    page.is_out = back.out;
    page.send(StatusCode::OK)
}

/// Returns the session with another token, if its token has ended and the identity provider gives another one.
async fn renewed<H: Hub>(api: &Api<H>, headers: &HeaderMap) -> Result<Option<HeaderValue>, OidcError> {
    let now = SystemTime::now();
    let session = api.sessions.of(headers, now).filter(|session| session.token_has_ended(now));
    let Some((session, provider)) = session.zip(api.provider.as_deref()) else { return Ok(None) };
    let Some(tokens) = provider.renew(&session, now).await? else { return Ok(None) };
    Ok(api.sessions.renew(&session, tokens, now))
}

/// Returns why a request has no user, if a proxy should add the user's token; empty without such a proxy.
fn nobody<H>(api: &Api<H>, headers: &HeaderMap) -> &'static str {
    if !api.trust_proxy_token {
        ""
    } else if proxy_token(api, headers).is_some() {
        "the API server does not accept the token that the proxy in front of Sluice sends: it must be an ID token of an issuer \
         that the API server trusts"
    } else {
        "the proxy in front of Sluice sent no token: open the address of the proxy, or paste a token"
    }
}

/// Signs in by a link that works once. The answer is a page that leads on, not a redirect: after a redirect from another
/// program, browsers send no cookie with SameSite=Strict.
pub(super) async fn by_link<H: Hub>(
    State(api): State<Api<H>>,
    Path(code): Path<String>,
    method: Method,
) -> Response {
    // A preview of the link asks with HEAD, and must not use it up.
    let link = api.sign_in_link.as_ref().filter(|_| method == Method::GET);
    let token = link.and_then(|link| link.redeem(&code));
    let tokens = token.map(|token| Tokens { token: token.into(), ..Tokens::default() });
    let cookie = tokens.and_then(|tokens| api.sessions.begin(tokens, SystemTime::now()));
    match cookie {
        Some(cookie) => ([(SET_COOKIE, cookie)], onwards("/")).into_response(),
        None if api.sign_in_link.is_some() => send(StatusCode::FORBIDDEN, link_page()),
        None => problem_page(&Problem::not_found("there is no such page"), &Viewer::default()),
    }
}

pub(super) async fn sign_in<H: Hub>(
    State(api): State<Api<H>>,
    headers: HeaderMap,
    Form(form): Form<SignIn>,
) -> Response {
    if let Err(problem) = check_origin(&headers, api.page_url.as_deref()) {
        return problem_page(&problem, &Viewer::default());
    }
    let token = form.token.trim();
    let refuse = |status, why: &str| SignInPage::new(&api, &form.to, why).send(status);
    if token.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "paste a token first");
    }
    if token.len() > MAX_TOKEN_BYTES {
        let why = format!("a token of more than {MAX_TOKEN_BYTES} characters does not fit into a cookie");
        return refuse(StatusCode::BAD_REQUEST, &why);
    }
    if let Err(error) = api.hub.identify(token).await {
        let problem = Problem::from(error);
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::UNAUTHORIZED);
        return refuse(status, &problem.detail);
    }
    let tokens = Tokens { token: token.into(), ..Tokens::default() };
    let Some(cookie) = api.sessions.begin(tokens, SystemTime::now()) else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the system has no random numbers: try again");
    };
    ([(SET_COOKIE, cookie)], Redirect::to(&inside(&form.to))).into_response()
}

pub(super) async fn sign_out<H: Hub>(
    State(api): State<Api<H>>,
    headers: HeaderMap,
    Form(form): Form<FormToken>,
) -> Response {
    if let Err(problem) = check_origin(&headers, api.page_url.as_deref()) {
        return problem_page(&problem, &Viewer::default());
    }
    let now = SystemTime::now();
    let session = api.sessions.of(&headers, now);
    if session.as_ref().is_some_and(|session| session.form_token != form.token) {
        return problem_page(&not_from_here(), &Viewer::default());
    }
    (api.sessions.end(session, now).map(|cookie| [(SET_COOKIE, cookie)]), Redirect::to("/sign-in?out=true"))
        .into_response()
}

/// What forms of a session send back.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct FormToken {
    token: String,
}
