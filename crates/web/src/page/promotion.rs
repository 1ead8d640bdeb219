//! One promotion: its whole story, at an address that stays.

use maud::{Markup, html};
use sluice_api::promotion::{Phase, PromotionStatus, RecordedChangeRequest};
use sluice_api::{Pipeline, Promotion};
use sluice_core::access::Caller;
use sluice_view::change::{delivery, without_command};
use sluice_view::explain::with_short_checksums;
use sluice_view::object_name::ObjectName;
use sluice_view::story::{after_success, left_out, story};

use super::action_buttons::{buttons, may_not};
use super::answer::sentence;
use super::frame::{Group, Page, Part, Section};
use super::shape::{Shape, badge, icon};
use super::{links, planned, request_checks, words};
use crate::find::find_promotion;
use crate::hub::Hub;
use crate::person_action::targets_of;
use crate::problem::Problem;
use crate::rights::MissingRights;
use crate::state::Api;

pub(super) async fn page<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    object: &ObjectName,
) -> Result<Page, Problem> {
    let (pipeline, promotion) = find_promotion(api, caller, object).await?;
    let mut rights = MissingRights::default();
    if api.actions {
        rights.ask_promotion(&api.hub, caller, &promotion).await?;
    }
    let status = promotion.status.clone().unwrap_or_default();
    let title = format!("{} into {}", words::short(&promotion.spec.revision), promotion.spec.place());
    let parts = vec![
        Part::new("head", &head(&promotion, &status)),
        Part::new("answers", &answer(&pipeline, &promotion, &status, api.actions.then_some(&rights))),
    ];
    let evidence = vec![
        Part::new("story", &what_happened(&promotion)),
        Part::new("facts", &facts(&pipeline, &promotion, &status)),
    ];
    let groups = vec![Group::new("", parts), Group::new("cols", evidence)];
    Ok(Page { title, section: Section::Promotions, groups })
}

fn head(promotion: &Promotion, status: &PromotionStatus) -> Markup {
    let namespace = promotion.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &promotion.spec;
    html! {
        (words::way_to_pipeline(namespace, &spec.pipeline))
        div.title {
            h1 { (words::revision(&spec.revision)) " into " (spec.place()) }
            (badge(Shape::of_phase(status.phase), &status.phase.to_string()))
        }
        p.quiet.parts {
            @if !spec.replaces.is_empty() { span { "In place of " (words::revision(&spec.replaces)) } }
            @if let Some(request) = &status.change_request { span { "Change request " (request_link(request)) } }
            // The answer has a button for it.
            @if !has_answer(status) { (planned::link(promotion, "")) }
        }
    }
}

/// Whether there is more to say first than the phase.
fn has_answer(status: &PromotionStatus) -> bool {
    !status.message.is_empty() || !status.phase.has_ended()
}

fn answer(
    pipeline: &Pipeline,
    promotion: &Promotion,
    status: &PromotionStatus,
    rights: Option<&MissingRights>,
) -> Markup {
    let shape = Shape::of_phase(status.phase);
    // The message says it as of the time of the success.
    let message = after_success(pipeline, promotion).unwrap_or_else(|| status.message.clone());
    let message = with_short_checksums(without_command(&message, promotion));
    // The name of an environment is not a word.
    let message = match message.starts_with(&promotion.spec.place()) {
        true => message,
        false => sentence(&message),
    };
    html! {
        @if has_answer(status) {
            section class={ "answer " (shape.name()) "-answer" } {
                div {
                    p.why {
                        @if status.message.is_empty() { (status.phase.to_string()) }
                        @else { (message) }
                    }
                    @if let Some(next) = status.next_attempt { p.small.quiet { "The next attempt is " (words::time(next)) } }
                    @if status.attempts > 0 { p.small.quiet { (status.attempts) " failed attempts" } }
                    @if let Some(rights) = rights { (may_not(rights, promotion, pipeline)) }
                }
                div.do {
                    @if let Some(rights) = rights { (buttons(rights, promotion, pipeline)) }
                    (planned::link(promotion, "button"))
                }
            }
        }
    }
}

/// Returns the shape of what happened: that of the phase that the promotion got into, if any.
fn shape_of(phase: Option<Phase>) -> Markup {
    match phase {
        // The story has this phase only if the delivery failed.
        Some(phase @ Phase::Promoting) => icon(Shape::Failed, &phase.to_string()),
        Some(phase) => icon(Shape::of_phase(phase), &phase.to_string()),
        None => html! { span.dot {} },
    }
}

fn what_happened(promotion: &Promotion) -> Markup {
    html! {
        section {
            h2 { "What happened" }
            ol.timeline {
                @for event in &story(promotion) {
                    li.earlier[event.is_earlier] { (words::time(event.at)) (shape_of(event.phase)) div {
                        (with_short_checksums(without_command(&event.what, promotion)))
                        @if event.is_earlier { div.small.quieter { "In an earlier try" } }
                    } }
                }
            }
            @if let Some(note) = left_out(promotion) { p.small.quiet { (note) } }
        }
    }
}

fn facts(pipeline: &Pipeline, promotion: &Promotion, status: &PromotionStatus) -> Markup {
    let spec = &promotion.spec;
    html! {
        @if !status.gates.is_empty() {
            section {
                h2 { "Gates" }
                ul.list {
                    @for gate in &status.gates {
                        li {
                            span { (gate.name) }
                            (badge(if gate.open { Shape::Ready } else { Shape::Pending }, if gate.open { "open" } else { "closed" }))
                            @if !gate.message.is_empty() { span.sub { (without_command(&gate.message, promotion)) } }
                        }
                    }
                }
            }
        }
        @if let Some(request) = &status.change_request { (request_checks::checks(request)) }
        section {
            h2 { "What is delivered" }
            dl.facts {
                dt { "Pipeline" } dd { a href=(links::pipeline(promotion.metadata.namespace.as_deref().unwrap_or_default(), &spec.pipeline)) { (spec.pipeline) } }
                @for (facet, value) in &spec.facets { dt { (facet.to_string()) } dd.mono { (value) } }
                dt { "Delivered by" } dd { (delivery(pipeline, promotion)) }
                dt { "Targets" } dd { (targets_of(pipeline, promotion)) }
                @if let Some(request) = &status.change_request { (change_request(request)) }
                @if let Some(commit) = &status.commit { dt { "Commit" } dd.mono { (commit) } }
                dt { "Record" } dd.mono { (promotion.metadata.name.as_deref().unwrap_or_default()) }
            }
        }
        @if !spec.evidence.is_empty() {
            section {
                h2 { "Proven by" }
                ul.list {
                    @for proof in &spec.evidence {
                        li {
                            span { (proof.environment) " / " (proof.target) }
                            (icon(Shape::Ready, "ran it healthily"))
                            span.sub { "ran it healthily " (words::time(proof.at)) }
                        }
                    }
                }
            }
        }
    }
}

fn change_request(request: &RecordedChangeRequest) -> Markup {
    html! {
        dt { "Change request" }
        dd {
            (request_link(request)) " " (request.state.as_str()) ", branch " span.mono { (request.branch) }
            @for note in &request.notes { div.small.quiet { (note) } }
        }
    }
}

/// Returns the number of a change request, as a link if a browser opens its address as a page: it comes from a forge.
fn request_link(request: &RecordedChangeRequest) -> Markup {
    html! {
        @if words::is_link(&request.url) { a href=(request.url) rel="noreferrer" { "#" (request.number) } } @else { "#" (request.number) }
    }
}
