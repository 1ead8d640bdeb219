//! What starts a pipeline, by the environments that it begins with.

use maud::{Markup, html};
use sluice_core::access::Caller;
use sluice_view::object_name::ObjectName;
use sluice_view::triggers::TriggerView;

use super::answer::sentence;
use super::frame::{Group, Page, Part, Section};
use super::shape::{Shape, icon};
use super::words;
use crate::find::find_pipeline;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;
use crate::triggers::triggers_of;

pub(super) async fn page<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    object: &ObjectName,
) -> Result<Page, Problem> {
    let shown = find_pipeline(api, caller, object).await?;
    let found = triggers_of(api, caller, &shown).await?;
    let head = html! {
        (words::way_to_pipeline(&object.namespace, &object.name))
        h1 { "What starts it" }
        p.quiet { "A promotion starts when an environment runs a new revision. This is what brings one, and what makes Sluice look." }
        @for why in &found.unread {
            p.small.quiet { (icon(Shape::Unknown, "not complete")) " Not complete: " (why) }
        }
    };
    let parts = vec![Part::new("head", &head), Part::new("list", &list(&found.items))];
    let title = format!("What starts {}", object.name);
    Ok(Page { title, section: Section::Pipelines, groups: vec![Group::new("", parts)] })
}

fn list(found: &[TriggerView]) -> Markup {
    html! {
        @if found.is_empty() {
            p.empty { "Nothing that starts it is known: the environments that it begins with have no target." }
        }
        @for of_environment in found.chunk_by(|a, b| a.environment == b.environment) {
            section.starts {
                h2 { (of_environment[0].environment) }
                ul.list { @for trigger in of_environment { (one(trigger)) } }
            }
        }
    }
}

fn one(trigger: &TriggerView) -> Markup {
    html! {
        li {
            span.wraps {
                @if !trigger.problem.is_empty() { (icon(Shape::Failed, "does not work")) " " }
                (trigger.what)
                @if !trigger.cluster.is_empty() { span.quieter { " on " (trigger.cluster) } }
            }
            @if let Some(last) = trigger.last { span.small.quieter { "last " (words::time(last)) } }
            span.sub { (sentence(&trigger.how)) }
            @if !trigger.problem.is_empty() { span.sub.why { (sentence(&trigger.problem)) } }
        }
    }
}
