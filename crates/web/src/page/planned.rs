//! What the delivery of a promotion changes, or has changed, file by file.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use sluice_api::promotion::{Phase, RecordedRequestState};
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

/// Whether the values of a promotion are in git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeState {
    /// Not yet: the delivery is to come, or its change request is open.
    Ahead,
    /// They are delivered.
    Made,
    /// They were proposed, and the change request is closed.
    NotMade,
}

impl ChangeState {
    /// Returns the state of a promotion; `None` if it has changed no file and will change none.
    pub(super) fn of(promotion: &Promotion) -> Option<ChangeState> {
        let status = promotion.status.as_ref();
        let Some(status) = status.filter(|status| status.commit.is_some() || status.change_request.is_some())
        else {
            let phase = promotion.phase();
            // A promotion that has failed or was rejected can be tried again.
            let is_ahead = !phase.has_ended() || matches!(phase, Phase::Failed | Phase::Rejected);
            return is_ahead.then_some(ChangeState::Ahead);
        };
        match (status.open_request(), &status.change_request, &status.commit) {
            (Some(_), _, _) => Some(ChangeState::Ahead),
            (None, _, None) => None,
            (None, None, Some(_)) => Some(ChangeState::Made),
            (None, Some(request), Some(_)) if request.state == RecordedRequestState::Merged => {
                Some(ChangeState::Made)
            }
            (None, Some(_), Some(_)) if status.entered(Phase::Delivered).is_some() => Some(ChangeState::Made),
            // Another version of Sluice may mean anything by its word.
            (None, Some(request), Some(_)) if matches!(request.state, RecordedRequestState::Other(_)) => None,
            (None, Some(_), Some(_)) => Some(ChangeState::NotMade),
        }
    }

    /// Returns the words for what a promotion does to its files.
    pub(super) fn words(self) -> &'static str {
        match self {
            ChangeState::Ahead => "changes",
            ChangeState::Made => "changed",
            ChangeState::NotMade => "would have changed",
        }
    }
}

/// Returns the link to what a promotion changes in which file.
pub(super) fn link(promotion: &Promotion, class: &str) -> Markup {
    html! {
        @if let Some(state) = ChangeState::of(promotion) {
            a class=[(!class.is_empty()).then_some(class)] href={ (links::promotion(promotion)) "/change" } { "What it " (state.words()) }
        }
    }
}

/// A page about what the delivery of a promotion changes, or has changed.
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
    let Some(state) = ChangeState::of(&promotion) else {
        let why = "this promotion has changed no file: it has ended without a commit";
        return problem_page(&Problem::new(StatusCode::CONFLICT, why), &viewer);
    };
    let (spec, story) = (&promotion.spec, links::promotion(&promotion));
    let title = format!("What {} {} in {}", words::short(&spec.revision), state.words(), spec.place());
    let content = html! {
        p.crumbs { a href="/" { "Pipelines" } " / " a href=(story) { (spec.pipeline) " " (words::short(&spec.revision)) " into " (spec.place()) } }
        div.title { h1 { "What " (words::revision(&spec.revision)) " " (state.words()) " in " (spec.place()) } }
        (planned(&api, &person.caller, (&pipeline, &promotion), state).await)
    };
    send(StatusCode::OK, document(&Page::one(&title, Section::Promotions, &content), &viewer, ""))
}

/// Returns what the delivery of a promotion changes, or has changed.
pub(super) async fn planned<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    (pipeline, promotion): (&Pipeline, &Promotion),
    state: ChangeState,
) -> Markup {
    match api.hub.planned_change(caller, pipeline, promotion).await {
        Ok(Some(change)) => html! { (files(&change, state)) },
        Ok(None) => html! { p { "It changes no files: it is delivered by a message to another program." } },
        Err(why) => html! {
            p.problem { (sentence(&format!("what it {} is not known: {why}", state.words()))) }
        },
    }
}

fn files(change: &PlannedChange, state: ChangeState) -> Markup {
    let mut files: BTreeMap<&str, Vec<&PlannedValue>> = BTreeMap::new();
    for value in change.values.iter().take(MAX_SHOWN) {
        files.entry(&value.path).or_default().push(value);
    }
    let hidden = change.values.len().saturating_sub(MAX_SHOWN);
    html! {
        @if change.values.is_empty() {
            p {
                @if state == ChangeState::Ahead { "Nothing changes: every value is set already." }
                @else { "The commit sets no value that the pipeline names now." }
            }
        }
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
            @match state {
                ChangeState::Ahead => { "On branch " span.mono { (change.branch) } " of " (change.repository) ", as it is at " }
                ChangeState::Made => { "On branch " span.mono { (change.branch) } " of " (change.repository) ", by commit " }
                ChangeState::NotMade => { "Proposed for branch " span.mono { (change.branch) } " of " (change.repository) ", by commit " }
            }
            span.mono title=(change.commit) { (change.commit.chars().take(10).collect::<String>()) }
        }
    }
}
