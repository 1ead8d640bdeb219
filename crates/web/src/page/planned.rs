//! What the delivery of a promotion would change, file by file.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion};
use sluice_core::access::Caller;
use sluice_core::planned_change::{PlannedChange, PlannedValue};
use sluice_view::object_name::ObjectName;

use super::answer::{problem_page, send, sentence};
use super::frame::{Page, Section, document};
use super::person::Person;
use super::{links, words};
use crate::find::find_promotion;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;

/// How many values are shown.
const MAX_SHOWN: usize = 200;

/// Whether the delivery of a promotion is still to come.
pub(super) fn is_ahead(promotion: &Promotion) -> bool {
    let status = promotion.status.clone().unwrap_or_default();
    let may_deliver = !status.phase.has_ended() || status.phase == Phase::Failed;
    may_deliver && status.commit.is_none() && status.change_request.is_none()
}

/// A page about what the delivery of a promotion would change.
pub(super) async fn page<H: Hub>(
    State(api): State<Api<H>>,
    Path((namespace, name)): Path<(String, String)>,
    person: Person,
) -> Response {
    let viewer = person.viewer(api.actions);
    let (pipeline, promotion) =
        match find_promotion(&api, &person.caller, &ObjectName { namespace, name }).await {
            Ok(found) => found,
            Err(problem) => return problem_page(&problem, &viewer),
        };
    if !is_ahead(&promotion) {
        let why =
            "nothing is ahead: this promotion is delivered, or has ended. Its page says what it changed";
        return problem_page(&Problem::new(StatusCode::CONFLICT, why), &viewer);
    }
    let (spec, story) = (&promotion.spec, links::promotion(&promotion));
    let title = format!("What {} changes in {}", words::short(&spec.revision), spec.place());
    let content = html! {
        p.crumbs { a href="/" { "Pipelines" } " / " a href=(story) { (spec.pipeline) " " (words::short(&spec.revision)) " into " (spec.place()) } }
        div.title { h1 { "What " (words::revision(&spec.revision)) " changes in " (spec.place()) } }
        (planned(&api, &person.caller, &pipeline, &promotion).await)
    };
    send(StatusCode::OK, document(&Page::one(&title, Section::Promotions, &content), &viewer, ""))
}

/// Returns what the delivery of a promotion would change.
pub(super) async fn planned<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    pipeline: &Pipeline,
    promotion: &Promotion,
) -> Markup {
    match api.hub.planned_change(caller, pipeline, promotion).await {
        Ok(Some(change)) => html! { (files(&change)) },
        Ok(None) => html! { p { "It changes no files: it is delivered by a message to another program." } },
        Err(why) => html! {
            p.problem { (sentence(&format!("what it changes is not known: {why}"))) }
        },
    }
}

fn files(change: &PlannedChange) -> Markup {
    let mut files: BTreeMap<&str, Vec<&PlannedValue>> = BTreeMap::new();
    for value in change.values.iter().take(MAX_SHOWN) {
        files.entry(&value.path).or_default().push(value);
    }
    let hidden = change.values.len().saturating_sub(MAX_SHOWN);
    html! {
        @if change.values.is_empty() { p { "Nothing changes: every value is set already." } }
        @for (path, values) in files {
            figure.diff {
                figcaption.mono { bdi { (path) } }
                ul {
                    @for value in values {
                        li {
                            span.small.quiet { "line " (value.line) }
                            span.mono {
                                @if let Some(old) = &value.old { del { bdi { (old) } } }
                                @else { del.small.quiet title="Sluice shows only values that are revisions of this pipeline" { "another value" } }
                                " → " ins { bdi { (value.new) } }
                            }
                        }
                    }
                }
            }
        }
        @if hidden > 0 { p { "And " (hidden) " more values." } }
        p.small.quiet {
            "On branch " span.mono { (change.branch) } " of " (change.repository) ", as it is at "
            span.mono title=(change.commit) { (change.commit.chars().take(10).collect::<String>()) }
        }
    }
}
