//! The confirmation of an action: a page that says what will happen. The action is made with the person's own token.

use axum::Form;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use sluice_api::Promotion;
use sluice_api::promotion::RecordedChangeRequest;
use sluice_core::access::Caller;
use sluice_view::change::{delivery, describe, without_command};

use super::answer::{problem_page, send, sentence};
use super::frame::{Page, Section, document};
use super::person::Person;
use super::planned::{self, ChangeState};
use super::{links, words};
use crate::hub::Hub;
use crate::person_action::{PersonAction, targets_of};
use crate::requested_action::{ActionPath, MAX_REASON, RequestedAction, closed_gates};
use crate::state::Api;

/// What the form of a confirmation sends.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Confirmation {
    /// The token of the session's forms.
    token: String,
    /// What the person has seen.
    seen: String,
    /// Why, for a rejection.
    reason: String,
}

pub(super) async fn confirm<H: Hub>(
    State(api): State<Api<H>>,
    Path(path): Path<ActionPath>,
    person: Person,
) -> Response {
    match RequestedAction::find(&api, &person.caller, &path).await {
        Ok(subject) => {
            let page = page(&api, &subject, &person, ("", "")).await;
            send(StatusCode::OK, document(&page, &person.viewer(api.actions), ""))
        }
        Err(problem) => problem_page(&problem, &person.viewer(api.actions)),
    }
}

pub(super) async fn carry_out<H: Hub>(
    State(api): State<Api<H>>,
    Path(path): Path<ActionPath>,
    headers: HeaderMap,
    person: Person,
    Form(form): Form<Confirmation>,
) -> Response {
    let viewer = person.viewer(api.actions);
    if let Err(problem) = person.check_form(&api, &headers, &form.token) {
        return problem_page(&problem, &viewer);
    }
    let subject = match RequestedAction::find(&api, &person.caller, &path).await {
        Ok(subject) => subject,
        Err(problem) => return problem_page(&problem, &viewer),
    };
    let again = async |status, why: &str| {
        let page = page(&api, &subject, &person, (why, &form.reason)).await;
        send(status, document(&page, &viewer, ""))
    };
    let by = (&person.caller, person.token.as_str());
    match subject.carry_out(&api, by, (&form.seen, &form.reason)).await {
        Ok(()) => Redirect::to(&address_of(&subject)).into_response(),
        Err(problem) => {
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            again(status, &problem.detail).await
        }
    }
}

/// Returns the page, with the problem and the reason of an earlier try.
async fn page<H: Hub>(
    api: &Api<H>,
    subject: &RequestedAction,
    person: &Person,
    (problem, reason): (&str, &str),
) -> Page {
    let title = title(subject);
    let content = html! {
        div.confirm {
            h1 { (title) "?" }
            (what_happens(subject))
            (what_changes(api, &person.caller, subject).await)
            @if !problem.is_empty() { p.problem role="alert" { (sentence(problem)) } }
            form method="post" {
                input type="hidden" name="token" value=(person.form_token());
                input type="hidden" name="seen" value=(subject.seen());
                @if subject.action == PersonAction::Reject {
                    label for="reason" { "Why?" }
                    textarea #reason name="reason" rows="3" required maxlength=(MAX_REASON) { (reason) }
                    p.small.quiet { "For example: the error rate in staging has doubled. Everybody who looks at the promotion reads it." }
                }
                div.do {
                    button.main { (title) }
                    a.button href=(address_of(subject)) { "Cancel" }
                }
            }
        }
    };
    Page::one(&title, Section::Other, &content)
}

/// Returns the files that the promotion changes or has changed.
async fn what_changes<H: Hub>(api: &Api<H>, caller: &Caller, subject: &RequestedAction) -> Markup {
    let Some(promotion) = &subject.promotion else { return html! {} };
    let Some(state) = ChangeState::of(promotion) else { return html! {} };
    let heading = match (subject.action, state) {
        (PersonAction::Reject, ChangeState::Ahead) => "What then does not change",
        (_, ChangeState::Ahead) => "What changes",
        (_, ChangeState::Made) => "What it changed",
        (_, ChangeState::NotMade) => "What it would have changed",
    };
    html! {
        h2 { (heading) }
        (planned::planned(api, caller, (&subject.pipeline, promotion), state).await)
    }
}

