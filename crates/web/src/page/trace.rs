//! Where something on a cluster comes from.

use maud::{Markup, html};
use sluice_core::access::Caller;
use sluice_view::fleet::trace::TraceLink;

use super::frame::{Page, Section};
use super::shape::{Shape, badge};
use super::words;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;
use crate::trace::traced;
use crate::trace_query::TraceQuery;

pub(super) async fn page<H: Hub>(api: &Api<H>, caller: &Caller, query: &TraceQuery) -> Result<Page, Problem> {
    let (cluster, object) = query.object()?;
    let trace = traced(&api.hub, caller, &api.fleet, (&cluster, &object)).await?;
    let on = if query.cluster.is_empty() { "the hub" } else { &query.cluster };
    let content = html! {
        p.crumbs { (on) " / " (query.namespace) }
        h1 { "Where " (query.name) " comes from" }
        ol.trace { @for link in &trace.links { (one(link)) } }
    };
    Ok(Page::one(&query.name, Section::Other, &content))
}

fn one(link: &TraceLink) -> Markup {
    html! {
        li.card {
            header {
                h2 { (link.object) }
                p.small.quieter { "in " (link.namespace) @if !link.of.is_empty() { " · of " (link.of) } }
                @if link.missing.is_empty() { (badge(Shape::of_health(link.health), &link.health.to_string())) }
            }
            @if !link.missing.is_empty() { p.small.quiet { "Not shown: " (link.missing) } }
            @if !link.message.is_empty() { p.small { (link.message) } }
            dl.facts {
                @for image in &link.images { dt { "Image" } dd.mono { (words::image(image)) } }
                @if link.desired.is_empty() {
                    @if !link.revision.is_empty() { dt { "Revision" } dd { (words::revision(&link.revision)) } }
                } @else {
                    dt { "Desired" } dd { (words::revision(&link.desired)) }
                    dt { "Actual" } dd.outlier[link.differs] { (actual(link)) }
                }
                @if link.has_another_offer() { dt { "Its source has" } dd.outlier { (words::revision(&link.wanted)) } }
                @if !link.content.is_empty() { dt { "Takes" } dd { (link.content) } }
                @if !link.address.is_empty() { dt { "Address" } dd.mono { (link.address) } }
                @if !link.follows.is_empty() { dt { "Follows" } dd { (link.follows) } }
                @if !link.origin.is_empty() || !link.origin_revision.is_empty() { dt { "Built from" } dd.mono { (link.origin) " " (words::revision(&link.origin_revision)) } }
                @match link.verified {
                    Some(true) => { dt { "Signature" } dd { "verified by Flux" } },
                    Some(false) => { dt { "Signature" } dd { "Flux could not verify it" } },
                    None => {},
                }
            }
        }
    }
}

/// What an object runs.
fn actual(link: &TraceLink) -> Markup {
    if link.revision.is_empty() {
        return html! { "nothing yet" };
    }
    html! { (words::revision(&link.revision)) }
}
