//! The page on which people sign in.

use axum::http::{StatusCode, Uri};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::answer::{send, sentence};
use super::frame::{Page, Section, Viewer, document};
use super::links::{sign_in_to, without_tokens};
use super::route::View;
use crate::oidc::Provider;
use crate::person_action::PersonAction;
use crate::state::Api;

/// Where to go after the sign-in, and whether the person has just signed out.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ReturnPath {
    pub to: String,
    pub out: bool,
}

impl ReturnPath {
    /// Returns the address of the sign-in that leads to the same page.
    pub(super) fn again(&self) -> String {
        sign_in_to("/sign-in", &inside(&self.to))
    }
}

/// The page on which people sign in.
pub(super) struct SignInPage<'a> {
    /// Where to go afterwards.
    to: &'a str,
    /// What went wrong; empty for nothing.
    problem: &'a str,
    provider: Option<&'a Provider>,
    /// Whether the person has just signed out.
    pub is_out: bool,
    /// Whether a proxy signs people in.
    has_proxy: bool,
    /// Whether people can change something.
    may_change: bool,
}

impl<'a> SignInPage<'a> {
    pub(super) fn new<H>(api: &'a Api<H>, to: &'a str, problem: &'a str) -> SignInPage<'a> {
        let (provider, has_proxy) = (api.provider.as_deref(), api.trust_proxy_token);
        SignInPage { to, problem, provider, is_out: false, has_proxy, may_change: api.actions }
    }

    pub(super) fn send(&self, status: StatusCode) -> Response {
        let content = self.content();
        send(status, document(&Page::one("Sign in", Section::Other, &content), &Viewer::default(), ""))
    }

    fn content(&self) -> Markup {
        html! {
            div.sign-in {
                h1 { "Sign in to Sluice" }
                p.quiet { "You see what your rights on the hub allow, and what you do here is done in your name." }
                @if self.is_out { p role="status" { "You are signed out here." } }
                @if !self.problem.is_empty() { p.problem role="alert" { (sentence(self.problem)) } }
                @if let Some(provider) = self.provider { (self.at_provider(provider)) }
                (self.with_token())
                p.small.quiet {
                    @if self.provider.is_none() && !self.has_proxy {
                        "No identity provider and no proxy signs people in here. "
                    }
                    @if !self.may_change { "Nothing can be changed here: the controller runs without --api-actions." }
                }
            }
        }
    }

    fn at_provider(&self, provider: &Provider) -> Markup {
        let failure = provider.failure();
        let address = sign_in_to("/sign-in/oidc", self.to);
        html! {
            @if let Some(failure) = &failure {
                p.problem role="alert" {
                    (sentence(&failure.to_string())) ". Sluice asks it again soon. Until then, sign in with a token of the hub."
                }
            }
            div.do { a.button.main[failure.is_none()] href=(address) { "Sign in at " (provider.name()) } }
            @if self.is_out {
                @if let Some(address) = provider.sign_out_url() {
                    p { a href=(address) { "Sign out at " (provider.name()) " too" } }
                }
            }
        }
    }

    fn with_token(&self) -> Markup {
        let is_only = self.provider.is_none();
        html! {
            form method="post" action="/sign-in" {
                input type="hidden" name="to" value=(self.to);
                label for="token" { @if is_only { "Token of the hub" } @else { "Or with a token of the hub" } }
                textarea #token name="token" rows="4" required autocomplete="off" spellcheck="false"
                    aria-invalid=[(!self.problem.is_empty()).then_some("true")] aria-describedby="example" {}
                p #example.small.quiet {
                    "For example the output of " code { "kubectl create token jane -n apps" } "."
                }
                button.main[is_only] { @if is_only { "Sign in" } @else { "Sign in with a token" } }
            }
        }
    }
}

/// Returns the page for a server whose only user signs in by a link.
pub(super) fn link_page() -> Markup {
    let content = html! {
        div.sign-in {
            h1 { "Sign in to Sluice" }
            p { "Open the link that " code { "sluice web" } " printed. It works once." }
            p.quiet { "For another link, stop " code { "sluice web" } " and start it again." }
        }
    };
    document(&Page::one("Sign in", Section::Other, &content), &Viewer::default(), "")
}

/// Returns an address of this server; that of the start page for anything else.
pub(super) fn inside(to: &str) -> String {
    let is_page = |uri: &Uri| View::parse(uri).is_ok() || is_form(uri);
    let known = to.parse::<Uri>().ok().filter(|uri| uri.authority().is_none() && is_page(uri));
    let path = known.as_ref().and_then(|uri| uri.path_and_query()).map(|path| path.as_str());
    // Browsers take "//host" and "/\host" for another server.
    let is_path = |path: &&str| !path.starts_with("//") && !path.contains('\\');
    without_tokens(path.filter(is_path).unwrap_or("/"))
}

/// Returns whether this is the address of the form for a pipeline, or of a page that asks for an action or shows what it
/// changes.
fn is_form(uri: &Uri) -> bool {
    let path: Vec<&str> = uri.path().split('/').skip(1).collect();
    match path.as_slice() {
        ["promotions", _, _, "change"] | ["pipelines", _, _, "edit"] | ["pipelines", "new"] => true,
        [kind, _, _, action] => PersonAction::named(kind, action).is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_leads_to_pages_of_this_server_only() {
        for to in [
            "/pipelines/apps/podinfo",
            "/?of=person",
            "/charts?q=a",
            "/promotions/a/b/approve",
            "/promotions/a/b/change",
            "/pipelines/a/b/edit",
            "/pipelines/new?namespace=apps",
        ] {
            assert_eq!(inside(to), to);
        }
        for to in [
            "",
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "/sign-in",
            "/sign-in/oidc",
            "/sign-out",
            "/promotions/a/b/evil",
            "javascript:alert(1)",
            "/%0d%0aset-cookie:a=b",
            "evil.example",
            "/pipelines/../../evil",
        ] {
            assert_eq!(inside(to), "/", "{to}");
        }
        assert_eq!(inside("/?token=a&of=person&access_token=b"), "/?of=person");
        assert_eq!(inside("/charts?id_token=a"), "/charts");
    }
}
