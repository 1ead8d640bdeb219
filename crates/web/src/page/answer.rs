//! How pages are answered.

use std::borrow::Cow;

use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use maud::{Markup, html};
use sluice_core::value_check::is_unsafe;

use super::frame::{Page, Section, Viewer, document};
use crate::problem::Problem;

/// What the browser may load and do: only what this server sends, without any script in a page, and no frame around it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Returns a page that says what went wrong.
pub(super) fn problem_page(problem: &Problem, viewer: &Viewer) -> Response {
    let content = html! {
        h1 { (problem.title) }
        p.problem { (sentence(&problem.detail)) }
        p { a href="/" { "All pipelines" } }
    };
    let page = Page::one(&problem.title, Section::Other, &content);
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = send(status, document(&page, viewer, ""));
    problem.add_retry_after(response.headers_mut());
    response
}

/// Returns a text that begins with a capital letter.
pub(super) fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

/// Returns HTML without the characters that no reader sees or that reorder a text. Names in Pipelines may have any.
pub(super) fn without_unsafe(html: &str) -> Cow<'_, str> {
    let is_left_out = |c: char| is_unsafe(c) && !matches!(c, '\n' | '\t');
    if html.contains(is_left_out) { Cow::Owned(html.replace(is_left_out, "")) } else { Cow::Borrowed(html) }
}

/// Sends a document that no cache and no other site gets.
pub(super) fn send(status: StatusCode, document: Markup) -> Response {
    private((status, Html(without_unsafe(&document.into_string()).into_owned())).into_response())
}

/// Sends YAML as a file with a name that needs no quotes.
pub(super) fn send_file(name: &str, yaml: String) -> Response {
    let mut response = private(yaml.into_response());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    response
}

/// Returns an answer that no cache and no other site gets.
fn private(mut response: Response) -> Response {
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        // With no-referrer, browsers send "Origin: null" with forms (Fetch, "append a request Origin header").
        (REFERRER_POLICY, "same-origin"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
