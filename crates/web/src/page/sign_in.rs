//! Signing in with a token of the hub, and signing out.

use std::time::SystemTime;

use axum::Form;
use axum::extract::{Query, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::answer::{problem_page, send, sentence};
use super::frame::{Page, Section, Viewer, document};
use super::person::{NoPerson, Person, proxy_token};
use super::view::View;
use crate::hub::Hub;
use crate::origin_check::{check_origin, not_from_here};
use crate::problem::Problem;
use crate::session::{MAX_TOKEN_BYTES, Tokens};
use crate::state::Api;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ReturnPath {
    to: String,
}

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
        Err(NoPerson::SignedOut) if !api.trust_proxy_token => String::new(),
        Err(NoPerson::SignedOut) if proxy_token(&api, &headers).is_some() => {
            "the API server does not accept the token that the proxy in front of Sluice sends: it must be an ID token of an \
             issuer that the API server trusts"
                .into()
        }
        Err(NoPerson::SignedOut) => {
            "the proxy in front of Sluice sent no token: open the address of the proxy, or paste a token".into()
        }
    };
    send(StatusCode::OK, page(&back.to, &why))
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
    let refuse = |status, why: &str| send(status, page(&form.to, why));
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
    let session = api.sessions.of(&headers, SystemTime::now());
    if session.is_some_and(|session| session.form_token != form.token) {
        return problem_page(&not_from_here(), &Viewer::default());
    }
    (api.sessions.end().map(|cookie| [(SET_COOKIE, cookie)]), Redirect::to("/sign-in")).into_response()
}

/// What forms of a session send back.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct FormToken {
    token: String,
}

/// Returns an address of this server; that of the start page for anything else.
fn inside(to: &str) -> String {
    let known = to.parse::<Uri>().ok().filter(|uri| uri.authority().is_none() && View::parse(uri).is_ok());
    let path = known.as_ref().and_then(|uri| uri.path_and_query()).map(|path| path.as_str());
    // Browsers take "//host" and "/\host" for another server.
    let is_path = |path: &&str| !path.starts_with("//") && !path.contains('\\');
    path.filter(is_path).unwrap_or("/").into()
}

fn page(to: &str, problem: &str) -> Markup {
    let content = html! {
        div.sign-in {
            h1 { "Sign in to Sluice" }
            p.quiet { "You see what your token may see on the hub, and what you do here is done in your name." }
            form method="post" action="/sign-in" {
                input type="hidden" name="to" value=(to);
                label for="token" { "Token of the hub" }
                textarea #token name="token" rows="4" required autocomplete="off" spellcheck="false"
                    aria-invalid=[(!problem.is_empty()).then_some("true")] aria-describedby="example" {}
                p #example.small.quiet {
                    "For example the output of " code { "kubectl create token jane -n apps" } "."
                }
                @if !problem.is_empty() { p.problem role="alert" { (sentence(problem)) } }
                button.main { "Sign in" }
            }
        }
    };
    document(&Page::one("Sign in", Section::Other, &content), &Viewer::default(), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_leads_to_pages_of_this_server_only() {
        for to in ["/pipelines/apps/podinfo", "/?of=person", "/charts?q=a"] {
            assert_eq!(inside(to), to);
        }
        for to in [
            "",
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "/sign-in",
            "javascript:alert(1)",
            "/%0d%0aset-cookie:a=b",
            "evil.example",
            "/pipelines/../../evil",
        ] {
            assert_eq!(inside(to), "/", "{to}");
        }
    }
}
