//! The checks of a change request: those that block it first, each with the page that has its details.

use maud::{Markup, html};
use sluice_api::promotion::{CheckResult, RecordedChangeRequest, RecordedCheck, RecordedRequestState};
use sluice_view::request_checks::{counts, unnamed};

use super::shape::{Shape, badge};
use super::words;

/// Returns the checks of a change request; nothing if none has reported.
pub(super) fn checks(request: &RecordedChangeRequest) -> Markup {
    let Some(checks) = &request.checks else { return html! {} };
    let is_other = checks.commit != request.head_commit;
    let has_ended = request.state != RecordedRequestState::Open;
    html! {
        section {
            h2 { "Checks of #" (request.number) span.quieter { " · " (counts(checks)) } }
            ul.list {
                @for check in &checks.items { li { (name(check)) (result(check.result)) } }
                @if unnamed(checks) > 0 { li { span.quieter { "and " (unnamed(checks)) " more" } } }
            }
            p.small.quieter {
                @if has_ended { "As Sluice has read them last. " }
                "Last change " (words::time(checks.since))
                @if is_other { ", of commit " (words::revision(&checks.commit)) ", which Sluice has not pushed" }
            }
        }
    }
}

fn name(check: &RecordedCheck) -> Markup {
    let url = check.url.as_deref().filter(|url| url.starts_with("https://"));
    html! {
        span.wraps {
            @if let Some(url) = url { a href=(url) rel="noreferrer" { (check.name) } } @else { (check.name) }
            @if check.required { span.quieter { " · required" } }
        }
    }
}

fn result(result: CheckResult) -> Markup {
    match result {
        CheckResult::Failed => badge(Shape::Failed, "failed"),
        CheckResult::Pending => badge(Shape::Pending, "pending"),
        CheckResult::Passed => badge(Shape::Ready, "passed"),
    }
}