/// Returns the address of the page about it.
fn address_of(subject: &RequestedAction) -> String {
    match &subject.promotion {
        Some(promotion) => links::promotion(promotion),
        None => links::pipeline(&subject.object.namespace, &subject.object.name),
    }
}

/// Returns the verb and the object, as on the button.
fn title(subject: &RequestedAction) -> String {
    let action = subject.action.title();
    match &subject.promotion {
        Some(promotion) => {
            let spec = &promotion.spec;
            format!("{action} {} into {}", words::short(&spec.revision), spec.place())
        }
        None => format!("{action} {}", subject.object.name),
    }
}

/// Returns the change request of a promotion, if it is open.
fn open_request(promotion: &Promotion) -> Option<&RecordedChangeRequest> {
    promotion.status.as_ref()?.open_request()
}

/// Returns which change requests of a pipeline are open, if it is to be suspended.
fn open_requests(subject: &RequestedAction) -> Markup {
    html! {
        @if subject.action == PersonAction::Suspend {
            @for promotion in &subject.promotions {
                @if let Some(request) = open_request(promotion) {
                    p {
                        "Change request #" (request.number) " (" (request.url) ") for " (words::short(&promotion.spec.revision))
                        " into " (promotion.spec.place()) " stays open. People can still merge it."
                    }
                }
            }
        }
    }
}

fn what_happens(subject: &RequestedAction) -> Markup {
    let Some(promotion) = &subject.promotion else {
        let words = match subject.action {
            PersonAction::Suspend => {
                "Nothing is started, pushed, opened or merged until someone resumes it. Sluice still observes the targets."
            }
            _ => "Sluice promotes what was proven in the meantime.",
        };
        return html! { p { (words) } (open_requests(subject)) p.small.quiet { "If Flux applies this Pipeline from git, change it there: Flux sets the field back." } };
    };
    let spec = &promotion.spec;
    let status = promotion.status.clone().unwrap_or_default();
    let delivery = delivery(&subject.pipeline, promotion);
    let consequence = match (subject.action, open_request(promotion)) {
        (PersonAction::Approve, _) => {
            format!("Sluice then delivers it, as soon as all other gates are open: {delivery}.")
        }
        (PersonAction::Reject, Some(request)) => format!(
            "Sluice does not deliver this revision, and closes its change request #{}. A newer one is promoted as usual.",
            request.number
        ),
        (PersonAction::Reject, None) => {
            "Sluice does not deliver this revision. A newer one is promoted as usual.".into()
        }
        (_, Some(request)) => {
            format!("Sluice tries again now, with change request #{}: {delivery}.", request.number)
        }
        (_, None) => format!("Sluice tries the delivery again now: {delivery}."),
    };
    html! {
        p { (consequence) }
        dl.facts {
            dt { "What" } dd { (describe(promotion)) }
            dt { "Revision" } dd.mono { (spec.revision) }
            @if !spec.replaces.is_empty() { dt { "Replaces" } dd.mono { (spec.replaces) } }
            dt { "Targets" } dd { (targets_of(&subject.pipeline, promotion)) }
            dt { "Delivered by" } dd { (delivery) }
            @for gate in closed_gates(&status) { dt { "Gate" } dd { (gate.name) ": " (without_command(&gate.message, promotion)) } }
            @if let Some(request) = &status.change_request {
                dt { "Change request" } dd { "#" (request.number) " (" (request.url) "), " (request.state.as_str()) }
            }
            @if !spec.evidence.is_empty() {
                dt { "Proven by" }
                dd { @for proof in &spec.evidence { div { (proof.environment) " / " (proof.target) ", " (words::time(proof.at)) } } }
            }
        }
    }
}
